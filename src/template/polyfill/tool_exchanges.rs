//! Which result answers which call. In: messages, of which only roles and ids matter. Out: the runs
//! of results that are not in the order of their calls, and the calls and results that have no
//! counterpart.
//!
//! An exchange is a run of assistant messages and the results right after it. A result answers the
//! call that has its id. If it has no id, or the calls have none, it answers the first call that is
//! left.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use serde_json::Value;

use super::conversation::{PolyfillConversation, PolyfillMessage};

/// A call or a result without a counterpart. Messages are given by their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExchangeFault {
    /// No result answers this call, although the conversation goes on.
    CallWithoutResult { message: usize, call: usize },
    /// There is no call for this result.
    ResultWithoutCall { message: usize },
    /// The result at `first` answers the same call.
    RepeatedResult { message: usize, first: usize },
    /// An earlier call of the exchange has the same id.
    RepeatedCallId { message: usize, call: usize },
}

impl ExchangeFault {
    /// The position of the message that the fault is about.
    pub(super) fn message(&self) -> usize {
        match self {
            ExchangeFault::CallWithoutResult { message, .. }
            | ExchangeFault::RepeatedCallId { message, .. }
            | ExchangeFault::ResultWithoutCall { message }
            | ExchangeFault::RepeatedResult { message, .. } => *message,
        }
    }
}

/// What is irregular about the exchanges of a conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolExchanges {
    /// The runs of results that are in another order than their calls, although every call has an
    /// id of its own and one result. Each is the positions of its results in the order of the calls.
    pub(super) unordered: Vec<Vec<usize>>,
    /// In the order of the messages.
    pub(super) faults: Vec<ExchangeFault>,
}

