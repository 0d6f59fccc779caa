//! One file of a model: magic, version, metadata, tensor table.
//!
//! In: a cursor at byte 0. Out: `FilePart`, with diagnostics about the file's length. Requirements
//! that concern the whole model are not checked here.

use std::io::{Read, Seek};

use super::metadata::Metadata;
use super::reader::{Cursor, invalid};
use super::tensors::TensorTable;
use super::value::GgufValue;
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};

const DEFAULT_ALIGNMENT: u64 = 32;

/// One file of a model. A split model has several.
pub(crate) struct FilePart {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: TensorTable,
    /// The size in bytes that the file must have; `None` if a tensor type is unknown.
    pub(crate) data_end: Option<u64>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl FilePart {
    /// Reads the part from a file of this size.
    #[cfg(feature = "hub")]
    pub(crate) fn read_from<R: Read + Seek>(reader: R, size: u64) -> Result<FilePart> {
        FilePart::read(&mut Cursor::new(reader, size))
    }

    /// Reads everything before the tensor data.
    pub(crate) fn read<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<FilePart> {
        let file_size = cursor.remaining();
        if file_size == 0 {
            return Err(invalid(0, "not a GGUF file: it is empty"));
        }
        check_magic(cursor.magic()?)?;
        let version = cursor.u32("the version")?;
        check_version(version)?;
        let n_tensors = cursor.u64("the number of tensors")?;
        let n_entries = cursor.u64("the number of metadata entries")?;
        let metadata = Metadata::read(cursor, n_entries)?;
        let alignment = alignment(&metadata)?;
        let mut diagnostics = Vec::new();
        let tensors = TensorTable::read(cursor, n_tensors, alignment, &mut diagnostics)?;
        let header_end = cursor.offset();
        let data_end = match tensors.data_bytes {
            None => None,
            Some(0) => Some(header_end),
            Some(bytes) => {
                let end = header_end
                    .checked_next_multiple_of(alignment)
                    .and_then(|start| start.checked_add(bytes));
                Some(end.ok_or_else(|| {
                    invalid(
                        header_end,
                        format_args!(
                            "the header claims tensors of {bytes} bytes, more than a file can hold"
                        ),
                    )
                })?)
            }
        };
        if let Some(data_end) = data_end {
            if data_end > file_size {
                let message =
                    format!("the file has {file_size} bytes, but its tensors need {data_end}");
                diagnostics.push(Diagnostic::new("file_truncated", message));
            } else if data_end
                .checked_next_multiple_of(alignment)
                .is_some_and(|end| end < file_size)
            {
                let message = format!(
                    "the tensors end at byte {data_end}, but the file has {file_size} bytes"
                );
                diagnostics.push(Diagnostic::new("trailing_bytes", message));
            }
        }
        Ok(FilePart { metadata, tensors, data_end, diagnostics })
    }
}

fn check_magic(magic: [u8; 4]) -> Result<()> {
    let hint = match &magic {
        b"GGUF" => return Ok(()),
        b"vers" => ": it is a Git LFS pointer; download the file itself",
        b"<!do" | b"<!DO" | b"<htm" | b"<HTM" => {
            ": it is a web page; the download failed, try again"
        }
        b"ggml" | b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            ": it is an older llama.cpp format; convert the model again"
        }
        b"PK\x03\x04" => ": it is a PyTorch or zip file; convert the model to GGUF",
        _ => "",
    };
    Err(invalid(
        0,
        format_args!("not a GGUF file (it starts with \"{}\"){hint}", magic.escape_ascii()),
    ))
}

fn check_version(version: u32) -> Result<()> {
    let problem = match version {
        2 | 3 => return Ok(()),
        1 => "GGUF version 1 is not supported; convert the model again with a current llama.cpp"
            .to_owned(),
        _ if (1..=0xFFFF).contains(&version.swap_bytes()) => {
            "the file is big-endian; convert it with llama.cpp's gguf_convert_endian.py".to_owned()
        }
        _ => format!(
            "GGUF version {version} is unknown (2 and 3 are supported): the file is damaged or \
             newer than this library"
        ),
    };
    Err(invalid(4, problem))
}

fn alignment(metadata: &Metadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    match metadata.get(KEY) {
        None if !metadata.contains(KEY) => Ok(DEFAULT_ALIGNMENT),
        Some(GgufValue::U32(alignment)) if alignment.is_power_of_two() => Ok(u64::from(*alignment)),
        Some(GgufValue::U32(other)) => Err(Error::new(
            Code::ModelInvalid,
            format!("{KEY} is {other}, which is not a power of two"),
        )),
        _ => Err(Error::new(Code::ModelInvalid, format!("{KEY} is not an unsigned 32-bit number"))),
    }
}
