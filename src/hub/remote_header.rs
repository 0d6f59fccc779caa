//! A model's header read at the hub, before its weights are downloaded: as much of the file as the
//! header needs.

use std::io::{self, Read, Seek, SeekFrom};

use super::listing::ListedFile;
use super::remote_file::{BlobIdentity, RemoteFile};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;

/// Bytes of the first request, and of the largest; each is twice the one before.
const FIRST: u64 = 256 << 10;
const LARGEST: u64 = 8 << 20;
/// Bytes of all of them: a header of more is no header.
const MOST: u64 = 256 << 20;

/// Reads the header of a file, of a split model that of its first part.
///
/// # Errors
/// `MODEL_INVALID` for what is no GGUF file; the hub's own.
pub(super) fn read(
    source: &RemoteFile,
    listed: &ListedFile,
) -> Result<(BlobIdentity, ModelHeader)> {
    if listed.size == Some(0) {
        // It has no ranges to ask for.
        let error = Error::new(
            Code::ModelInvalid,
            format!("{}: {} is empty", source.asked.repository, listed.name),
        );
        return Err(error.with("file", &*listed.name));
    }
    let (identity, bytes) = source.read(listed, 0, FIRST)?;
    let got = bytes.len() as u64;
    let mut probe = RangeReader {
        source,
        listed,
        size: identity.size,
        at: 0,
        next: FIRST * 2,
        got,
        windows: vec![(0, bytes)],
        failed: None,
    };
    let size = probe.size;
    let header = ModelHeader::read(&mut probe, size);
    if let Some(error) = probe.failed {
        return Err(error);
    }
    let header =
        header.map_err(|error| error.about(source.asked.repository).with("file", &*listed.name))?;
    Ok((identity, header))
}

struct RangeReader<'a> {
    source: &'a RemoteFile<'a>,
    listed: &'a ListedFile,
    size: u64,
    at: u64,
    next: u64,
    got: u64,
    /// Where each begins, and its bytes.
    windows: Vec<(u64, Vec<u8>)>,
    /// Why no more could be read.
    failed: Option<Error>,
}

impl Read for RangeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.size || buffer.is_empty() {
            return Ok(0);
        }
        let holds = |(start, bytes): &&(u64, Vec<u8>)| {
            (*start..*start + bytes.len() as u64).contains(&self.at)
        };
        if let Some((start, bytes)) = self.windows.iter().find(holds) {
            let from = &bytes[(self.at - start) as usize..];
            let length = from.len().min(buffer.len());
            buffer[..length].copy_from_slice(&from[..length]);
            self.at += length as u64;
            return Ok(length);
        }
        match self.fetch() {
            Ok(()) => self.read(buffer),
            Err(error) => {
                self.failed = Some(error);
                Err(io::Error::other("the hub"))
            }
        }
    }
}

impl RangeReader<'_> {
    fn fetch(&mut self) -> Result<()> {
        if self.got >= MOST {
            let message = format!(
                "{}: the header of {} has more than {MOST} bytes",
                self.source.asked.repository, self.listed.name
            );
            return Err(Error::new(Code::ModelInvalid, message));
        }
        let (identity, bytes) = self.source.read(self.listed, self.at, self.next)?;
        if identity.size != self.size || bytes.is_empty() {
            let message = format!("{} changed while its header was read", self.listed.name);
            return Err(Error::new(Code::HubVerify, message));
        }
        self.got += bytes.len() as u64;
        self.next = (self.next * 2).min(LARGEST);
        self.windows.push((self.at, bytes));
        Ok(())
    }
}

impl Seek for RangeReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => self.size.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}
