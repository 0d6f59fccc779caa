//! llama.cpp's log. One callback serves the whole process; each line goes to the queue of the
//! engine thread that logged it.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use llama_cpp_sys_2 as sys;

use super::shim;
use crate::api::LogLevel;
use crate::error::Error;
use crate::process::Lazy;

/// The maximum number of log lines that are kept until a caller fetches them. The oldest are
/// dropped.
const MAX_LINES: usize = 256;

/// Log lines of one engine.
#[derive(Default)]
pub struct LogQueue {
    lines: Mutex<LogLines>,
}

#[derive(Default)]
struct LogLines {
    kept: VecDeque<(LogLevel, String)>,
    /// How many of the kept lines were there when a failure was last explained.
    explained: usize,
}

thread_local! {
    static QUEUE: RefCell<Option<Arc<LogQueue>>> = const { RefCell::new(None) };
    static LEVEL: RefCell<LogLevel> = const { RefCell::new(LogLevel::Info) };
}

impl LogQueue {
    /// Takes the lines of at least this level and drops the others.
    pub fn take(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.explained = 0;
        lines.kept.drain(..).filter(|(level, _)| *level >= least).collect()
    }

    /// What the error lines add to `said` about a failure. Lines that explained an earlier failure
    /// do not count.
    pub(crate) fn explain(&self, said: &str) -> Option<String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = lines.explained;
        lines.explained = lines.kept.len();
        let errors = lines.kept.iter().skip(skipped).filter(|(level, _)| *level == LogLevel::Error);
        reason(said, errors.map(|(_, text)| text.as_str()))
    }

    /// Adds the reason that llama.cpp logged to the error of a call that returned NULL.
    pub(crate) fn add_reason(&self, error: Error) -> Error {
        match self.explain(error.message()) {
            Some(reason) => {
                let message = format!("{}: {reason}", error.message());
                Error::new(error.code(), message).caused_by(error)
            }
            None => error,
        }
    }

    /// Adds a line of llb itself.
    pub(crate) fn push(&self, level: LogLevel, text: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.kept.len() == MAX_LINES {
            // llama.cpp writes hundreds of debug lines for each load.
            let first = lines.kept.iter().position(|(level, _)| *level == LogLevel::Debug);
            let removed = first.unwrap_or(0);
            lines.kept.remove(removed);
            lines.explained -= usize::from(removed < lines.explained);
        }
        lines.kept.push_back((level, text));
    }
}

/// Keeps llama.cpp from writing to stderr, once per process.
pub(crate) fn install() {
    static INSTALLED: Lazy<()> = Lazy::new(|| {
        // SAFETY: `on_log` has the required type, lives forever and uses no user data.
        unsafe { sys::llama_log_set(Some(on_log), std::ptr::null_mut()) };
        #[cfg(feature = "media")]
        // SAFETY: as above.
        unsafe {
            sys::mtmd_log_set(Some(on_log), std::ptr::null_mut());
        };
    });
    *INSTALLED;
}

/// From now on, sends this thread's log lines to `queue`.
pub(crate) fn collect_on_this_thread(queue: Arc<LogQueue>) {
    let _ = QUEUE.try_with(|slot| *slot.borrow_mut() = Some(queue));
}

/// Runs `work`, which computes a batch, and keeps this thread's log lines until it ends. Of a batch
/// that llb gave up, which `is_given_up` sees from the result, the errors become debug lines: for
/// llama.cpp an abort is a failure.
pub(crate) fn hold<T>(work: impl FnOnce() -> T, is_given_up: impl FnOnce(&T) -> bool) -> T {
    let held = Arc::new(LogQueue::default());
    let queue = QUEUE.try_with(|slot| slot.replace(Some(Arc::clone(&held)))).ok().flatten();
    let result = work();
    let _ = QUEUE.try_with(|slot| slot.replace(queue.clone()));
    if let Some(queue) = queue {
        let given_up = is_given_up(&result);
        for (level, text) in held.take(LogLevel::Debug) {
            let is_expected = given_up && level == LogLevel::Error;
            queue.push(if is_expected { LogLevel::Debug } else { level }, text);
        }
    }
    result
}

/// The maximum number of bytes of a reason. A file can make llama.cpp print long names.
const MAX_REASON: usize = 600;

/// Joins log lines into a reason, without function names and without the folders of source files.
/// llama.cpp reports one failure on several lines, from the cause outwards. A line is skipped if
/// earlier lines already contain all its words.
fn reason<'a>(said: &str, lines: impl Iterator<Item = &'a str>) -> Option<String> {
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect::<Vec<String>>()
    };
    let mut known: HashSet<String> = words(said).into_iter().collect();
    known.extend(["error", "failed", "to", "a"].map(str::to_owned));
    let mut parts: Vec<String> = Vec::new();
    for line in lines {
        let text = cleaned(line);
        let new = words(&text);
        if new.iter().all(|word| known.contains(word)) {
            continue;
        }
        known.extend(new);
        parts.push(text);
    }
    let mut joined = parts.join("; ");
    while joined.len() > MAX_REASON {
        joined.pop();
    }
    (!joined.is_empty()).then_some(joined)
}

