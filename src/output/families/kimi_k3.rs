//! Kimi K3: elements of markers, with the type of each value.
//!
//! ```text
//! <|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a" type="number"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
//! ```
//!
//! Kimi K3.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Kind, KindForm, Part, Reasoning, Tagged, Wrapper};

pub(super) fn format() -> Format {
    Format {
        family: text("kimi-k3"),
        reasoning: Some(Reasoning {
            open: text("<|open|>think<|sep|>"),
            close: text("<|close|>think<|sep|>"),
            ends_at_call: false,
            end_alone: true,
        }),
        wrappers: vec![Wrapper { open: text("<|open|>response<|sep|>"), close: text("<|close|>response<|sep|>") }],
        calls: Some(Calls {
            open: text("<|open|>tools<|sep|>"),
            close: text("<|close|>tools<|sep|>"),
            separator: text(""),
            call: vec![
                Part::Text(text(r#"<|open|>call tool=""#)),
                Part::Name,
                Part::Text(text(r#"" index=""#)),
                Part::Id(IdForm::Index(1)),
                Part::Text(text(r#""<|sep|>"#)),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text(r#"<|open|>argument key=""#),
                    after_key: text(r#"" type=""#),
                    kind: Some(Kind { form: KindForm::TypeName, after: text(r#""<|sep|>"#) }),
                    close: text("<|close|>argument<|sep|>"),
                    separator: text(""),
                })),
                Part::Text(text("<|close|>call<|sep|>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|close|>message<|sep|>"), text("<|end_of_msg|>")],
        ..bare()
    }
}
