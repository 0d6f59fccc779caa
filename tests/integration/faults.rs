//! Tests faults of the system: model files that are truncated while in use, and the host's handlers
//! for the same signals. Each case runs in a child process, because a fault would end it.

use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::abi::{Chat, Embedder, Recorder, ask, scripted_model};
use crate::scripted;

const CHILD: &str = "LLB_TEST_FAULT_CHILD";

/// Runs the test with this name again in a child process. Returns `None` in that child, after it
/// has called `run`.
fn in_child(name: &str, run: fn()) -> Option<ExitStatus> {
    if std::env::var_os(CHILD).is_some() {
        run();
        return None;
    }
    let name = format!("faults::{name}");
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name.as_str(), "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(text.contains("running 1 test"), "{name} did not run: {text}");
    if child.status.code() == Some(101) {
        panic!("{}", String::from_utf8_lossy(&child.stderr));
    }
    Some(child.status)
}

/// Writes a model of 200 KB all of whose tensors are used for every token.
fn write_model(path: &str) {
    std::fs::write(path, scripted::random::random(scripted::random::Memory::Dense)).unwrap();
}

/// Blocks all signals, as hosts do on threads that should not run their handlers. New threads
/// inherit the mask, and a fault whose signal is blocked ends the process.
fn block_all_signals() {
    // SAFETY: zeros are an empty set.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid.
    assert_eq!(unsafe { libc::sigfillset(&raw mut all) }, 0);
    // SAFETY: as above; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
}

/// Truncates a file to its first page.
fn cut(path: &str) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
}

