//! Calls from their commit point on: given out, never taken back, checked when they end.

use super::{Failed, Place, Recogniser};
use crate::output::call::CallObject;
use crate::output::message::{Delta, ToolCall};
use crate::output::partial_json;

impl Recogniser {
    /// Opens a call: from here on it is part of the message.
    pub(super) fn commit(&mut self, name: String) -> usize {
        let index = self.parsed.tool_calls.len();
        if !self.tools.contains(&name) {
            self.note("unknown_tool", &format!("`{name}` is not one of the given tools"));
        }
        if index == 1 && !self.parallel {
            self.note("parallel_not_requested", "more than one call, though parallel calls were not asked for");
        }
        if self.place == Place::Reasoning {
            self.note("call_in_reasoning", "the call stands inside reasoning that was never closed");
            self.blanks.clear();
            self.place = Place::Content;
        }
        let id = (self.new_id)();
        self.deltas.push(Delta::ToolCall { index, id: id.clone(), name: name.clone() });
        self.parsed.tool_calls.push(ToolCall { id, name, arguments: String::new() });
        index
    }

    /// Gives out more of a call's arguments.
    pub(super) fn arguments(&mut self, index: usize, fragment: &str) {
        if fragment.is_empty() {
            return;
        }
        self.parsed.tool_calls[index].arguments.push_str(fragment);
        match self.deltas.last_mut() {
            Some(Delta::Arguments { index: last, fragment: text }) if *last == index => text.push_str(fragment),
            _ => self.deltas.push(Delta::Arguments { index, fragment: fragment.to_owned() }),
        }
    }

    /// Gives out what is left of the arguments, and reports what is wrong with them.
    pub(super) fn end_arguments(&mut self, call: &mut CallObject, index: usize) {
        self.arguments(index, &call.take_arguments());
        if call.kind().is_none() {
            self.arguments(index, "{}");
            self.note("arguments_missing", "the call has no arguments");
        }
        self.note_relaxed(call);
        let text = &self.parsed.tool_calls[index].arguments;
        let faults = partial_json::check_object(text);
        if faults.too_deep {
            self.note("arguments_too_deep", &format!("more than {} levels", partial_json::NESTING_CAP));
        } else if faults.any() {
            let message = match partial_json::repair(text) {
                Some(repaired) => format!("the arguments are not a JSON object; repaired: {repaired}"),
                None => "the arguments are not a JSON object".to_owned(),
            };
            self.note("arguments_invalid_json", &message);
        }
    }

    /// Reports what was relaxed to read the call.
    pub(super) fn note_relaxed(&mut self, call: &CallObject) {
        for code in call.notes() {
            let message = match code {
                "arguments_null" => "the arguments were null and became an empty object",
                "arguments_string_unwrapped" => "the arguments were a string that holds an object",
                _ => "the call was spelled as Python and was rewritten as JSON",
            };
            self.note(code, message);
        }
    }

    pub(super) fn call_closed(&mut self) {
        self.failed = Failed::No;
        self.owed_close = false;
        self.marker_passed();
    }
}
