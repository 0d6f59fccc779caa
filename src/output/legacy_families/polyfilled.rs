//! What `polyfill_tool_calls` shows a model whose template has no tool calls: the whole reply is one object.
//!
//! ```text
//! {
//!   "tool_calls": [
//!     {
//!       "name": "f",
//!       "arguments": {
//!         "a": 1
//!       },
//!       "id": "x"
//!     }
//!   ],
//!   "content": "…"
//! }
//! ```
//!
//! Models that know tags or fences fall back to them; both are taken. Never found by detection: no template writes it.

use super::hermes;
use crate::output::Format;

pub(in crate::output) fn format() -> Format {
    Format { family: "polyfilled", envelope: true, ..hermes::format() }
}
