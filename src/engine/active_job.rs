//! A running job: its next token, and the output for its caller.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::backend::{TokenId, TokenMask};
use super::job::{Finish, Job, JobOutcome, JobUpdate};
use super::logprobs::SampledLogprobs;
use super::media::PlacedMedia;
use super::prefix_cache::SavedSequence;
use super::reasoning_budget::ReasoningWatch;
use super::reply_text::ReplyText;
use super::sampler::{LogitRow, Sampler};
use super::speculate::{Draft, DraftPaces};
use super::threads::MeanThreads;
use super::vocab::Vocab;
use crate::constraint::Constraint;
use crate::error::{Code, Error, Result};

/// A job that runs on a sequence.
pub(crate) struct ActiveJob {
    pub(crate) job: Job,
    pub(crate) sequence: usize,
    /// The sampled token that is not decoded yet; `None` during prefill.
    pub(crate) next: Option<TokenId>,
    /// The prompt lengths at which to keep a checkpoint, in ascending order.
    pub(crate) checkpoints: Vec<usize>,
    /// How many tokens to draft for this job; `None` without speculative decoding.
    pub(crate) paces: Option<DraftPaces>,
    /// The mean number of threads of this job's decodes.
    pub(crate) threads: MeanThreads,
    /// Whether it was admitted before a job that came earlier and still waits.
    pub(crate) has_overtaken: bool,
    /// The steps since it last began, and those that it waited before.
    pub(crate) turn: CellTurn,
    /// What the job has done so far.
    pub(crate) outcome: JobOutcome,
    sampler: Sampler,
    /// A buffer for the maxima of a row of logits, reused by every draw.
    maxima: Vec<f32>,
    reasoning: Option<ReasoningWatch>,
    /// The last sampled token, until its text is sent.
    unwritten: Option<ChosenToken>,
    /// Why the job ends, if sending text has shown that.
    ended: Option<Finish>,
    text: ReplyText,
    admitted: Instant,
    first_token: Option<Instant>,
}

/// How long a job has had its cells, and how long it waited for them.
#[derive(Default)]
pub(crate) struct CellTurn {
    /// The length of its sequence when it last began or went on.
    pub(crate) began: usize,
    /// The steps since then.
    pub(crate) steps: usize,
    /// The steps that it waited before.
    pub(crate) waited: usize,
}

/// A token that was sampled for a job.
pub(crate) struct ChosenToken {
    token: TokenId,
    logprobs: Option<SampledLogprobs>,
}

impl ActiveJob {
    pub(crate) fn new(
        mut job: Job,
        sequence: usize,
        cached_tokens: usize,
        sampler: Sampler,
        admitted: Instant,
    ) -> Self {
        ActiveJob {
            sequence,
            next: None,
            checkpoints: Vec::new(),
            paces: None,
            threads: MeanThreads::default(),
            has_overtaken: false,
            turn: CellTurn { began: cached_tokens, ..CellTurn::default() },
            outcome: JobOutcome { cached_tokens, ..JobOutcome::default() },
            sampler,
            maxima: Vec::new(),
            reasoning: job.reasoning.take().map(ReasoningWatch::new),
            unwritten: None,
            ended: None,
            text: ReplyText::new(std::mem::take(&mut job.stop)),
            admitted,
            first_token: None,
            job,
        }
    }

