//! Tests servers that send the key back in every place of a response, and servers that send bytes
//! forever. No key may leave the library, and each call must end by its time-out or a cancel.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask};
use crate::remote_server::{Request, Server, answer, chunk, end, head, json_answer, stream, text};
use crate::scripted::TOOLS_TEMPLATE;

/// A variable that is in the environment of every test. Its value is a path, so JSON and URLs
/// escape some of it.
const KEY: &str = "CARGO_MANIFEST_DIR";

fn open(engine: Value) -> Chat {
    let mut whole = json!({
        "type": "openai_completions", "server": "openai", "model": "m", "api_key_env": KEY,
    });
    whole.as_object_mut().unwrap().extend(engine.as_object().unwrap().clone());
    let options = json!({ "chat_template": TOOLS_TEMPLATE, "engine": whole, "log": "debug" });
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |group: &[u8], at: usize| {
        let bits = group
            .iter()
            .enumerate()
            .fold(0, |all, (i, byte)| all | u32::from(*byte) << (16 - 8 * i));
        char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize])
    };
    bytes.chunks(3).flat_map(|group| (0..=group.len()).map(move |at| digit(group, at))).collect()
}

/// The spellings of the key that a server might send.
fn spellings() -> Vec<String> {
    let key = std::env::var(KEY).unwrap();
    let each = |escaped: &dyn Fn(u8) -> String| key.bytes().map(escaped).collect::<String>();
    vec![
        key.to_uppercase(),
        each(&|byte| format!("%{byte:02X}")),
        each(&|byte| format!("\\u{byte:04x}")),
        each(&|byte| format!("&#{byte};")),
        each(&|byte| format!("{byte:02x}")),
        base64(key.as_bytes()),
        // The end of the base64 text of a user name and the key.
        base64(format!("user:{key}").as_bytes())[8..].to_owned(),
        key.replace('/', "\\/"),
        key,
    ]
}

/// Checks that a text does not contain the key in any spelling, or more than half of it.
#[track_caller]
fn check_no_key(what: &str, text: &str) {
    let text = text.replace("\\\\", "\\").to_lowercase();
    for spelling in spellings() {
        let spelling = spelling.to_lowercase();
        let part = &spelling[..spelling.len() / 2 + 2];
        assert!(!text.contains(part), "{what}: {part} of {spelling} in {text}");
    }
}

