//! What ends the wait for a media file.

use std::time::Instant;

/// Whether a call is over. Decoders ask it again and again.
pub type OverCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// The deadline of a call, and whether it was cancelled.
#[derive(Clone, Copy)]
pub struct MediaWait<'a> {
    /// The deadline.
    pub deadline: Option<Instant>,
    /// Whether the call is over.
    pub is_over: &'a dyn Fn() -> bool,
}
