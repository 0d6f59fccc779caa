//! The data that a parser derives from a format alone. It is computed once per model.

use std::sync::Arc;

use super::ReplyParserInput;
use super::call_patterns::CallPatterns;
use super::marker_set::MarkerSet;
use crate::output::format::{Channels, Format, FormatText};

/// A format, prepared for parsing.
#[derive(Debug, Clone)]
pub struct PreparedFormat {
    pub(super) patterns: Arc<CallPatterns>,
    pub(super) followers: Arc<[FormatText]>,
    pub(super) channels: Option<Arc<Channels>>,
    /// Every text of the format.
    pub(super) texts: Arc<[String]>,
    /// The markers of replies whose reasoning is separated.
    markers: Arc<MarkerSet>,
}

impl Default for PreparedFormat {
    /// For replies without a format.
    fn default() -> PreparedFormat {
        PreparedFormat {
            patterns: Arc::default(),
            followers: Arc::new([]),
            channels: None,
            texts: Arc::new([]),
            markers: Arc::new(MarkerSet::foreign()),
        }
    }
}

impl PreparedFormat {
    /// Prepares a format.
    pub fn new(format: &Format) -> PreparedFormat {
        let patterns = CallPatterns::new(format);
        let markers = MarkerSet::new(format, &patterns, true);
        PreparedFormat {
            followers: patterns.followers().into(),
            texts: format.texts().into_iter().map(str::to_owned).collect(),
            channels: format.channels.clone().map(Arc::new),
            markers: Arc::new(markers),
            patterns: Arc::new(patterns),
        }
    }

    /// The markers of a reply to this request.
    pub(super) fn markers_for(&self, input: &ReplyParserInput<'_>) -> Arc<MarkerSet> {
        match input.format {
            Some(format) if !input.reasoning => {
                Arc::new(MarkerSet::new(format, &self.patterns, false))
            }
            _ => Arc::clone(&self.markers),
        }
    }
}