#[test]
fn a_file_that_is_cut_between_turns_is_an_error() {
    let status = in_child("a_file_that_is_cut_between_turns_is_an_error", || {
        block_all_signals();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf").to_str().unwrap().to_owned();
        write_model(&path);
        for n_threads in [1, 2] {
            let options = json!({ "model": path, "n_threads": n_threads, "tool_policy": "any" });
            let chat = Chat::open_with(&options).unwrap();
            let other = Chat::open_with(&options).unwrap();
            let request = ask(json!({ "max_tokens": 2 }));
            assert_eq!(chat.infer(&request)["finish_reason"], "length");
            cut(&path);
            let reply = chat.infer(&request);
            assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
            let message = reply["error"]["message"].as_str().unwrap();
            assert!(message.contains("the file was cut short") && message.contains(&path));
            for chat in [&chat, &other] {
                assert_eq!(chat.infer(&request)["error"]["code"], "ENGINE_CLOSED");
            }
            let refused = Chat::open_with(&options).err().expect("a file that is cut");
            assert_eq!(refused.code(), "MODEL_INVALID");
            write_model(&path);
            let again = Chat::open_with(&options).unwrap();
            assert_eq!(again.infer(&request)["finish_reason"], "length");
        }
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

#[test]
fn a_file_that_is_cut_between_vectors_is_an_error() {
    let status = in_child("a_file_that_is_cut_between_vectors_is_an_error", || {
        block_all_signals();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf").to_str().unwrap().to_owned();
        let files = [scripted::encoder::embedding(), scripted::random::quantized()];
        for (file, n_threads) in files.iter().flat_map(|file| [(file, 1), (file, 2)]) {
            std::fs::write(&path, file).unwrap();
            let options = json!({ "model": path, "n_threads": n_threads });
            let embedder = Embedder::create(&options).unwrap();
            let request = json!({ "input": ["a", "the cat"] });
            assert_eq!(embedder.embed(&request)["type"], "embeddings");
            cut(&path);
            let reply = embedder.embed(&request);
            assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
            assert!(reply["error"]["message"].as_str().unwrap().contains("was cut short"));
            assert_eq!(embedder.embed(&request)["error"]["code"], "ENGINE_CLOSED");
            let refused = Embedder::create(&options).err().expect("a file that is cut");
            assert_eq!(refused["error"]["code"], "MODEL_INVALID");
            std::fs::write(&path, file).unwrap();
            let again = Embedder::create(&options).unwrap();
            assert_eq!(again.embed(&request)["type"], "embeddings");
        }
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

#[test]
fn a_file_that_is_cut_while_it_is_loaded_is_an_error() {
    let status = in_child("a_file_that_is_cut_while_it_is_loaded_is_an_error", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf").to_str().unwrap().to_owned();
        for use_mmap in [true, false] {
            write_model(&path);
            let cuts = path.clone();
            let events = Recorder::reacting(move |event| {
                if event.starts_with("load_progress:") {
                    cut(&cuts);
                }
            });
            let options = json!({ "model": path, "use_mmap": use_mmap, "tool_policy": "any" });
            match Chat::open_recorded(&options, events) {
                // The file was truncated after the load's last access to it.
                Ok(chat) => {
                    let reply = chat.infer(&ask(json!({ "max_tokens": 2 })));
                    let code = reply["error"]["code"].as_str();
                    assert!(
                        !use_mmap || matches!(code, Some("INFERENCE_FAILED" | "ENGINE_CLOSED")),
                        "{reply}"
                    );
                }
                Err(refused) => {
                    assert_eq!(refused.code(), "MODEL_INVALID", "{refused:?}");
                    let last = refused.events.last().map(String::as_str);
                    assert_eq!(last, Some("create_failure:load_model"));
                }
            }
        }
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

/// The signals for which both the library and the host have handlers.
const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGFPE, libc::SIGBUS];

/// Loads a model, which installs the handlers.
fn load() -> Chat {
    let options =
        json!({ "model": scripted_model("text.gguf"), "n_ctx": 1024, "isolation": "none" });
    let chat = Chat::open_with(&options).unwrap();
    assert_eq!(chat.infer(&ask(json!({})))["finish_reason"], "stop");
    chat
}

/// Reads at an address where nothing is mapped, or from a page beyond the end of its file.
fn fault(address: *const u8) {
    // SAFETY: none. The test needs the fault.
    unsafe { address.read_volatile() };
}

fn install(signal: c_int, handler: usize) {
    // SAFETY: zeros are an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is valid.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
}

fn handler(signal: c_int) -> usize {
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the action has room for the result.
    assert_eq!(unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) }, 0);
    action.sa_sigaction
}

fn address(info: *const libc::siginfo_t) -> *mut c_void {
    // SAFETY: the system passes a valid structure to handlers.
    let info = unsafe { &*info };
    // SAFETY: a fault has an address.
    unsafe { info.si_addr() }
}

/// Ends the process with a status that shows whether the fault was the expected one, at address 16.
extern "C" fn ending(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let is_expected = address(info) as usize == 16;
    // SAFETY: may be called in a handler.
    unsafe { libc::_exit(if is_expected { 42 } else { 43 }) };
}

#[test]
fn a_handler_of_the_host_gets_the_faults_of_the_host() {
    let status = in_child("a_handler_of_the_host_gets_the_faults_of_the_host", || {
        install(libc::SIGSEGV, ending as *const () as usize);
        let _chat = load();
        fault(16 as *const u8);
    });
    assert!(status.is_none_or(|status| status.code() == Some(42)), "{status:?}");
}

/// The address at which the host of [`mapping`] maps a page on first use.
const WANTED: usize = 0x1000_0000_0000;
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Maps the page, so that the thread can continue.
extern "C" fn mapping(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping where nothing is mapped.
    let mapped = unsafe { libc::mmap(address(info), 4096, libc::PROT_READ, flags, -1, 0) };
    MAPPED.fetch_add(usize::from(mapped as usize == WANTED), Ordering::SeqCst);
}

#[test]
fn a_handler_of_the_host_may_repair_and_return() {
    let status = in_child("a_handler_of_the_host_may_repair_and_return", || {
        install(libc::SIGSEGV, mapping as *const () as usize);
        let chat = load();
        fault(WANTED as *const u8);
        assert_eq!(MAPPED.load(Ordering::SeqCst), 1);
        assert_eq!(chat.infer(&ask(json!({})))["finish_reason"], "stop");
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

#[track_caller]
fn wait_for_handlers(signals: &[c_int], expected: usize) {
    let start = Instant::now();
    while signals.iter().any(|signal| handler(*signal) != expected) {
        assert!(start.elapsed() < Duration::from_secs(60), "the library's handlers are left");
        std::thread::yield_now();
    }
}

#[test]
fn a_host_without_a_model_has_its_own_handlers() {
    let status = in_child("a_host_without_a_model_has_its_own_handlers", || {
        let own = ending as *const () as usize;
        SIGNALS.iter().for_each(|signal| install(*signal, own));
        let info = crate::abi::model_info(&scripted_model("text.gguf"));
        assert_eq!(info["type"], "model_info");
        assert_eq!(SIGNALS.map(handler), [own; 3], "a header needs no handlers");
        for _ in 0..2 {
            let chat = load();
            assert!(SIGNALS.iter().all(|signal| handler(*signal) != own));
            drop(chat);
            // A thread that prepares grammars may keep the model for a moment.
            wait_for_handlers(&SIGNALS, own);
        }
        // A handler that was installed later stays installed.
        let chat = load();
        let later = mapping as *const () as usize;
        install(libc::SIGSEGV, later);
        drop(chat);
        wait_for_handlers(&SIGNALS[1..], own);
        let _chat = load();
        assert_eq!(handler(libc::SIGSEGV), later);
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}

#[test]
fn a_fault_of_the_host_ends_it_as_before() {
    let status = in_child("a_fault_of_the_host_ends_it_as_before", || {
        install(libc::SIGSEGV, libc::SIG_DFL);
        let _chat = load();
        fault(16 as *const u8);
    });
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGSEGV)), "{status:?}");
}

#[test]
fn a_cut_file_of_the_host_is_the_hosts() {
    let status = in_child("a_cut_file_of_the_host_is_the_hosts", || {
        install(libc::SIGBUS, libc::SIG_DFL);
        let _chat = load();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: a new mapping.
        let mapped = unsafe {
            let at = std::ptr::null_mut();
            libc::mmap(at, 8192, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
        };
        file.set_len(0).unwrap();
        fault(mapped.cast());
    });
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGBUS)), "{status:?}");
}

#[test]
fn a_signal_that_the_host_ignores_is_ignored() {
    let status = in_child("a_signal_that_the_host_ignores_is_ignored", || {
        install(libc::SIGFPE, libc::SIG_IGN);
        let _chat = load();
        // SAFETY: takes a number.
        assert_eq!(unsafe { libc::raise(libc::SIGFPE) }, 0);
    });
    assert!(status.is_none_or(|status| status.success()), "{status:?}");
}