type Answer = Box<dyn Fn(&Request, &mut TcpStream, &str) + Send + Sync>;
type Places = Vec<(&'static str, Answer)>;

fn boxed(answer: impl Fn(&Request, &mut TcpStream, &str) + Send + Sync + 'static) -> Answer {
    Box::new(answer)
}

/// The places of a response that can contain a text.
fn places() -> Places {
    let statuses = "200 OK,307 Moved,400 No,401 No,403 No,404 No,408 No,418 No,503 No";
    let heads_and_bodies = statuses.split(',').flat_map(in_head_and_body);
    heads_and_bodies.chain(in_events()).chain(in_broken_http()).collect()
}

fn in_head_and_body(status: &'static str) -> Places {
    let mut places = Places::new();
    places.push((
        "the status line and all headers",
        boxed(move |_, out, key| {
            let headers: String = [
                "Content-Type",
                "Location",
                "Retry-After",
                "Date",
                "Server",
                "WWW-Authenticate",
                "X-Any",
            ]
            .iter()
            .map(|name| format!("{name}: {key}\r\n"))
            .collect();
            answer(out, &format!("{status} {key}"), &headers, key);
        }),
    ));
    places.push((
        "the content type",
        boxed(move |_, out, key| {
            answer(out, status, &format!("Content-Type: text/{key}; charset={key}\r\n"), "");
        }),
    ));
    for body in [
        json!({ "error": { "message": "KEY", "type": "KEY", "code": "KEY" } }),
        json!({ "error": "KEY" }),
        json!({ "detail": "this model's maximum context length is KEY" }),
        json!({ "KEY": "KEY", "message": format!("{} KEY", "x".repeat(380)) }),
        json!("KEY"),
    ] {
        places.push((
            "the body",
            boxed(move |_, out, key| {
                let kind = "Content-Type: text/event-stream\r\n";
                answer(out, status, kind, &body.to_string().replace("KEY", key));
            }),
        ));
    }
    places
}

fn in_events() -> Places {
    let events = [
        r#"data: {"choices": [{"text": "", "finish_reason": "KEY"}]}"#,
        r#"data: {"choices": [{"text": "", "finish_reason": "FILLKEY"}]}"#,
        r#"data: {"error": "KEY"}"#,
        r#"data: {"error": {"message": "KEY", "type": "exceed_context_size_error"}}"#,
        "data: KEY",
        r#"data: {"choices": "KEY"}"#,
        r#"data: {"choices": [{"text": {"KEY": 1}}]}"#,
        "event: KEY\nid: KEY\n: KEY\nretry: KEY\ndata: {",
        r#"data: {"id": "KEY", "model": "KEY", "usage": "KEY", "choices": [{"finish_reason": 1}]}"#,
        r#"data: {"choices": [{"text": "the key is KEY"}]}"#,
    ];
    let mut places = Places::new();
    for event in events {
        for begun in [false, true] {
            places.push((
                event,
                boxed(move |_, out, key| {
                    head(out);
                    if begun {
                        chunk(out, text("so far").as_bytes());
                    }
                    let event = event.replace("KEY", key).replace("FILL", &"x".repeat(50));
                    // The event is sent in small pieces, which split the key.
                    for bytes in format!("{event}\n\n").as_bytes().chunks(7) {
                        chunk(out, bytes);
                    }
                }),
            ));
        }
    }
    places
}

fn in_broken_http() -> Places {
    vec![
        ("a busy server", boxed(|_, out, key| answer(out, "429 No", "Retry-After: 3600\r\n", key))),
        ("no HTTP", boxed(|_, out, key| drop(write!(out, "{key}\r\n\r\n")))),
        ("a header", boxed(|_, out, key| drop(write!(out, "HTTP/1.1 200 OK\r\n{key}\r\n\r\n")))),
        ("the size of a chunk", boxed(|_, out, key| drop(write!(out, "{HEAD}{key}\r\n")))),
        (
            "the length",
            boxed(|_, out, key| {
                let _ = write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {key}\r\n\r\n");
            }),
        ),
    ]
}

#[test]
fn the_key_comes_back_in_no_error_event_or_log() {
    let (all, keys) = (Arc::new(places()), spellings());
    let (known, sent) = (Arc::clone(&all), keys.clone());
    // The path selects the response, so one server is enough: /PLACE/SPELLING/v1/completions
    let server = Server::start(move |request, out| {
        let mut numbers = request.path.split('/').skip(1).map(|number| number.parse().unwrap());
        let (place, spelling): (usize, usize) = (numbers.next().unwrap(), numbers.next().unwrap());
        known[place].1(request, out, &sent[spelling]);
    });
    for (place, (what, _)) in all.iter().enumerate() {
        // Each place gets three spellings. Which ones differs from place to place.
        for spelling in (0..3).map(|n| (place + n * 4) % keys.len()) {
            let url = format!("http://{}/{place}/{spelling}/v1", server.address);
            let chat = open(json!({ "base_url": url }));
            let reply = chat.stream(&ask(json!({})), &Recorder::default());
            assert_eq!(reply["type"], "error", "{what}: {reply}");
            check_no_key(what, &format!("{reply} {:?}", chat.events()));
        }
    }
}

#[test]
fn the_key_comes_back_in_no_preview() {
    for spelling in spellings() {
        for (path, body) in [
            (
                "/v1/models",
                json!({ "data": [{ "id": "KEY", "owned_by": "vllm" }, { "id": "KEY" }] }),
            ),
            ("/v1/models", json!({ "data": "KEY" })),
            ("/tokenize", json!({ "tokens": ["KEY"] })),
            ("/tokenize", json!({ "error": "KEY" })),
        ] {
            let spelling = spelling.clone();
            let server = Server::start(move |request, out| match &*request.path {
                asked if asked == path => {
                    answer(out, "200 OK", "", &body.to_string().replace("KEY", &spelling))
                }
                "/v1/models" => {
                    json_answer(out, &json!({ "data": [{ "id": "m", "owned_by": "vllm" }] }))
                }
                _ => stream(out, &["ok"], &end(1, 1)),
            });
            let chat = open(json!({ "base_url": server.url(), "server": null, "model": null }));
            let said = format!(
                "{} {} {:?}",
                chat.explain(&ask(json!({}))),
                chat.infer(&ask(json!({}))),
                chat.events()
            );
            check_no_key(path, &said);
        }
    }
}

#[test]
fn the_text_of_a_reply_is_passed_on() {
    // Text that the model writes is content, even if it equals the key.
    let key = std::env::var(KEY).unwrap();
    let said = key.clone();
    let server = Server::start(move |_, out| stream(out, &[&said], &end(1, 1)));
    let reply = open(json!({ "base_url": server.url() })).infer(&ask(json!({})));
    assert_eq!((&reply["type"], &reply["text"]), (&json!("assistant_text"), &json!(key)));
}

/// Sends the same bytes again and again, slowly, until the client disconnects.
fn trickle(out: &mut TcpStream, first: &str, again: &str) {
    let pause = Some(Duration::from_millis(5));
    let mut sent = out.write_all(first.as_bytes()).and_then(|()| out.set_read_timeout(pause));
    while sent.is_ok() && !matches!(out.read(&mut [0]), Ok(0)) {
        sent = out.write_all(again.as_bytes());
    }
}

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Writes a response to a connection.
type Writer = Arc<dyn Fn(&mut TcpStream) + Send + Sync>;

/// Servers that send bytes forever, but no text.
fn endless() -> Vec<(&'static str, Writer)> {
    fn slow(first: String, again: &'static str) -> Writer {
        Arc::new(move |out| trickle(out, &first, again))
    }
    let event = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    let said = format!("{HEAD}{}", event(&text("so far")));
    vec![
        ("a head", slow("HTTP/1.1 200 OK\r\nX: ".into(), "x")),
        ("informational heads", slow(String::new(), "HTTP/1.1 103 Early Hints\r\n\r\n")),
        ("continue", slow(String::new(), "HTTP/1.1 100 Continue\r\n\r\n")),
        ("an error", slow("HTTP/1.1 500 No\r\nContent-Length: 999999\r\n\r\n".into(), "x")),
        ("comments", slow(HEAD.into(), "e\r\n: keep-alive\n\n\r\n")),
        ("comments after text", slow(said.clone(), "e\r\n: keep-alive\n\n\r\n")),
        ("events without text", slow(HEAD.into(), "a\r\ndata: {}\n\n\r\n")),
        ("an extension of a chunk", slow(format!("{HEAD}5;x="), "x")),
        ("trailers", slow(format!("{said}0\r\nX: "), "x")),
        (
            "many comments",
            Arc::new(|out| {
                head(out);
                while chunk(out, &b": keep-alive\n\n".repeat(1000)) {}
            }),
        ),
        (
            "many events",
            Arc::new(|out| {
                head(out);
                while chunk(out, &text("").into_bytes().repeat(100)) {}
            }),
        ),
    ]
}

#[test]
fn bytes_without_text_are_silence() {
    for (what, sends) in endless() {
        let answers = Arc::clone(&sends);
        let server = Server::start(move |_, out| answers(out));
        let chat = open(json!({ "base_url": server.url(), "read_timeout_ms": 150 }));
        let (done, replies) = channel();
        // Runs on a separate thread, because a failure here is a call that never returns.
        let reply = std::thread::spawn(move || {
            let _ = done.send(chat.infer(&ask(json!({}))));
        });
        let reply = replies
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("{what}: it does not end ({reply:?})"));
        assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{what}: {reply}");
        // The same server with a time-out of an hour, and a cancel.
        if what == "many events" {
            continue;
        }
        let chat = open(json!({ "base_url": server.url(), "read_timeout_ms": 3_600_000 }));
        let reply = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| chat.infer(&ask(json!({ "max_tokens": 1_000_000 }))));
            while server.seen().len() < 2 && !waiting.is_finished() {
                std::thread::yield_now();
            }
            ffi::llb_chat_cancel(chat.handle());
            waiting.join().unwrap()
        });
        assert_eq!(reply["finish_reason"], "cancelled", "{what}: {reply}");
    }
}

