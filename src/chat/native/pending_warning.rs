//! A warning about a chat, reported once in the log and once in a reply.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::api::LogLevel;
use crate::diagnostic::Diagnostic;

/// A warning that has not been reported in both places.
#[derive(Debug)]
pub(super) struct PendingWarning {
    code: &'static str,
    /// The option that the warning is about.
    option: &'static str,
    text: String,
    unlogged: AtomicBool,
    unreported: AtomicBool,
}

impl PendingWarning {
    pub(super) fn new(code: &'static str, option: &'static str, text: String) -> PendingWarning {
        let (unlogged, unreported) = (AtomicBool::new(true), AtomicBool::new(true));
        PendingWarning { code, option, text, unlogged, unreported }
    }

    /// The log line, when called for the first time.
    pub(super) fn take_line(&self) -> Option<(LogLevel, String)> {
        let line = || (LogLevel::Warn, format!("{}: {}", self.option, self.text));
        self.unlogged.swap(false, Ordering::Relaxed).then(line)
    }

    /// The diagnostic for a reply, when called for the first time.
    pub(super) fn take_diagnostic(&self) -> Option<Diagnostic> {
        let diagnostic = || Diagnostic::new(self.code, self.text.as_str());
        self.unreported.swap(false, Ordering::Relaxed).then(diagnostic)
    }
}
