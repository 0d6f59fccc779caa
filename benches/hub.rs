//! Compares a download over loopback, hashed and put into the cache, with `curl`, which only writes
//! the same bytes to the same disk.
//!
//! One hub in memory serves both. The runs alternate. curl's time is the lower bound, because every
//! download has to move the bytes through a socket and to the disk. Nothing is asserted; the output
//! reports whether the target is met. `LLB_ROUNDS` is the number of rounds.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/mod.rs"]
mod measure;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use llb::hub::{Environment, fetch};
use measure::{Figures, heading, row, target, timed};
use serde_json::json;
use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const MB: f64 = 1e6;

fn main() {
    let Some(path) = measure::model_path() else { return };
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: curl is not installed");
        return;
    }
    let rounds = measure::number("LLB_ROUNDS", 5);
    let bytes = Arc::new(std::fs::read(&path).expect("the model can be read"));
    let megabytes = bytes.len() as f64 / MB;
    let (hashing, hash) = timed(|| {
        Sha256::digest(&*bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    });
    let address = serve(Arc::clone(&bytes), &hash);
    println!(
        "llb_model_fetch against curl: {rounds} rounds, {}, {megabytes:.0} MB over loopback",
        measure::file_name(&path)
    );
    let folder = tempfile::tempdir().expect("a folder for the downloads");
    let (mut ours, mut curls) = (Figures::default(), Figures::default());
    for round in 0..rounds {
        for ours_now in if round % 2 == 0 { [true, false] } else { [false, true] } {
            let destination = folder.path().join("destination");
            std::fs::create_dir(&destination).expect("a new folder");
            let took = if ours_now {
                by_llb(&address, &destination)
            } else {
                by_curl(&address, &destination)
            };
            std::fs::remove_dir_all(&destination).expect("it can be removed");
            if ours_now { &mut ours } else { &mut curls }.push(megabytes / took);
        }
    }
    heading("throughput, MB/s");
    row("llb_model_fetch, with hash", &ours);
    row("curl, without hash", &curls);
    println!("{:<42} {:>10.1}", "SHA-256 alone, one thread", megabytes / hashing.as_secs_f64());
    let ratio = ours.over(&curls);
    row("llb over curl", &ratio);
    target("at least 0.8 of curl", ratio.median() >= 0.8);
}

/// The time of a fetch by llb, in seconds.
fn by_llb(address: &str, destination: &Path) -> f64 {
    let endpoint = format!("http://{address}");
    let destination = destination.to_str().expect("temporary paths are UTF-8");
    let environment = Environment::of(&[("HF_ENDPOINT", &endpoint), ("HF_HOME", destination)]);
    timed(|| fetch(r#"{"id": "o/n"}"#, &environment, &mut |_| {}).expect("the fetch succeeds"))
        .0
        .as_secs_f64()
}

/// The time of a download by curl, in seconds.
fn by_curl(address: &str, destination: &Path) -> f64 {
    let mut curl = Command::new("curl");
    curl.args(["-s", "--noproxy", "*", "-o"])
        .arg(destination.join("file"))
        .arg(format!("http://{address}/blob"));
    let (took, status) = timed(|| curl.status().expect("curl runs"));
    assert!(status.success(), "curl: {status}");
    took.as_secs_f64()
}

/// Serves one model and returns the hub's address.
fn serve(bytes: Arc<Vec<u8>>, hash: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let file = json!({ "rfilename": "m.gguf", "lfs": { "sha256": hash, "size": bytes.len() } });
    let listing = json!({ "sha": COMMIT, "siblings": [file] }).to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let (bytes, listing) = (Arc::clone(&bytes), listing.clone());
            // The client closes the connection once it has enough.
            std::thread::spawn(move || drop(reply(connection, &bytes, &listing)));
        }
    });
    address
}

fn reply(mut connection: TcpStream, bytes: &[u8], listing: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let (mut path, mut last) = (String::new(), None);
    reader.read_line(&mut path)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= 2 {
            break;
        }
        if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (first, end) = range.trim().split_once('-').unwrap_or_default();
            let number = |text: &str| text.parse::<usize>().ok();
            last = number(first).zip(number(end).map(|end| end.min(bytes.len() - 1)));
        }
    }
    let (status, body) = match (path.contains("/api/"), last) {
        (true, _) => ("200 OK".to_owned(), listing.as_bytes()),
        (false, None) => ("200 OK".to_owned(), bytes),
        (false, Some((first, last))) => (
            format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}", bytes.len()),
            &bytes[first..=last],
        ),
    };
    write!(
        connection,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    connection.write_all(body)
}