#[test]
fn a_short_exchange_ends_too() {
    let server = Server::start(|request, out| match &*request.path {
        "/v1/models" => trickle(out, "HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", " "),
        _ => stream(out, &["ok"], &end(1, 1)),
    });
    let engine = json!({ "base_url": server.url(), "read_timeout_ms": 150, "model": null });
    let reply = open(engine).infer(&ask(json!({})));
    assert!(reply.to_string().contains("silent for too long"), "{reply}");
}

#[test]
fn a_compressed_response_is_refused() {
    for (status, says) in [
        ("200 OK", "sent a compressed response, which was not requested"),
        ("500 No", "failed (status 500): no reason given"),
    ] {
        let server = Server::start(move |_, out| {
            let headers = "Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n";
            answer(out, status, headers, "\u{1f}");
        });
        let reply = open(json!({ "base_url": server.url() })).infer(&ask(json!({})));
        assert!(reply["error"]["message"].as_str().unwrap().ends_with(says), "{reply}");
    }
}

#[test]
fn a_misplaced_key_is_not_quoted() {
    let engine =
        json!({ "type": "openai_completions", "base_url": "http://h", "api_key_env": "sk-secret" });
    let refused =
        Chat::open_with(&json!({ "chat_template": "x", "tool_policy": "any", "engine": engine }));
    let refused = refused.err().unwrap();
    assert_eq!(
        refused.message(),
        "engine.api_key_env: the environment variable that it names is not set"
    );
}
