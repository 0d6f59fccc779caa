//! MiniMax M2: invocations between tags.
//!
//! ```text
//! <minimax:tool_call>
//! <invoke name="f">
//! <parameter name="a">1</parameter>
//! </invoke>
//! </minimax:tool_call>
//! ```
//!
//! MiniMax M2, M2.5, M2.7.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("minimax-m2"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text("<minimax:tool_call>\n"),
            close: text("\n</minimax:tool_call>"),
            separator: text("\n"),
            call: vec![
                Part::Text(text(r#"<invoke name=""#)),
                Part::Name,
                Part::Text(text("\">\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text(r#"<parameter name=""#),
                    after_key: text(r#"">"#),
                    kind: None,
                    close: text("</parameter>\n"),
                    separator: text(""),
                })),
                Part::Text(text("</invoke>")),
            ],
            parallel: true,
        }),
        ends: vec![text("[e~[")],
        ..bare()
    }
}
