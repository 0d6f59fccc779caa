//! Gemma 4: bare keys, strings between markers.
//!
//! ```text
//! <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>
//! ```
//!
//! Gemma 4, DiffusionGemma. The template writes text after the calls; models write it before.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("gemma4"),
        reasoning: reasoning("<|channel>thought", "<channel|>"),
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
        ends: vec![text("<turn|>"), text("<|tool_response>")],
        ..bare()
    }
}
