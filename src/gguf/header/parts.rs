//! Reads the later parts of a split model.

use std::io::ErrorKind;
use std::path::Path;

use super::ModelHeader;
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::gguf::file_part::FilePart;
use crate::gguf::reader::Cursor;
use crate::gguf::split::{PartName, Split};
use crate::regular_file;

impl ModelHeader {
    /// Reads the parts after the first, and adds their sums to those of the first.
    pub(super) fn add_parts(
        &mut self,
        first: &Path,
        name: &PartName<'_>,
        split: Split,
    ) -> Result<()> {
        let mut missing = MissingParts::default();
        for number in 2..=split.count {
            let file_name = name.of_part(number);
            let (file, size) = match regular_file::open(&first.with_file_name(&file_name)) {
                Ok((file, metadata)) => (file, metadata.len()),
                Err(error) => {
                    missing.add(file_name, &error);
                    continue;
                }
            };
            let part = FilePart::read(&mut Cursor::new(file, size)).map_err(|error| {
                Error::new(Code::ModelInvalid, format!("{file_name}: {}", error.message()))
                    .caused_by(error)
            })?;
            let part_split = Split::of(&part.metadata);
            if part_split.is_none_or(|part_split| {
                part_split.no != number - 1 || part_split.count != split.count
            }) {
                self.report(
                    "split_part_mismatch",
                    format!(
                        "the metadata of {file_name} does not make it part {number} of {}",
                        split.count
                    ),
                );
            }
            self.diagnostics.extend(part.diagnostics.into_iter().map(|diagnostic| {
                Diagnostic::new(diagnostic.code, format!("{file_name}: {}", diagnostic.message))
            }));
            self.tensors.add(part.tensors);
            self.file_size = self.file_size.saturating_add(size);
            let trailing = part.data_end.map_or(0, |end| size.saturating_sub(end));
            self.trailing_bytes = self.trailing_bytes.saturating_add(trailing);
        }
        if let Some(message) = missing.message(split.count) {
            self.report("split_part_missing", message);
        } else if split.tensors.is_some_and(|tensors| tensors != self.tensors.count) {
            self.report(
                "split_tensor_count",
                format!(
                    "the parts have {} tensors, but split.tensors.count is {}",
                    self.tensors.count,
                    split.tensors.unwrap_or(0)
                ),
            );
        }
        Ok(())
    }
}

/// The error for a file that is a later part. `name` is its name, if it has the form of one.
pub(super) fn later_part_error(split: Split, name: Option<PartName<'_>>) -> Error {
    let no = split.no.saturating_add(1);
    let first = match name {
        Some(name) => name.of_part(1),
        None => format!("the file whose name ends in -00001-of-{:05}.gguf", split.count),
    };
    Error::new(
        Code::ModelInvalid,
        format!("this is part {no} of {} of a split model: open {first}", split.count),
    )
}

/// The names of the first few missing parts.
#[derive(Default)]
struct MissingParts {
    names: Vec<String>,
    count: u64,
}

impl MissingParts {
    fn add(&mut self, name: String, error: &std::io::Error) {
        self.count += 1;
        if self.names.len() < 4 {
            self.names.push(match error.kind() {
                ErrorKind::NotFound => name,
                _ => format!("{name} ({error})"),
            });
        }
    }

    fn message(&self, of: u64) -> Option<String> {
        let more = self.count.checked_sub(self.names.len() as u64)?;
        let names = self.names.join(", ");
        match (self.count, more) {
            (0, _) => None,
            (count, 0) => Some(format!("{count} of {of} parts missing: {names}")),
            (count, more) => {
                Some(format!("{count} of {of} parts missing: {names} and {more} more"))
            }
        }
    }
}
