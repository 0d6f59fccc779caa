//! Ends a reply at a stop string in its answer.
//!
//! In: the reply parser's deltas. Out: the same deltas, with the content up to the stop string.
//! Reasoning, markup and the arguments of calls are not searched. The content before a call and
//! after it are searched separately.

use crate::engine::StopMatcher;
use crate::output::{Delta, ParsedReply};

/// Searches the content of one reply.
pub(super) struct AnswerStop {
    matcher: StopMatcher,
    found: Option<usize>,
    /// What follows the start of the stop string in deltas that were read with it.
    after: TextAfterStop,
}

/// The part of a message that follows a stop string.
#[derive(Debug, Default)]
struct TextAfterStop {
    /// The bytes of content, including those of the stop string.
    content: usize,
    /// The bytes of reasoning.
    reasoning: usize,
    /// The number of calls.
    calls: usize,
}

impl AnswerStop {
    /// No stop string may be empty. Without any, all deltas are passed on.
    pub(super) fn new(stops: Vec<String>) -> AnswerStop {
        let matcher = StopMatcher::new(stops);
        AnswerStop { matcher, found: None, after: TextAfterStop::default() }
    }

    /// The index of the stop string that was found.
    pub(super) fn found(&self) -> Option<usize> {
        self.found
    }

    /// The deltas that can be sent. Content that may begin a stop string is held.
    pub(super) fn pass(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        if self.matcher.is_empty() {
            return deltas;
        }
        let mut passed = Vec::with_capacity(deltas.len());
        for delta in deltas {
            match delta {
                delta if self.found.is_some() => self.skip(&delta),
                Delta::Content(text) => {
                    let held = self.matcher.held_length();
                    let (shown, found) = self.matcher.push(&text);
                    if found.is_some() {
                        self.found = found;
                        self.after.content = held + text.len() - shown.len();
                    }
                    push_content(shown, &mut passed);
                }
                delta => {
                    push_content(self.matcher.finish(), &mut passed);
                    passed.push(delta);
                }
            }
        }
        passed
    }

    /// The content that is still held at the end of the reply.
    pub(super) fn finish(&mut self) -> Vec<Delta> {
        let mut rest = Vec::new();
        push_content(self.matcher.finish(), &mut rest);
        rest
    }

    /// Removes what follows the stop string from the message.
    pub(super) fn cut(self, parsed: &mut ParsedReply) {
        let TextAfterStop { content, reasoning, calls } = self.after;
        parsed.content.truncate(parsed.content.len().saturating_sub(content));
        parsed.tool_calls.truncate(parsed.tool_calls.len().saturating_sub(calls));
        let count = parsed.tool_calls.len();
        parsed.unfinished = parsed.unfinished.filter(|index| *index < count);
        if let Some(text) = &mut parsed.reasoning {
            text.truncate(text.len().saturating_sub(reasoning));
        }
        parsed.reasoning = parsed.reasoning.take().filter(|text| !text.is_empty());
    }

    fn skip(&mut self, delta: &Delta) {
        match delta {
            Delta::Content(text) => self.after.content += text.len(),
            Delta::Reasoning(text) => self.after.reasoning += text.len(),
            Delta::ToolCall { .. } => self.after.calls += 1,
            Delta::Arguments { .. } => {}
        }
    }
}

fn push_content(text: String, deltas: &mut Vec<Delta>) {
    if !text.is_empty() {
        deltas.push(Delta::Content(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::ToolCall;

    fn content(text: &str) -> Delta {
        Delta::Content(text.to_owned())
    }

    fn reasoning(text: &str) -> Delta {
        Delta::Reasoning(text.to_owned())
    }

    fn call() -> Delta {
        Delta::ToolCall { index: 0, id: "1".into(), name: "f".into() }
    }

    /// Passes batches of deltas until a stop string is found. Returns it, the text of the deltas
    /// that were passed on, and the message: content, reasoning and the number of calls.
    fn run(stops: &[&str], batches: Vec<Vec<Delta>>) -> (Option<usize>, String, ParsedReply) {
        let mut answer = AnswerStop::new(stops.iter().map(|stop| stop.to_string()).collect());
        let (mut shown, mut parsed) = (String::new(), ParsedReply::default());
        let mut show = |deltas: Vec<Delta>| {
            for delta in deltas {
                match delta {
                    Delta::Content(text) => shown.push_str(&text),
                    Delta::Reasoning(text) => shown.push_str(&format!("({text})")),
                    Delta::ToolCall { name, .. } => shown.push_str(&format!("[{name}")),
                    Delta::Arguments { fragment, .. } => shown.push_str(&format!("{fragment}]")),
                }
            }
        };
        for deltas in batches {
            for delta in &deltas {
                match delta {
                    Delta::Content(text) => parsed.content.push_str(text),
                    Delta::Reasoning(text) => {
                        parsed.reasoning.get_or_insert_default().push_str(text)
                    }
                    Delta::ToolCall { .. } => parsed.tool_calls.push(ToolCall {
                        id: "1".into(),
                        name: "f".into(),
                        arguments: String::new(),
                    }),
                    Delta::Arguments { .. } => {}
                }
            }
            show(answer.pass(deltas));
            if answer.found().is_some() {
                break;
            }
        }
        show(answer.finish());
        let found = answer.found();
        answer.cut(&mut parsed);
        (found, shown, parsed)
    }

    #[track_caller]
    fn check(batches: Vec<Vec<Delta>>, found: Option<usize>, shown: &str, message: (&str, usize)) {
        let (at, text, parsed) = run(&["END", "\n\n"], batches);
        assert_eq!((at, text.as_str()), (found, shown));
        assert_eq!((parsed.content.as_str(), parsed.tool_calls.len()), message);
    }

    #[test]
    fn only_content_is_searched() {
        let arguments = Delta::Arguments { index: 0, fragment: "{\"END\"".into() };
        check(
            vec![vec![reasoning("END\n\n")], vec![content("a")], vec![call()], vec![arguments]],
            None,
            "(END\n\n)a[f{\"END\"]",
            ("a", 1),
        );
        check(vec![vec![content("a E")], vec![content("ND b")]], Some(0), "a ", ("a ", 0));
        check(vec![vec![content("a\n")], vec![content("\nb")]], Some(1), "a", ("a", 0));
        check(vec![vec![content("a E")]], None, "a E", ("a E", 0));
    }

    #[test]
    fn content_around_a_call_is_searched_separately() {
        let batches = vec![vec![content("a E"), call(), content("ND")]];
        check(batches, None, "a E[fND", ("a END", 1));
    }

    #[test]
    fn what_follows_in_the_same_deltas_is_left_out() {
        let deltas = vec![content("a END b"), reasoning("r"), call(), content("c")];
        let (found, shown, parsed) = run(&["END"], vec![deltas]);
        assert_eq!((found, shown.as_str()), (Some(0), "a "));
        assert_eq!((parsed.content.as_str(), parsed.reasoning), ("a ", None));
        assert!(parsed.tool_calls.is_empty());
        let before = vec![reasoning("r"), call(), content("END"), reasoning("s")];
        let (_, shown, parsed) = run(&["END"], vec![before]);
        assert_eq!((shown.as_str(), parsed.content.as_str()), ("(r)[f", ""));
        assert_eq!((parsed.reasoning.as_deref(), parsed.tool_calls.len()), (Some("r"), 1));
    }

    #[test]
    fn without_stop_strings_nothing_is_held() {
        let deltas = vec![content("a"), reasoning("b"), call()];
        assert_eq!(AnswerStop::new(Vec::new()).pass(deltas.clone()), deltas);
    }
}
