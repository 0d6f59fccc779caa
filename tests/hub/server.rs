//! The hub of a test: the API and the pages on one port, the bytes on another, as the real hub has
//! them on another host.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::sha256;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The endpoint of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/api/models/ORG/NAME…`, for any model id.
    Api,
    /// `/api/models/ORG/NAME?expand=gguf`
    Hint,
    /// `/ORG/NAME/resolve/…`
    Resolve,
    /// The other port.
    Blob,
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct Request {
    pub route: Route,
    pub path: String,
    /// Header names in lower case.
    pub headers: HashMap<String, String>,
    /// The number of earlier requests to this route.
    pub count: usize,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The first and last byte of the requested range.
    pub fn range(&self) -> Option<(usize, Option<usize>)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse().ok()))
    }
}

/// The contents of a repository.
#[derive(Clone, Default)]
pub struct Repository {
    pub files: Vec<(String, Arc<Vec<u8>>)>,
    pub gated: Value,
    pub private: bool,
    /// The token that every request to the hub's own port must send.
    pub token: Option<String>,
}

impl Repository {
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Repository {
        let files =
            files.into_iter().map(|(name, bytes)| (name.to_owned(), Arc::new(bytes))).collect();
        Repository { files, gated: false.into(), ..Repository::default() }
    }

    /// The reply of the API.
    pub fn listing(&self) -> Value {
        let files = self.files.iter().map(|(name, bytes)| {
            let size = bytes.len();
            json!({ "rfilename": name, "size": size, "lfs": { "sha256": sha256(bytes), "size": size, "pointerSize": 134 } })
        });
        let files: Vec<Value> = files.collect();
        json!({ "id": "o/n", "sha": COMMIT, "private": self.private, "gated": self.gated, "siblings": files })
    }
}

/// Serves until the test program ends.
pub struct Hub {
    address: String,
    blobs: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

/// Answers instead of the hub, or returns false.
type Twist = dyn Fn(&Request, &mut TcpStream) -> bool + Send + Sync;

impl Hub {
    pub fn start(repository: Repository) -> Hub {
        Hub::twisted(repository, |_, _| false)
    }

