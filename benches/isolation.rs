//! A chat in a helper process against one in this process (`isolation`): decode rate, time to the
//! first token, and create, on one model.
//!
//! Every round measures both, in alternating order, and the figures are compared by round. Nothing is
//! asserted; the output says whether targets are met. `LLB_ROUNDS` sets the number of rounds,
//! `LLB_THREADS` the threads.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod measure;

use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Instant;

use llb::ffi;
use measure::{Figures, timed};
use serde_json::json;

const DECODED: usize = 96;

/// A handle that is destroyed when dropped.
struct Chat(*mut ffi::llb_chat);

impl Drop for Chat {
    fn drop(&mut self) {
        ffi::llb_chat_destroy(self.0);
    }
}

unsafe extern "C" fn on_piece(_: *const c_char, times: *mut c_void) {
    // SAFETY: `reply` passes a list that outlives the call.
    let times = unsafe { &mut *times.cast::<Vec<Instant>>() };
    times.push(Instant::now());
}

/// One reply: milliseconds to the first piece, and tokens per second after it.
fn reply(chat: &Chat, salt: usize) -> (f64, f64) {
    let request = json!({
        "messages": [{ "role": "user", "content": format!("Story {salt}: tell of the sea.") }],
        "max_tokens": DECODED, "temperature": 0, "logit_bias": { "151645": -100 },
        "cache_prompt": false,
    });
    let request = CString::new(request.to_string()).expect("JSON has no NUL");
    let (start, mut times) = (Instant::now(), Vec::<Instant>::new());
    let data = (&raw mut times).cast::<c_void>();
    // SAFETY: the request is NUL-terminated, and the list outlives the call.
    let json =
        unsafe { ffi::llb_chat_infer_stream(chat.0, request.as_ptr(), Some(on_piece), data) };
    // SAFETY: a reply is NUL-terminated.
    let text = unsafe { CStr::from_ptr(json) }.to_string_lossy().into_owned();
    // SAFETY: the reply is ours and freed once.
    unsafe { ffi::llb_string_free(json) };
    assert!(text.contains("\"finish_reason\":\"length\"") && times.len() > 8, "{text}");
    let (first, last) = (times[0], times[times.len() - 1]);
    let seconds = (last - first).as_secs_f64();
    ((first - start).as_secs_f64() * 1000.0, (times.len() - 1) as f64 / seconds)
}

fn main() {
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 11);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores);
    let open = |isolation: &str| {
        let options = json!({
            "model": path, "n_ctx": 2048, "n_threads": threads, "isolation": isolation,
        });
        let options = CString::new(options.to_string()).expect("JSON has no NUL");
        let data = std::ptr::null_mut();
        // SAFETY: the options are NUL-terminated, and there is no callback.
        let open = || unsafe { ffi::llb_chat_create_with(options.as_ptr(), None, data) };
        let (took, chat) = timed(open);
        assert!(!chat.is_null(), "llb opens the model");
        let chat = Chat(chat);
        (took.as_secs_f64() * 1000.0, chat)
    };
    let [mut rate, mut first, mut create]: [[Figures; 2]; 3] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let (opened, chat) = open(["none", "process"][which]);
            // The first reply pays for pages of the model.
            reply(&chat, 1000 + round);
            let (first_piece, decoded) = reply(&chat, round);
            create[which].push(opened);
            first[which].push(first_piece);
            rate[which].push(decoded);
        }
    }
    let difference = |figures: &[Figures; 2]| {
        Figures(figures[1].0.iter().zip(&figures[0].0).map(|(there, here)| there - here).collect())
    };
    println!("isolation: {rounds} rounds, {}, {threads} threads; medians", measure::MODEL);
    println!("                    in process    isolated");
    let row = |name: &str, figures: &[Figures; 2], unit: &str| {
        println!("{name:<18} {:>10.2} {:>11.2}  {unit}", figures[0].median(), figures[1].median());
    };
    row("decode", &rate, "tokens/s");
    row("first token", &first, "ms");
    row("create", &create, "ms");
    let ratio = rate[1].over(&rate[0]).median();
    let later = difference(&first).median();
    println!("decode ratio by round {ratio:.3} (at least 0.9: {})", met(ratio >= 0.9));
    println!("first token later by {later:.2} ms (at most 5: {})", met(later <= 5.0));
    println!("create later by {:.1} ms", difference(&create).median());
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