    /// Samples the next token from the logits of the last one.
    ///
    /// With a grammar, a token is first drawn without a mask and then checked. Most such tokens are
    /// allowed, and checking one costs much less than a mask. Only a refused token is drawn again,
    /// with the mask.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<ChosenToken> {
        self.choose_with(Constraint::mask, logits)
    }

    fn choose_with(
        &mut self,
        mask: impl FnOnce(&mut Constraint) -> Result<TokenMask>,
        logits: &[f32],
    ) -> Result<ChosenToken> {
        let mut maxima = std::mem::take(&mut self.maxima);
        let row = LogitRow::read(logits, &mut maxima);
        let token = match self.forced()? {
            Some(token) => token,
            None => self.draw(&row, mask)?,
        };
        if let Some(constraint) = &mut self.job.constraint {
            constraint.accept(token)?;
        }
        self.sampler.accept(token);
        let logprobs = self.job.logprobs.map(|n_top| SampledLogprobs::of(&row, token, n_top));
        self.maxima = maxima;
        Ok(ChosenToken { token, logprobs })
    }

    /// The token that ends the reasoning, if its budget is used up or the caller has ended it.
    /// `None` if the grammar refuses that token.
    fn forced(&mut self) -> Result<Option<TokenId>> {
        let Some(watch) = &mut self.reasoning else { return Ok(None) };
        let end_reasoning = &self.job.interrupt.end_reasoning;
        if end_reasoning.load(Ordering::Relaxed) {
            end_reasoning.store(false, Ordering::Relaxed);
            watch.end();
        }
        let is_begun = watch.is_forcing();
        let Some(ending) = watch.due(self.text.is_between_characters()) else { return Ok(None) };
        let token = ending.first().copied();
        // The grammar allowed the whole ending when its first token was forced.
        let ending = if is_begun { &ending[..1] } else { ending };
        let allowed = self
            .job
            .constraint
            .as_mut()
            .map_or(Ok(true), |constraint| constraint.allows(ending))?;
        if !allowed {
            watch.give_up();
            return Ok(None);
        }
        Ok(token)
    }

    fn draw(
        &mut self,
        row: &LogitRow,
        mask: impl FnOnce(&mut Constraint) -> Result<TokenMask>,
    ) -> Result<TokenId> {
        let failed = |problem| Error::new(Code::InferenceFailed, problem);
        let first = self.sampler.draw(row, None);
        let first = first.ok_or_else(|| failed("no token has a probability"))?;
        let Some(constraint) = &mut self.job.constraint else { return Ok(first) };
        if constraint.allows(&[first])? {
            return Ok(first);
        }
        let allowed = self.sampler.draw(row, Some(&mask(constraint)?));
        allowed.ok_or_else(|| failed("no token that the grammar allows has a probability"))
    }

    /// A draft of at most `most` tokens: the text that the grammar forces after the last token, and
    /// what the model's template writes after that. Empty without speculative decoding.
    pub(crate) fn call_draft(&mut self, most: usize) -> Draft {
        let (Some(paces), Some(constraint)) = (&mut self.paces, &mut self.job.constraint) else {
            return Draft::default();
        };
        if most == 0 {
            return Draft::default();
        }
        let before = self.next.or(self.job.prompt.last().copied());
        let mut forced = constraint.forced(before);
        let mut left = most;
        if !forced.is_empty() {
            left = paces.grammar.most().min(most);
        }
        if forced.len() >= left {
            forced.truncate(left);
            return Draft::of_call(forced, Vec::new());
        }
        let mut likely = constraint.likely(before, &forced);
        if !likely.is_empty() {
            likely.truncate(paces.call_texts.most().min(left - forced.len()));
        }
        Draft::of_call(forced, likely)
    }

    /// Whether the reply so far is incomplete by its grammar.
    pub(crate) fn is_in_value(&mut self) -> bool {
        let constraint = self.job.constraint.as_mut();
        constraint.is_some_and(|constraint| matches!(constraint.may_end(), Ok(false)))
    }

    /// Drops what the grammar does not allow from the first such token of a draft on.
    pub(crate) fn retain_allowed(&mut self, draft: &mut Vec<TokenId>) {
        if let Some(constraint) = &mut self.job.constraint {
            draft.truncate(constraint.allowed(draft));
        }
    }

    /// Makes a sampled token the next one. Returns why the job ends, if the token decides that. Its
    /// text is sent by [`ActiveJob::write`], which must be called before the next token is chosen.
    pub(crate) fn take(
        &mut self,
        chosen: ChosenToken,
        vocab: &dyn Vocab,
        context_full: bool,
    ) -> Option<Finish> {
        self.first_token.get_or_insert_with(Instant::now);
        if vocab.is_end_of_generation(chosen.token) {
            return Some(Finish::Stop);
        }
        self.outcome.completion_tokens += 1;
        self.next = Some(chosen.token);
        self.unwritten = Some(chosen);
        if self.job.constraint.as_ref().is_some_and(Constraint::is_finished) {
            Some(Finish::Stop)
        } else if self.tokens_left() == 0 || context_full {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// Whether the text of the last token must still be sent.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Sends the text of the last token, if that has not happened yet. Returns why the job ends, if
    /// the text decides that: it contains a stop string, or nobody receives it.
    pub(crate) fn write(&mut self, vocab: &dyn Vocab) -> Option<Finish> {
        if let Some(chosen) = self.unwritten.take() {
            self.ended = self.write_token(chosen, vocab);
        }
        self.ended
    }

    fn write_token(&mut self, chosen: ChosenToken, vocab: &dyn Vocab) -> Option<Finish> {
        let ChosenToken { token, logprobs } = chosen;
        if let Some(watch) = &mut self.reasoning {
            watch.take(&vocab.piece(token, true));
        }
        let visible = self.job.visible.contains(&token);
        let (piece, stopped) = self.text.push(token, logprobs, visible, vocab);
        let is_received = self.send(piece);
        self.outcome.stop = stopped;
        match stopped {
            Some(_) => Some(Finish::Stop),
            None => (!is_received).then_some(Finish::Cancelled),
        }
    }

    /// Why the job ends, if the text that is already sent decides that.
    pub(crate) fn ended(&self) -> Option<Finish> {
        self.ended
    }

    /// The next length of the prompt at which prefill stops so that the state can be kept or
    /// copied, or because media follow.
    pub(crate) fn next_stop(&self, length: usize) -> Option<usize> {
        let stops = self.checkpoints.iter().chain(&self.job.copied_lengths).copied();
        let media = self.job.media.iter().map(|placed| placed.start);
        stops.chain(media).filter(|stop| *stop > length).min()
    }

    /// The piece of media that has this place of the prompt.
    pub(crate) fn media_at(&self, place: usize) -> Option<&PlacedMedia> {
        self.job.media.iter().find(|placed| placed.range().contains(&place))
    }

    /// Sends a copy of the job's sequence to the caller.
    pub(crate) fn send_prefix(&self, prefix: SavedSequence) {
        let _ = self.job.updates.send(JobUpdate::Prefix(prefix));
    }

    /// How many more tokens the job may generate.
    pub(crate) fn tokens_left(&self) -> usize {
        let most = self.job.max_tokens.unwrap_or(usize::MAX);
        most.saturating_sub(self.outcome.completion_tokens)
    }

    /// Sends the text that was held back, and the outcome. The text of the last token must be sent
    /// before.
    pub(crate) fn finish(mut self, finish: Finish) {
        let rest = self.text.finish();
        self.send(rest);
        let since =
            |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        let outcome = JobOutcome {
            finish,
            reasoning_tokens: self.reasoning.as_ref().map_or(0, ReasoningWatch::tokens),
            reasoning_ended: self.reasoning.as_ref().is_some_and(ReasoningWatch::was_ended),
            prompt_ms: since(self.admitted, first),
            predicted_ms: since(first, now),
            drafted: self.paces.as_ref().and_then(DraftPaces::drafted),
            threads: self.threads.get(),
            ..self.outcome
        };
        let _ = self.job.updates.send(JobUpdate::Done(outcome));
    }

    pub(crate) fn fail(self, error: Error) {
        let _ = self.job.updates.send(JobUpdate::Failed(error));
    }

    /// Returns false if the receiver has been dropped.
    fn send(&self, piece: Option<JobUpdate>) -> bool {
        piece.is_none_or(|piece| self.job.updates.send(piece).is_ok())
    }
}
