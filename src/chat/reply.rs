//! Turns pieces of text into a response, and streams them as they arrive.

use std::sync::Arc;

use serde_json::Value;

use super::Chat;
use super::answer_stop::AnswerStop;
use super::render::{RenderedPrompt, marks_reasoning};
use super::reply_reader::ReplyReader;
use super::source::{
    FinishedReply, FittedPrompt, GenerationRequest, ReplyUpdate, ReplyUpdates, Truncation,
};
use super::stream::{Stream, StreamSink};
use crate::api::logprobs::SampledToken;
use crate::api::response::{ChatResponse, FinishReason, ReplyCall, Timings, Usage};
use crate::api::{self, ChatRequest, StopScope, ToolChoice};
use crate::diagnostic::Diagnostic;
use crate::engine::{Finish, Interrupt};
use crate::error::Result;
use crate::output::{Format, ParsedReply, ReplyBeginning, ReplyParser, ReplyParserInput};
use crate::template::{Prompt, reasoning_of};
use crate::validate::{self, Acceptance};

/// The code of the diagnostic about a call that the end of the reply cuts off.
const TRUNCATED_CALL: &str = "truncated_call";

/// A request with its prompt, before a reply is generated.
pub(super) struct PreparedReply<'a> {
    pub(super) generation: GenerationRequest<'a>,
    pub(super) reader: ReplyReader,
    /// The beginning of the message that the reply continues.
    pub(super) beginning: ReplyBeginning,
    pub(super) polyfills_applied: Vec<&'static str>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Chat {
    /// Runs one request.
    pub(super) fn run(
        &self,
        request: &ChatRequest,
        interrupt: Interrupt,
        sink: Option<StreamSink>,
    ) -> Result<ChatResponse> {
        let interrupt = Interrupt { enough: Arc::default(), ..interrupt };
        let _use = self.source.begin(&interrupt)?;
        let PreparedReply { generation, mut reader, beginning, polyfills_applied, diagnostics } =
            self.prepare(request, interrupt)?;
        let truncated = generation.truncation.as_ref().map(Truncation::to_json);
        let started = self.source.start(generation)?;
        if started.constrained {
            reader.expect_constrained_calls();
        }
        if started.validate_calls {
            reader.validate_unconstrained_calls();
        }
        let mut stream = Stream::new(request.output.stream_format, sink);
        let mut logprobs = request.output.logprobs.map(|_| Vec::new());
        let mut answer = AnswerStop::new(match request.output.stop_scope {
            StopScope::Answer => request.output.stop.clone(),
            StopScope::All => Vec::new(),
        });
        let mut finished =
            receive(started.updates, &mut reader, &mut answer, &mut stream, logprobs.as_mut())?;
        let early = finished.outcome.finish != Finish::Stop;
        let (rest, mut parsed) = reader.finish(early);
        stream.send(answer.pass(rest));
        stream.send(answer.finish());
        // The stop strings of the template come after those of the request, or are the only ones.
        let stop = match request.output.stop_scope {
            StopScope::Answer => answer.found(),
            StopScope::All => finished.outcome.stop,
        };
        if answer.found().is_some() {
            finished.outcome.finish = Finish::Stop;
        }
        answer.cut(&mut parsed);
        let truncated_call = take_truncated_call(&mut parsed, started.constrained || early);
        let unmet = unmet_requirements(request, &parsed, &beginning.content);
        let response = ChatResponse {
            reply_shape: self.reply_shape,
            finish_reason: finish_reason(finished.outcome.finish, !parsed.tool_calls.is_empty()),
            stop_sequence: stop.and_then(|index| request.output.stop.get(index).cloned()),
            continued_reasoning: reasoning_before(&beginning, &parsed),
            continued_text: beginning.content,
            usage: self.usage(&finished),
            timings: timings(&finished),
            logprobs,
            polyfills_applied,
            truncated,
            diagnostics: [
                diagnostics,
                started.diagnostics,
                finished.diagnostics,
                parsed.diagnostics,
                truncated_call.into_iter().collect(),
                unmet,
                self.source.finish(parsed.reasoning.is_some()),
            ]
            .into_iter()
            .flatten()
            .collect(),
            text: parsed.content,
            reasoning: parsed.reasoning,
            tool_calls: parsed
                .tool_calls
                .into_iter()
                .map(|call| ReplyCall { id: call.id, name: call.name, arguments: call.arguments })
                .collect(),
            ignored_keys: request.ignored_keys.clone(),
        };
        stream.finish(&response, request.output.include_usage);
        Ok(response)
    }

    /// Renders the prompt of a request, fits it to the context, and creates the parser of the reply.
    pub(super) fn prepare<'a>(
        &'a self,
        request: &'a ChatRequest,
        interrupt: Interrupt,
    ) -> Result<PreparedReply<'a>> {
        let FittedPrompt { rendered, tokenized, truncation } =
            self.fit_to_context(request, &interrupt)?;
        let RenderedPrompt { prompt, polyfills_applied, diagnostics } = rendered;
        let (reader, beginning) = match request.plain {
            Some(_) => (ReplyReader::Plain(String::new()), ReplyBeginning::default()),
            None => {
                let (parser, beginning) = self.reply_parser(request, &prompt);
                (ReplyReader::Message(Box::new(parser)), beginning)
            }
        };
        let generation = GenerationRequest {
            request,
            prompt,
            tokenized,
            truncation,
            profile: &self.profile,
            reasoning_open: reader.is_reasoning(),
            content_before: beginning.content.clone(),
            stop: self.stops_anywhere(request),
            interrupt,
        };
        Ok(PreparedReply { generation, reader, beginning, polyfills_applied, diagnostics })
    }

    /// The strings that end a reply wherever they occur in its text: those of the request if it
    /// says so, then those of the template.
    fn stops_anywhere(&self, request: &ChatRequest) -> Vec<String> {
        let own = match request.output.stop_scope {
            StopScope::Answer => &[][..],
            StopScope::All => &request.output.stop,
        };
        let of_template = self.template_stops().filter(|_| request.plain.is_none());
        own.iter().chain(of_template).cloned().collect()
    }

    fn usage(&self, finished: &FinishedReply) -> Usage {
        let FinishedReply { outcome, prompt_tokens, counts_reasoning, .. } = finished;
        let counts_reasoning = *counts_reasoning && marks_reasoning(&self.profile);
        Usage {
            prompt_tokens: *prompt_tokens,
            completion_tokens: outcome.completion_tokens,
            cached_tokens: outcome.cached_tokens,
            reasoning_tokens: counts_reasoning.then_some(outcome.reasoning_tokens),
        }
    }

    /// Creates a parser for the reply to this prompt. Also returns the beginning of the message
    /// that the reply continues.
    fn reply_parser(
        &self,
        request: &ChatRequest,
        prompt: &Prompt,
    ) -> (ReplyParser, ReplyBeginning) {
        let format = self.profile.format();
        let input = ReplyParserInput {
            format,
            tools: Arc::clone(&request.tools),
            calls_allowed: !request.tools.is_empty() && request.tool_choice != ToolChoice::None,
            reasoning: true,
            json: request.output.response_format.is_some(),
            parallel: request.output.parallel_tool_calls,
            new_id: api::call_ids(format.and_then(Format::id_length)),
        };
        let mut parser = ReplyParser::with_prepared(self.profile.prepared(), input);
        if !format.is_some_and(Format::counts_ids) {
            parser.reserve_ids(api::used_call_ids(&request.messages));
        }
        let calls = Acceptance::of_arguments(Arc::clone(&request.tools));
        parser.set_call_validator(Box::new(move |name, arguments| {
            calls.check_arguments(name, arguments)
        }));
        parser.set_untagged_calls(request.output.untagged_calls);
        if let Some(response) = request.output.response_format.clone() {
            let values = Acceptance::of_response(response);
            parser.set_json_validator(Box::new(move |text| values.accepts_value(text)));
        }
        match self.source.control_spellings() {
            Some(spellings) => parser.expect_control_spellings(&spellings),
            None => parser.stream_whitespace(),
        }
        parser.expect_turn_markup(self.profile.turn_markup());
        parser.set_special_openings(self.source.special_openings());
        if request.continued.is_none() {
            parser.prime(self.profile.turn(&prompt.text), false);
            return (parser, ReplyBeginning::default());
        }
        let opening = prompt.opening_of_message(request.messages.len().saturating_sub(1));
        parser.prime(self.profile.turn_of_message(&prompt.text, opening), true);
        let mut beginning = parser.take_beginning();
        let given = request.messages.last().and_then(reasoning_of);
        if let Some(Value::String(hidden)) = given.filter(|_| beginning.reasoning.is_empty()) {
            // The template does not render the reasoning, so it is taken from the request.
            beginning.reasoning.clone_from(hidden);
        }
        (parser, beginning)
    }
}