    /// A hub that behaves, except for requests that `twist` answers itself; it then returns true.
    pub fn twisted(
        repository: Repository,
        twist: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Hub {
        let (front, back) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let hub = Hub { address: address(&front), blobs: address(&back), seen: Arc::default() };
        let twist: Arc<Twist> = Arc::new(twist);
        for (listener, at_back) in [(front, false), (back, true)] {
            let (repository, twist, seen) =
                (repository.clone(), Arc::clone(&twist), Arc::clone(&hub.seen));
            let blobs = hub.blobs.clone();
            std::thread::spawn(move || {
                for mut connection in listener.incoming().flatten() {
                    let (repository, twist, seen, blobs) =
                        (repository.clone(), Arc::clone(&twist), Arc::clone(&seen), blobs.clone());
                    std::thread::spawn(move || {
                        let Some(request) = read(&connection, at_back, &seen) else { return };
                        if !twist(&request, &mut connection) {
                            behave(&repository, &request, &blobs, &mut connection);
                        }
                    });
                }
            });
        }
        hub
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address of the API and the pages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address of the bytes.
    pub fn blobs(&self) -> &str {
        &self.blobs
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests to a route.
    pub fn at(&self, route: Route) -> Vec<Request> {
        self.seen().into_iter().filter(|request| request.route == route).collect()
    }

    pub fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }
}

fn read(connection: &TcpStream, at_back: bool, seen: &Mutex<Vec<Request>>) -> Option<Request> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let route = match () {
        () if at_back => Route::Blob,
        () if path.contains("expand=gguf") => Route::Hint,
        () if path.starts_with("/api/") => Route::Api,
        () => Route::Resolve,
    };
    let mut seen = seen.lock().unwrap();
    let count = seen.iter().filter(|other| other.route == route).count();
    let request = Request { route, path, headers, count };
    seen.push(request.clone());
    Some(request)
}

fn behave(repository: &Repository, request: &Request, blobs: &str, out: &mut TcpStream) {
    if let (Some(token), true) = (&repository.token, request.route != Route::Blob)
        && request.header("authorization") != Some(&format!("Bearer {token}"))
    {
        return answer(
            out,
            "401 Unauthorized",
            "X-Error-Message: Invalid credentials in Authorization header\r\n",
            b"",
        );
    }
    match request.route {
        Route::Api => answer(
            out,
            "200 OK",
            "Content-Type: application/json\r\n",
            repository.listing().to_string().as_bytes(),
        ),
        Route::Hint => {
            let gguf = json!({ "architecture": "llama", "context_length": 2048, "chat_template": "{{ messages }}", "total": 1 });
            answer(out, "200 OK", "", json!({ "id": "o/n", "gguf": gguf }).to_string().as_bytes());
        }
        Route::Resolve => {
            let prefix = format!("/resolve/{COMMIT}/");
            let name = request.path.split_once(&prefix).map(|(_, name)| name);
            let file = name.and_then(|name| repository.files.iter().find(|(file, _)| file == name));
            let Some((_, bytes)) = file else {
                return answer(
                    out,
                    "404 Not Found",
                    "X-Error-Code: EntryNotFound\r\n",
                    b"Entry not found",
                );
            };
            let (hash, size) = (sha256(bytes), bytes.len());
            redirect(
                out,
                &format!("http://{blobs}/blobs/{hash}?signature=secret"),
                &linked(&hash, size),
            );
        }
        Route::Blob => {
            // Like the stores of the real hub, which accept a signed address or a header, never
            // both.
            if request.headers.contains_key("authorization") {
                return answer(
                    out,
                    "400 Bad Request",
                    "",
                    b"<Error><Code>InvalidArgument</Code></Error>",
                );
            }
            let hash = request.path.trim_start_matches("/blobs/").split('?').next().unwrap();
            match repository.files.iter().find(|(_, bytes)| sha256(bytes) == hash) {
                Some((_, bytes)) => blob(request, bytes, out),
                None => answer(out, "404 Not Found", "", b""),
            }
        }
    }
}

/// The headers of a redirect to a large file.
pub fn linked(hash: &str, size: usize) -> String {
    format!(
        "X-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{hash}\"\r\nX-Linked-Size: {size}\r\nETag: \"{hash}\"\r\n"
    )
}

pub fn redirect(out: &mut TcpStream, to: &str, headers: &str) {
    answer(out, "302 Found", &format!("Location: {to}\r\n{headers}"), b"Found. Redirecting");
}

/// The etag from the host of the bytes, which differs from the hub's.
pub fn cdn_etag(bytes: &[u8]) -> String {
    format!("\"{}-cdn\"", &sha256(bytes)[..32])
}

/// The head of a blob's response, and its bytes: a range if one was requested and the etag still
/// matches.
pub fn blob_head<'a>(request: &Request, bytes: &'a [u8]) -> (String, &'a [u8]) {
    let etag = cdn_etag(bytes);
    let holds = request.header("if-range").is_none_or(|wanted| wanted == etag);
    let size = bytes.len();
    let (status, range, part) = match request.range().filter(|_| holds) {
        Some((first, _)) if first >= size => {
            ("416 Range Not Satisfiable", format!("Content-Range: bytes */{size}\r\n"), &bytes[..0])
        }
        Some((first, last)) => {
            let end = last.map_or(size, |last| (last + 1).min(size));
            (
                "206 Partial Content",
                format!("Content-Range: bytes {first}-{}/{size}\r\n", end - 1),
                &bytes[first..end],
            )
        }
        None => ("200 OK", String::new(), bytes),
    };
    let length = part.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n{range}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    (head, part)
}

pub fn blob(request: &Request, bytes: &[u8], out: &mut TcpStream) {
    let (head, part) = blob_head(request, bytes);
    let _ = out.write_all(head.as_bytes()).and_then(|()| out.write_all(part));
}

/// Like [`blob`], but the connection breaks after some bytes.
pub fn cut(request: &Request, bytes: &[u8], after: usize, out: &mut TcpStream) {
    let (head, part) = blob_head(request, bytes);
    let _ =
        out.write_all(head.as_bytes()).and_then(|()| out.write_all(&part[..after.min(part.len())]));
}

/// Sends a complete response.
pub fn answer(out: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = out.write_all(head.as_bytes()).and_then(|()| out.write_all(body));
}

/// Waits until the other side has disconnected.
pub fn wait_for_close(out: &mut TcpStream) {
    let _ = out.read(&mut [0; 1]);
}

/// Sends the same bytes until the other side disconnects.
pub fn endless(out: &mut TcpStream, head: &str, bytes: &[u8]) {
    let mut sent = out.write_all(head.as_bytes());
    while sent.is_ok() {
        sent = out.write_all(bytes);
    }
}
