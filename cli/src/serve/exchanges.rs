//! Refuses conversations whose tool calls and results do not belong together, with the status, the
//! members and the words of the APIs of OpenAI and Anthropic. Clients recognize these errors.
//!
//! Sources: reports of OpenAI's errors, for example
//! <https://github.com/sdcb/chats/pull/132> (no result),
//! <https://github.com/smarter-sh/smarter/issues/264> (no call),
//! <https://github.com/agno-agi/agno/issues/5116> (two results) and
//! <https://github.com/microsoft/vscode/issues/320060> (responses); of Anthropic's, for example
//! <https://github.com/anthropics/claude-code/issues/1237>,
//! <https://github.com/anthropics/claude-code/issues/13460>,
//! <https://github.com/anthropics/claude-code/issues/20901>, and
//! <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use>.

use std::collections::{HashMap, HashSet};

use axum::http::StatusCode;
use serde_json::Value;

use super::error::ApiError;
use super::fields;

/// A refused conversation. `param` is the member to blame.
fn refused(param: &str, message: String) -> ApiError {
    let error = ApiError::new(StatusCode::BAD_REQUEST, message);
    ApiError { param: Some(param.to_owned()), ..error }
}

/// Checks the messages of a chat completion. The results of a message's calls follow right after
/// it, in any order.
///
/// Members of the wrong type are left to the library.
pub(super) fn check_chat(messages: &[Value]) -> Result<(), ApiError> {
    // The calls of the last assistant message, if only results follow it.
    let mut run: Option<OpenCalls<'_>> = None;
    for (index, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            let Some(run) = &mut run else {
                return Err(refused(
                    &format!("messages.[{index}].role"),
                    "Invalid parameter: messages with role 'tool' must be a response to a \
                     preceeding message with 'tool_calls'."
                        .to_owned(),
                ));
            };
            run.answer(index, message)?;
            continue;
        }
        if let Some(run) = &run {
            run.check(&format!("messages.[{index}].role"))?;
        }
        run = OpenCalls::of(index, message)?;
    }
    run.map_or(Ok(()), |run| run.check("messages"))
}

/// The calls of a message, and the results so far.
struct OpenCalls<'a> {
    ids: Vec<&'a str>,
    /// For each call, the index of the message with its result.
    results: HashMap<&'a str, Option<usize>>,
}

impl<'a> OpenCalls<'a> {
    /// `None` for a message without calls.
    fn of(index: usize, message: &'a Value) -> Result<Option<OpenCalls<'a>>, ApiError> {
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if message["role"] != "assistant" || calls.is_empty() {
            return Ok(None);
        }
        let mut ids = Vec::with_capacity(calls.len());
        for (number, call) in calls.iter().enumerate() {
            if call.is_object() && fields::get(call, "id").is_none() {
                return Err(missing(&format!("messages[{index}].tool_calls[{number}].id")));
            }
            ids.extend(call["id"].as_str());
        }
        let results = ids.iter().map(|id| (*id, None)).collect();
        Ok(Some(OpenCalls { ids, results }))
    }

    fn answer(&mut self, index: usize, message: &'a Value) -> Result<(), ApiError> {
        if fields::get(message, "tool_call_id").is_none() {
            return Err(missing(&format!("messages[{index}].tool_call_id")));
        }
        let Some(id) = message["tool_call_id"].as_str() else { return Ok(()) };
        let problem = match self.results.get_mut(id) {
            Some(result @ None) => {
                *result = Some(index);
                return Ok(());
            }
            None => {
                format!("'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.")
            }
            Some(Some(first)) => format!(
                "Duplicate value for 'tool_call_id' of '{id}', in messages[{first}] and \
                 messages[{index}]."
            ),
        };
        let param = format!("messages.[{index}].tool_call_id");
        Err(refused(&param, format!("Invalid parameter: {problem}")))
    }

    /// Refuses calls without results. `param` is where the results should be.
    fn check(&self, param: &str) -> Result<(), ApiError> {
        let is_open = |id: &&str| self.results.get(id).is_some_and(Option::is_none);
        let open: Vec<&str> = self.ids.iter().copied().filter(is_open).collect();
        if open.is_empty() {
            return Ok(());
        }
        let message = format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        );
        Err(refused(param, message))
    }
}

