//! The updates of a server's reply. Turns events into text, without the end-of-turn token and stop
//! strings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::chat::source::{FinishedReply, ReplyUpdate, ReplyUpdates};
use crate::diagnostic::Diagnostic;
use crate::engine::{Finish, JobOutcome, StopMatcher};
use crate::error::Result;
use crate::remote::{self, CallError, CallLimits, CompletionStream, EndReason, TokenCounts};

/// A running reply of one server.
pub(super) struct RemoteReply {
    /// None if the call was cancelled before it began, or once no more text is needed.
    completion: Option<CompletionStream>,
    limits: CallLimits,
    stop: StopMatcher,
    turn_end: TurnEnd,
    /// The index of the stop string that ended the reply.
    stopped: Option<usize>,
    /// All text so far, which is part of the error if the connection breaks off.
    generated: String,
    finish: Option<Finish>,
    counts: Option<TokenCounts>,
    /// The times of prefill and decode in milliseconds, if the server reports them.
    times: Option<(f64, f64)>,
    pieces: usize,
    sent: Instant,
    first_text: Instant,
    /// Set when the caller asks to end the reasoning. Servers do not support that.
    end_reasoning: Arc<AtomicBool>,
}

impl RemoteReply {
    /// Creates the reply for a request that was sent at `sent`. Its first text has just arrived.
    pub(super) fn new(
        completion: CompletionStream,
        limits: CallLimits,
        stop: Vec<String>,
        eos: String,
        sent: Instant,
    ) -> RemoteReply {
        RemoteReply {
            completion: Some(completion),
            finish: None,
            stop: StopMatcher::new(stop),
            turn_end: TurnEnd { eos, held: String::new() },
            sent,
            ..RemoteReply::cancelled(limits)
        }
    }

    /// The empty reply of a call that was cancelled before it began.
    pub(super) fn cancelled(limits: CallLimits) -> RemoteReply {
        let now = Instant::now();
        RemoteReply {
            completion: None,
            limits,
            stop: StopMatcher::new(Vec::new()),
            turn_end: TurnEnd::default(),
            stopped: None,
            generated: String::new(),
            finish: Some(Finish::Cancelled),
            counts: None,
            times: None,
            pieces: 0,
            sent: now,
            first_text: now,
            end_reasoning: Arc::default(),
        }
    }

    /// Adds a diagnostic to the reply if this flag is set, because it has no effect.
    pub(super) fn reporting(self, end_reasoning: Arc<AtomicBool>) -> RemoteReply {
        RemoteReply { end_reasoning, ..self }
    }

    /// Returns the text that was held back, once no more text arrives.
    fn rest(&mut self) -> ReplyUpdate {
        self.completion = None;
        let (mut text, stopped) =
            self.stop.push(&self.turn_end.finish(self.finish == Some(Finish::Stop)));
        match stopped {
            Some(_) => self.stopped = stopped,
            None => text += &self.stop.finish(),
        }
        ReplyUpdate::Piece { text, logprobs: Vec::new(), control: None, tokens: None }
    }

    fn finished(&self) -> FinishedReply {
        let milliseconds =
            |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let measured = (
            milliseconds(self.sent, self.first_text),
            milliseconds(self.first_text, Instant::now()),
        );
        let (prompt_ms, predicted_ms) = self.times.unwrap_or(measured);
        let mut diagnostics = Vec::new();
        let counts = self.counts.unwrap_or_else(|| {
            diagnostics.push(Diagnostic::new(
                "usage_estimated",
                "usage: the server did not count; completion_tokens is the number of pieces it sent",
            ));
            TokenCounts { prompt: 0, completion: self.pieces, cached: None }
        });
        let outcome = JobOutcome {
            finish: self.finish.unwrap_or(Finish::Stop),
            stop: self.stopped,
            cached_tokens: counts.cached.unwrap_or(0),
            completion_tokens: counts.completion,
            prompt_ms,
            predicted_ms,
            ..JobOutcome::default()
        };
        if self.end_reasoning.load(Ordering::Relaxed) {
            diagnostics.push(Diagnostic::new(
                "reasoning_end_ignored",
                "llb_chat_end_reasoning: servers have no means to end a model's reasoning",
            ));
        }
        FinishedReply {
            disk_tokens: None,
            outcome,
            prompt_tokens: counts.prompt,
            counts_reasoning: false,
            diagnostics,
        }
    }
}

impl ReplyUpdates for RemoteReply {
    fn end(&mut self) {
        self.completion = None;
        self.finish = Some(Finish::Stop);
    }

    /// Fails with `INFERENCE_FAILED` and `details.generated` if the reply breaks off.
    fn next(&mut self) -> Result<ReplyUpdate> {
        let Some(completion) = &mut self.completion else {
            return Ok(ReplyUpdate::Done(self.finished()));
        };
        match completion.next(&self.limits, &self.generated) {
            Ok(remote::StreamItem::Event(event)) => {
                self.counts = event.counts.or(self.counts);
                self.times = event.times.or(self.times);
                self.pieces += usize::from(!event.text.is_empty());
                self.generated.push_str(&event.text);
                match event.ended {
                    Some(EndReason::Stop) => self.finish = Some(Finish::Stop),
                    Some(EndReason::Length) => self.finish = Some(Finish::Length),
                    None => {}
                }
                if let Some(text) = &event.stop_string {
                    self.stopped = self.stop.index_of(text);
                }
                let text = self.turn_end.push(&event.text);
                let (text, stopped) = self.stop.push(&text);
                if stopped.is_some() {
                    self.stopped = stopped;
                    // Dropping the completion closes the connection, which stops the server.
                    self.completion = None;
                    self.finish = Some(Finish::Stop);
                }
                let logprobs = event.logprobs;
                Ok(ReplyUpdate::Piece { text, logprobs, control: None, tokens: None })
            }
            Ok(remote::StreamItem::End) => Ok(self.rest()),
            Err(CallError::Over) => {
                self.finish = Some(Finish::Cancelled);
                Ok(self.rest())
            }
            Err(CallError::Failed(error)) => Err(error),
        }
    }
}

/// Removes the end-of-turn token from the end of a reply. A server that includes special tokens in
/// the text sends this token too.
#[derive(Default)]
struct TurnEnd {
    eos: String,
    /// The end of the text that may be the beginning of the token.
    held: String,
}

impl TurnEnd {
    /// Returns the text that is certainly not part of the token.
    fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        let begins =
            |at: &usize| self.held.is_char_boundary(*at) && self.eos.starts_with(&self.held[*at..]);
        let from = self.held.len().saturating_sub(self.eos.len());
        let at = (from..self.held.len()).find(begins).unwrap_or(self.held.len());
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns the rest, without the token if the model ended its turn.
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
    fn the_end_of_turn_token_is_removed() {
        check("</s>", "a</s>", true, "a");
        check("</s>", "a</s>", false, "a</s>");
        check("</s>", "a </s> b</s", true, "a </s> b</s");
        check("</s>", "</s></s>", true, "</s>");
        check("<|e|>", "gr\u{fc}n <\u{1F600}<|e|>", true, "gr\u{fc}n <\u{1F600}");
        check("", "a", true, "a");
    }
}
