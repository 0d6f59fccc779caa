//! Apertus: a list of objects whose key is the name.
//!
//! ```text
//! <|tools_prefix|>[{"f": {"a": 1}}]<|tools_suffix|>
//! ```
//!
//! Apertus.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("apertus"),
        reasoning: reasoning("<|inner_prefix|>", "<|inner_suffix|>"),
        calls: Some(Calls {
            open: text("<|tools_prefix|>["),
            close: text("]<|tools_suffix|>"),
            separator: text(", "),
            call: vec![
                Part::Text(text(r#"{""#)),
                Part::Name,
                Part::Text(text(r#"": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|assistant_end|>")],
        ..bare()
    }
}
