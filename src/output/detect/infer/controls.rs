//! Renders without calls: the generation prompt and the texts around content.

use super::history_prober::{CONTENT, HistoryProber};
use super::markers::leading_marker;

/// Renders without calls, for comparison.
pub(super) struct ControlRenders {
    /// The generation prompt.
    pub(super) prompt: Option<String>,
    /// The texts before and after the content of an answer.
    pub(super) content: Option<(String, String)>,
    /// The first marker after the content of an answer that another turn follows.
    pub(super) turn_end: Option<String>,
}

impl ControlRenders {
    pub(super) fn new(prober: &HistoryProber<'_>) -> ControlRenders {
        let content = prober.content().ok();
        let content = content
            .and_then(|text| text.split_once(CONTENT).map(|(a, b)| (a.to_owned(), b.to_owned())));
        let turn_end =
            prober.turn_end().and_then(|text| leading_marker(text.trim()).map(str::to_owned));
        ControlRenders { prompt: prober.prompt().ok(), content, turn_end }
    }
}
