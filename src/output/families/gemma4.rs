//! Gemma 4: bare keys, strings between markers.
//!
//! ```text
//! <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>
//! ```
//!
//! Gemma 4, DiffusionGemma. The template writes text after the calls; models write it before.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("gemma4"),
        reasoning: Some(Reasoning {
            open: text("<|channel>thought"),
            close: text("<channel|>"),
            ends_at_call: false,
            end_alone: true,
        }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("<|tool_call>call:")),
                Part::Name,
                Part::Arguments(Encoding::Pairs { quote: text(r#"<|"|>"#) }),
                Part::Text(text("<tool_call|>")),
            ],
            parallel: true,
        }),
        // A thought that is opened twice leaves the first half of its tag.
        ends: vec![text("<turn|>"), text("<|tool_response>"), text("<|channel>")],
        ..bare()
    }
}
