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
    /// Unknown members of nested objects, by path.
    ignored: Vec<String>,
}

impl<'a> SpecReader<'a> {
    /// Starts reading the object at `path`.
    pub(crate) fn new(path: impl Into<String>, value: &'a Value) -> Result<SpecReader<'a>> {
        let path = path.into();
        match Fields::new(path.clone(), value) {
            Ok(fields) => Ok(SpecReader { fields, ignored: Vec::new() }),
            Err(error) => Err(with_reason(error, path)),
        }
    }

    /// The JSON path of a member.
    pub(crate) fn path(&self, key: &str) -> String {
        self.fields.path(key)
    }

    /// Creates an error in a member.
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

    /// Reads a text with slots.
    pub(crate) fn pattern(
        &mut self,
        key: &'static str,
        slots: Slots,
    ) -> Result<Option<SlotPattern>> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        Ok(Some(SlotPattern::parse(text, &self.path(key), slots)?))
    }

    /// Reads a nested object.
    pub(crate) fn nested<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut SpecReader<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let mut inner = SpecReader::new(self.path(key), value)?;
        let read = read(&mut inner)?;
        self.ignored.extend(inner.finish());
        Ok(Some(read))
    }

    /// Records unknown members, by path.
    pub(crate) fn ignore(&mut self, paths: Vec<String>) {
        self.ignored.extend(paths);
    }

    /// The unknown members, by path.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.ignored.extend(self.fields.ignored());
        self.ignored
    }
}

fn with_reason(error: Error, path: String) -> Error {
    error.with("reason", Reason::BadValue.as_str()).with("path", path)
}
