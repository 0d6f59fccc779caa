//! Reads the members of a spec. Errors have the reason and the path in `details`.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::slots::{SlotPattern, Slots};
use crate::api::Fields;
use crate::compose::fault::{Reason, SpecFault};
use crate::error::{Error, Result};

/// One object of a spec that is being read.
pub(crate) struct SpecReader<'a> {
    fields: Fields<'a>,
}

impl<'a> SpecReader<'a> {
    /// The object at `path`.
    pub(crate) fn new(path: impl Into<String>, value: &'a Value) -> Result<SpecReader<'a>> {
        let path = path.into();
        match Fields::new(path.clone(), value) {
            Ok(fields) => Ok(SpecReader { fields }),
            Err(error) => Err(with_reason(error, path)),
        }
    }

    /// The JSON path of a member.
    pub(crate) fn path(&self, key: &str) -> String {
        self.fields.path(key)
    }

    /// An error in a member.
    pub(crate) fn fault(&self, reason: Reason, key: &str, problem: impl Into<String>) -> SpecFault {
        SpecFault::new(reason, &self.path(key), problem)
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Fields<'a>) -> Result<T>,
    ) -> Result<T> {
        read(&mut self.fields).map_err(|error| with_reason(error, self.fields.path(key)))
    }

    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.fields.get(key)
    }

    pub(crate) fn string(&mut self, key: &'static str) -> Result<Option<&'a str>> {
        self.read(key, |fields| fields.string(key))
    }

    pub(crate) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>> {
        self.read(key, |fields| fields.boolean(key))
    }

    pub(crate) fn array(&mut self, key: &'static str) -> Result<Option<&'a Vec<Value>>> {
        self.read(key, |fields| fields.array(key))
    }

    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>> {
        self.read(key, |fields| fields.integer(key, range))
    }

    pub(crate) fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>> {
        self.read(key, |fields| fields.one_of(key, choices))
    }

    /// A string; empty if absent.
    pub(crate) fn text(&mut self, key: &'static str) -> Result<String> {
        Ok(self.string(key)?.unwrap_or_default().to_owned())
    }

    /// A text with slots.
    pub(crate) fn pattern(
        &mut self,
        key: &'static str,
        slots: Slots,
    ) -> Result<Option<SlotPattern>> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        Ok(Some(SlotPattern::parse(text, &self.path(key), slots)?))
    }

    /// A text with slots, or else this default.
    pub(crate) fn pattern_or(
        &mut self,
        key: &'static str,
        slots: Slots,
        default: &str,
    ) -> Result<SlotPattern> {
        match self.pattern(key, slots)? {
            Some(pattern) => Ok(pattern),
            None => Ok(SlotPattern::parse(default, &self.path(key), slots)?),
        }
    }

    /// A nested object.
    pub(crate) fn object(&mut self, key: &'static str) -> Result<Option<SpecReader<'a>>> {
        let path = self.path(key);
        self.get(key).map(|value| SpecReader::new(path, value)).transpose()
    }

    /// Records the unknown members.
    pub(crate) fn finish(self, ignored: &mut Vec<String>) {
        ignored.extend(self.fields.ignored());
    }
}

fn with_reason(error: Error, path: String) -> Error {
    error.with("reason", Reason::BadValue.as_str()).with("path", path)
}
