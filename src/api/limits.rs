//! The option `template_limits`: bounds of one template render.

use super::fields::Fields;
use crate::error::Result;

/// The member `template_limits`. None keeps the default limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateLimits {
    /// The maximum number of interpreter steps.
    pub fuel: Option<u64>,
    /// The maximum size of the prompt in bytes.
    pub output_bytes: Option<u64>,
    /// The maximum depth of nested macro calls.
    pub recursion: Option<u64>,
    /// The maximum processor time in milliseconds.
    pub ms: Option<u64>,
    /// The maximum size of live values in bytes.
    pub memory_bytes: Option<u64>,
}

impl TemplateLimits {
    /// Reads the member. Zero is refused, because no template could be rendered with it.
    pub(crate) fn read(fields: &mut Fields) -> Result<TemplateLimits> {
        let path = fields.path("template_limits");
        let Some(value) = fields.get("template_limits") else {
            return Ok(TemplateLimits::default());
        };
        let mut limits = Fields::new(path, value)?;
        let whole = |limits: &mut Fields, key, highest| -> Result<Option<u64>> {
            Ok(limits.integer(key, 1..=highest)?.and_then(|number| u64::try_from(number).ok()))
        };
        let read = TemplateLimits {
            fuel: whole(&mut limits, "fuel", i64::MAX)?,
            output_bytes: whole(&mut limits, "output_bytes", 1 << 32)?,
            recursion: whole(&mut limits, "recursion", 10_000)?,
            ms: whole(&mut limits, "ms", 3_600_000)?,
            memory_bytes: whole(&mut limits, "memory_bytes", 1 << 40)?,
        };
        limits.refuse_ignored("unknown limit")?;
        Ok(read)
    }
}
