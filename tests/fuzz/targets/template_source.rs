//! Fuzzes rendering with any text as a chat template, for a fixed conversation: with small and
//! default limits, and with polyfills off and on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llb::template_requests;
use serde_json::json;

fuzz_target!(|bytes: &[u8]| {
    let template = String::from_utf8_lossy(bytes);
    let conversation = llb_fuzz::conversation();
    // Small limits come first. A template that exceeds them is only occasionally rendered with the
    // default limits, which are expensive.
    let small = llb_fuzz::limits(true);
    let Some(templates) = llb_fuzz::compile(&template) else { return };
    let ended = llb_fuzz::render(&templates, &conversation, &small).is_some();
    let turn = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    if !ended && !turn.is_multiple_of(32) {
        return;
    }
    let default = llb_fuzz::limits(false);
    llb_fuzz::render(&templates, &conversation, &default);
    // Polyfills need the capabilities, and probing renders the template many times.
    if turn.is_multiple_of(4) {
        let request = json!({ "chat_template": template, "messages": conversation.messages, "tools": conversation.tools,
            "now": "2026-01-31T09:30:00", "polyfills": { "apply_polyfills": true } });
        llb_fuzz::request(template_requests::render, &request.to_string());
    }
});
