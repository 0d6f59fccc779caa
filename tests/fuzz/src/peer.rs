//! A server on loopback that answers every request with given bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The maximum number of bytes of a request's body that are read before the answer.
const MAX_BODY: u64 = 1 << 20;

/// Listens until it is dropped. Each connection gets one answer and is then closed.
pub struct Peer {
    address: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Peer {
    /// `answer` gets the path and the number of a request, and returns the bytes to send. With None
    /// the connection is closed without an answer.
    pub fn start(answer: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("an address");
        let serve = move || {
            for count in 0.. {
                let Ok((connection, _)) = listener.accept() else { return };
                // The connection that `drop` opens sends nothing.
                let Some(path) = read_request(&connection) else { return };
                if let Some(bytes) = answer(&path, count) {
                    let _ = (&connection).write_all(&bytes);
                }
            }
        };
        Peer { address, thread: Some(std::thread::spawn(serve)) }
    }

    /// The host and port.
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

/// Reads a request to its end. Returns its path, or None if nothing valid arrives.
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
    std::io::copy(&mut reader.take(u64::min(length, MAX_BODY)), &mut std::io::sink()).ok()?;
    Some(path)
}

/// A response with a status line, headers and a body. `length` is the value of Content-Length; None
/// uses the length of the body.
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
