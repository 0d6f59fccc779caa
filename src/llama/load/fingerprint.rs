//! Identifies a model file by its content.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::regular_file;

/// The number of blocks that are read to identify a model file, and their size.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 64 * 1024;

/// The hash of a model, which may be split into several files. Missing parts are skipped, because a
/// complete model may have the file name of a part.
pub(crate) fn of_files(parts: &[PathBuf]) -> io::Result<String> {
    let mut hashes = Vec::new();
    for part in parts {
        match of_file(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            hash => hashes.push(hash?),
        }
    }
    Ok(hashes.join(" "))
}

/// A hash of the file's size and of blocks spread over it. Files that differ only outside of these
/// blocks get the same hash, but fine-tuning changes every tensor.
pub(crate) fn of_file(path: &Path) -> io::Result<String> {
    let (mut file, metadata) = regular_file::open(path)?;
    let size = metadata.len();
    let mut hash = Sha256::new();
    hash.update(size.to_le_bytes());
    let mut block = Vec::new();
    for sample in 0..SAMPLES {
        let last = size.saturating_sub(SAMPLE_BYTES);
        // Computed in 128 bits, because the product may overflow 64.
        let start = (u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)) as u64;
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::by_ref(&mut file).take(SAMPLE_BYTES).read_to_end(&mut block)?;
        hash.update(&block);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_fingerprint_depends_on_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            of_file(&folder.path().join(name)).unwrap()
        };
        let long = vec![7; 3_000_000];
        let mut changed = long.clone();
        changed[2_000_000] = 8;
        assert_eq!(of("a", &long), of("b", &long));
        assert_ne!(of("a", &long), of("b", &changed));
        assert_ne!(of("a", &[]), of("b", &[0]));
    }
}
