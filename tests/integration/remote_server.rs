//! An HTTP server for tests, which answers like a real server or in ways that no server should.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A request as received.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    /// The headers. Their names are in lower case.
    pub headers: HashMap<String, String>,
    /// The body as JSON; null without a body.
    pub body: Value,
}

/// Serves until the test program ends.
pub struct Server {
    pub address: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Each connection has one request. `answer` answers it on a separate thread.
    pub fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (all, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(request) = read(&connection) else { return };
                    all.lock().unwrap().push(request.clone());
                    answer(&request, &mut connection);
                });
            }
        });
        Server { address, seen }
    }

    /// Answers completions with these texts, in the format of vLLM.
    pub fn saying(texts: &'static [&'static str]) -> Server {
        Server::start(move |_, out| stream(out, texts, &end(7, 3)))
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(connection: &TcpStream) -> Option<Request> {
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
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { path, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Sends a complete response.
pub fn answer(out: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        out,
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

pub fn json_answer(out: &mut TcpStream, body: &Value) {
    answer(out, "200 OK", "Content-Type: application/json\r\n", &body.to_string());
}

/// Sends the head of a stream of events.
pub fn head(out: &mut TcpStream) {
    let kind = "text/event-stream; charset=utf-8";
    let _ = write!(
        out,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
}

/// Sends a chunk with any content. Returns false if the client has disconnected.
pub fn chunk(out: &mut TcpStream, bytes: &[u8]) -> bool {
    let sent = write!(out, "{:x}\r\n", bytes.len())
        .and_then(|()| out.write_all(bytes))
        .and_then(|()| out.write_all(b"\r\n"));
    sent.and_then(|()| out.flush()).is_ok()
}

/// An event that contains a text.
pub fn text(text: &str) -> String {
    let choice = json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": null });
    format!(
        "data: {}\n\n",
        json!({ "id": "cmpl-1", "object": "text_completion", "choices": [choice] })
    )
}

/// The last events: the finish reason, the counts, and the end of the stream.
pub fn end(prompt_tokens: usize, completion_tokens: usize) -> String {
    let finish = json!({ "choices": [{ "index": 0, "text": "", "finish_reason": "stop" }] });
    let usage = json!({ "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens });
    format!(
        "data: {finish}\n\ndata: {}\n\ndata: [DONE]\n\n",
        json!({ "choices": [], "usage": usage })
    )
}

/// Sends a complete stream.
pub fn stream(out: &mut TcpStream, texts: &[&str], end: &str) {
    head(out);
    for piece in texts {
        chunk(out, text(piece).as_bytes());
    }
    chunk(out, end.as_bytes());
    let _ = out.write_all(b"0\r\n\r\n");
}

/// Waits until the client has disconnected.
pub fn wait_for_close(out: &mut TcpStream) {
    let _ = out.read(&mut [0; 1]);
}
