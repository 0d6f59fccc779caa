//! Compares `llb_model_info` with loading the same file in llama.cpp: wall time and peak memory.
//! Also compares `llb_tokenize` with llama.cpp's own function on the same text.
//!
//! Time: the runs alternate, with a warm page cache. Each is a whole call; freeing the model is not
//! counted. `llb_model_info` runs in a separate process, because it caches the profile of a
//! template. Memory: each call runs in a separate process, and the figure is the peak resident set
//! minus its size before the call. Nothing is asserted; the output reports whether targets are met.
//! `LLB_ROUNDS` is the number of rounds.
#![allow(unsafe_code, reason = "calls the C ABI and llama.cpp")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/mod.rs"]
mod measure;

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::process::Command;

use llama_cpp_sys_2 as sys;
use llb::gguf::ModelHeader;
use llb::profile::ModelProfile;
use measure::{Figures, heading, row, target, timed};

/// The first argument of a child process: the call to measure.
const PEAK_OF: &str = "--peak-of";
const MIB: f64 = 1024.0;

/// The figures of a child process: the resident set in KiB, and the time of the call in
/// milliseconds.
#[derive(Clone, Copy)]
struct Peak {
    before: f64,
    after: f64,
    ms: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == PEAK_OF) {
        return print_peak(&arguments[at + 1], &arguments[at + 2]);
    }
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 15);
    silence();
    println!(
        "llb_model_info against llama_model_load_from_file (default parameters, mmap): {rounds} rounds, {}",
        measure::file_name(&path)
    );
    time(&path, rounds);
    memory(&path, rounds.min(5));
    tokens(&path, rounds);
}

/// Tokenizes a text of 100 kB, by a call and by llama.cpp's function alone. The vocabulary is in
/// memory.
fn tokens(path: &str, rounds: usize) {
    let text = "The quick brown fox, 12 times; \u{E9}t\u{E9}.\n".repeat(2_500);
    let request =
        serde_json::json!({ "model_path": path, "text": text, "details": false }).to_string();
    let request = CString::new(request).expect("JSON has no NUL");
    let model = load(path);
    let (mut call, mut own) = (Figures::default(), Figures::default());
    tokenize(&request);
    for round in 0..rounds {
        for call_now in if round % 2 == 0 { [true, false] } else { [false, true] } {
            let (figures, took) = match call_now {
                true => (&mut call, timed(|| tokenize(&request)).0),
                false => (&mut own, timed(|| model.tokenize(&text)).0),
            };
            figures.push(took.as_secs_f64() * 1000.0);
        }
    }
    heading("a text of 100 kB to tokens, ms");
    row("llb_tokenize, JSON in and out", &call);
    row("llama_tokenize alone", &own);
    row("llb / llama.cpp, by round", &call.over(&own));
}

fn time(path: &str, rounds: usize) {
    // A warm-up that loads the file and the code into memory.
    drop(load(path));
    model_info(path);
    let (mut info, mut again, mut loading) =
        (Figures::default(), Figures::default(), Figures::default());
    for round in 0..rounds {
        // The order is A B B A, so that drift of the machine affects both.
        for info_now in if round % 2 == 0 { [true, false] } else { [false, true] } {
            if info_now {
                info.push(peak_of("info", path).ms);
                again.push(timed(|| model_info(path)).0.as_secs_f64() * 1000.0);
            } else {
                let (took, model) = timed(|| load(path));
                loading.push(took.as_secs_f64() * 1000.0);
                drop(model);
            }
        }
    }
    let ratio = loading.over(&info);
    heading("wall time, ms");
    row("llb_model_info, first call of a process", &info);
    row("  again, with its template cached", &again);
    let (header, profile) = parts(path, rounds);
    row("  header alone", &header);
    row("  template alone: compile, probe, lint", &profile);
    row("llama.cpp load", &loading);
    row("load / info, by round", &ratio);
    let median = ratio.median();
    target(&format!("at most 1/30 of loading: 1/{median:.0}"), median >= 30.0);
}

/// The times of the two parts of `llb_model_info`.
fn parts(path: &str, rounds: usize) -> (Figures, Figures) {
    let (mut header, mut profile) = (Figures::default(), Figures::default());
    for round in 0..rounds {
        let (took, read) =
            timed(|| ModelHeader::read_file(Path::new(path)).expect("the header is read"));
        header.push(took.as_secs_f64() * 1000.0);
        // A different BOS token makes a template that is not cached.
        let mut sources = ModelProfile::sources(&read, None);
        sources.bos_token.push_str(&round.to_string());
        let build = || ModelProfile::of(&sources).expect("the template compiles").to_json();
        profile.push(timed(build).0.as_secs_f64() * 1000.0);
    }
    (header, profile)
}