/// A log line without the name of the function that logged it, and without folders of source files.
fn cleaned(line: &str) -> String {
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "_:~<>".contains(c));
    let text = match line.split_once(": ") {
        Some((function, text)) if is_name(function) => text,
        _ => line,
    };
    let is_source = |word: &str| {
        [".c:", ".cc:", ".cpp:", ".cu:", ".cuh:", ".h:", ".hpp:", ".m:", ".mm:"]
            .iter()
            .any(|ending| word.contains(ending))
    };
    let words = text.split_whitespace().map(|word| match word.rsplit_once(['/', '\\']) {
        Some((_, file)) if is_source(file) => file,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

unsafe extern "C" fn on_log(
    level: sys::ggml_log_level,
    text: *const c_char,
    _user_data: *mut c_void,
) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) };
    shim::callback((), || take_line(level, text));
}

fn take_line(level: sys::ggml_log_level, text: &CStr) {
    let text = text.to_string_lossy();
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let level = match level {
        sys::GGML_LOG_LEVEL_DEBUG => Some(LogLevel::Debug),
        sys::GGML_LOG_LEVEL_INFO => Some(LogLevel::Info),
        sys::GGML_LOG_LEVEL_WARN => Some(LogLevel::Warn),
        sys::GGML_LOG_LEVEL_ERROR => Some(LogLevel::Error),
        // A continuation line has the level of the line before it.
        _ => None,
    };
    let _ = QUEUE.try_with(|queue| {
        let Ok(queue) = queue.try_borrow() else { return };
        let Some(queue) = queue.as_ref() else { return };
        let level = level.unwrap_or_else(|| LEVEL.with(|last| *last.borrow()));
        LEVEL.with(|last| *last.borrow_mut() = level);
        queue.push(level, text.to_owned());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], expected: Option<&str>) {
        let queue = LogQueue::default();
        queue.push(LogLevel::Error, "load: of an earlier attempt".into());
        queue.explain("");
        queue.push(LogLevel::Info, "load: not an error".into());
        lines.iter().for_each(|line| queue.push(LogLevel::Error, (*line).to_owned()));
        let reason = queue.explain("llama.cpp could not load the model");
        assert_eq!(reason.as_deref(), expected);
        assert_eq!(queue.explain(""), None, "a line explains one failure");
        assert_eq!(queue.take(LogLevel::Error).len(), lines.len() + 1);
    }

    #[test]
    fn an_abort_is_no_error() {
        let queue = Arc::new(LogQueue::default());
        collect_on_this_thread(Arc::clone(&queue));
        for is_given_up in [false, true] {
            let status = hold(
                || {
                    take_line(sys::GGML_LOG_LEVEL_ERROR, c"failed to decode, ret = 2\n");
                    take_line(sys::GGML_LOG_LEVEL_WARN, c"slow\n");
                    assert_eq!(queue.take(LogLevel::Debug).len(), 0);
                    2
                },
                |status| *status == 2 && is_given_up,
            );
            assert_eq!(status, 2);
            let level = if is_given_up { LogLevel::Debug } else { LogLevel::Error };
            let lines = [(level, "failed to decode, ret = 2"), (LogLevel::Warn, "slow")];
            assert_eq!(
                queue.take(LogLevel::Debug),
                lines.map(|(level, it)| (level, it.to_owned()))
            );
        }
        take_line(sys::GGML_LOG_LEVEL_INFO, c"after");
        assert_eq!(queue.take(LogLevel::Debug).len(), 1);
    }

    #[test]
    fn debug_lines_are_dropped_first() {
        let queue = LogQueue::default();
        queue.push(LogLevel::Info, "first".into());
        (0..MAX_LINES).for_each(|_| queue.push(LogLevel::Debug, "debug".into()));
        queue.push(LogLevel::Info, "second".into());
        let kept: Vec<String> = queue.take(LogLevel::Info).into_iter().map(|it| it.1).collect();
        assert_eq!(kept, ["first", "second"]);
        (0..=MAX_LINES).for_each(|line| queue.push(LogLevel::Info, line.to_string()));
        assert_eq!(queue.take(LogLevel::Debug)[0].1, "1", "then the oldest");
    }

    #[test]
    fn a_reason_has_what_each_line_adds() {
        check(&[], None);
        check(
            &[
                "llama_model_load: error loading model: missing tensor 'blk.0.attn_q.weight'",
                "llama_model_load_from_file_impl: failed to load model",
            ],
            Some("error loading model: missing tensor 'blk.0.attn_q.weight'"),
        );
        check(
            &[
                "alloc_buffer: failed to allocate buffer of size 77",
                "llama_init: failed to initialize the context: no room for the KV cache",
                "llama_init: failed to initialize the context",
            ],
            Some(
                "failed to allocate buffer of size 77; failed to initialize the context: no room for the KV cache",
            ),
        );
        check(&["failed to load model"], None);
        check(
            &["ggml::run<f32>: fault at /home/builder/ggml/src/ggml-cuda.cu:98 in /models/a.gguf"],
            Some("fault at ggml-cuda.cu:98 in /models/a.gguf"),
        );
        let long = "é".repeat(MAX_REASON);
        check(&[&long], Some(&long[..MAX_REASON]));
    }
}
