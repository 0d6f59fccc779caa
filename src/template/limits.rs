//! The limits of one template. A hostile template fails with `TEMPLATE_LIMIT` instead of hanging.

use crate::api::TemplateLimits;

/// The longest template source that is compiled, in bytes.
pub(crate) const SOURCE_BYTES: usize = 1 << 20;

/// Bounds of one render. Exceeding one is `TEMPLATE_LIMIT` with `{"kind":"limit"}` in the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Engine steps: one for each expression, each item, and each 256 bytes of text. Real templates
    /// need fewer than 250,000.
    pub fuel: u64,
    /// The longest prompt in bytes. It is checked while the prompt is written.
    pub output_bytes: usize,
    /// Depth of nested macro calls.
    pub recursion: usize,
    /// Processor time, in milliseconds.
    pub ms: u64,
    /// The bytes of all values that are alive at the same time, including the prompt.
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            fuel: 50_000_000,
            output_bytes: 16 << 20,
            recursion: 500,
            ms: 150,
            memory_bytes: 32 << 20,
        }
    }
}

impl Limits {
    /// The defaults, overridden by the caller's values.
    pub fn with(limits: &TemplateLimits) -> Limits {
        let bytes = |limit: Option<u64>, default| {
            limit.map_or(default, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
        };
        let default = Limits::default();
        let output_bytes = bytes(limits.output_bytes, default.output_bytes);
        Limits {
            fuel: limits.fuel.unwrap_or(default.fuel),
            output_bytes,
            recursion: bytes(limits.recursion, default.recursion),
            ms: limits.ms.unwrap_or(default.ms),
            // Longer prompts need more memory.
            memory_bytes: bytes(
                limits.memory_bytes,
                default.memory_bytes.max(output_bytes.saturating_mul(2)),
            ),
        }
    }
}