/// A message, as far as exchanges are concerned. An empty id counts as absent.
enum ExchangeTurn<'a> {
    /// An assistant message: the ids of its calls.
    Assistant(Vec<Option<&'a str>>),
    /// A result: the id of its call.
    Result(Option<&'a str>),
    Other,
}

impl ToolExchanges {
    /// Reviews the messages of a request. `goes_on` is whether something follows the last one.
    pub(super) fn of_request(messages: &[Value], goes_on: bool) -> ToolExchanges {
        review(&messages.iter().map(ExchangeTurn::of_value).collect::<Vec<_>>(), goes_on)
    }

    /// Reviews the messages of a conversation that steps change.
    pub(super) fn of(conversation: &PolyfillConversation, goes_on: bool) -> ToolExchanges {
        let turns = conversation.messages.iter().map(ExchangeTurn::of_message);
        review(&turns.collect::<Vec<_>>(), goes_on)
    }
}

impl<'a> ExchangeTurn<'a> {
    fn of_value(message: &'a Value) -> ExchangeTurn<'a> {
        match text(message, "role") {
            Some("assistant") => {
                let calls = message.get("tool_calls").and_then(Value::as_array);
                let ids = calls.into_iter().flatten().map(|call| text(call, "id"));
                ExchangeTurn::Assistant(ids.collect())
            }
            Some("tool") => ExchangeTurn::Result(text(message, "tool_call_id")),
            _ => ExchangeTurn::Other,
        }
    }

    fn of_message(message: &'a PolyfillMessage) -> ExchangeTurn<'a> {
        if message.has_role("assistant") {
            let ids = message.calls().iter().map(|call| call.as_map()?.str("id"));
            ExchangeTurn::Assistant(ids.map(present).collect())
        } else if message.has_role("tool") {
            ExchangeTurn::Result(present(message.members.str("tool_call_id")))
        } else {
            ExchangeTurn::Other
        }
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    present(object.get(name).and_then(Value::as_str))
}

fn present(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.is_empty())
}

fn review(turns: &[ExchangeTurn<'_>], goes_on: bool) -> ToolExchanges {
    let mut found = ToolExchanges::default();
    let run = |from: usize, belongs: fn(&ExchangeTurn<'_>) -> bool| {
        turns[from..].iter().position(|turn| !belongs(turn)).map_or(turns.len(), |len| from + len)
    };
    let mut at = 0;
    while at < turns.len() {
        let results = run(at, |turn| matches!(turn, ExchangeTurn::Assistant(_)));
        let end = run(results, |turn| matches!(turn, ExchangeTurn::Result(_)));
        let is_open = end == turns.len() && !goes_on;
        ToolExchange::of(turns, at..end).review(is_open, &mut found);
        at = end.max(at + 1);
    }
    found
}

/// A call of an exchange.
struct ExchangeCall<'a> {
    message: usize,
    /// Its index in the message.
    call: usize,
    id: Option<&'a str>,
    /// The position of its result.
    result: Option<usize>,
}

struct ToolExchange<'a> {
    calls: Vec<ExchangeCall<'a>>,
    /// The positions and ids of the results.
    results: Vec<(usize, Option<&'a str>)>,
}

impl<'a> ToolExchange<'a> {
    fn of(turns: &[ExchangeTurn<'a>], range: Range<usize>) -> ToolExchange<'a> {
        let mut exchange = ToolExchange { calls: Vec::new(), results: Vec::new() };
        for (position, turn) in range.clone().zip(&turns[range]) {
            match turn {
                ExchangeTurn::Assistant(ids) => {
                    let calls = ids.iter().enumerate().map(|(call, id)| ExchangeCall {
                        message: position,
                        call,
                        id: *id,
                        result: None,
                    });
                    exchange.calls.extend(calls);
                }
                ExchangeTurn::Result(id) => exchange.results.push((position, *id)),
                ExchangeTurn::Other => {}
            }
        }
        exchange
    }

    /// Calls of an open exchange may still get their results.
    fn review(mut self, is_open: bool, found: &mut ToolExchanges) {
        if self.results.is_empty() && (self.calls.is_empty() || is_open) {
            return;
        }
        let mut faults = self.match_results();
        let unanswered = self.calls.iter().filter(|call| call.result.is_none());
        faults.extend(unanswered.map(|call| ExchangeFault::CallWithoutResult {
            message: call.message,
            call: call.call,
        }));
        faults.sort_by_key(ExchangeFault::message);
        let by_call: Vec<usize> = self.calls.iter().filter_map(|call| call.result).collect();
        if faults.is_empty() && !by_call.is_sorted() && self.has_ids() {
            found.unordered.push(by_call);
        }
        found.faults.append(&mut faults);
    }

    /// Gives each call its result. Returns the ids and the results that fit nothing.
    fn match_results(&mut self) -> Vec<ExchangeFault> {
        let mut faults = Vec::new();
        let mut by_id: HashMap<&str, VecDeque<usize>> = HashMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            let Some(id) = call.id else { continue };
            let calls = by_id.entry(id).or_default();
            if !calls.is_empty() {
                faults
                    .push(ExchangeFault::RepeatedCallId { message: call.message, call: call.call });
            }
            calls.push_back(index);
        }
        let mut answers: HashMap<&str, usize> = HashMap::new();
        let mut unmatched = Vec::new();
        for (position, id) in &self.results {
            match id.and_then(|id| Some((id, by_id.get_mut(id)?))) {
                None => unmatched.push((*position, id.is_some())),
                Some((id, calls)) => match calls.pop_front() {
                    Some(call) => {
                        self.calls[call].result = Some(*position);
                        answers.insert(id, *position);
                    }
                    None => faults.push(ExchangeFault::RepeatedResult {
                        message: *position,
                        first: answers[id],
                    }),
                },
            }
        }
        // An unknown id belongs to no call that has another id.
        let unanswered = |has_id: bool| -> VecDeque<usize> {
            let calls = self.calls.iter().enumerate();
            let calls =
                calls.filter(|(_, call)| call.result.is_none() && call.id.is_some() == has_id);
            calls.map(|(index, _)| index).collect()
        };
        let (mut named, mut unnamed) = (unanswered(true), unanswered(false));
        for (position, has_id) in unmatched {
            let is_named_first = match (named.front(), unnamed.front()) {
                (Some(named), Some(unnamed)) => named < unnamed,
                (named, _) => named.is_some(),
            };
            let calls = if is_named_first && !has_id { &mut named } else { &mut unnamed };
            match calls.pop_front() {
                Some(call) => self.calls[call].result = Some(position),
                None => faults.push(ExchangeFault::ResultWithoutCall { message: position }),
            }
        }
        faults
    }

    /// Whether ids matched every result.
    fn has_ids(&self) -> bool {
        self.calls.iter().all(|call| call.id.is_some())
            && self.results.iter().all(|(_, id)| id.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::ExchangeFault::{
        CallWithoutResult, RepeatedCallId, RepeatedResult, ResultWithoutCall,
    };
    use super::*;
    use serde_json::json;

    /// A conversation in short: `a,b` is an assistant message with the calls a and b, `-` is a call
    /// without an id, `>a` is a result, `>` is one without an id, `.` is an assistant message
    /// without calls, `u` is a user message.
    fn messages(short: &str) -> Vec<Value> {
        let message = |word: &str| match (word, word.strip_prefix('>')) {
            ("u", _) => json!({"role": "user", "content": "U"}),
            (".", _) => json!({"role": "assistant", "content": "A"}),
            (_, Some("")) => json!({"role": "tool", "content": "R"}),
            (_, Some(id)) => json!({"role": "tool", "tool_call_id": id, "content": "R"}),
            (calls, None) => {
                let call = |id: &str| match id {
                    "-" => json!({"type": "function", "function": {"name": "f"}}),
                    id => json!({"id": id, "type": "function", "function": {"name": "f"}}),
                };
                let calls: Vec<Value> = calls.split(',').map(call).collect();
                json!({"role": "assistant", "content": null, "tool_calls": calls})
            }
        };
        short.split_whitespace().map(message).collect()
    }

    #[track_caller]
    fn check(short: &str, unordered: &[&[usize]], faults: &[ExchangeFault]) {
        let messages = messages(short);
        let found = ToolExchanges::of_request(&messages, false);
        assert_eq!(
            (&found.unordered[..], &found.faults[..]),
            (&unordered.iter().map(|run| run.to_vec()).collect::<Vec<_>>()[..], faults),
            "{short}"
        );
        assert_eq!(
            ToolExchanges::of(
                &PolyfillConversation::of(&messages, &|| false).expect("in time"),
                false
            ),
            found,
            "{short}"
        );
    }

    #[test]
    fn regular_conversations() {
        for short in [
            "",
            "u",
            "u . u",
            "u a >a . u b >b",
            "u a,b >a >b",
            "a,b >a >b u a,b >a >b",
            "a b >a >b",
            "u a",
            "u -,- > >",
            "u - >x",
            "u a >",
            "u -,a >a >",
            "u a,- >a >x",
        ] {
            check(short, &[], &[]);
        }
    }

    #[test]
    fn results_in_another_order() {
        check("u a,b >b >a", &[&[3, 2]], &[]);
        check("a,b,c >c >a >b u a,b >b >a .", &[&[2, 3, 1], &[7, 6]], &[]);
        check("a b >b >a", &[&[3, 2]], &[]);
        // Without ids nothing says that the order is another.
        check("a,- > >a", &[], &[]);
    }

    #[test]
    fn faults() {
        let call = |message, call| CallWithoutResult { message, call };
        let result = |message| ResultWithoutCall { message };
        check("u a,b >b u", &[], &[call(1, 0)]);
        check("u a,b >b", &[], &[call(1, 0)]);
        check("u a u", &[], &[call(1, 0)]);
        check("a . u", &[], &[call(0, 0)]);
        check("u >a", &[], &[result(1)]);
        check("u . >a >", &[], &[result(2), result(3)]);
        check("a >a u >a", &[], &[result(3)]);
        check("a,b >b >a >c", &[], &[result(3)]);
        check("a >x", &[], &[call(0, 0), result(1)]);
        check("a,b >b u >a", &[], &[call(0, 0), result(3)]);
        check("a,b >b >a >b", &[], &[RepeatedResult { message: 3, first: 1 }]);
        check("a,b >a >a", &[], &[call(0, 1), RepeatedResult { message: 2, first: 1 }]);
        let unanswered = ToolExchanges::of_request(&messages("u a"), true);
        assert_eq!(unanswered.faults, [call(1, 0)]);
        check("a,a >a >a", &[], &[RepeatedCallId { message: 0, call: 1 }]);
    }

    #[test]
    fn many_results_take_linear_time() {
        let calls: Vec<String> = (0..20_000).map(|id| id.to_string()).collect();
        let results = |prefix: &str| -> String {
            calls.iter().rev().map(|id| format!(" >{prefix}{id}")).collect()
        };
        let calls = calls.join(",");
        let found = ToolExchanges::of_request(&messages(&(calls.clone() + &results(""))), false);
        assert_eq!(found.unordered.len(), 1);
        let found = ToolExchanges::of_request(&messages(&(calls + &results("x"))), false);
        assert_eq!(found.faults.len(), 40_000);
    }
}
