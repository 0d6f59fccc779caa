//! Fuzzes probing with any text as a chat template.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llb::template_requests;
use serde_json::json;

fuzz_target!(|bytes: &[u8]| {
    let template = String::from_utf8_lossy(bytes);
    let request =
        json!({ "chat_template": template, "bos_token": "<s>", "eos_token": "</s>" }).to_string();
    let first = llb_fuzz::request(template_requests::info, &request);
    let again = llb_fuzz::request(template_requests::info, &request);
    assert_eq!(first, again, "the second answer equals the first");
});
