//! The state file of an isolated chat: the host opens it and passes descriptors to the helper.
//!
//! Only the helper knows the size of its model's state, and it is not trusted. A state was in the
//! memory of the helper before it is written, so the memory of the system bounds it.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::message::LentStateCall;
use crate::llama::{self, StateStore};
use crate::sync::lock;

/// The state of one chat.
pub(super) struct LentState {
    name: String,
    /// The last state and its size, or why the state file must not be read.
    stored: Mutex<Result<Option<(File, u64)>, String>>,
    target: Mutex<Option<File>>,
    is_written: AtomicBool,
}

impl LentState {
    pub(super) fn new(call: LentStateCall, descriptor: Option<OwnedFd>) -> LentState {
        let stored = match call.problem {
            Some(problem) => Err(problem),
            None => Ok(descriptor.map(File::from).zip(call.size)),
        };
        LentState {
            name: call.name,
            stored: Mutex::new(stored),
            target: Mutex::new(None),
            is_written: AtomicBool::new(false),
        }
    }

    /// Sets the file that the next write goes to.
    pub(super) fn write_to(&self, target: OwnedFd) {
        *lock(&self.target) = Some(target.into());
        self.is_written.store(false, Ordering::Relaxed);
    }

    /// Forgets that file. Returns whether the state was written to it completely.
    pub(super) fn end_writing(&self) -> bool {
        lock(&self.target).take();
        self.is_written.swap(false, Ordering::Relaxed)
    }
}

impl StateStore for LentState {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self) -> Result<Option<(File, u64)>, String> {
        let stored = lock(&self.stored);
        let Some((file, size)) = stored.as_ref().map_err(String::clone)? else { return Ok(None) };
        let opened = file.try_clone().and_then(|mut file| {
            // The descriptors share their position.
            file.rewind()?;
            Ok((file, *size))
        });
        opened.map(Some).map_err(|error| error.to_string())
    }

    fn replace(&self, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
        let target = lock(&self.target).take();
        let mut target = target.ok_or_else(|| io::Error::other("the host has not opened it"))?;
        write(&mut target)?;
        let size = target.metadata()?.len();
        *lock(&self.stored) = Ok(Some((target, size)));
        self.is_written.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The limit where the system does not report its memory.
const MAX_UNKNOWN: u64 = 1 << 40;

/// The maximum size of a state file in bytes.
pub(super) fn most_state_bytes() -> u64 {
    llama::installed_memory().unwrap_or(MAX_UNKNOWN)
}

/// Fails if a helper wrote more than `most` bytes to a state file.
pub(super) fn check_size(file: &File, most: u64) -> io::Result<()> {
    let size = file.metadata()?.len();
    if size > most {
        let problem = format!(
            "the helper process wrote {size} bytes, but a state has at most {most} on this system"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(state: &LentState) -> Option<String> {
        let (file, size) = state.open().expect("it may be read")?;
        let text = io::read_to_string(file).expect("a text");
        assert_eq!(text.len() as u64, size);
        Some(text)
    }

    #[test]
    fn what_was_written_can_be_read_again() {
        use std::io::Write;
        let call = LentStateCall { name: "state".into(), size: None, problem: None };
        let state = LentState::new(call, None);
        assert_eq!(content(&state), None);
        let write = |text: &str| state.replace(&mut |file| file.write_all(text.as_bytes()));
        assert!(write("no file was lent").is_err() && !state.end_writing());
        for text in ["first", "second, longer"] {
            state.write_to(tempfile::tempfile().expect("a file").into());
            write(text).expect("written");
            assert!(state.end_writing() && !state.end_writing());
            assert_eq!(content(&state).as_deref(), Some(text));
            assert_eq!(content(&state).as_deref(), Some(text), "read twice");
        }
        state.write_to(tempfile::tempfile().expect("a file").into());
        assert!(!state.end_writing() && write("taken back").is_err());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1001).expect("a size");
        assert!(check_size(&file, 1001).is_ok());
        let refused = check_size(&file, 1000).expect_err("too large");
        let expected =
            "the helper process wrote 1001 bytes, but a state has at most 1000 on this system";
        assert_eq!(refused.to_string(), expected);
    }
}
