//! Replies of servers: what they are held to, and their events as pieces.
//!
//! A server gives text; stop strings, the end of a turn and the counts are brought to what the
//! engine in this process gives.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::source::{Done, Foreseen, Next, Order, Started, Updates, dropped_constraint};
use crate::api::{
    Constraints, CreateOptions, RemoteOptions, ServerKind, ToolChoice, function_name,
};
use crate::constraint;
use crate::diagnostic::Diagnostic;
use crate::engine::{Finish, Outcome, StopMatcher};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::remote::{self, Ask, Completion, Counts, Ended, Remote, Specials, Stopped, Until};
use crate::template::Sources;

/// How long an explanation may ask.
const EXPLAIN: Duration = Duration::from_secs(30);

/// The servers of a chat, and what is known of their model here.
pub(super) struct Servers {
    remote: Remote,
    constraints: Constraints,
    n_ctx: Option<usize>,
    /// How the model's end of a turn is spelt; empty where that is not known.
    eos: String,
    /// Whether the control tokens are known from a vocabulary, and not from a template.
    has_vocabulary: bool,
}

/// What a reply is held to.
struct Held {
    grammar: Option<String>,
    diagnostics: Vec<Value>,
}

impl Servers {
    /// Asks no server anything.
    pub(super) fn open(
        options: &CreateOptions,
        engine: &RemoteOptions,
        sources: &Sources,
    ) -> Result<Servers> {
        let vocabulary = match &options.model {
            Some(path) => ModelHeader::control_tokens(Path::new(path))?,
            None => Vec::new(),
        };
        let has_vocabulary = !vocabulary.is_empty();
        let mut spellings = vocabulary;
        if !has_vocabulary {
            let templates = [sources.default.as_deref(), sources.tool_use.as_deref()];
            spellings.extend(templates.into_iter().flatten().flat_map(Specials::in_template));
            spellings.extend([sources.bos_token.clone(), sources.eos_token.clone()]);
        }
        Ok(Servers {
            remote: Remote::open(
                engine,
                Specials::new(spellings),
                Some(sources.bos_token.clone()),
            )?,
            constraints: engine.constraints,
            n_ctx: options.n_ctx.map(|n_ctx| n_ctx as usize),
            eos: sources.eos_token.clone(),
            has_vocabulary,
        })
    }

    /// What should be in the log: servers that were passed over.
    pub(super) fn notes(&self) -> Vec<String> {
        self.remote.notes()
    }

    /// Orders a reply and waits for its first text.
    pub(super) fn start(&self, order: &Order) -> Result<Started> {
        let until = Until { cancel: order.cancel.clone(), deadline: order.deadline };
        match self.begin(order, &until) {
            Ok(started) => Ok(started),
            Err(Stopped::Failed(error)) => Err(error),
            Err(Stopped::Over) => {
                let reply = Reply::new(None, until, order, String::new());
                Ok(Started {
                    updates: reply.into(),
                    held: false,
                    judged: false,
                    diagnostics: Vec::new(),
                })
            }
        }
    }

    fn begin(&self, order: &Order, until: &Until) -> Result<Started, Stopped> {
        let request = order.request;
        let Held { grammar, mut diagnostics } = self.hold(order, until)?;
        let plain = order.plain();
        if let Some(n_ctx) = self.n_ctx
            && let Some(count) = self.remote.count(&order.prompt.text, &plain, until)?
        {
            fits(count, n_ctx)?;
        }
        let texts = order.profile.format().map(|format| format.texts()).unwrap_or_default();
        let specials = self.remote.specials();
        let mut visible: Vec<String> = texts
            .iter()
            .flat_map(|text| specials.in_text(text))
            .map(|(_, spelling)| spelling.to_owned())
            .collect();
        visible.sort_unstable();
        visible.dedup();
        let held = grammar.is_some();
        let ask = Ask {
            max_tokens: request.max_tokens,
            sampling: request.sampling.clone(),
            stop: request.stop.clone(),
            logprobs: request.logprobs,
            cache_prompt: request.cache_prompt,
            visible,
            grammar,
        };
        let asked = Instant::now();
        let (completion, left) = self.remote.complete(&order.prompt.text, &plain, &ask, until)?;
        if !left.is_empty() {
            let message = format!(
                "{}: the server has no such field; the reply is made without",
                left.join(", ")
            );
            diagnostics.push(Diagnostic::new("not_carried", message).to_json());
        }
        if request.reasoning_budget.is_some() {
            let message =
                "reasoning_budget: a server cannot be told to end a model's reasoning".to_owned();
            diagnostics.push(Diagnostic::new("reasoning_budget_ignored", message).to_json());
        }
        let mut reply = Reply::new(Some(completion), until.clone(), order, self.eos.clone());
        reply.asked = asked;
        reply.first = Instant::now();
        let judged = !request.tools.is_empty() && !request.tool_choice.forces_call();
        Ok(Started { updates: reply.into(), held, judged, diagnostics })
    }

