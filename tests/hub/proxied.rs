//! Which proxies are used and which are not.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use llb::error::Code;
use serde_json::json;

use crate::server::{Hub, Repository};
use crate::{User, scripted};

/// A proxy that connects as requested and records the first lines.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, seen) = (
        format!("http://{}", listener.local_addr().unwrap()),
        Arc::<Mutex<Vec<String>>>::default(),
    );
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let all = Arc::clone(&all);
            std::thread::spawn(move || drop(connect(connection, &all)));
        }
    });
    (url, seen)
}

fn connect(mut client: TcpStream, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (mut lines, mut reader) = (Vec::new(), BufReader::new(client.try_clone()?));
    while lines.last().is_none_or(|line: &String| line.trim() != "") {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        lines.push(line);
    }
    seen.lock().unwrap().push(lines[0].trim().to_owned());
    let mut server = TcpStream::connect(lines[0].split(' ').nth(1).unwrap())?;
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let mut up = server.try_clone()?;
    std::thread::spawn(move || std::io::copy(&mut reader, &mut up));
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(std::net::Shutdown::Both)
}

#[test]
fn the_environment_chooses_the_proxy() {
    let hub = Hub::start(Repository::of([("m.gguf", scripted::text())]));
    let fetches = |variables: &[(&str, &str)]| {
        let user =
            variables.iter().fold(User::of(&hub), |user, (name, value)| user.with(name, value));
        user.fetches(&json!({}));
    };
    let (url, seen) = proxy();
    fetches(&[("http_proxy", &url)]);
    let through: Vec<String> = std::mem::take(&mut *seen.lock().unwrap());
    let expected = |address: &str| format!("CONNECT {address} HTTP/1.1");
    assert_eq!(
        (through.first(), through.last()),
        (Some(&expected(hub.address())), Some(&expected(hub.blobs())))
    );
    // A proxy of another scheme, and one excluded for this host.
    fetches(&[("HTTPS_PROXY", &url)]);
    fetches(&[("ALL_PROXY", &url), ("NO_PROXY", "localhost, 127.0.0.1")]);
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
    // A proxy that is unreachable or invalid is not bypassed.
    hub.forget();
    for (value, code) in
        [("socks5://127.0.0.1:9", Code::HubNetwork), ("http://", Code::InvalidRequest)]
    {
        assert_eq!(
            User::of(&hub).with("ALL_PROXY", value).fails(&json!({})).code(),
            code,
            "{value}"
        );
    }
    assert!(hub.seen().is_empty());
}
