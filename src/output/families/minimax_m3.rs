//! MiniMax M3: nested elements, a prefix before every tag.
//!
//! ```text
//! ]<]minimax[>[<tool_call>
//! ]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>
//! ]<]minimax[>[</tool_call>
//! ```
//!
//! MiniMax M3. `</mm:think>` alone says that there is no reasoning.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("minimax-m3"),
        reasoning: Some(Reasoning {
            open: text("<mm:think>"),
            close: text("</mm:think>"),
            ends_at_call: false,
            end_alone: true,
        }),
        calls: Some(Calls {
            open: text("]<]minimax[>[<tool_call>\n"),
            close: text("\n]<]minimax[>[</tool_call>"),
            separator: text("\n"),
            call: vec![
                Part::Text(text(r#"]<]minimax[>[<invoke name=""#)),
                Part::Name,
                Part::Text(text(r#"">"#)),
                Part::Arguments(Encoding::Elements { prefix: text("]<]minimax[>["), item: text("item") }),
                Part::Text(text("]<]minimax[>[</invoke>")),
            ],
            parallel: true,
        }),
        ends: vec![text("[e~[")],
        ..bare()
    }
}
