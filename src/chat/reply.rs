//! Turns pieces of text into a response, and streams them as they arrive.

use std::sync::Arc;

use serde_json::Value;

use super::render::RenderedPrompt;
use super::source::{
    FinishedReply, FittedPrompt, GenerationRequest, ReplyUpdate, ReplyUpdates, StartedReply,
    Truncation,
};
use super::stream::Stream;
use super::{Chat, PieceSink, truncated_call};
use crate::api::logprobs::SampledToken;
use crate::api::response::{ChatResponse, FinishReason, ReplyCall, Timings, Usage};
use crate::api::{self, ChatRequest, ToolChoice};
use crate::diagnostic::Diagnostic;
use crate::engine::{Finish, Interrupt};
use crate::error::Result;
use crate::output::{Format, ParsedReply, ReplyBeginning, ReplyParser, ReplyParserInput};
use crate::template::{Prompt, reasoning_of};
use crate::validate;

impl Chat {
    /// Runs one request.
    pub(super) fn run(
        &self,
        request: &ChatRequest,
        interrupt: Interrupt,
        pieces: Option<PieceSink>,
    ) -> Result<ChatResponse> {
        let _use = self.source.begin(&interrupt)?;
        let FittedPrompt { rendered, tokenized, truncation } =
            self.fit_to_context(request, &interrupt)?;
        let RenderedPrompt { prompt, polyfills_applied, mut diagnostics } = rendered;
        let (mut parser, beginning) = self.reply_parser(request, &prompt);
        let truncated = truncation.as_ref().map(Truncation::to_json);
        let StartedReply { updates, constrained, validate_calls, diagnostics: more } =
            self.source.start(GenerationRequest {
                request,
                prompt,
                tokenized,
                truncation,
                profile: &self.profile,
                reasoning_open: parser.is_reasoning(),
                content_before: &beginning.content,
                interrupt,
            })?;
        diagnostics.extend(more);
        if validate_calls {
            let tools = Arc::clone(&request.tools);
            parser.set_call_validator(Box::new(move |name, arguments| {
                validate::accepts_arguments(&tools, name, arguments)
            }));
        }
        let mut stream = Stream::new(request.output.stream_format, pieces);
        let mut logprobs = request.output.logprobs.map(|_| Vec::new());
        let finished = receive(updates, &mut parser, &mut stream, logprobs.as_mut())?;
        let FinishedReply { outcome, prompt_tokens, counts_reasoning, disk_tokens, .. } = finished;
        let early = outcome.finish != Finish::Stop;
        let (rest, mut parsed) = if early { parser.finish_early() } else { parser.finish() };
        stream.send(rest);
        let truncated_call = truncated_call::take(&mut parsed, constrained || early);
        let continued_reasoning = reasoning_before(&beginning, &parsed);
        let unmet = unmet_requirements(request, &parsed, &beginning.content);
        diagnostics.extend(finished.diagnostics);
        diagnostics.extend(parsed.diagnostics);
        diagnostics.extend(truncated_call);
        diagnostics.extend(unmet);
        diagnostics.extend(self.source.finish(parsed.reasoning.is_some()));
        let response = ChatResponse {
            reply_shape: self.reply_shape,
            finish_reason: finish_reason(outcome.finish, !parsed.tool_calls.is_empty()),
            text: parsed.content,
            reasoning: parsed.reasoning,
            continued_text: beginning.content,
            continued_reasoning,
            tool_calls: parsed
                .tool_calls
                .into_iter()
                .map(|call| ReplyCall { id: call.id, name: call.name, arguments: call.arguments })
                .collect(),
            usage: Usage {
                prompt_tokens,
                completion_tokens: outcome.completion_tokens,
                cached_tokens: outcome.cached_tokens,
                reasoning_tokens: (counts_reasoning && self.marks_reasoning())
                    .then_some(outcome.reasoning_tokens),
            },
            timings: Timings {
                prompt_ms: outcome.prompt_ms,
                predicted_ms: outcome.predicted_ms,
                drafted: outcome.drafted.map(|drafted| (drafted.tokens, drafted.accepted)),
                threads: outcome.threads,
                disk_tokens,
            },
            logprobs,
            polyfills_applied,
            truncated,
            diagnostics,
            ignored_keys: request.ignored_keys.clone(),
        };
        stream.finish(&response, request.output.include_usage);
        Ok(response)
    }

    /// Creates a parser for the reply to this prompt. Also returns the beginning of the message
    /// that the reply continues.
    pub(super) fn reply_parser(
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
        if let Some(response) = request.output.response_format.clone() {
            let accepts = move |text: &str| validate::accepts_response(&response, text);
            parser.set_json_validator(Box::new(accepts));
        }
        if let Some(spellings) = self.source.control_spellings() {
            parser.expect_control_spellings(&spellings);
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
    violations.iter().map(Diagnostic::from).chain(unmet_choice).collect()
}

/// Feeds text of the reply to the parser, and the parser's deltas to the stream.
fn receive(
    mut updates: Box<dyn ReplyUpdates>,
    parser: &mut ReplyParser,
    stream: &mut Stream,
    mut logprobs: Option<&mut Vec<SampledToken>>,
) -> Result<FinishedReply> {
    loop {
        match updates.next()? {
            ReplyUpdate::Piece { text, logprobs: sampled, control } => {
                stream.queue_logprobs(&sampled);
                if let Some(logprobs) = &mut logprobs {
                    logprobs.extend_from_slice(&sampled);
                }
                let mut deltas = parser.push(&text);
                if let Some(control) = control {
                    deltas.extend(parser.push_control(&control));
                }
                stream.send(deltas);
            }
            ReplyUpdate::Done(finished) => return Ok(finished),
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
