//! Models that are split into several files: names and metadata of the parts.
//!
//! The first part has the metadata. Every part has its own tensor table and the keys `split.no`
//! (from 0), `split.count` and `split.tensors.count`. llama.cpp finds the other parts by name
//! alone: `NAME-00002-of-00003.gguf`.

use std::io::ErrorKind;
#[cfg(feature = "engine")]
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use super::metadata::Metadata;
use crate::error::{Code, Error};

/// The split metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    /// The number of the part, from 0.
    pub(crate) no: u64,
    pub(crate) count: u64,
    /// The total number of tensors in all parts.
    pub(crate) tensors: Option<u64>,
}

impl Split {
    /// Reads the split metadata; `None` for a model in one file.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Option<Split> {
        let count = metadata.u64("split.count").filter(|count| *count > 1)?;
        let no = metadata.u64("split.no").unwrap_or(0);
        Some(Split { no, count, tensors: metadata.u64("split.tensors.count") })
    }
}

/// The paths of all parts of a model, including missing ones, from the name of one file. That file
/// comes first.
#[cfg(feature = "engine")]
pub(crate) fn part_paths(path: &Path) -> Vec<PathBuf> {
    let mut paths = vec![path.to_owned()];
    if let Some(name) = path.file_name().and_then(OsStr::to_str).and_then(PartName::parse) {
        let others = (1..=name.count).filter(|number| *number != name.number);
        paths.extend(others.map(|number| path.with_file_name(name.of_part(number))));
    }
    paths
}

/// A file name in the form `NAME-00002-of-00003.gguf`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PartName<'a> {
    /// The common prefix of the names of all parts.
    pub(crate) stem: &'a str,
    /// The number of the part, from 1.
    pub(crate) number: u64,
    pub(crate) count: u64,
}

impl<'a> PartName<'a> {
    /// Parses a file name; `None` if it does not have this form.
    pub(crate) fn parse(file_name: &'a str) -> Option<PartName<'a>> {
        let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        Some(PartName { stem, number: five_digits(number)?, count: five_digits(count)? })
    }

    /// The name of the part with this number, from 1.
    pub(crate) fn of_part(&self, number: u64) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)
    }
}

fn five_digits(text: &str) -> Option<u64> {
    let all_digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

/// The error for a file that is a later part. `name` is its name, if it has the form of one.
pub(crate) fn later_part_error(split: Split, name: Option<PartName<'_>>) -> Error {
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
pub(crate) struct MissingParts {
    names: Vec<String>,
    count: u64,
}

impl MissingParts {
    pub(crate) fn add(&mut self, name: String, error: &std::io::Error) {
        self.count += 1;
        if self.names.len() < 4 {
            self.names.push(match error.kind() {
                ErrorKind::NotFound => name,
                _ => format!("{name} ({error})"),
            });
        }
    }

    pub(crate) fn message(&self, of: u64) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name = PartName::parse("a-of-b-00002-of-00012.gguf");
        assert_eq!(name, Some(PartName { stem: "a-of-b", number: 2, count: 12 }));
        assert_eq!(name.map(|name| name.of_part(1)).as_deref(), Some("a-of-b-00001-of-00012.gguf"));
        for other in [
            "a.gguf",
            "a-1-of-2.gguf",
            "a-00001-of-00002.bin",
            "a-0000x-of-00002.gguf",
            "00001-of-00002.gguf",
        ] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}
