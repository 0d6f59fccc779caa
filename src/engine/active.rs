//! A job that runs: its next token, and what its caller gets to see of it.

use std::time::Instant;

use super::backend::{Mask, Sampler, Token, Vocab};
use super::budget::ReasoningWatch;
use super::detokenize::Utf8Assembler;
use super::job::{Finish, Job, Outcome, Update};
use super::logprobs::{SampledLogprobs, Unsent};
use super::stop::StopMatcher;
use crate::constraint::Constraint;
use crate::error::{Code, Error, Result};

/// A job on a sequence.
pub(crate) struct Active {
    pub(crate) job: Job,
    pub(crate) sequence: usize,
    /// Chosen, not decoded yet; None while the prompt is not in the cache.
    pub(crate) next: Option<Token>,
    sampler: Box<dyn Sampler>,
    reasoning: Option<ReasoningWatch>,
    utf8: Utf8Assembler,
    stop: StopMatcher,
    unsent: Unsent,
    cached_tokens: usize,
    completion_tokens: usize,
    admitted: Instant,
    first_token: Option<Instant>,
}

/// A token that was chosen for a job.
pub(crate) struct Chosen {
    token: Token,
    logprobs: Option<SampledLogprobs>,
}

impl Active {
    pub(crate) fn new(mut job: Job, sequence: usize, cached_tokens: usize, sampler: Box<dyn Sampler>) -> Self {
        Active {
            sequence,
            next: None,
            sampler,
            reasoning: job.reasoning.take().map(ReasoningWatch::new),
            utf8: Utf8Assembler::default(),
            stop: StopMatcher::new(job.stop.clone()),
            unsent: Unsent::default(),
            cached_tokens,
            completion_tokens: 0,
            admitted: Instant::now(),
            first_token: None,
            job,
        }
    }

    /// Chooses the next token by the logits of the last one, one per token of the vocabulary.
    ///
    /// Under a grammar a token is drawn as if there were none, and checked: mostly it is allowed, and to check one token
    /// costs much less than a mask of all. Only a refused one is drawn again, among those the grammar allows.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<Chosen> {
        let token = match self.forced()? {
            Some(token) => token,
            None => self.draw(logits)?,
        };
        if let Some(constraint) = &mut self.job.constraint {
            constraint.accept(token)?;
        }
        self.sampler.accept(token);
        let logprobs = self.job.logprobs.map(|n_top| SampledLogprobs::of(logits, token, n_top));
        Ok(Chosen { token, logprobs })
    }

    /// The token that ends reasoning whose budget is used up, unless the grammar has no place for it.
    fn forced(&mut self) -> Result<Option<Token>> {
        let Some(watch) = &mut self.reasoning else { return Ok(None) };
        let Some(ending) = watch.due(self.utf8.is_between_characters()) else { return Ok(None) };
        let token = ending.first().copied();
        let allowed = self.job.constraint.as_mut().map_or(Ok(true), |constraint| constraint.allows(ending))?;
        if !allowed {
            watch.give_up();
            return Ok(None);
        }
        Ok(token)
    }

    fn draw(&mut self, logits: &[f32]) -> Result<Token> {
        let first = draw_among(self.sampler.as_mut(), logits, None)?;
        let Some(constraint) = &mut self.job.constraint else { return Ok(first) };
        if constraint.allows(&[first])? {
            return Ok(first);
        }
        let mask = constraint.mask()?;
        draw_among(self.sampler.as_mut(), logits, Some(&mask))
    }

    /// Takes a chosen token; says why the job ends, if it does.
    pub(crate) fn take(&mut self, chosen: Chosen, vocab: &dyn Vocab, context_full: bool) -> Option<Finish> {
        let Chosen { token, logprobs } = chosen;
        self.first_token.get_or_insert_with(Instant::now);
        if vocab.is_end_of_generation(token) {
            return Some(Finish::Stop);
        }
        self.completion_tokens += 1;
        if let Some(watch) = &mut self.reasoning {
            watch.take(&vocab.piece(token, true));
        }
        let bytes = vocab.piece(token, self.job.visible.contains(&token));
        let text = self.utf8.push(&bytes);
        if let Some(logprobs) = logprobs {
            self.unsent.push(logprobs, &text, self.utf8.is_between_characters());
        }
        let (shown, stopped) = self.stop.push(&text);
        let logprobs = self.unsent.shown(&shown);
        let heard = self.send(shown, logprobs);
        self.next = Some(token);
        if stopped {
            // What is held belongs to the stop string.
            self.utf8 = Utf8Assembler::default();
            Some(Finish::Stop)
        } else if !heard {
            Some(Finish::Cancelled)
        } else if self.job.constraint.as_ref().is_some_and(Constraint::is_finished) {
            Some(Finish::Stop)
        } else if self.completion_tokens >= self.job.max_tokens || context_full {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// Sends what was held back, and the outcome.
    pub(crate) fn finish(mut self, finish: Finish) {
        let rest = self.utf8.finish();
        let (shown, stopped) = self.stop.push(rest);
        let held = if stopped { String::new() } else { self.stop.finish() };
        let logprobs = self.unsent.rest();
        self.send(shown + &held, logprobs);
        let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        let outcome = Outcome {
            finish,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.completion_tokens,
            reasoning_tokens: self.reasoning.as_ref().map_or(0, ReasoningWatch::tokens),
            prompt_ms: since(self.admitted, first),
            predicted_ms: since(first, now),
        };
        let _ = self.job.updates.send(Update::Done(outcome));
    }

    pub(crate) fn fail(self, error: Error) {
        let _ = self.job.updates.send(Update::Failed(error));
    }

    /// False when the receiver is gone.
    fn send(&self, text: String, logprobs: Vec<SampledLogprobs>) -> bool {
        text.is_empty() && logprobs.is_empty() || self.job.updates.send(Update::Piece { text, logprobs }).is_ok()
    }
}

fn draw_among(sampler: &mut dyn Sampler, logits: &[f32], mask: Option<&Mask>) -> Result<Token> {
    sampler.draw(logits, mask).ok_or_else(|| {
        let whose =
            if mask.is_some() { "no token that the grammar allows has a probability" } else { "no token has a probability" };
        Error::new(Code::InferenceFailed, whose)
    })
}
