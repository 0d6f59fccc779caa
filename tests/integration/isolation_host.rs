//! Tests the effects of the option `isolation` on the host's process: children, descriptors, forks,
//! the end of the host, and a kernel that refuses restrictions. Cases that change the process run
//! in a child process.

use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use llb::ffi;
use serde_json::json;

use crate::abi::{ask, infer, scripted_model};
use crate::isolation::{code, exists, kill, open, stop_both, wait_for_end, worker};
use crate::scripted::TEXT;

/// Names the case for a child process of this program.
const CASE: &str = "LLB_TEST_ISOLATION_CASE";

/// Runs a case of [`cases`] in a child process. Returns its output.
fn in_child(case: &str) -> String {
    scripted_model("text.gguf");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["isolation_host::cases", "--exact", "--nocapture"])
        .env(CASE, case)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stdout).into_owned();
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{case}: {}: {printed}{errors}", child.status);
    printed
}

#[test]
fn cases() {
    match std::env::var(CASE).as_deref() {
        Ok("host") => host_case(),
        Ok("orphan") => orphan_case(false),
        Ok("stopped orphan") => orphan_case(true),
        Ok("kernel") => kernel_case(),
        Ok("fork") => fork_case(),
        _ => {}
    }
}

static CHILD_SIGNALS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn on_child(_: libc::c_int) {
    CHILD_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// A host that waits for any child process, and counts its descriptors.
fn host_case() {
    let handler: extern "C" fn(libc::c_int) = on_child;
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGCHLD, handler as libc::sighandler_t) };
    // SAFETY: takes numbers. Processes without a parent come to this one.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 0) }, 0);
    let n_descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let model = scripted_model("text.gguf");
    let options = json!({ "model": model, "log": "info" });
    drop(open(options.clone()));
    let before = n_descriptors();
    for round in 0..6 {
        let chat = open(options.clone());
        if round % 2 == 0 {
            assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
        } else {
            let process = worker(&chat.events());
            kill(process, libc::SIGSEGV);
            // A busy machine may deliver the signal after a reply.
            wait_for_end(process);
            assert_eq!(code(&chat.infer(&ask(json!({})))), "INFERENCE_FAILED");
        }
        // SAFETY: no status is asked for.
        let waited = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        assert_eq!(waited, -1, "no child is known to this process");
    }
    assert_eq!(n_descriptors(), before);
    assert_eq!(CHILD_SIGNALS.load(Ordering::Relaxed), 0);
}

#[test]
fn the_host_gets_no_child_and_loses_no_descriptor() {
    in_child("host");
}

/// Opens a chat, prints the id of its process, and waits to be killed.
fn orphan_case(stops: bool) {
    let chat = open(json!({ "model": scripted_model("text.gguf"), "log": "info" }));
    if stops {
        stop_both(&chat);
    }
    println!("\nworker {}", worker(&chat.events()));
    // The test holds the other end, so this returns when the test ends.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn the_process_ends_with_its_host() {
    ["orphan", "stopped orphan"].into_iter().for_each(kill_host_of);
}

fn kill_host_of(case: &str) {
    use std::io::{BufRead, BufReader};
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["isolation_host::cases", "--exact", "--nocapture"])
        .env(CASE, case)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    let process = lines
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("worker ").map(|number| number.parse().unwrap()))
        .unwrap();
    assert!(exists(process));
    host.kill().unwrap();
    host.wait().unwrap();
    wait_for_end(process);
}

#[test]
fn the_process_has_nothing_of_its_host() {
    let file = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: the descriptor is open; the copy is inherited by programs that are started.
    let inherited = unsafe { libc::dup(std::os::fd::AsRawFd::as_raw_fd(&file)) };
    let chat = open(json!({ "model": scripted_model("tool_call.gguf"), "log": "info" }));
    let process = worker(&chat.events());
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
    let status = read("status");
    for expected in ["Seccomp:\t2", "NoNewPrivs:\t1"] {
        assert!(status.contains(expected), "{status}");
    }
    // Not even those of root.
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t{:016x}", 0)), "{status}");
    }
    let variables: Vec<String> = read("environ")
        .split('\0')
        .filter_map(|variable| Some(variable.split_once('=')?.0.to_owned()))
        .collect();
    assert!(
        variables.iter().all(|name| name == "LLB_HELPER" || name == "LD_LIBRARY_PATH"),
        "{variables:?}"
    );
    let links = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let links: Vec<String> = links
        .filter_map(|link| std::fs::read_link(link.unwrap().path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let n_null = links.iter().filter(|link| *link == "/dev/null").count();
    assert_eq!(n_null, 3, "standard input, output and error: {links:?}");
    let is_own = |link: &String| {
        link == "/dev/null"
            || link.starts_with("socket:")
            || link.starts_with("pipe:")
            || link.contains("tool_call.gguf")
    };
    assert!(links.iter().all(is_own), "{links:?}");
    // SAFETY: it was opened above.
    unsafe { libc::close(inherited) };
}

#[test]
fn root_can_open_the_model_of_another_user() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::copy(scripted_model("text.gguf"), &model).unwrap();
    if std::os::unix::fs::chown(&model, Some(12345), None).is_err() {
        return println!("not as root: the model of another user");
    }
    std::fs::set_permissions(&model, std::fs::Permissions::from_mode(0o600)).unwrap();
    let chat = open(json!({ "model": model, "log": "info" }));
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
    let path = format!("/proc/{}/status", worker(&chat.events()));
    let status = std::fs::read_to_string(path).unwrap();
    // CAP_DAC_READ_SEARCH alone.
    assert!(status.contains(&format!("CapPrm:\t{:016x}", 1 << 2)), "{status}");
}

/// A kernel that refuses Landlock: in this process and its helper, that system call does not exist.
fn kernel_case() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let calls = [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self];
    let filter = SeccompFilter::new(
        calls.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    seccompiler::apply_filter_all_threads(&BpfProgram::try_from(filter.unwrap()).unwrap()).unwrap();
    let chat = open(json!({ "model": scripted_model("text.gguf"), "log": "warn" }));
    let told = "log:warn:isolation: the helper process is not fully restricted: Landlock: ";
    let events = chat.events();
    assert!(events.iter().any(|event| event.starts_with(told)), "{events:?}");
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

#[test]
fn a_kernel_without_landlock_is_told() {
    in_child("kernel");
    let chat = open(json!({ "model": scripted_model("text.gguf"), "log": "warn" }));
    let warned = chat.events().iter().any(|event| event.starts_with("log:warn:isolation"));
    assert!(!warned, "this kernel has it: {:?}", chat.events());
}

/// A host that forks: the chat is closed in the child, and continues to work in the parent.
fn fork_case() {
    let chat = open(json!({ "model": scripted_model("text.gguf") }));
    // SAFETY: the child only calls the library and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let closed = code(&infer(chat.handle(), &ask(json!({})))) == "ENGINE_CLOSED";
        ffi::llb_chat_destroy(chat.handle());
        let own = open(json!({ "model": scripted_model("text.gguf") }));
        let replied = own.infer(&ask(json!({})))["text"] == TEXT;
        drop(own);
        // SAFETY: takes a number.
        unsafe { libc::_exit(if closed && replied { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the status is valid during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

#[test]
fn a_forked_host_has_helpers_of_its_own() {
    in_child("fork");
}
