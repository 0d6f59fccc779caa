//! What a parser derives from a format alone. It is computed once for all replies of a model.

use std::sync::Arc;

use super::call_patterns::CallPatterns;
use super::marker_set::{Marker, MarkerSet};
use super::{FENCE, ReplyParserInput};
use crate::output::format::{Channels, Format, FormatText};

/// A format, prepared for parsing.
#[derive(Debug, Clone, Default)]
pub struct PreparedFormat {
    pub(super) patterns: Arc<CallPatterns>,
    pub(super) followers: Arc<[FormatText]>,
    pub(super) channels: Option<Arc<Channels>>,
    /// The markers of replies whose reasoning is separated and that are not JSON.
    markers: Arc<MarkerSet>,
}

impl PreparedFormat {
    /// Prepares a format.
    pub fn new(format: &Format) -> PreparedFormat {
        let patterns = CallPatterns::new(format);
        let markers = MarkerSet::new(format, &patterns, true, false);
        PreparedFormat {
            followers: patterns.followers().into(),
            channels: format.channels.clone().map(Arc::new),
            markers: Arc::new(markers),
            patterns: Arc::new(patterns),
        }
    }

    /// The markers of a reply to this request.
    pub(super) fn markers_for(&self, input: &ReplyParserInput<'_>) -> Arc<MarkerSet> {
        match input.format {
            Some(format) if input.json || !input.reasoning => {
                Arc::new(MarkerSet::new(format, &self.patterns, input.reasoning, input.json))
            }
            None if input.json => {
                let mut markers = (*self.markers).clone();
                markers.add(Marker::Fence, FENCE);
                Arc::new(markers)
            }
            _ => Arc::clone(&self.markers),
        }
    }
}