    /// What a request would be. A server that cannot be asked leaves out what only it knows.
    pub(super) fn foresee(&self, order: &Order) -> Result<Foreseen> {
        let until =
            Until { cancel: order.cancel.clone(), deadline: Instant::now().checked_add(EXPLAIN) };
        let late = || Error::new(Code::InferenceFailed, "the server did not answer in time");
        let failed = |stopped| match stopped {
            Stopped::Failed(error) => error,
            Stopped::Over => late(),
        };
        let Held { grammar, mut diagnostics } = self.hold(order, &until).map_err(failed)?;
        let plain = order.plain();
        let counted = self.remote.count(&order.prompt.text, &plain, &until).map_err(failed);
        let prompt_tokens = counted.unwrap_or_else(|error| {
            let message = format!("the tokens of the prompt are not counted: {}", error.message());
            diagnostics.push(Diagnostic::new("prompt_tokens_unknown", message).to_json());
            None
        });
        let known = prompt_tokens
            .and_then(|_| self.remote.known(&until).ok())
            .and_then(|known| known.n_ctx);
        let n_ctx = self.n_ctx.or(known);
        if let (Some(count), Some(n_ctx)) = (prompt_tokens, n_ctx) {
            fits(count, n_ctx)?;
        }
        let specials =
            self.has_vocabulary.then(|| self.remote.specials().owned(&order.prompt.text, &plain));
        Ok(Foreseen {
            prompt_tokens,
            special_tokens: specials,
            tokens_left: prompt_tokens.and_then(|count| n_ctx?.checked_sub(count)),
            grammar,
            diagnostics,
        })
    }