fn memory(path: &str, rounds: usize) {
    let of = |what: &str, path: &str| -> (Figures, Figures) {
        let (mut growth, mut absolute) = (Figures::default(), Figures::default());
        for _ in 0..rounds {
            let peak = peak_of(what, path);
            growth.push((peak.after - peak.before) / MIB);
            absolute.push(peak.after / MIB);
        }
        (growth, absolute)
    };
    let (info, info_absolute) = of("info", path);
    let (loading, loading_absolute) = of("load", path);
    heading("peak memory, MiB, in a separate process");
    row("llb_model_info, growth", &info);
    row("llb_model_info, whole process", &info_absolute);
    row("llama.cpp load, growth", &loading);
    row("llama.cpp load, whole process", &loading_absolute);
    let (grown, whole) =
        (loading.median() / info.median(), loading_absolute.median() / info_absolute.median());
    target(
        &format!("growth at most 1/20 of loading: 1/{grown:.0} (whole process 1/{whole:.0})"),
        grown >= 20.0,
    );
    target(
        &format!(
            "never more than 16 MiB: {:.1}, whole process {:.1}",
            info.max(),
            info_absolute.max()
        ),
        info.max() <= 16.0,
    );

    let Ok(folder) = std::fs::read_dir(measure::models_folder()) else { return };
    let mut others: Vec<_> = folder.flatten().map(|entry| entry.path()).collect();
    others.retain(|other| {
        other.extension().is_some_and(|extension| extension == "gguf") && *other != *path
    });
    others.sort();
    for other in others.iter().filter_map(|other| other.to_str()) {
        row(&format!("growth, {}", measure::file_name(other)), &of("info", other).0);
    }
}

/// Runs this program again for one measurement.
fn peak_of(what: &str, path: &str) -> Peak {
    let program = std::env::current_exe().expect("the program that runs has a path");
    let output =
        Command::new(program).args([PEAK_OF, what, path]).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut sizes = text.split_whitespace().filter_map(|size| size.parse().ok());
    match (sizes.next(), sizes.next(), sizes.next()) {
        (Some(before), Some(after), Some(ms)) => Peak { before, after, ms },
        _ => panic!("no figures for {what}: {}", output.status),
    }
}

/// The main function of a child process.
fn print_peak(what: &str, path: &str) {
    silence();
    let before = peak_resident();
    let (took, ()) = timed(|| match what {
        "info" => drop(model_info(path)),
        _ => drop(load(path)),
    });
    println!("{before} {} {}", peak_resident(), took.as_secs_f64() * 1000.0);
}

/// `VmHWM` of this process in KiB.
fn peak_resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status")
        .expect("Linux reports the memory of a process");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("status has a peak");
    line.trim().trim_end_matches("kB").trim().parse().expect("the peak is a number")
}

fn model_info(path: &str) -> String {
    let path = CString::new(path).expect("a path has no NUL");
    // SAFETY: the path is NUL-terminated.
    let reply = unsafe { llb::ffi::llb_model_info(path.as_ptr()) };
    // SAFETY: a reply is never NULL and NUL-terminated.
    let text = unsafe { CStr::from_ptr(reply) }.to_string_lossy().into_owned();
    // SAFETY: the reply is ours and freed once.
    unsafe { llb::ffi::llb_string_free(reply) };
    assert!(text.contains(r#""error":null"#), "the model is read: {text}");
    text
}

fn tokenize(request: &CStr) {
    // SAFETY: the request is NUL-terminated.
    let reply = unsafe { llb::ffi::llb_tokenize(request.as_ptr()) };
    // SAFETY: a reply is never NULL and NUL-terminated.
    let is_error = unsafe { CStr::from_ptr(reply) }.to_bytes().starts_with(b"{\"type\":\"error\"");
    // SAFETY: the reply is ours and freed once.
    unsafe { llb::ffi::llb_string_free(reply) };
    assert!(!is_error, "the text is tokenized");
}

/// Loads and frees a model with llama.cpp.
struct Loaded(*mut sys::llama_model);

impl Loaded {
    fn tokenize(&self, text: &str) -> Vec<sys::llama_token> {
        let mut tokens = vec![0; text.len()];
        let (length, room) = (text.len() as i32, tokens.len() as i32);
        // SAFETY: the model is loaded; its vocabulary lives as long as it.
        let vocab = unsafe { sys::llama_model_get_vocab(self.0) };
        // SAFETY: text and tokens are valid for the given lengths.
        let count = unsafe {
            sys::llama_tokenize(
                vocab,
                text.as_ptr().cast::<c_char>(),
                length,
                tokens.as_mut_ptr(),
                room,
                false,
                false,
            )
        };
        tokens.truncate(usize::try_from(count).expect("each byte is at most a token"));
        tokens
    }
}

fn load(path: &str) -> Loaded {
    let path = CString::new(path).expect("a path has no NUL");
    // SAFETY: takes nothing, returns a plain struct.
    let mut params = unsafe { sys::llama_model_default_params() };
    params.load_mode = sys::LLAMA_LOAD_MODE_MMAP;
    // SAFETY: the path is NUL-terminated and read only during the call.
    let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) };
    assert!(!model.is_null(), "llama.cpp loads the model");
    Loaded(model)
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: made by llama_model_load_from_file, freed once.
        unsafe { sys::llama_model_free(self.0) };
    }
}

fn silence() {
    // SAFETY: the callback has the required type and is never freed.
    unsafe { sys::llama_log_set(Some(ignore), std::ptr::null_mut()) };
}

unsafe extern "C" fn ignore(_level: sys::ggml_log_level, _text: *const c_char, _data: *mut c_void) {
}