fn missing(param: &str) -> ApiError {
    refused(param, format!("Missing required parameter: '{param}'."))
        .with_code("missing_required_parameter")
}

/// Assistant messages in a row with the results of their calls, or one other message.
#[derive(Default)]
struct MessageGroup {
    messages: Vec<Value>,
    answered: HashSet<String>,
    results: Vec<Value>,
}

/// Pairs the calls and outputs in the input of a response, which was converted to messages. The API
/// pairs them by their ids, wherever they are. In a chat, results follow right after their calls.
///
/// Several outputs of one call are not refused: programs send them for their own kinds of tools.
pub(super) fn paired(messages: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let mut groups: Vec<MessageGroup> = Vec::new();
    // The last group that has a call with this id.
    let mut callers: HashMap<String, usize> = HashMap::new();
    let mut calls: Vec<(usize, String)> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(caller) = callers.get(id).and_then(|caller| groups.get_mut(*caller)) else {
                let problem =
                    format!("No tool call found for function call output with call_id {id}.");
                return Err(refused("input", problem));
            };
            caller.answered.insert(id.to_owned());
            caller.results.push(message);
            continue;
        }
        let is_assistant = message["role"] == "assistant";
        let continues = groups.last().is_some_and(|group| {
            is_assistant && group.messages[0]["role"] == "assistant" && group.results.is_empty()
        });
        if !continues {
            groups.push(MessageGroup::default());
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default();
            callers.insert(id.to_owned(), groups.len() - 1);
            calls.push((groups.len() - 1, id.to_owned()));
        }
        groups.last_mut().expect("one was pushed").messages.push(message);
    }
    if let Some((_, id)) = calls.iter().find(|(group, id)| !groups[*group].answered.contains(id)) {
        return Err(refused("input", format!("No tool output found for function call {id}.")));
    }
    Ok(groups.into_iter().flat_map(|group| [group.messages, group.results]).flatten().collect())
}

/// Checks the messages of Anthropic's API. The results of a turn's calls are the first blocks of
/// the next turn, in any order. Adjacent messages of one role are one turn.
///
/// The content was checked before.
pub(super) fn check_turns(messages: &[Value]) -> Result<(), ApiError> {
    let messages: Vec<(usize, &Value)> =
        messages.iter().enumerate().filter(|(_, message)| message["role"] != "system").collect();
    let mut calls = TurnCalls::default();
    let mut known = HashSet::new();
    for turn in messages.chunk_by(|a, b| a.1["role"] == b.1["role"]) {
        let blocks: Vec<Block<'_>> =
            turn.iter().flat_map(|(index, message)| blocks(*index, message)).collect();
        calls.check_results(&blocks)?;
        calls = TurnCalls::default();
        for block in blocks.iter().filter(|_| turn[0].1["role"] == "assistant") {
            let Some(id) = block.id("tool_use", "id") else { continue };
            if !known.insert(id) {
                return Err(block.refused("`tool_use` ids must be unique".to_owned()));
            }
            calls.message = block.message;
            calls.ids.push(id);
        }
    }
    calls.check_results(&[])
}

/// A block of a message's content.
struct Block<'a> {
    message: usize,
    number: usize,
    value: &'a Value,
}

fn blocks(index: usize, message: &Value) -> impl Iterator<Item = Block<'_>> {
    let content = &message["content"];
    let blocks = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    blocks.iter().enumerate().map(move |(number, value)| Block { message: index, number, value })
}

