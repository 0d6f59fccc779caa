//! Lints about common conversations that the template refuses or fails on, although a plain
//! conversation renders.

use serde_json::{Value, json};

use super::review::{ANSWER, CALLED, ID, Review, SECOND, SECOND_ID, SYSTEM, Severity, cut};
use crate::jinja::ErrorKind;
use crate::probing::Probe;
use crate::template::probe::baseline::{parts, tool};
use crate::template::probe::evidence::RenderResult;
use crate::template::probe::traits::NoContent;
use crate::template::probe::{content, reasoning_turns};

pub(super) fn review(review: &mut Review<'_>) {
    roles(review);
    contents(review);
    let base = review.base;
    let tools = review.base.render_with(vec![base.user()], &review.tools());
    if review.compare("raises_on_tools", "declared tools", &tools) {
        let mut bare = tool(CALLED);
        bare["function"] = json!({ "name": CALLED });
        let text = base.render_with(vec![base.user()], &json!([bare]));
        review.compare("raises_on_bare_tool", "a tool with only a name", &text);
        calls(review);
    }
}

fn roles(review: &mut Review<'_>) {
    let (user, answer, system) = (review.user(), review.answer(), review.system());
    let one = |messages: &[&Value]| -> Vec<Value> {
        messages.iter().map(|message| (*message).clone()).collect()
    };
    let takes_system =
        review.renders("raises_on_system", "a system message", one(&[&system, &user]));
    if takes_system {
        review.renders(
            "raises_on_no_user",
            "a conversation without a user message",
            one(&[&system]),
        );
    }
    let developer = review.base.message("developer", SYSTEM);
    review.renders("raises_on_developer", "a developer message", one(&[&developer, &user]));
    review.renders("raises_on_two_users", "two user messages in a row", one(&[&user, &user]));
    if !review.renders(
        "raises_on_assistant",
        "an earlier question and its answer",
        one(&[&user, &answer, &user]),
    ) {
        return;
    }
    if takes_system {
        review.renders(
            "raises_on_later_system",
            "a system message after an answer",
            one(&[&user, &answer, &system, &user]),
        );
    }
    for (code, what, messages) in [
        (
            "raises_on_two_assistants",
            "two assistant messages in a row",
            one(&[&user, &answer, &answer, &user]),
        ),
        (
            "raises_on_assistant_first",
            "an assistant message as the first message",
            one(&[&answer, &user]),
        ),
        (
            "raises_on_assistant_last",
            "an assistant message as the last message",
            one(&[&user, &answer]),
        ),
    ] {
        review.renders(code, what, messages);
    }
}

fn contents(review: &mut Review<'_>) {
    let base = review.base;
    let user = |content: Value| vec![json!({ "role": "user", "content": content })];
    if base.typed() {
        review.renders("raises_on_string_content", "content as a string", user("text".into()));
    } else {
        review.renders(
            "raises_on_content_parts",
            "content as a list of text parts",
            user(parts("text")),
        );
    }
    review.renders("raises_on_empty_user", "an empty user message", vec![base.message("user", "")]);
    if !review.has("raises_on_assistant") {
        review.renders(
            "raises_on_empty_answer",
            "an empty assistant message",
            vec![base.user(), base.message("assistant", ""), base.user()],
        );
    }
}

fn calls(review: &mut Review<'_>) {
    let exchange = Exchange::of(review);
    let (user, call, result) = (&exchange.user, &exchange.call, &exchange.result);
    let unanswered = review.render_called(vec![user.clone(), call.clone()]);
    let answered = review.render_called(exchange.with_call(call.clone()));
    if answered.is_err() {
        match &unanswered {
            Ok(_) => {
                review.compare("raises_on_tool_result", "the result of a tool call", &answered)
            }
            // Calls appear in no form; this form fails least.
            Err(_) => review.compare("raises_on_tool_call", "a tool call", &unanswered),
        };
        return;
    }
    if !review.traits.caps.supports_tool_calls {
        // If calls do not appear, their shape does not matter.
        return;
    }
    let conversations = std::iter::once(exchange.other_argument_form())
        .chain(exchange.contents(review))
        .chain(exchange.argument_values(review))
        .chain(exchange.results(review));
    for (code, what, messages) in conversations {
        let text = review.render_called(messages);
        review.compare(code, what, &text);
    }
    if !review.has("raises_on_user_after_result") {
        let messages =
            vec![user.clone(), call.clone(), result.clone(), review.answer(), user.clone()];
        let text = review.render_called(messages);
        review.compare("raises_on_answered_result", "an answer after a tool result", &text);
    }
    // The prompt of a request ends in a generation prompt.
    let base = review.base;
    let messages = exchange.with_call(call.clone());
    let probe = Probe { add_generation_prompt: true, ..base.probe(messages) };
    let text = base.prober.render(Probe { tools: Some(review.tools()), ..probe });
    review.compare(
        "raises_on_prompt_after_result",
        "a generation prompt after a tool result",
        &text,
    );
}

/// The code of a lint, a description of the attempt, and its conversation.
type ShapeProbe = (&'static str, &'static str, Vec<Value>);

