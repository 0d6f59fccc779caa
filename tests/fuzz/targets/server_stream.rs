//! Fuzzes a completions server that sends anything, over a connection on this machine.
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::{CreateOptions, Guessing, Sampling};
use llb::remote::{CallError, CallLimits, CompletionRequest, Remote, SpecialSpellings, StreamItem};
use llb_fuzz::peer::{Peer, response};
use llb_fuzz::{in_time, schemas, sound};
use serde_json::{Value, json};

const MAX_TOKENS: usize = 16;
/// The maximum size of a reply's text in bytes: 1,024 bytes for each token (docs/remote.md).
const MAX_TEXT: usize = MAX_TOKENS * 1024;
const STATUSES: [&str; 8] = [
    "200 OK",
    "200 OK",
    "200 OK",
    "200 OK",
    "204 No Content",
    "400 Bad Request",
    "429 Too Many Requests",
    "500 Internal Server Error",
];
const HEADERS: [&str; 8] = [
    "Content-Type: text/event-stream",
    "Content-Type: application/json",
    "Content-Type: text/html; charset=\"utf-8",
    "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
    "Retry-After: 0",
    "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT",
    "Location: /v1/completions",
];

#[derive(Debug)]
struct Input {
    server: &'static str,
    logprobs: Option<usize>,
    answers: Vec<Vec<u8>>,
}

/// An event of a stream, mostly like those of real servers.
fn event(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    let any = |u: &mut Unstructured<'_>, usual: Value| -> arbitrary::Result<Value> {
        if u.ratio(1, 12)? { schemas::value(u, 0) } else { Ok(usual) }
    };
    let text = String::arbitrary(u)?;
    let logprobs = match u.int_in_range(0..=3)? {
        0 => {
            json!({ "tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [{ &*text: -0.5 }],
            "text_offset": [u.arbitrary::<i32>()?] })
        }
        1 => json!({ "content": [{ "token": text, "id": u.arbitrary::<i64>()?, "logprob": -0.5,
            "bytes": [u.arbitrary::<u8>()?], "top_logprobs": [{ "token": text, "logprob": -1e39 }] }] }),
        2 => schemas::value(u, 0)?,
        _ => Value::Null,
    };
    let reasons = json!(["stop", "length", "content_filter", "abort", "", null, null, null]);
    let usual = reasons[u.choose_index(8)?].clone();
    let reason = any(u, usual)?;
    let choice = json!({ "index": 0, "text": any(u, text.into())?, "logprobs": any(u, logprobs)?,
        "finish_reason": reason, "stop_reason": any(u, Value::Null)? });
    let usage = json!({ "prompt_tokens": u.arbitrary::<i64>()?, "completion_tokens": 1,
        "prompt_tokens_details": { "cached_tokens": u.arbitrary::<i32>()? } });
    let data = match u.int_in_range(0..=9)? {
        0 => json!({ "error": any(u, json!({ "message": "context", "code": 400, "type": "x" }))? }),
        1 => json!({ "choices": [], "usage": any(u, usage)? }),
        2 => schemas::value(u, 0)?,
        _ => {
            json!({ "id": "x", "object": "text_completion", "choices": any(u, json!([choice]))?, "usage": null })
        }
    };
    let mut bytes = match u.int_in_range(0..=9)? {
        0 => b"event: x\ndata:".to_vec(),
        1 => b": comment\n\ndata: ".to_vec(),
        2 => Vec::arbitrary(u)?,
        _ => b"data: ".to_vec(),
    };
    match u.int_in_range(0..=12)? {
        0 => bytes.extend_from_slice(b"[DONE]"),
        1 => bytes.extend(Vec::<u8>::arbitrary(u)?),
        _ => bytes.extend_from_slice(data.to_string().as_bytes()),
    }
    let ends: [&[u8]; 5] = [b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n"];
    bytes.extend_from_slice(u.choose(&ends)?);
    Ok(bytes)
}

fn answer(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
    if u.ratio(1, 16)? {
        return Vec::arbitrary(u);
    }
    let mut body = Vec::new();
    for _ in 0..u.int_in_range(0..=8)? {
        body.extend(event(u)?);
    }
    let mut headers = vec![HEADERS[0].to_owned()];
    for _ in 0..u.int_in_range(0..=2)? {
        headers.push((*u.choose(&HEADERS)?).to_owned());
    }
    let lengths =
        [None, Some(""), Some("Content-Length: 1\r\n"), Some("Content-Length: 99999\r\n")];
    let length = if u.ratio(1, 3)? { *u.choose(&lengths)? } else { Some("") };
    Ok(response(u.choose(&STATUSES)?, &headers, length, &body))
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let server = *u.choose(&["llama", "vllm", "openai"])?;
        let logprobs = u.ratio(1, 2)?.then_some(u.int_in_range(0..=3)?);
        let mut answers = Vec::new();
        while answers.len() < 3 && !u.is_empty() {
            answers.push(answer(u)?);
        }
        Ok(Input { server, logprobs, answers })
    }
}

/// Runs one reply. Returns its text; an error must be sound.
fn reply(remote: &Remote, input: &Input, limits: &CallLimits) -> Result<String, CallError> {
    let ask = CompletionRequest {
        max_tokens: MAX_TOKENS,
        sampling: Sampling::default(),
        stop: Vec::new(),
        logprobs: input.logprobs,
        cache_prompt: true,
        lora: None,
        speculative: Guessing::Auto,
        visible: Vec::new(),
        constraint: None,
    };
    let (mut stream, _) = remote.complete("<s>a", std::slice::from_ref(&(3..4)), &ask, limits)?;
    let mut text = String::new();
    while let StreamItem::Event(event) = stream.next(limits, &text)? {
        text.push_str(&event.text);
        assert!(text.len() <= MAX_TEXT, "{} bytes", text.len());
    }
    Ok(text)
}

fuzz_target!(|input: Input| {
    let answers = input.answers.clone();
    let peer = Peer::start(move |_, count| answers.get(count).cloned());
    let options = json!({
        "chat_template": "x", "engine": { "type": "openai_completions", "server": input.server,
            "model": "m", "base_url": format!("http://{}/v1", peer.address()),
            "read_timeout_ms": 300, "connect_timeout_ms": 1000 },
    });
    let options = CreateOptions::read(&options).expect("valid options");
    let engine = options.engine.expect("it was given");
    let specials = SpecialSpellings::new(vec!["<s>".to_owned()]);
    let remote = Remote::open(&engine, specials, None).expect("no file is read");
    let deadline = Some(Instant::now() + Duration::from_millis(500));
    let limits = CallLimits { deadline, ..CallLimits::default() };
    match in_time(|| reply(&remote, &input, &limits)) {
        Ok(_) | Err(CallError::Over) => {}
        Err(CallError::Failed(error)) => sound(&error),
    }
});