    /// The grammar, where the server takes one; else what that means for what the request forces.
    fn hold(&self, order: &Order, until: &Until) -> Result<Held, Stopped> {
        let wanted = order.wanted();
        let request = order.request;
        let none =
            wanted.tools.is_empty() && wanted.response_format.is_none() && wanted.grammar.is_none();
        if none {
            return Ok(Held { grammar: None, diagnostics: Vec::new() });
        }
        if self.constraints == Constraints::None
            || self.remote.known(until)?.kind == ServerKind::OpenAi
        {
            return Ok(unheld(order)?);
        }
        // By number, as the server has it: a spelling alone would be text to it.
        let mut tokens = HashMap::new();
        let specials = self.remote.specials();
        for text in order.profile.format().map(|format| format.texts()).unwrap_or_default() {
            for (_, spelling) in specials.in_text(text) {
                if let Some(token) = self
                    .remote
                    .control(spelling, until)?
                    .and_then(|token| i32::try_from(token).ok())
                {
                    tokens.insert(spelling.to_owned(), token);
                }
            }
        }
        let controls = |text: &str| {
            let found = specials.in_text(text).into_iter();
            found.filter_map(|(range, spelling)| Some((range, *tokens.get(spelling)?))).collect()
        };
        let strict = |tool: &Value| tool["function"]["strict"] == true;
        let forced = request.tool_choice.forces_call()
            || wanted.grammar.is_some()
            || request.tools.iter().any(strict);
        match constraint::reply_grammar(order.profile.format(), &wanted, &controls) {
            Ok(grammar) => Ok(Held {
                grammar: grammar.lark,
                diagnostics: grammar
                    .relaxed
                    .iter()
                    .map(|relaxed| Diagnostic::from(relaxed).to_json())
                    .collect(),
            }),
            Err(error)
                if error.code() == Code::SchemaUnsupported
                    && !forced
                    && wanted.response_format.is_none() =>
            {
                Ok(Held { grammar: None, diagnostics: vec![dropped_constraint(&error).to_json()] })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// For a server that enforces nothing. What can be checked afterwards is; what was promised to be
/// enforced is refused.
fn unheld(order: &Order) -> Result<Held> {
    const WHY: &str = "the server enforces nothing (engine.constraints is \"none\")";
    let request = order.request;
    if request.grammar.is_some() {
        return Err(Error::new(Code::SchemaUnsupported, format!("grammar: {WHY}")));
    }
    let callable = request.tool_choice != ToolChoice::None;
    let strict = request
        .tools
        .iter()
        .enumerate()
        .find(|(_, tool)| callable && tool["function"]["strict"] == true);
    if let Some((index, tool)) = strict {
        let name = function_name(tool);
        let message = format!("tools[{index}].function.strict ({name}): {WHY}");
        return Err(Error::new(Code::SchemaUnsupported, message).with("tool", name));
    }
    let forced = [
        (request.tool_choice.forces_call(), "tool_choice"),
        (request.response_format.is_some(), "response_format"),
    ];
    let diagnostics = forced.into_iter().filter(|(is, _)| *is).map(|(_, what)| {
        let message = format!("{what}: {WHY}; the reply may be anything, and is only checked");
        Diagnostic::new("constraint_not_enforced", message).to_json()
    });
    Ok(Held { grammar: None, diagnostics: diagnostics.collect() })
}

fn fits(count: usize, n_ctx: usize) -> Result<()> {
    if count < n_ctx {
        return Ok(());
    }
    let message =
        format!("the prompt has {count} tokens, the context {n_ctx}; shorten the messages");
    Err(Error::new(Code::ContextOverflow, message)
        .with("prompt_tokens", count)
        .with("n_ctx", n_ctx))
}

/// One server's reply under way.
pub(super) struct Reply {
    /// None when the call was over before it began, or nothing more is wanted of it.
    completion: Option<Completion>,
    until: Until,
    stop: StopMatcher,
    end: TurnEnd,
    /// All text so far, for the error of a reply that breaks off.
    generated: String,
    finish: Option<Finish>,
    counts: Option<Counts>,
    times: Option<(f64, f64)>,
    pieces: usize,
    asked: Instant,
    first: Instant,
}

impl From<Reply> for Updates {
    fn from(reply: Reply) -> Updates {
        Updates::Remote(Box::new(reply))
    }
}

impl Reply {
    fn new(completion: Option<Completion>, until: Until, order: &Order, eos: String) -> Reply {
        let now = Instant::now();
        Reply {
            finish: completion.is_none().then_some(Finish::Cancelled),
            completion,
            until,
            stop: StopMatcher::new(order.request.stop.clone()),
            end: TurnEnd { eos, held: String::new() },
            generated: String::new(),
            counts: None,
            times: None,
            pieces: 0,
            asked: now,
            first: now,
        }
    }

    /// Waits for the next piece. `INFERENCE_FAILED` with `details.generated` for a reply that
    /// breaks off.
    pub(super) fn next(&mut self) -> Result<Next> {
        let Some(completion) = &mut self.completion else { return Ok(Next::Done(self.done())) };
        match completion.next(&self.until) {
            Ok(remote::Next::Event(event)) => {
                self.counts = event.counts.or(self.counts);
                self.times = event.times.or(self.times);
                self.pieces += usize::from(!event.text.is_empty());
                self.generated.push_str(&event.text);
                match event.ended {
                    Some(Ended::Stop) => self.finish = Some(Finish::Stop),
                    Some(Ended::Length) => self.finish = Some(Finish::Length),
                    Some(Ended::Other(reason)) => {
                        let error = Error::new(
                            Code::InferenceFailed,
                            format!("the server ended the reply: {reason}"),
                        );
                        return Err(self.with_generated(error));
                    }
                    None => {}
                }
                let text = self.end.push(&event.text);
                let (text, stopped) = self.stop.push(&text);
                if stopped {
                    // What else comes is not wanted: closing the connection says so.
                    self.completion = None;
                    self.finish = Some(Finish::Stop);
                }
                Ok(Next::Piece { text, logprobs: event.logprobs })
            }
            Ok(remote::Next::End) => Ok(self.rest()),
            Err(Stopped::Over) => {
                self.finish = Some(Finish::Cancelled);
                Ok(self.rest())
            }
            Err(Stopped::Failed(error)) => Err(self.with_generated(error)),
        }
    }

    /// What was held back, when no more text comes.
    fn rest(&mut self) -> Next {
        self.completion = None;
        let (mut text, stopped) =
            self.stop.push(&self.end.finish(self.finish == Some(Finish::Stop)));
        if !stopped {
            text += &self.stop.finish();
        }
        Next::Piece { text, logprobs: Vec::new() }
    }

    fn with_generated(&self, error: Error) -> Error {
        error.with("generated", self.generated.as_str())
    }

    fn done(&self) -> Done {
        let milliseconds =
            |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let measured =
            (milliseconds(self.asked, self.first), milliseconds(self.first, Instant::now()));
        let (prompt_ms, predicted_ms) = self.times.unwrap_or(measured);
        let mut diagnostics = Vec::new();
        let counts = self.counts.unwrap_or_else(|| {
            let message =
                "usage: the server did not count; completion_tokens are the pieces it sent"
                    .to_owned();
            diagnostics.push(Diagnostic::new("usage_estimated", message).to_json());
            Counts { prompt: 0, completion: self.pieces, cached: None }
        });
        let outcome = Outcome {
            finish: self.finish.unwrap_or(Finish::Stop),
            cached_tokens: counts.cached.unwrap_or(0),
            completion_tokens: counts.completion,
            reasoning_tokens: 0,
            drafted: None,
            prompt_ms,
            predicted_ms,
        };
        Done { outcome, prompt_tokens: counts.prompt, reasoning_counted: false, diagnostics }
    }
}

/// Takes the end-of-turn token off the end of a reply: a server that shows special tokens shows
/// that one too.
struct TurnEnd {
    eos: String,
    held: String,
}

impl TurnEnd {
    /// The text that is certainly not that token at the end.
    fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        let begins =
            |at: &usize| self.held.is_char_boundary(*at) && self.eos.starts_with(&self.held[*at..]);
        let from = self.held.len().saturating_sub(self.eos.len());
        let at = (from..self.held.len()).find(begins).unwrap_or(self.held.len());
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// The rest, without the token if the model ended its turn.
    fn finish(&mut self, ended: bool) -> String {
        let held = std::mem::take(&mut self.held);
        if ended && held == self.eos { String::new() } else { held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(eos: &str, text: &str, ended: bool, expected: &str) {
        for size in [1, 2, text.len().max(1)] {
            let mut end = TurnEnd { eos: eos.into(), held: String::new() };
            let pieces: Vec<char> = text.chars().collect();
            let mut shown: String = pieces
                .chunks(size)
                .map(|piece| end.push(&piece.iter().collect::<String>()))
                .collect();
            shown += &end.finish(ended);
            assert_eq!(shown, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn the_end_of_the_turn_is_taken_off() {
        check("</s>", "a</s>", true, "a");
        check("</s>", "a</s>", false, "a</s>");
        check("</s>", "a </s> b</s", true, "a </s> b</s");
        check("</s>", "</s></s>", true, "</s>");
        check("<|e|>", "gr\u{fc}n <\u{1F600}<|e|>", true, "gr\u{fc}n <\u{1F600}");
        check("", "a", true, "a");
    }
}
