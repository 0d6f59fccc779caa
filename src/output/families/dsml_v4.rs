//! DSML as DeepSeek V4 writes it: the section is named otherwise.
//!
//! ```text
//! <｜DSML｜tool_calls>
//! <｜DSML｜invoke name="f">
//! <｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
//! </｜DSML｜invoke>
//! </｜DSML｜tool_calls>
//! ```
//!
//! DeepSeek V4 and V4-Flash.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Kind, KindForm, Part, Reasoning, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("dsml-v4"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: true, end_alone: true }),
        calls: Some(Calls {
            open: text("<｜DSML｜tool_calls>\n"),
            close: text("\n</｜DSML｜tool_calls>"),
            separator: text("\n"),
            call: vec![
                Part::Text(text(r#"<｜DSML｜invoke name=""#)),
                Part::Name,
                Part::Text(text("\">\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text(r#"<｜DSML｜parameter name=""#),
                    after_key: text(r#"" string=""#),
                    kind: Some(Kind { form: KindForm::IsString, after: text(r#"">"#) }),
                    close: text("</｜DSML｜parameter>\n"),
                    separator: text(""),
                })),
                Part::Text(text("</｜DSML｜invoke>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<｜end▁of▁sentence｜>")],
        ..bare()
    }
}
