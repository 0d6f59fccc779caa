//! The updates of a reply that a server sends as token ids: the text of the tokens, without stop
//! strings, and the end of reasoning whose budget is used up.
//!
//! A server cannot be told to end its reasoning. The request is closed instead, and a new one
//! continues after the tokens that end the reasoning.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::limits_of;
use crate::api::TokenOptions;
use crate::chat::source::{FinishedReply, ReplyUpdate, ReplyUpdates, reasoning_ended, with_bytes};
use crate::diagnostic::Diagnostic;
use crate::engine::{
    Finish, Interrupt, JobOutcome, JobUpdate, Logprob, ReasoningWatch, ReplyText, SampledLogprobs,
    TokenId, Vocab,
};
use crate::error::{Code, Error, Result};
use crate::remote::{
    CallError, CallLimits, CompletionEvent, CompletionRequest, CompletionStream, EndReason,
    IdLogprob, PrefixHash, Remote, SampledIds, ServerConstraint, StreamItem, TokenExchange,
    TokenRoute,
};

/// A request of token ids, which can be continued after tokens of its reply.
pub(super) struct TokenRequest {
    pub(super) remote: Arc<Remote>,
    pub(super) route: TokenRoute,
    pub(super) prompt: Vec<TokenId>,
    pub(super) end_tokens: Arc<[TokenId]>,
    pub(super) options: TokenOptions,
    pub(super) prefix: Option<PrefixHash>,
    pub(super) ask: CompletionRequest,
    /// What must follow the reasoning, if there is a constraint and reasoning.
    pub(super) after_reasoning: Option<ServerConstraint>,
}

impl TokenRequest {
    /// Sends the prompt and the tokens that were generated so far. Also returns the members that
    /// the server does not support.
    fn send(
        &self,
        generated: &[TokenId],
        limits: &CallLimits,
    ) -> Result<(CompletionStream, Vec<&'static str>), CallError> {
        let prompt = [&self.prompt, generated].concat();
        let exchange = TokenExchange {
            prompt: &prompt,
            end_tokens: &self.end_tokens,
            options: &self.options,
            prefix: self.prefix,
        };
        let mut ask = self.ask.clone();
        ask.max_tokens = ask.max_tokens.saturating_sub(generated.len()).max(1);
        if !generated.is_empty() {
            ask.constraint.clone_from(&self.after_reasoning);
        }
        self.remote.generate(self.route, &exchange, &ask, limits)
    }
}

/// A running reply of one server.
pub(super) struct RemoteTokenReply {
    request: TokenRequest,
    /// None once no more tokens are needed.
    completion: Option<CompletionStream>,
    interrupt: Interrupt,
    limits: CallLimits,
    vocabulary: Arc<dyn Vocab>,
    text: ReplyText,
    reasoning: Option<ReasoningWatch>,
    /// Control tokens whose text is visible.
    visible: Arc<[TokenId]>,
    generated: Vec<TokenId>,
    /// The text so far, which is part of the error if the connection breaks off.
    shown: String,
    updates: VecDeque<ReplyUpdate>,
    finish: Option<Finish>,
    /// The index of the stop string that ended the reply.
    stopped: Option<usize>,
    cached_tokens: usize,
    sent: Instant,
    first_token: Option<Instant>,
}

impl RemoteTokenReply {
    /// Creates the reply, whose request is sent by [`RemoteTokenReply::begin`].
    pub(super) fn new(
        (request, vocabulary): (TokenRequest, Arc<dyn Vocab>),
        (stop, visible): (Vec<String>, Arc<[TokenId]>),
        reasoning: Option<ReasoningWatch>,
        interrupt: &Interrupt,
    ) -> RemoteTokenReply {
        RemoteTokenReply {
            request,
            completion: None,
            interrupt: interrupt.clone(),
            limits: limits_of(interrupt),
            vocabulary,
            text: ReplyText::new(stop),
            reasoning,
            visible,
            generated: Vec::new(),
            shown: String::new(),
            updates: VecDeque::new(),
            finish: None,
            stopped: None,
            cached_tokens: 0,
            sent: Instant::now(),
            first_token: None,
        }
    }