fn timings(finished: &FinishedReply) -> Timings {
    let outcome = &finished.outcome;
    Timings {
        prompt_ms: outcome.prompt_ms,
        predicted_ms: outcome.predicted_ms,
        drafted: outcome.drafted.map(|drafted| (drafted.tokens, drafted.accepted)),
        threads: outcome.threads,
        disk_tokens: finished.disk_tokens,
    }
}

/// The reasoning at the beginning of the message, and a line break if the model's own reasoning
/// follows.
fn reasoning_before(beginning: &ReplyBeginning, parsed: &ParsedReply) -> String {
    let mut reasoning = beginning.reasoning.clone();
    if !reasoning.is_empty() && !beginning.reasoning_open && parsed.reasoning.is_some() {
        reasoning.push('\n');
    }
    reasoning
}

/// The requirements of the request that the message does not meet. `beginning` is the content that
/// the prompt already contains.
fn unmet_requirements(
    request: &ChatRequest,
    parsed: &ParsedReply,
    beginning: &str,
) -> Vec<Diagnostic> {
    let format = request.output.response_format.as_ref();
    let violations = validate::check_message(parsed, beginning, &request.tools, format);
    let unmet_choice = validate::check_tool_choice(parsed, &request.tool_choice);
    let members = validate::check_members(parsed, &request.tools);
    members.into_iter().chain(violations.iter().map(Diagnostic::from)).chain(unmet_choice).collect()
}

