//! MiniCPM 5: a function element with its parameters.
//!
//! ```text
//! <function name="f"><param name="a">1</param></function>
//! ```
//!
//! MiniCPM 5. Values may stand in `<![CDATA[…]]>`.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("minicpm5"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text(r#"<function name=""#)),
                Part::Name,
                Part::Text(text(r#"">"#)),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text(r#"<param name=""#),
                    after_key: text(r#"">"#),
                    kind: None,
                    close: text("</param>"),
                    separator: text(""),
                })),
                Part::Text(text("</function>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        ..bare()
    }
}
