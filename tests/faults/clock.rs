//! Lets the wall clock jump. Replies, time-outs and dates must not be affected.

use serde_json::json;

use crate::abi::{Chat, ask, scripted_model};
use crate::libc_functions::jump;
use crate::{child_setting, run_child, scripted};

/// Jumps in seconds: a day and fifty years back, before 1970, into the next century, and to the
/// limits of what can be represented.
const JUMPS: [i64; 7] = [
    -86_400,
    -50 * 31_556_952,
    -100 * 31_556_952,
    100 * 31_556_952,
    8000 * 31_556_952,
    i64::MIN / 2,
    i64::MAX / 2,
];

#[test]
fn a_clock_that_jumps_changes_no_reply() {
    let name = "clock::a_clock_that_jumps_changes_no_reply";
    if child_setting().is_none() {
        let (status, text) = run_child(name, "1");
        assert!(status.success(), "{text}");
        println!("harden: inputs={} faults={}", JUMPS.len(), 2 * JUMPS.len());
        return;
    }
    for seconds in JUMPS {
        jump(0);
        let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 512 });
        let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
        let request = ask(json!({ "timeout_ms": 60_000, "timings": true }));
        assert_eq!(chat.infer(&request)["text"], scripted::TEXT);
        jump(seconds);
        let reply = chat.infer(&request);
        assert_eq!(
            (&reply["text"], &reply["finish_reason"]),
            (&json!(scripted::TEXT), &json!("stop"))
        );
        let other = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
        assert_eq!(other.infer(&request)["text"], scripted::TEXT, "{seconds}");
    }
}
