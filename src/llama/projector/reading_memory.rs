//! The memory that media files take while they are read and encoded, for all models of the process.
//! Those that do not fit beside others wait for them: the picture of a small file may take a
//! gigabyte.

use std::thread;
use std::time::Duration;

use crate::engine::MediaError;
use crate::error::{Code, Error, Result};
use crate::llama::raw::machine_memory::available_memory;
use crate::media::OverCheck;
use crate::process::{self, Shared};

/// The part of the available memory that stays free, as a divisor.
const RESERVE: u64 = 8;
/// How often a file that waits looks whether there is memory, and whether its call is over.
const LOOK: Duration = Duration::from_millis(20);

static TAKEN: Shared<MemoryTaken> = Shared::new(MemoryTaken { forks: 0, bytes: 0 });

/// What all files take that are being read.
struct MemoryTaken {
    /// A forked child reads none of its parent's files.
    forks: usize,
    bytes: u64,
}

/// Memory for one file, until it is dropped.
pub(super) struct ReadingMemory {
    all: &'static Shared<MemoryTaken>,
    bytes: u64,
}

impl ReadingMemory {
    /// Waits until there are so many bytes. `make_room` is called once if there are not.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if no other file is read whose end could be waited for. An error about the
    /// file, if the call is over.
    pub(super) fn take(
        bytes: u64,
        is_over: OverCheck,
        make_room: &dyn Fn(),
    ) -> std::result::Result<ReadingMemory, MediaError> {
        ReadingMemory::take_of(&TAKEN, &available_memory, bytes, is_over, make_room)
    }

    /// Takes so many bytes, if there are.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub(super) fn take_now(bytes: u64) -> Result<ReadingMemory> {
        let taken = ReadingMemory::try_take(&TAKEN, &available_memory, bytes);
        taken.map_err(|(_, free)| too_little(bytes, free))
    }

    fn take_of(
        all: &'static Shared<MemoryTaken>,
        available: &dyn Fn() -> Option<u64>,
        bytes: u64,
        is_over: OverCheck,
        make_room: &dyn Fn(),
    ) -> std::result::Result<ReadingMemory, MediaError> {
        let mut has_made_room = false;
        loop {
            let (others, free) = match ReadingMemory::try_take(all, available, bytes) {
                Ok(taken) => return Ok(taken),
                Err(sizes) => sizes,
            };
            if !has_made_room {
                has_made_room = true;
                make_room();
            } else if is_over() {
                return Err(MediaError::File("the call is over".to_owned()));
            } else if others == 0 {
                return Err(MediaError::Engine(too_little(bytes, free)));
            } else {
                thread::sleep(LOOK);
            }
        }
    }

    /// Fails with the bytes that other files take, and those that are free for all.
    fn try_take(
        all: &'static Shared<MemoryTaken>,
        available: &dyn Fn() -> Option<u64>,
        bytes: u64,
    ) -> std::result::Result<ReadingMemory, (u64, u64)> {
        let mut taken = all.lock();
        if taken.forks != process::forks() {
            *taken = MemoryTaken { forks: process::forks(), bytes: 0 };
        }
        let free = available().map_or(u64::MAX, |free| free - free / RESERVE);
        if bytes > 0 && taken.bytes.saturating_add(bytes) > free {
            return Err((taken.bytes, free));
        }
        taken.bytes += bytes;
        Ok(ReadingMemory { all, bytes })
    }
}

fn too_little(needed: u64, free: u64) -> Error {
    let (needed_mib, free_mib) = (needed >> 20, free >> 20);
    let problem = format!(
        "a media file needs about {needed_mib} MiB of memory while it is read, and {free_mib} MiB \
         are free; make it smaller, or send it later"
    );
    let error = Error::new(Code::OutOfMemory, problem);
    error.with("needed_bytes", needed).with("available_bytes", free)
}

impl Drop for ReadingMemory {
    fn drop(&mut self) {
        let mut taken = self.all.lock();
        taken.bytes = taken.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Of a machine with 800 bytes, of which 700 may be used.
    fn take(
        all: &'static Shared<MemoryTaken>,
        bytes: u64,
        is_over: OverCheck,
    ) -> std::result::Result<ReadingMemory, MediaError> {
        ReadingMemory::take_of(all, &|| Some(800), bytes, is_over, &|| ())
    }

    fn is_over(taken: std::result::Result<ReadingMemory, MediaError>) -> bool {
        matches!(taken, Err(MediaError::File(_)))
    }

    #[test]
    fn a_file_waits_for_others_and_not_for_more_than_there_is() {
        static ALL: Shared<MemoryTaken> = Shared::new(MemoryTaken { forks: 0, bytes: 0 });
        let first = take(&ALL, 400, &|| false).ok().expect("half of it is free");
        let _second = take(&ALL, 300, &|| false).ok().expect("the rest is free");
        assert!(is_over(take(&ALL, 1, &|| true)));
        let looks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&looks);
        let count = move || counted.fetch_add(1, Ordering::Relaxed) == u64::MAX;
        let waiting = thread::spawn(move || take(&ALL, 400, &count).is_ok());
        while looks.load(Ordering::Relaxed) < 2 {
            assert!(!waiting.is_finished());
            thread::yield_now();
        }
        drop(first);
        assert!(waiting.join().expect("no panic"));
    }

    #[test]
    fn what_never_fits_is_an_error_with_sizes() {
        static ALL: Shared<MemoryTaken> = Shared::new(MemoryTaken { forks: 0, bytes: 0 });
        let Err(MediaError::Engine(error)) = take(&ALL, 701, &|| false) else {
            panic!("it does not fit");
        };
        assert_eq!(error.code(), Code::OutOfMemory);
        assert!(take(&ALL, 700, &|| false).is_ok());
    }

    #[test]
    fn kept_files_make_room() {
        static ALL: Shared<MemoryTaken> = Shared::new(MemoryTaken { forks: 0, bytes: 0 });
        let free = AtomicU64::new(80);
        let available = || Some(free.load(Ordering::Relaxed));
        let make_room = || free.store(800, Ordering::Relaxed);
        let taken = ReadingMemory::take_of(&ALL, &available, 700, &|| false, &make_room);
        assert!(taken.is_ok());
    }
}
