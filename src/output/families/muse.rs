//! Muse: messages with a recipient, each call in one of its own.
//!
//! ```text
//!  to=f<|message|><atem:function_calls>
//! <atem:invoke name="f">
//! <atem:parameter name="a">1</atem:parameter>
//! </atem:invoke>
//! </atem:function_calls>
//! ```
//!
//! Muse Glimmer. Name and recipient are the same.

use super::{bare, text};
use crate::output::format::{Calls, Channels, Encoding, Format, Part, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("muse"),
        channels: Some(Channels {
            turn: text("<|start|>assistant"),
            header: text(""),
            body: text("<|message|>"),
            ends: vec![text("<|eom|>"), text("<|eot|>")],
            recipient: text("to="),
            function: text(""),
            reasoning: vec![text("self")],
            content: vec![text("user")],
        }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("<|eom|><|start|>assistant"),
            call: vec![
                Part::Text(text(" to=")),
                Part::Name,
                Part::Text(text("<|message|><atem:function_calls>\n<atem:invoke name=\"")),
                Part::Name,
                Part::Text(text("\">\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text(r#"<atem:parameter name=""#),
                    after_key: text(r#"">"#),
                    kind: None,
                    close: text("</atem:parameter>\n"),
                    separator: text(""),
                })),
                Part::Text(text("</atem:invoke>\n</atem:function_calls>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|eom|>"), text("<|eot|>")],
        ..bare()
    }
}