impl<'a> Block<'a> {
    fn id(&self, kind: &str, name: &str) -> Option<&'a str> {
        (self.value["type"] == kind).then(|| self.value[name].as_str()).flatten()
    }

    /// The id of the call whose result the block is.
    fn result(&self) -> Option<&'a str> {
        self.id("tool_result", "tool_use_id")
    }

    fn refused(&self, problem: String) -> ApiError {
        let path = format!("messages.{}.content.{}", self.message, self.number);
        refused(&path, format!("{path}: {problem}"))
    }
}

/// The calls of a turn.
#[derive(Default)]
struct TurnCalls<'a> {
    /// The index of the message with the last call.
    message: usize,
    ids: Vec<&'a str>,
}

impl TurnCalls<'_> {
    /// Checks the results in the next turn.
    fn check_results(&self, next: &[Block<'_>]) -> Result<(), ApiError> {
        let first: HashSet<&str> = next.iter().map_while(Block::result).collect();
        let open: Vec<&str> = self.ids.iter().copied().filter(|id| !first.contains(id)).collect();
        if !open.is_empty() {
            let path = format!("messages.{}", self.message);
            let problem = format!(
                "{path}: `tool_use` ids were found without `tool_result` blocks immediately after: \
                 {}. Each `tool_use` block must have a corresponding `tool_result` block in the \
                 next message.",
                open.join(", ")
            );
            return Err(refused(&path, problem));
        }
        let called: HashSet<&str> = self.ids.iter().copied().collect();
        let mut answered = HashSet::new();
        for (block, id) in next.iter().filter_map(|block| Some((block, block.result()?))) {
            if !called.contains(id) {
                return Err(block.refused(format!(
                    "unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each \
                     `tool_result` block must have a corresponding `tool_use` block in the \
                     previous message."
                )));
            }
            if !answered.insert(id) {
                return Err(block.refused(format!(
                    "each tool_use must have a single result. Found multiple `tool_result` blocks \
                     with id: {id}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(result: Result<(), ApiError>, param: &str, message: &str) {
        let error = result.expect_err("refused");
        assert_eq!((error.status, error.param.as_deref()), (StatusCode::BAD_REQUEST, Some(param)));
        assert_eq!(error.message, message);
    }

    fn calls(ids: &[&str]) -> Value {
        let calls: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
        json!({ "role": "assistant", "tool_calls": calls })
    }

    fn result(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": id })
    }

    fn user() -> Value {
        json!({ "role": "user", "content": "U" })
    }

    #[test]
    fn chats() {
        for good in [
            vec![user()],
            vec![user(), calls(&["a", "b"]), result("b"), result("a"), user()],
            vec![calls(&["a"]), result("a"), calls(&["a"]), result("a")],
            vec![json!({ "role": "assistant", "content": "A", "tool_calls": [] }), user()],
        ] {
            assert!(check_chat(&good).is_ok(), "{good:?}");
        }
        let followed = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ";
        let refuse = |messages: &[Value], param: &str, message: &str| {
            check(check_chat(messages), param, message);
        };
        refuse(
            &[user(), calls(&["a", "b", "c"]), result("b"), user()],
            "messages.[3].role",
            &format!("{followed}a, c"),
        );
        refuse(&[user(), calls(&["a"])], "messages", &format!("{followed}a"));
        refuse(&[calls(&["a"]), calls(&["b"])], "messages.[1].role", &format!("{followed}a"));
        let preceding = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
        refuse(&[user(), result("a")], "messages.[1].role", preceding);
        refuse(&[calls(&["a"]), result("a"), user(), result("a")], "messages.[3].role", preceding);
        refuse(
            &[calls(&["a"]), result("x")],
            "messages.[1].tool_call_id",
            "Invalid parameter: 'tool_call_id' of 'x' not found in 'tool_calls' of previous message.",
        );
        refuse(
            &[calls(&["a", "b"]), result("a"), result("a"), result("b")],
            "messages.[2].tool_call_id",
            "Invalid parameter: Duplicate value for 'tool_call_id' of 'a', in messages[1] and messages[2].",
        );
        refuse(
            &[calls(&["a"]), json!({ "role": "tool", "content": "R" })],
            "messages[1].tool_call_id",
            "Missing required parameter: 'messages[1].tool_call_id'.",
        );
        refuse(
            &[json!({ "role": "assistant", "tool_calls": [{}] })],
            "messages[0].tool_calls[0].id",
            "Missing required parameter: 'messages[0].tool_calls[0].id'.",
        );
    }

    #[test]
    fn responses() {
        let pair = |messages: &[Value]| paired(messages.to_vec());
        let (a, b) = (calls(&["a"]), calls(&["b"]));
        for (sent, expected) in [
            (vec![user(), a.clone(), result("a")], vec![user(), a.clone(), result("a")]),
            (vec![a.clone(), user(), result("a")], vec![a.clone(), result("a"), user()]),
            (
                vec![a.clone(), b.clone(), user(), result("b"), result("a")],
                vec![a.clone(), b.clone(), result("b"), result("a"), user()],
            ),
            (
                vec![a.clone(), result("a"), a.clone(), user(), result("a")],
                vec![a.clone(), result("a"), a.clone(), result("a"), user()],
            ),
            (vec![a.clone(), result("a"), result("a")], vec![a.clone(), result("a"), result("a")]),
        ] {
            assert_eq!(pair(&sent).unwrap(), expected);
        }
        let refuse = |messages: &[Value], message: &str| {
            check(pair(messages).map(|_| ()), "input", message);
        };
        refuse(&[user(), a.clone(), user()], "No tool output found for function call a.");
        refuse(&[a.clone(), result("a"), a], "No tool output found for function call a.");
        refuse(
            &[user(), result("x")],
            "No tool call found for function call output with call_id x.",
        );
    }

    #[test]
    fn turns() {
        let say = |role: &str, blocks: Value| json!({ "role": role, "content": blocks });
        let call = |id: &str| json!({ "type": "tool_use", "id": id });
        let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id });
        let text = json!({ "type": "text", "text": "T" });
        let called = || say("assistant", json!([text, call("a"), call("b")]));
        for good in [
            vec![user(), called(), say("user", json!([result("b"), result("a"), text]))],
            vec![called(), say("user", json!([result("b")])), say("user", json!([result("a")]))],
            vec![
                called(),
                say("system", json!("S")),
                say("user", json!([result("b"), result("a")])),
            ],
            vec![
                say("assistant", json!([call("a")])),
                say("assistant", json!("A")),
                say("user", json!([result("a")])),
            ],
        ] {
            assert!(check_turns(&good).is_ok(), "{good:?}");
        }
        let missing = |message: usize, ids: &str| {
            format!(
                "messages.{message}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )
        };
        for (messages, message, ids) in [
            (vec![user(), called(), user()], 1, "a, b"),
            (vec![user(), called()], 1, "a, b"),
            (vec![called(), say("user", json!([result("a")]))], 0, "b"),
            (vec![called(), say("user", json!([result("a"), text, result("b")]))], 0, "b"),
            (vec![called(), user(), say("user", json!([result("a"), result("b")]))], 0, "a, b"),
        ] {
            check(check_turns(&messages), &format!("messages.{message}"), &missing(message, ids));
        }
        let unexpected = |id: &str| {
            format!(
                "unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        };
        for (messages, path, problem) in [
            (vec![say("user", json!([text, result("a")]))], "messages.0.content.1", unexpected("a")),
            (
                vec![called(), say("user", json!([result("a"), result("b"), result("x")]))],
                "messages.1.content.2",
                unexpected("x"),
            ),
            (
                vec![called(), say("user", json!([result("a"), result("b"), result("a")]))],
                "messages.1.content.2",
                "each tool_use must have a single result. Found multiple `tool_result` blocks with id: a".to_owned(),
            ),
            (
                vec![say("assistant", json!([call("a"), call("a")]))],
                "messages.0.content.1",
                "`tool_use` ids must be unique".to_owned(),
            ),
        ] {
            check(check_turns(&messages), path, &format!("{path}: {problem}"));
        }
    }
}