    /// Sends the request and waits for its first token. Returns the members of the request that the
    /// server does not support.
    pub(super) fn begin(&mut self) -> Result<Vec<&'static str>, CallError> {
        if let Some(ending) = self.due_ending() {
            self.force(&ending);
        }
        if self.finish.is_some() {
            self.close();
            return Ok(Vec::new());
        }
        let (completion, left_out) = self.request.send(&self.generated, &self.limits)?;
        self.completion = Some(completion);
        Ok(left_out)
    }

    pub(super) fn is_constrained(&self) -> bool {
        self.request.ask.constraint.is_some()
    }

    /// Lets the reply be anything.
    pub(super) fn drop_constraint(&mut self) {
        self.request.ask.constraint = None;
        self.request.after_reasoning = None;
    }

    /// The tokens that end the reasoning, if its budget is used up or the caller has ended it.
    fn due_ending(&mut self) -> Option<Vec<TokenId>> {
        let watch = self.reasoning.as_mut()?;
        if self.interrupt.end_reasoning.swap(false, Ordering::Relaxed) {
            watch.end();
        }
        watch.due(self.text.is_between_characters()).map(<[TokenId]>::to_vec)
    }

    /// Adds tokens that the server did not generate.
    fn force(&mut self, tokens: &[TokenId]) {
        for token in tokens {
            if self.finish.is_some() {
                return;
            }
            self.push(*token, None);
        }
    }

    /// Takes an event. After the end of the reasoning was forced, the rest of it is void.
    fn take(&mut self, event: CompletionEvent) -> Result<(), CallError> {
        self.cached_tokens =
            event.counts.and_then(|counts| counts.cached).unwrap_or(self.cached_tokens);
        let tokens = match event.tokens {
            Some(tokens) => tokens,
            None if event.text.is_empty() => Vec::new(),
            None => return Err(self.failed("the server sent text without token ids").into()),
        };
        let mut logprobs = event.id_logprobs.into_iter();
        for token in tokens {
            if self.finish.is_some() {
                break;
            }
            self.first_token.get_or_insert_with(Instant::now);
            // The caller may have ended the reasoning since the last token.
            if let Some(ending) = self.due_ending() {
                return self.go_on_after(&ending);
            }
            let token = self.known(token)?;
            if self.vocabulary.is_end_of_generation(token) {
                self.finish = Some(Finish::Stop);
                break;
            }
            let sampled = logprobs.next().map(|sampled| self.logprobs(&sampled));
            self.push(token, sampled);
            if self.finish.is_none()
                && let Some(ending) = self.due_ending()
            {
                return self.go_on_after(&ending);
            }
        }
        match event.ended {
            // The counts follow.
            Some(reason) if self.stopped.is_none() => {
                self.finish.get_or_insert(match reason {
                    EndReason::Stop => Finish::Stop,
                    EndReason::Length => Finish::Length,
                });
            }
            _ if self.finish.is_some() => self.close(),
            _ => {}
        }
        Ok(())
    }

    /// Ends the reasoning with these tokens, and asks for what follows them.
    fn go_on_after(&mut self, ending: &[TokenId]) -> Result<(), CallError> {
        self.completion = None;
        self.force(ending);
        if self.finish.is_some() {
            self.close();
            return Ok(());
        }
        let (completion, _) = self.request.send(&self.generated, &self.limits)?;
        self.completion = Some(completion);
        Ok(())
    }

    /// A token of the server, which must be one of the vocabulary.
    fn known(&self, token: i64) -> Result<TokenId> {
        let known = TokenId::try_from(token).ok().filter(|token| {
            usize::try_from(*token).is_ok_and(|token| token < self.vocabulary.len())
        });
        let problem = || {
            format!(
                "the server sent the token {token}, which the vocabulary of `model` does not have; \
                 use the file of the server's model"
            )
        };
        known.ok_or_else(|| self.failed(&problem()))
    }

    fn failed(&self, problem: &str) -> Error {
        Error::new(Code::InferenceFailed, problem).with("generated", self.shown.as_str())
    }

    fn logprobs(&self, sampled: &SampledIds) -> SampledLogprobs {
        // A token that the vocabulary does not have has no text.
        let of = |id: &IdLogprob| {
            Some(Logprob { token: self.known(id.token).ok()?, logprob: id.logprob })
        };
        let missing = Logprob { token: -1, logprob: sampled.sampled.logprob };
        SampledLogprobs {
            sampled: of(&sampled.sampled).unwrap_or(missing),
            top: sampled.top.iter().filter_map(of).collect(),
        }
    }

    /// Adds a token to the reply.
    fn push(&mut self, token: TokenId, logprobs: Option<SampledLogprobs>) {
        let vocab = &*self.vocabulary;
        self.generated.push(token);
        if let Some(watch) = &mut self.reasoning {
            watch.take(&vocab.piece(token, true));
        }
        let visible = self.visible.contains(&token);
        let (piece, stopped) = self.text.push(token, logprobs, visible, vocab);
        self.queue(piece);
        self.stopped = stopped;
        if stopped.is_some() {
            self.finish = Some(Finish::Stop);
        } else if self.generated.len() >= self.request.ask.max_tokens {
            self.finish = Some(Finish::Length);
        }
    }

    fn queue(&mut self, piece: Option<JobUpdate>) {
        let Some(JobUpdate::Piece { text, logprobs, control, tokens }) = piece else { return };
        self.shown.push_str(&text);
        let logprobs = with_bytes(&*self.vocabulary, &logprobs);
        self.updates.push_back(ReplyUpdate::Piece {
            text,
            logprobs,
            control,
            tokens: Some(tokens),
        });
    }

    /// Closes the connection, which stops the server, and queues the text that was held back.
    fn close(&mut self) {
        self.completion = None;
        let rest = self.text.finish();
        self.queue(rest);
    }

    fn finished(&self) -> FinishedReply {
        let milliseconds =
            |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        let watch = self.reasoning.as_ref();
        let was_ended = watch.is_some_and(ReasoningWatch::was_ended);
        let diagnostics: Vec<Diagnostic> = was_ended.then(reasoning_ended).into_iter().collect();
        FinishedReply {
            outcome: JobOutcome {
                finish: self.finish.unwrap_or(Finish::Stop),
                stop: self.stopped,
                cached_tokens: self.cached_tokens.min(self.request.prompt.len()),
                completion_tokens: self.generated.len(),
                reasoning_tokens: watch.map_or(0, ReasoningWatch::tokens),
                prompt_ms: milliseconds(self.sent, first),
                predicted_ms: milliseconds(first, now),
                ..JobOutcome::default()
            },
            prompt_tokens: self.request.prompt.len(),
            counts_reasoning: true,
            disk_tokens: None,
            diagnostics,
        }
    }
}

impl ReplyUpdates for RemoteTokenReply {
    fn end(&mut self) {
        self.completion = None;
        self.finish = Some(Finish::Stop);
    }

    /// Fails with `INFERENCE_FAILED` and `details.generated` if the reply breaks off.
    fn next(&mut self) -> Result<ReplyUpdate> {
        loop {
            if let Some(update) = self.updates.pop_front() {
                return Ok(update);
            }
            let Some(completion) = &mut self.completion else {
                return Ok(ReplyUpdate::Done(self.finished()));
            };
            let taken = match completion.next(&self.limits, &self.shown) {
                Ok(StreamItem::Event(event)) => self.take(event),
                Ok(StreamItem::End) => {
                    self.close();
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match taken {
                Ok(()) => {}
                Err(CallError::Failed(error)) => return Err(error),
                Err(CallError::Over) => {
                    self.finish = Some(Finish::Cancelled);
                    self.close();
                }
            }
        }
    }
}
