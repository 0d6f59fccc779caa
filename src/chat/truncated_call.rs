//! Handles a call that is cut off by the end of the reply. Its arguments do not match the tool's
//! schema, so it is reported in a diagnostic and not in the list of calls.

use crate::diagnostic::Diagnostic;
use crate::output::ParsedReply;

const CODE: &str = "truncated_call";

/// Removes the truncated call from the message. `early` is true if the reply ended before the model
/// ended its turn, or if it was constrained by a grammar, which does not allow an end inside a
/// call. Otherwise a call that lacks only its closing tag counts as complete.
pub(super) fn take(parsed: &mut ParsedReply, early: bool) -> Option<Diagnostic> {
    let is_known = parsed.diagnostics.iter().any(|diagnostic| diagnostic.code == CODE);
    let call = parsed.unfinished.take_if(|_| early || is_known).and_then(|index| {
        parsed.tool_calls.truncate(index + 1);
        parsed.tool_calls.pop()
    });
    let leftover = std::mem::take(&mut parsed.leftover);
    if call.is_none() && !is_known {
        return None;
    }
    parsed.complete = false;
    // The parser's own diagnostics about this call are replaced.
    parsed.diagnostics.retain(|diagnostic| diagnostic.code != CODE);
    let last = parsed.diagnostics.last();
    if call.is_some() && last.is_some_and(|last| last.code == "unbalanced_wrapper") {
        parsed.diagnostics.pop();
    }
    let diagnostic = Diagnostic::new(CODE, "the reply ends inside a tool call, which is left out");
    Some(match call {
        Some(call) => {
            diagnostic.with("id", call.id).with("name", call.name).with("arguments", call.arguments)
        }
        None => diagnostic.with("text", leftover.concat()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::output::ToolCall;

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: "1".into(), name: "f".into(), arguments: arguments.into() }
    }

    fn note(code: &'static str) -> Diagnostic {
        Diagnostic::new(code, "")
    }

    #[track_caller]
    fn check(mut parsed: ParsedReply, early: bool, calls: usize, codes: &[&str], cut: Value) {
        let taken = take(&mut parsed, early);
        assert_eq!(parsed.tool_calls.len(), calls);
        assert_eq!(
            parsed.diagnostics.iter().map(|diagnostic| diagnostic.code).collect::<Vec<_>>(),
            codes
        );
        let taken: Vec<_> = taken
            .iter()
            .map(|taken| taken.to_json())
            .map(|taken| json!([taken["name"], taken["arguments"], taken["text"]]))
            .collect();
        assert_eq!(Value::from(taken), cut);
    }

    #[test]
    fn only_truncated_calls_are_taken() {
        let whole = || ParsedReply { tool_calls: vec![call("{}")], ..ParsedReply::default() };
        check(whole(), true, 1, &[], json!([]));
        let cut = || ParsedReply {
            tool_calls: vec![call("{}"), call("{\"a\": ")],
            unfinished: Some(1),
            diagnostics: vec![note("foreign_family"), note(CODE)],
            ..ParsedReply::default()
        };
        check(cut(), true, 1, &["foreign_family"], json!([["f", "{\"a\": ", null]]));
        check(cut(), false, 1, &["foreign_family"], json!([["f", "{\"a\": ", null]]));
        let open = || ParsedReply {
            tool_calls: vec![call("{}")],
            unfinished: Some(0),
            diagnostics: vec![note("unbalanced_wrapper")],
            ..ParsedReply::default()
        };
        check(open(), false, 1, &["unbalanced_wrapper"], json!([]));
        check(open(), true, 0, &[], json!([["f", "{}", null]]));
        let begun = ParsedReply {
            leftover: vec!["<tool_call>{".into()],
            diagnostics: vec![note(CODE)],
            ..ParsedReply::default()
        };
        check(begun, true, 0, &[], json!([[null, null, "<tool_call>{"]]));
    }
}
