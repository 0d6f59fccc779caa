//! A server on loopback that answers with given bytes, whatever it is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Bytes of a request's body that are read before the answer.
const MOST_BODY: u64 = 1 << 20;

/// Listens until it is dropped. A connection gets one answer and is closed.
pub struct Peer {
    address: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Peer {
    /// `answer` gets the path of a request and its number, and returns the bytes to send. None
    /// closes the connection without an answer.
    pub fn start(answer: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("an address");
        let serve = move || {
            for count in 0.. {
                let Ok((connection, _)) = listener.accept() else { return };
                // The one that `drop` makes sends nothing.
                let Some(path) = read_request(&connection) else { return };
                if let Some(bytes) = answer(&path, count) {
                    let _ = (&connection).write_all(&bytes);
                }
            }
        };
        Peer { address, thread: Some(std::thread::spawn(serve)) }
    }

    /// Host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the answer does not panic");
        }
    }
}

/// Reads a request to its end. Returns its path; None if there is none.
fn read_request(connection: &TcpStream) -> Option<String> {
    connection.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? <= 2 {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut reader.take(u64::min(length, MOST_BODY)), &mut std::io::sink()).ok()?;
    Some(path)
}

/// A response: its status line, headers and body. None counts the body for Content-Length.
pub fn response(status: &str, headers: &[String], length: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for header in headers {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    match length {
        Some(length) => bytes.extend_from_slice(length.as_bytes()),
        None => {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
    }
    bytes.extend_from_slice(b"Connection: close\r\n\r\n");
    bytes.extend_from_slice(body);
    bytes
}
