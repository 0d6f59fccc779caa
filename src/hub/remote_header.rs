//! Reads a model's header at the hub before the weights are downloaded. Requests only the ranges
//! that the header needs.

use std::io::{self, Read, Seek, SeekFrom};

use super::listing::ListedFile;
use super::remote_file::{BlobIdentity, RemoteFile};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;

/// The size of the first request in bytes. Each further request doubles it, up to
/// `LARGEST_REQUEST`.
const FIRST_REQUEST: u64 = 256 << 10;
const LARGEST_REQUEST: u64 = 8 << 20;
/// The maximum size of all requests, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Reads the header of a file; for a split model, that of its first part.
///
/// # Errors
/// `MODEL_INVALID` if the file is not a GGUF file, and the errors of requests to the hub.
pub(super) fn read(file: &RemoteFile, listed: &ListedFile) -> Result<(BlobIdentity, ModelHeader)> {
    let repository = file.context.repository;
    if listed.size == Some(0) {
        // An empty file has no range to request.
        let message = format!("{repository}: {} is empty", listed.name);
        return Err(Error::new(Code::ModelInvalid, message).with("file", &*listed.name));
    }
    let (identity, bytes) = file.read(listed, 0, FIRST_REQUEST)?;
    let size = identity.size;
    let mut reader = RangeReader {
        file,
        listed,
        size,
        position: 0,
        next_request: FIRST_REQUEST * 2,
        received: bytes.len() as u64,
        ranges: vec![(0, bytes)],
        error: None,
    };
    let header = ModelHeader::read(&mut reader, size);
    if let Some(error) = reader.error {
        return Err(error);
    }
    let header = header.map_err(|error| error.about(repository).with("file", &*listed.name))?;
    Ok((identity, header))
}

/// Reads and seeks in a remote file.
struct RangeReader<'a> {
    file: &'a RemoteFile<'a>,
    listed: &'a ListedFile,
    size: u64,
    position: u64,
    /// The size of the next request in bytes.
    next_request: u64,
    /// The size of all requests so far, in bytes.
    received: u64,
    /// The ranges that were read: the start of each, and its bytes.
    ranges: Vec<(u64, Vec<u8>)>,
    /// The error of a failed request.
    error: Option<Error>,
}

impl Read for RangeReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.size || buffer.is_empty() {
            return Ok(0);
        }
        let has_position = |(start, bytes): &&(u64, Vec<u8>)| {
            (*start..*start + bytes.len() as u64).contains(&self.position)
        };
        if let Some((start, bytes)) = self.ranges.iter().find(has_position) {
            let available = &bytes[(self.position - start) as usize..];
            let length = available.len().min(buffer.len());
            buffer[..length].copy_from_slice(&available[..length]);
            self.position += length as u64;
            return Ok(length);
        }
        match self.request_range() {
            Ok(()) => self.read(buffer),
            Err(error) => {
                self.error = Some(error);
                Err(io::Error::other("a request to the hub failed"))
            }
        }
    }
}

impl RangeReader<'_> {
    fn request_range(&mut self) -> Result<()> {
        if self.received >= MOST_BYTES {
            let message = format!(
                "{}: the header of {} is larger than {MOST_BYTES} bytes",
                self.file.context.repository, self.listed.name
            );
            return Err(Error::new(Code::ModelInvalid, message));
        }
        let (identity, bytes) = self.file.read(self.listed, self.position, self.next_request)?;
        if identity.size != self.size || bytes.is_empty() {
            let message = format!(
                "{} changed at the hub while its header was read; try again",
                self.listed.name
            );
            return Err(Error::new(Code::HubVerify, message));
        }
        self.received += bytes.len() as u64;
        self.next_request = (self.next_request * 2).min(LARGEST_REQUEST);
        self.ranges.push((self.position, bytes));
        Ok(())
    }
}

impl Seek for RangeReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = match to {
            SeekFrom::Start(offset) => offset,
            SeekFrom::End(offset) => self.size.saturating_add_signed(offset),
            SeekFrom::Current(offset) => self.position.saturating_add_signed(offset),
        };
        Ok(self.position)
    }
}
