//! Fuzzes whole requests with any bytes. The first byte selects the function. Requests with `gguf`
//! are skipped, because they would open files.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use llb::template_requests;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // The C layer checks that its input is UTF-8.
    let Some((function, request)) = bytes.split_first() else { return Corpus::Reject };
    let Ok(request) = std::str::from_utf8(request) else { return Corpus::Reject };
    if serde_json::from_str(request).is_ok_and(|request: Value| request.get("gguf").is_some()) {
        return Corpus::Reject;
    }
    let call = match function % 3 {
        0 => template_requests::render,
        1 => template_requests::info,
        _ => template_requests::parse,
    };
    if let Some(reply) = llb_fuzz::request(call, request) {
        let text = reply.to_string();
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(reply), "a reply is JSON");
    }
    Corpus::Keep
});
