//! llama.cpp's log. One callback serves the whole process; each line goes to the queue of the
//! engine thread that logged it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use llama_cpp_sys_2 as sys;

use super::shim;
use crate::api::LogLevel;
use crate::process::Lazy;

/// Lines kept until a caller fetches them. The oldest are dropped.
const MOST_LINES: usize = 256;

/// Log lines of one engine.
#[derive(Default)]
pub struct LogQueue {
    lines: Mutex<VecDeque<(LogLevel, String)>>,
}

thread_local! {
    static QUEUE: RefCell<Option<Arc<LogQueue>>> = const { RefCell::new(None) };
    static LEVEL: RefCell<LogLevel> = const { RefCell::new(LogLevel::Info) };
}

impl LogQueue {
    /// Takes the lines of at least this level and drops the others.
    pub fn take(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.drain(..).filter(|(level, _)| *level >= least).collect()
    }

    /// The last error line, for an error message.
    pub(crate) fn last_error(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .rev()
            .find(|(level, _)| *level == LogLevel::Error)
            .map(|(_, text)| text.clone())
    }

    /// Adds a line of llb.
    pub(crate) fn push(&self, level: LogLevel, text: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MOST_LINES {
            lines.pop_front();
        }
        lines.push_back((level, text));
    }
}

/// Keeps llama.cpp from writing to stderr, once per process.
pub(crate) fn install() {
    static INSTALLED: Lazy<()> = Lazy::new(|| {
        // SAFETY: `on_log` has the required type, lives forever and uses no user data.
        unsafe { sys::llama_log_set(Some(on_log), std::ptr::null_mut()) };
    });
    *INSTALLED;
}

/// Sends further log lines of this thread to `queue`.
pub(crate) fn collect_on_this_thread(queue: Arc<LogQueue>) {
    let _ = QUEUE.try_with(|slot| *slot.borrow_mut() = Some(queue));
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
        // A continuation has the level of the line before it.
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