/// A tool call and its result in the form that appears in the prompt, and variations of them.
struct Exchange {
    user: Value,
    call: Value,
    result: Value,
}

impl Exchange {
    fn of(review: &Review<'_>) -> Exchange {
        Exchange { user: review.user(), call: review.plain_call(), result: review.result() }
    }

    fn with_call(&self, call: Value) -> Vec<Value> {
        vec![self.user.clone(), call, self.result.clone()]
    }

    fn other_argument_form(&self) -> ShapeProbe {
        let mut call = self.call.clone();
        let object = json!({ "argument": "value_needle" });
        let arguments = &mut call["tool_calls"][0]["function"]["arguments"];
        let (code, what, other) = if arguments.is_object() {
            ("raises_on_string_arguments", "arguments as JSON text", object.to_string().into())
        } else {
            ("raises_on_object_arguments", "arguments as an object", object)
        };
        *arguments = other;
        (code, what, self.with_call(call))
    }

    fn contents(&self, review: &Review<'_>) -> [ShapeProbe; 4] {
        let base = review.base;
        let with_content = |content: Option<Value>| {
            let mut message = Value::Object(content::without_content(base, NoContent::Absent));
            if let Some(content) = content {
                message["content"] = content;
            }
            message["tool_calls"] = self.call["tool_calls"].clone();
            message
        };
        let text = || Some(base.content(ANSWER));
        let field = reasoning_turns::field(review.traits.caps.reasoning_format);
        let mut reasoning = with_content(text());
        reasoning[field.unwrap_or("reasoning_content")] = "reasoning".into();
        [
            (
                "raises_on_absent_content_beside_calls",
                "a tool call without the member `content`",
                self.with_call(with_content(None)),
            ),
            (
                "raises_on_null_content_beside_calls",
                "a tool call with null content (which transformers removes)",
                self.with_call(with_content(Some(Value::Null))),
            ),
            (
                "raises_on_content_beside_calls",
                "a tool call with content",
                self.with_call(with_content(text())),
            ),
            (
                "raises_on_reasoning_beside_calls",
                "a tool call with reasoning and content",
                self.with_call(reasoning),
            ),
        ]
    }

    fn argument_values(&self, review: &Review<'_>) -> [ShapeProbe; 2] {
        [
            (
                "raises_on_null_argument",
                "a tool call with a null argument",
                self.with_call(review.call(json!({ "a": null }))),
            ),
            (
                "raises_on_empty_arguments",
                "a tool call without arguments",
                self.with_call(review.call(json!({}))),
            ),
        ]
    }

    fn results(&self, review: &Review<'_>) -> [ShapeProbe; 4] {
        let (base, form) = (review.base, review.form());
        let call_of = |id: &str, name: &str| {
            let mut call = self.call["tool_calls"][0].clone();
            call["id"] = id.into();
            call["function"]["name"] = name.into();
            call
        };
        let both = form.calls(base, &[call_of(ID, CALLED), call_of(SECOND_ID, SECOND)]);
        let mut parallel = self.with_call(both);
        parallel.push(self.result.clone());
        parallel[3]["tool_call_id"] = SECOND_ID.into();
        parallel[3]["name"] = SECOND.into();
        let long = "call_0123456789abcdef";
        let mut long_id = self.with_call(form.calls(base, &[call_of(long, CALLED)]));
        long_id[2]["tool_call_id"] = long.into();
        let mut nameless = self.with_call(self.call.clone());
        if let Value::Object(result) = &mut nameless[2] {
            result.shift_remove("name");
        }
        let mut followed = self.with_call(self.call.clone());
        followed.push(self.user.clone());
        [
            ("raises_on_parallel_calls", "two tool calls in one message", parallel),
            (
                "raises_on_long_call_ids",
                "ids of calls that are not nine letters or digits",
                long_id,
            ),
            (
                "raises_on_result_without_name",
                "a tool result without the name of the tool",
                nameless,
            ),
            ("raises_on_user_after_result", "a user message after a tool result", followed),
        ]
    }
}

impl Review<'_> {
    /// Like [`compare`](Self::compare), for a conversation without tools.
    fn renders(&mut self, code: &'static str, what: &str, messages: Vec<Value>) -> bool {
        let text = self.render(messages);
        self.compare(code, what, &text)
    }

    /// Whether a conversation rendered. Adds a lint if it did not and the template is the reason.
    fn compare(&mut self, code: &'static str, what: &str, text: &RenderResult) -> bool {
        match text {
            Ok(_) => true,
            // Not the template's fault.
            Err(failure) if matches!(failure.kind, ErrorKind::Limit | ErrorKind::Engine) => false,
            Err(failure) => {
                let how = if failure.is_refusal() { "refuses" } else { "fails on" };
                let message = format!("the template {how} {what}: {}", cut(&failure.message));
                // Null content is rare, because transformers removes it.
                let severity =
                    if code.contains("null_content") { Severity::Info } else { Severity::Warning };
                self.add_at(severity, code, failure.line, message);
                false
            }
        }
    }
}
