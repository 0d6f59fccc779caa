//! The state file of an isolated chat, in the helper: the host opens it and passes descriptors.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::message::LentStateCall;
use crate::llama::StateStore;

/// The state of one chat.
pub(super) struct LentState {
    name: String,
    /// The result of the one call to [`StateStore::open`].
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
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.into());
    }

    /// Whether the state was written completely.
    pub(super) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }
}

impl StateStore for LentState {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self) -> Result<Option<(File, u64)>, String> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stored, Ok(None))
    }

    fn replace(&self, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut target = target.ok_or_else(|| io::Error::other("the host has not opened it"))?;
        write(&mut target)?;
        self.is_written.store(true, Ordering::Relaxed);
        Ok(())
    }
}
