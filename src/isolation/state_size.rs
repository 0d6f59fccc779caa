//! The size that the state file of an isolated chat may have.
//!
//! Only the helper knows the size of its model's state, and it is not trusted. A state was in the
//! memory of the helper before it is written, so the memory of the system bounds it.

use std::fs::File;
use std::io;

use crate::llama;

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
