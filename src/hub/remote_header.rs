//! Reads a model's header at the hub before the weights are downloaded. Requests only the ranges
//! that the header needs.
//!
//! A copy of a header is a file as long as the model, but with zeros in place of the weights, which
//! take no space on the disk. Everything that reads no weights can use it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::listing::ListedFile;
use super::remote_file::{BlobIdentity, RemoteFile};
use crate::error::{Code, Error, Result};
use crate::gguf::{FilePart, ModelHeader};

/// The size of the first request in bytes. Each further request doubles it, up to
/// `LARGEST_REQUEST`.
const FIRST_REQUEST: u64 = 256 << 10;
const LARGEST_REQUEST: u64 = 8 << 20;
/// The maximum size of all requests, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Reads the header of a file; for a split model, that of its first part. If `copy` is a path, a
/// copy of the header is written there.
///
/// # Errors
/// `MODEL_INVALID` if the file is not a GGUF file, and the errors of requests to the hub.
/// `INVALID_REQUEST` if the copy cannot be written.
pub(super) fn read(
    file: &RemoteFile,
    listed: &ListedFile,
    copy: Option<&Path>,
) -> Result<(BlobIdentity, ModelHeader)> {
    let (identity, mut reader) = open(file, listed)?;
    let header = ModelHeader::read(&mut reader, identity.size);
    let header = reader.checked(header)?;
    copy.map_or(Ok(()), |path| reader.copy_to(path))?;
    Ok((identity, header))
}

/// Writes a copy of the header of a further part of a split model.
pub(super) fn copy_part(file: &RemoteFile, listed: &ListedFile, copy: &Path) -> Result<()> {
    let (identity, mut reader) = open(file, listed)?;
    let part = FilePart::read_from(&mut reader, identity.size);
    reader.checked(part)?;
    reader.copy_to(copy)
}

fn open<'a>(
    file: &'a RemoteFile<'a>,
    listed: &'a ListedFile,
) -> Result<(BlobIdentity, RangeReader<'a>)> {
    let repository = file.context.repository;
    if listed.size == Some(0) {
        // An empty file has no range to request.
        let message = format!("{repository}: {} is empty", listed.name);
        return Err(Error::new(Code::ModelInvalid, message).with("file", &*listed.name));
    }
    let (identity, bytes) = file.read(listed, 0, FIRST_REQUEST)?;
    let size = identity.size;
    let reader = RangeReader {
        file,
        listed,
        size,
        position: 0,
        end: 0,
        next_request: FIRST_REQUEST * 2,
        received: bytes.len() as u64,
        ranges: vec![(0, bytes)],
        error: None,
    };
    Ok((identity, reader))
}

/// Reads and seeks in a remote file.
struct RangeReader<'a> {
    file: &'a RemoteFile<'a>,
    listed: &'a ListedFile,
    size: u64,
    position: u64,
    /// The end of what was read: the end of the header, once it was read.
    end: u64,
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
            self.end = self.end.max(self.position);
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
    /// The result of reading with this reader, or the error of a failed request.
    fn checked<T>(&mut self, read: Result<T>) -> Result<T> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let (repository, name) = (self.file.context.repository, &*self.listed.name);
        read.map_err(|error| error.about(repository).with("file", name))
    }

    /// Writes a copy of the header to a new file. A file that is written in part is removed.
    fn copy_to(&mut self, path: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let invalid = |error: io::Error| {
            let path = path.display();
            let remedy = "name an existing folder that does not have this file";
            Error::invalid("header_dir", format!("cannot write {path}: {error}; {remedy}"))
                .caused_by(error)
        };
        let mut copy = options.open(path).map_err(invalid)?;
        let written = self.write_to(&mut copy);
        if written.is_err() {
            let _ = fs::remove_file(path);
        }
        match (self.error.take(), written) {
            (Some(error), _) => Err(error),
            (None, written) => written.map_err(invalid),
        }
    }

    fn write_to(&mut self, copy: &mut File) -> io::Result<()> {
        let (end, size) = (self.end, self.size);
        self.position = 0;
        io::copy(&mut Read::by_ref(self).take(end), copy)?;
        copy.set_len(size)
    }

    fn request_range(&mut self) -> Result<()> {
        if self.received >= MAX_BYTES {
            let message = format!(
                "{}: the header of {} is larger than {MAX_BYTES} bytes",
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