/// Feeds text of the reply to the reader, and the reader's deltas to the stream, up to a stop string
/// in the answer.
fn receive(
    mut updates: Box<dyn ReplyUpdates>,
    reader: &mut ReplyReader,
    answer: &mut AnswerStop,
    stream: &mut Stream,
    mut logprobs: Option<&mut Vec<SampledToken>>,
) -> Result<FinishedReply> {
    loop {
        match updates.next()? {
            ReplyUpdate::Piece { text, logprobs: sampled, control, tokens } => {
                stream.queue_logprobs(&sampled);
                if let Some(logprobs) = &mut logprobs {
                    logprobs.extend_from_slice(&sampled);
                }
                let mut deltas = reader.push(&text);
                if let Some(control) = control {
                    deltas.extend(reader.push_control(&control));
                }
                stream.send(answer.pass(deltas));
                if answer.found().is_some() {
                    // Text that the reader holds follows the stop string.
                    reader.expect_more();
                    return end(updates, tokens);
                }
            }
            ReplyUpdate::Done(finished) => return Ok(finished),
        }
    }
}

/// Ends the generation of a reply that is complete after this number of tokens. The model may
/// already have generated more.
fn end(mut updates: Box<dyn ReplyUpdates>, tokens: Option<usize>) -> Result<FinishedReply> {
    updates.end();
    loop {
        if let ReplyUpdate::Done(mut finished) = updates.next()? {
            finished.outcome.finish = Finish::Stop;
            finished.outcome.stop = None;
            if let Some(tokens) = tokens {
                finished.outcome.completion_tokens = tokens;
            }
            return Ok(finished);
        }
    }
}

fn finish_reason(finish: Finish, has_calls: bool) -> FinishReason {
    match finish {
        Finish::Stop if has_calls => FinishReason::ToolCalls,
        Finish::Stop => FinishReason::Stop,
        Finish::Length => FinishReason::Length,
        Finish::Cancelled => FinishReason::Cancelled,
    }
}

/// Removes a call that is cut off by the end of the reply from the message. Its arguments do not
/// match the tool's schema, so it is reported in the diagnostic and not in the list of calls.
///
/// `early` is true if the reply ended before the model
/// ended its turn, or if it was constrained by a grammar, which does not allow an end inside a
/// call. Otherwise a call that lacks only its closing tag counts as complete.
fn take_truncated_call(parsed: &mut ParsedReply, early: bool) -> Option<Diagnostic> {
    let is_known = parsed.diagnostics.iter().any(|diagnostic| diagnostic.code == TRUNCATED_CALL);
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
    parsed.diagnostics.retain(|diagnostic| diagnostic.code != TRUNCATED_CALL);
    let last = parsed.diagnostics.last();
    if call.is_some() && last.is_some_and(|last| last.code == "unbalanced_wrapper") {
        parsed.diagnostics.pop();
    }
    let diagnostic =
        Diagnostic::new(TRUNCATED_CALL, "the reply ends inside a tool call, which is left out");
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
        let taken = take_truncated_call(&mut parsed, early);
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
            diagnostics: vec![note("foreign_family"), note(TRUNCATED_CALL)],
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
            diagnostics: vec![note(TRUNCATED_CALL)],
            ..ParsedReply::default()
        };
        check(begun, true, 0, &[], json!([[null, null, "<tool_call>{"]]));
    }
}
