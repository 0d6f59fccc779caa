//! Tests pictures that a request names by URLs, with a server that does what servers should not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llb::ffi;
use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::abi::Chat;
use crate::media::{
    BLUE, Files, RED, about, call, image_part, picture, text_part, user, with_part,
};

/// The most bytes of a file in these tests.
const MAX_BYTES: usize = 100_000;

/// A server of a red picture and of faults.
struct PictureServer {
    address: SocketAddr,
    /// How many connections were accepted.
    connections: Arc<AtomicUsize>,
    /// The paths and queries that were asked for.
    asked: Receiver<String>,
}

impl PictureServer {
    fn new() -> PictureServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let (sender, asked) = channel();
        let url = picture(RED);
        let file = STANDARD.decode(url.rsplit(',').next().unwrap()).unwrap();
        let accepted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (sender, file) = (sender.clone(), file.clone());
                // An error says that the client is gone.
                std::thread::spawn(move || answer(stream, address.port(), &file, &sender));
            }
        });
        PictureServer { address, connections, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn answer(
    mut stream: TcpStream,
    port: u16,
    file: &[u8],
    asked: &Sender<String>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while !line.trim().is_empty() {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let _ = asked.send(target.clone());
    let ok = |headers: &str| format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{headers}\r\n");
    let length = |length: usize| ok(&format!("Content-Length: {length}\r\n"));
    let to = |target: &str| {
        format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
    };
    let mut send = |text: &str| stream.write_all(text.as_bytes());
    match target.split('?').next().unwrap_or_default() {
        "/red.png" => {
            send(&length(file.len()))?;
            stream.write_all(file)?;
        }
        "/chunked" => {
            send(&ok("Transfer-Encoding: chunked\r\n"))?;
            for chunk in file.chunks(7) {
                stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
                stream.write_all(chunk)?;
                stream.write_all(b"\r\n")?;
            }
            stream.write_all(b"0\r\n\r\n")?;
        }
        "/until-end" => {
            send(&ok(""))?;
            stream.write_all(file)?;
        }
        "/redirect" => send(&to("/red.png"))?,
        "/other-host" => send(&to(&format!("http://localhost:{port}/red.png")))?,
        "/to-file" => send(&to("file:///etc/passwd"))?,
        "/to-nothing" => send("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")?,
        "/to-user" => send(&to(&format!("http://a:b@127.0.0.1:{port}/red.png")))?,
        "/loop" => send(&to("/loop"))?,
        "/text" => send(&(length(5) + "hello"))?,
        "/empty" => send(&length(0))?,
        "/short" => {
            send(&length(file.len() + 10))?;
            stream.write_all(file)?;
        }
        "/gzip" => send(&(ok("Content-Encoding: gzip\r\n") + "hello"))?,
        "/no-http" => send("hello\r\n\r\n")?,
        "/close" => {}
        "/partial" => send("HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n\r\na")?,
        // The body never comes.
        "/long" => {
            send(&length(MAX_BYTES + 1))?;
            reader.read_to_end(&mut Vec::new())?;
        }
        "/silent" => {
            reader.read_to_end(&mut Vec::new())?;
        }
        "/endless" => {
            send(&ok(""))?;
            loop {
                stream.write_all(&[0; 4096])?;
            }
        }
        "/drip" => {
            send(&ok(""))?;
            loop {
                stream.write_all(&[0])?;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        _ => send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
    }
    Ok(())
}

fn open(files: &Files, urls: &str, isolation: &str) -> Chat {
    let mut options = files.options();
    options["media_urls"] = urls.into();
    options["media_limits"] = json!({ "bytes": MAX_BYTES });
    options["isolation"] = isolation.into();
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn isolations() -> &'static [&'static str] {
    if cfg!(target_os = "linux") { &["none", "process"] } else { &["none"] }
}

fn request_of(url: &str) -> Value {
    json!({ "messages": with_part(&image_part(url)), "temperature": 0, "max_tokens": 24 })
}

#[test]
fn a_part_names_a_file_on_a_server() {
    let (files, server) = (Files::new(ProjectorType::Mlp), PictureServer::new());
    for isolation in isolations() {
        let chat = open(&files, "all", isolation);
        let ask = |messages: Value| {
            let reply =
                chat.infer(&json!({ "messages": messages, "temperature": 0, "max_tokens": 24 }));
            assert_eq!(reply["finish_reason"], "length", "{reply}");
            reply
        };
        let expected = ask(about(RED));
        assert_ne!(ask(about(BLUE))["text"], expected["text"]);
        for path in ["/red.png", "/chunked", "/until-end", "/redirect", "/other-host"] {
            let reply = ask(with_part(&image_part(&server.url(path))));
            assert_eq!(reply["text"], expected["text"], "{path} {isolation}");
        }
        let mut counted = request_of(&server.url("/redirect"));
        counted["media_urls"] = "all".into();
        counted["isolation"] = (*isolation).into();
        let counted = call(ffi::llb_count, &files, counted);
        assert_eq!(counted["prompt_tokens"], expected["usage"]["prompt_tokens"], "{counted}");
    }
}

#[test]
fn faults_of_a_server_are_errors() {
    let (files, server) = (Files::new(ProjectorType::Mlp), PictureServer::new());
    let too_long = format!(
        "a media file of more than {MAX_BYTES} bytes; shorten it, or raise media_limits.bytes"
    );
    let not_a_picture = "not a picture; PNG, JPEG, WebP, GIF and BMP are supported";
    let host = server.address.to_string();
    let of = |problem: &str| format!("{host}: {problem}");
    let elsewhere =
        "redirects to something that is not a web URL, or out of an encrypted connection";
    for isolation in isolations() {
        let chat = open(&files, "all", isolation);
        let check = |url: &str, expected: &str| {
            let reply = chat.infer(&request_of(url));
            assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{url} {reply}");
            let message = reply["error"]["message"].as_str().unwrap();
            let problem = message.strip_prefix("messages[0].content[1].image_url.url: ");
            assert!(problem.is_some_and(|it| it.starts_with(expected)), "{url}: {message}");
        };
        for (path, expected) in [
            ("/missing", of("answers with status 404")),
            ("/partial", of("answers with status 206")),
            ("/to-file", of(elsewhere)),
            ("/to-nothing", of(elsewhere)),
            ("/to-user", "a URL with a user name; leave it out".to_owned()),
            ("/loop", "redirects more than 5 times".to_owned()),
            ("/text", not_a_picture.to_owned()),
            ("/empty", not_a_picture.to_owned()),
            ("/gzip", of("sent a compressed response")),
            // ureq's words follow.
            ("/short", of("")),
            ("/no-http", of("")),
            ("/close", of("")),
            ("/long", too_long.clone()),
            ("/endless", too_long.clone()),
        ] {
            check(&server.url(path), &expected);
        }
        check("http://", "not a URL of a file on a server");
        check("http://a b/", "not a URL of a file on a server");
        check("https://a@b/c", "a URL with a user name; leave it out");
        check("ftp://a/b.png", "only data URLs are supported");
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        check(&format!("http://{gone}/a.png"), &format!("{gone}: "));
        // The chat is as before.
        let text = json!({ "messages": about(RED), "max_tokens": 1 });
        assert_eq!(chat.infer(&text)["finish_reason"], "length");
    }
}

#[test]
fn servers_of_this_machine_are_not_asked() {
    let (files, server) = (Files::new(ProjectorType::Mlp), PictureServer::new());
    let port = server.address.port();
    let public = open(&files, "public", "none");
    let off = Chat::open_with(&files.options()).unwrap_or_else(|refused| panic!("{refused:?}"));
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0", "[::]"] {
        let url = format!("http://{host}:{port}/red.png");
        let message = public.infer(&request_of(&url))["error"]["message"].clone();
        let shown = format!(
            "messages[0].content[1].image_url.url: {host}:{port}: its address is not one of the public internet"
        );
        assert_eq!(message, shown);
        let message = off.infer(&request_of(&url))["error"]["message"].clone();
        let shown = "messages[0].content[1].image_url.url: files are fetched only with the create option `media_urls`";
        assert!(message.as_str().unwrap().starts_with(shown), "{message}");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn a_fetch_ends_with_its_call() {
    let (files, server) = (Files::new(ProjectorType::Mlp), PictureServer::new());
    for isolation in isolations() {
        let chat = open(&files, "all", isolation);
        for path in ["/drip", "/silent"] {
            let mut request = request_of(&server.url(path));
            // Both never end.
            request["timeout_ms"] = 50.into();
            assert_eq!(chat.infer(&request)["finish_reason"], "cancelled", "{path} {isolation}");
            assert_eq!(chat.explain(&request)["error"]["code"], "CANCELLED", "{path} {isolation}");
            let last = format!("{path}?{isolation}");
            let request = request_of(&server.url(&last));
            let reply = std::thread::scope(|scope| {
                let call = scope.spawn(|| chat.infer(&request));
                // The time-out ends the test, not the call.
                let next = || server.asked.recv_timeout(Duration::from_secs(300)).unwrap();
                while next() != last {}
                ffi::llb_chat_cancel(chat.handle());
                call.join().unwrap()
            });
            assert_eq!(reply["finish_reason"], "cancelled", "{path} {isolation}");
        }
        let text = json!({ "messages": [user(json!([text_part("hi")]))], "max_tokens": 1 });
        assert_eq!(chat.infer(&text)["finish_reason"], "length");
    }
}
