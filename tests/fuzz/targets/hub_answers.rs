//! Fuzzes a fetch with a hub that answers anything, over a connection on this machine.
#![no_main]

#[path = "../../scripted/gguf_writer.rs"]
mod gguf_writer;

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::hub::{self, Environment};
use llb_fuzz::peer::{Peer, response};
use llb_fuzz::{in_time, schemas, sound};
use serde_json::{Value, json};

use gguf_writer::GgufWriter;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const NAMES: [&str; 12] = [
    "m-Q4_K_M.gguf",
    "m-Q8_0.gguf",
    "m-00001-of-00002.gguf",
    "m-00002-of-00002.gguf",
    "m-00002-of-00001.gguf",
    "../m.gguf",
    "a/../../m.gguf",
    "/etc/m.gguf",
    "a\\b.gguf",
    "NUL.gguf",
    "mmproj.gguf",
    "é.gguf",
];
const STATUSES: [&str; 9] = [
    "200 OK",
    "200 OK",
    "206 Partial Content",
    "206 Partial Content",
    "302 Found",
    "401 Unauthorized",
    "404 Not Found",
    "416 Range Not Satisfiable",
    "503 Service Unavailable",
];
/// A fetch that retries is cancelled after this time.
const MAX: Duration = Duration::from_millis(400);

#[derive(Debug)]
struct Input {
    listing: Vec<u8>,
    files: Vec<Vec<u8>>,
}

fn model() -> Vec<u8> {
    GgufWriter::new()
        .metadata("general.architecture", "llama".to_owned())
        .metadata("tokenizer.chat_template", "{{ messages[0].content }}{{ tools }}".to_owned())
        .to_bytes()
}

fn any(u: &mut Unstructured<'_>, usual: Value) -> arbitrary::Result<Value> {
    if u.ratio(1, 12)? { schemas::value(u, 0) } else { Ok(usual) }
}

fn listing(u: &mut Unstructured<'_>, size: usize) -> arbitrary::Result<Vec<u8>> {
    let mut siblings = Vec::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let name = match u.int_in_range(0..=9)? {
            0 => String::arbitrary(u)?,
            _ => (*u.choose(&NAMES)?).to_owned(),
        };
        let size = if u.ratio(1, 8)? { json!(u.arbitrary::<u64>()?) } else { json!(size) };
        let hash = *u.choose(&["0", "zz", ""])?;
        let lfs = json!({ "sha256": any(u, hash.repeat(64).into())?, "size": size });
        siblings
            .push(json!({ "rfilename": any(u, name.into())?, "size": size, "lfs": any(u, lfs)? }));
    }
    let listing = json!({ "id": "o/n", "sha": any(u, COMMIT.into())?, "private": false,
        "gated": any(u, false.into())?, "siblings": any(u, siblings.into())?,
        "gguf": any(u, json!({ "architecture": "llama" }))? });
    Ok(match u.int_in_range(0..=15)? {
        0 => Vec::arbitrary(u)?,
        1 => schemas::value(u, 0)?.to_string().into_bytes(),
        _ => listing.to_string().into_bytes(),
    })
}

fn file(u: &mut Unstructured<'_>, model: &[u8]) -> arbitrary::Result<Vec<u8>> {
    if u.ratio(1, 16)? {
        return Vec::arbitrary(u);
    }
    let size = model.len();
    let (first, last) = (u.int_in_range(0..=size)?, u.int_in_range(0..=size + 1)?);
    let values = [
        format!("Content-Range: bytes 0-{}/{size}", size - 1),
        format!("Content-Range: bytes {first}-{last}/{size}"),
        "Content-Range: bytes */0".to_owned(),
        format!("X-Linked-Size: {size}"),
        format!("X-Linked-Etag: \"{}\"", "0".repeat(64)),
        "ETag: W/\"../../x\"".to_owned(),
        format!("X-Repo-Commit: {COMMIT}"),
        "X-Error-Code: GatedRepo".to_owned(),
        "Location: /o/n/resolve/x".to_owned(),
        "Location: http://127.0.0.1:1/x".to_owned(),
        "Retry-After: 0".to_owned(),
        "Content-Encoding: br".to_owned(),
    ];
    let mut headers = vec![values[6].clone()];
    for _ in 0..u.int_in_range(0..=5)? {
        headers.push(u.choose(&values)?.clone());
    }
    let body = match u.int_in_range(0..=7)? {
        0 => Vec::arbitrary(u)?,
        1 => model[..first].to_vec(),
        _ => model.to_vec(),
    };
    let length = if u.ratio(1, 8)? { Some("Content-Length: 9\r\n") } else { None };
    Ok(response(u.choose(&STATUSES)?, &headers, length, &body))
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let model = model();
        let body = listing(u, model.len())?;
        let status = if u.ratio(1, 8)? { *u.choose(&STATUSES)? } else { STATUSES[0] };
        let listing = response(status, &["Content-Type: application/json".to_owned()], None, &body);
        let mut files = Vec::new();
        while files.len() < 6 && !u.is_empty() {
            files.push(file(u, &model)?);
        }
        Ok(Input { listing, files })
    }
}

fuzz_target!(|input: Input| {
    let Input { listing, files } = input;
    let peer = Peer::start(move |path, count| match path.starts_with("/api/") {
        true => Some(listing.clone()),
        false => files.get(count % files.len().max(1)).cloned(),
    });
    let cache = tempfile::tempdir().expect("a folder");
    let outside = cache.path().join("outside");
    let home = cache.path().join("home");
    std::fs::create_dir(&outside).expect("a folder");
    let environment = Environment::of(&[
        ("HF_ENDPOINT", &format!("http://{}", peer.address())),
        ("HF_HOME", home.to_str().expect("a UTF-8 path")),
    ]);
    let id = format!("o/n{}", peer.address().replace(':', "-"));
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let cancelled = id.clone();
    let timer = std::thread::spawn(move || {
        if waits.recv_timeout(MAX).is_err() {
            hub::cancel(&cancelled);
        }
    });
    let request = json!({ "id": id }).to_string();
    let fetched = in_time(|| hub::fetch(&request, &environment, &mut |_| {}));
    let _ = done.send(());
    timer.join().expect("the timer does not panic");
    if let Err(error) = &fetched {
        sound(error);
    }
    let left: Vec<_> = std::fs::read_dir(cache.path()).expect("it exists").flatten().collect();
    assert!(
        left.iter().all(|entry| ["home", "outside"].iter().any(|name| entry.file_name() == *name))
    );
    assert!(std::fs::read_dir(&outside).expect("it exists").next().is_none());
    // Either no file has the hash in the listing, or the listing had no hash to compare.
    if let Ok(reply) = fetched {
        let path = reply["path"].as_str().expect("a path");
        assert!(path.starts_with(home.to_str().expect("a UTF-8 path")), "{path}");
    }
});
