//! DeepSeek R1: arguments in a fence.
//!
//! ```text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//! ```json
//! {"a": 1}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ```
//!
//! DeepSeek V3, R1, R1-Distill-Qwen and -Llama, DeepSeek-Prover V2. The newline before the closing fence may be missing.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("deepseek-r1"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: false, end_alone: true }),
        calls: Some(Calls {
            open: text("<｜tool▁calls▁begin｜>"),
            close: text("<｜tool▁calls▁end｜>"),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<｜tool▁call▁begin｜>function<｜tool▁sep｜>")),
                Part::Name,
                Part::Text(text("\n```json\n")),
                Part::Arguments(Encoding::Json),
                Part::Text(text("\n```<｜tool▁call▁end｜>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<｜end▁of▁sentence｜>")],
        ..bare()
    }
}
