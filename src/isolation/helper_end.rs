//! How a helper process ended, as a message and as an error.

use crate::error::{Code, Error};

/// Why a helper ended.
#[derive(Debug, Clone)]
pub(super) struct HelperEnd {
    message: String,
    /// The member added to the error's details: the exit status or the signal.
    detail: Option<(&'static str, i32)>,
}

impl HelperEnd {
    /// An end that the host observed, with its own message.
    pub(super) fn told(message: String) -> HelperEnd {
        HelperEnd { message, detail: None }
    }

    /// The error for the calls that were running.
    pub(super) fn error(&self) -> Error {
        let error = Error::new(Code::InferenceFailed, self.message.clone());
        match self.detail {
            Some((key, value)) => error.with(key, value),
            None => error,
        }
    }

    /// From a status of `waitpid`.
    pub(super) fn of(status: i32) -> HelperEnd {
        let what = "the helper process of the model ended";
        let signal = status & 0x7f;
        if signal == 0 {
            let code = (status >> 8) & 0xff;
            let message = format!("{what} with exit status {code}");
            return HelperEnd { message, detail: Some(("exit_status", code)) };
        }
        let name = signal_name(signal).map(|name| format!(" ({name})")).unwrap_or_default();
        let message = format!("{what} by signal {signal}{name}");
        HelperEnd { message, detail: Some(("signal", signal)) }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    names.into_iter().find(|(number, _)| *number == signal).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        for (status, expected) in [
            (11, "the helper process of the model ended by signal 11 (SIGSEGV)"),
            (0x86, "the helper process of the model ended by signal 6 (SIGABRT)"),
            (9, "the helper process of the model ended by signal 9 (SIGKILL)"),
            (63, "the helper process of the model ended by signal 63"),
            (0x300, "the helper process of the model ended with exit status 3"),
        ] {
            assert_eq!(HelperEnd::of(status).message, expected);
        }
    }
}
