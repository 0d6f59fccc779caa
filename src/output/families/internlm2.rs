//! InternLM2: a plugin action.
//!
//! ```text
//! <|action_start|><|plugin|>
//! {"name": "f", "arguments": {"a": 1}}<|action_end|>
//! ```
//!
//! InternLM 2 and 2.5 (which write `parameters` for `arguments`).

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("internlm2"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("<|action_start|><|plugin|>\n{\"name\": \"")),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}<|action_end|>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        ..bare()
    }
}
