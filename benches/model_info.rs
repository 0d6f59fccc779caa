//! `llb_model_info` against loading the same file with llama.cpp: wall time and peak memory.
//!
//! Time: the runs alternate with a warm page cache, each a whole call (freeing the model is not
//! counted). `llb_model_info` runs in its own process, because it caches the profile of a template.
//! Memory: each runs in its own process; the figure is the growth of the peak resident set over its
//! size before the call. Nothing is asserted; the output says whether targets are met. `LLB_ROUNDS`
//! sets the number of rounds.
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

/// The figures of a child process: resident set in KiB, and the time of the call in milliseconds.
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
        measure::MODEL
    );
    time(&path, rounds);
    memory(&path, rounds.min(5));
}

fn time(path: &str, rounds: usize) {
    // A warm-up: loads file and code into memory.
    drop(load(path));
    model_info(path);
    let (mut info, mut again, mut loading) =
        (Figures::default(), Figures::default(), Figures::default());
    for round in 0..rounds {
        // A B B A, so that drift of the machine affects both.
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

/// The two parts of `llb_model_info`.
fn parts(path: &str, rounds: usize) -> (Figures, Figures) {
    let (mut header, mut profile) = (Figures::default(), Figures::default());
    for round in 0..rounds {
        let (took, read) =
            timed(|| ModelHeader::read_file(Path::new(path)).expect("the header is read"));
        header.push(took.as_secs_f64() * 1000.0);
        // Another token gives a template that is not cached.
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
        other.extension().is_some_and(|extension| extension == "gguf")
            && !other.ends_with(measure::MODEL)
    });
    others.sort();
    for other in others.iter().filter_map(|other| other.to_str()) {
        let name = other.rsplit('/').next().unwrap_or(other);
        row(&format!("growth, {name}"), &of("info", other).0);
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

/// Loads and frees a model with llama.cpp.
struct Loaded(*mut sys::llama_model);

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
