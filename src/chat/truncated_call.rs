//! A call that the end of the reply cut off. It is none: its arguments are not what the tool's
//! schema says, so it is told apart from the calls, and reported with what there is of it.

use serde_json::{Value, json};

use crate::output::ParsedReply;

const CODE: &str = "truncated_call";

/// Takes it out of the message. `early` is whether the reply ended before the model would have
/// ended it, or was held to a grammar, which ends no reply there; else a call whose closing tag
/// alone is missing counts.
pub(super) fn take(parsed: &mut ParsedReply, early: bool) -> Vec<Value> {
    let known = parsed.diagnostics.iter().any(|diagnostic| diagnostic.code == CODE);
    let call = parsed.unfinished.take_if(|_| early || known).and_then(|index| {
        parsed.tool_calls.truncate(index + 1);
        parsed.tool_calls.pop()
    });
    let leftover = std::mem::take(&mut parsed.leftover);
    if call.is_none() && !known {
        return Vec::new();
    }
    parsed.complete = false;
    // What the reply parser said of the same, in other words.
    parsed.diagnostics.retain(|diagnostic| diagnostic.code != CODE);
    if call.is_some()
        && parsed
            .diagnostics
            .last()
            .is_some_and(|diagnostic| diagnostic.code == "unbalanced_wrapper")
    {
        parsed.diagnostics.pop();
    }
    let message = "the reply ends inside a call, which is left out";
    vec![match call {
        Some(call) => {
            json!({ "code": CODE, "message": message, "id": call.id, "name": call.name, "arguments": call.arguments })
        }
        None => json!({ "code": CODE, "message": message, "text": leftover.concat() }),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Diagnostic;
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
            .map(|taken| json!([taken["name"], taken["arguments"], taken["text"]]))
            .collect();
        assert_eq!(Value::from(taken), cut);
    }

    #[test]
    fn only_calls_that_were_cut_are_taken() {
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
