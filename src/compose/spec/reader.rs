//! Reads the members of a spec. Errors have the reason and the path in `details`.

use std::ops::{Deref, DerefMut};

use serde_json::Value;

use super::slots::{SlotPattern, Slots};
use crate::api::Fields;
use crate::compose::fault::{Reason, SpecFault};
use crate::error::Result;

/// One object of a spec that is being read.
pub(crate) struct SpecReader<'a> {
    fields: Fields<'a>,
    /// Unknown members of nested objects, by path.
    ignored: Vec<String>,
}

impl<'a> Deref for SpecReader<'a> {
    type Target = Fields<'a>;

    fn deref(&self) -> &Fields<'a> {
        &self.fields
    }
}

impl<'a> DerefMut for SpecReader<'a> {
    fn deref_mut(&mut self) -> &mut Fields<'a> {
        &mut self.fields
    }
}

impl<'a> SpecReader<'a> {
    /// Starts reading the object at `path`.
    pub(crate) fn new(path: &str, value: &'a Value) -> Result<SpecReader<'a>> {
        Ok(SpecReader { fields: Fields::with_details(path, value)?, ignored: Vec::new() })
    }

    /// Creates an error in a member.
    pub(crate) fn fault(&self, reason: Reason, key: &str, problem: impl Into<String>) -> SpecFault {
        SpecFault::new(reason, &self.path(key), problem)
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
        let mut inner = SpecReader::new(&self.path(key), value)?;
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
