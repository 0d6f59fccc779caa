//! Any bytes as a whole request. The first byte says which function; `gguf` would open files, so it
//! is not followed.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use llb::requests;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // What comes from C is checked to be UTF-8 before it gets here.
    let Some((function, request)) = bytes.split_first() else { return Corpus::Reject };
    let Ok(request) = std::str::from_utf8(request) else { return Corpus::Reject };
    if serde_json::from_str(request).is_ok_and(|request: Value| request.get("gguf").is_some()) {
        return Corpus::Reject;
    }
    let call = match function % 3 {
        0 => requests::render,
        1 => requests::info,
        _ => requests::parse,
    };
    if let Some(reply) = llb_fuzz::request(call, request) {
        let text = reply.to_string();
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(reply), "a reply is JSON");
    }
    Corpus::Keep
});
