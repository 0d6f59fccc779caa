//! A running job: its next token, and the output for its caller.

use std::time::Instant;

use super::backend::{TokenId, TokenMask, Vocab};
use super::detokenize::Utf8Assembler;
use super::job::{Finish, Job, JobOutcome, JobUpdate};
use super::logprobs::{PendingLogprobs, SampledLogprobs};
use super::reasoning_budget::ReasoningWatch;
use super::sampler::{LogitRow, Sampler};
use super::speculate::{DraftCounts, DraftPace};
use super::stop::StopMatcher;
use super::threads::MeanThreads;
use crate::constraint::Constraint;
use crate::error::{Code, Error, Result};

/// A job that runs on a sequence.
pub(crate) struct ActiveJob {
    pub(crate) job: Job,
    pub(crate) sequence: usize,
    /// Sampled but not decoded; `None` during prefill.
    pub(crate) next: Option<TokenId>,
    /// How many tokens to draft for it.
    pub(crate) pace: DraftPace,
    /// Those of its decodes.
    pub(crate) threads: MeanThreads,
    sampler: Sampler,
    /// A buffer for reading rows of logits.
    maxima: Vec<f32>,
    /// Draws with a mask.
    #[cfg(test)]
    masked: usize,
    reasoning: Option<ReasoningWatch>,
    utf8: Utf8Assembler,
    stop: StopMatcher,
    unsent: PendingLogprobs,
    cached_tokens: usize,
    completion_tokens: usize,
    admitted: Instant,
    first_token: Option<Instant>,
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
            pace: DraftPace::default(),
            threads: MeanThreads::default(),
            sampler,
            maxima: Vec::new(),
            #[cfg(test)]
            masked: 0,
            reasoning: job.reasoning.take().map(ReasoningWatch::new),
            utf8: Utf8Assembler::default(),
            stop: StopMatcher::new(job.stop.clone()),
            unsent: PendingLogprobs::default(),
            cached_tokens,
            completion_tokens: 0,
            admitted,
            first_token: None,
            job,
        }
    }

    /// Samples the next token by the logits of the last one.
    ///
    /// With a grammar, a token is first drawn without a mask and then checked. Most such tokens are
    /// allowed, and checking one costs much less than a mask. Only a refused token is drawn again,
    /// with the mask.
    pub(crate) fn choose(&mut self, logits: &[f32]) -> Result<ChosenToken> {
        let mut maxima = std::mem::take(&mut self.maxima);
        let chosen = self.choose_from(&LogitRow::read(logits, &mut maxima));
        self.maxima = maxima;
        chosen
    }

    fn choose_from(&mut self, row: &LogitRow) -> Result<ChosenToken> {
        let token = match self.forced()? {
            Some(token) => token,
            None => self.draw(row)?,
        };
        if let Some(constraint) = &mut self.job.constraint {
            constraint.accept(token)?;
        }
        self.sampler.accept(token);
        let logprobs = self.job.logprobs.map(|n_top| SampledLogprobs::of(row, token, n_top));
        Ok(ChosenToken { token, logprobs })
    }

    /// The token that ends reasoning whose budget is used up, unless the grammar refuses it.
    fn forced(&mut self) -> Result<Option<TokenId>> {
        let Some(watch) = &mut self.reasoning else { return Ok(None) };
        let Some(ending) = watch.due(self.utf8.is_between_characters()) else { return Ok(None) };
        let token = ending.first().copied();
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

    fn draw(&mut self, row: &LogitRow) -> Result<TokenId> {
        let first = draw_among(&mut self.sampler, row, None)?;
        let Some(constraint) = &mut self.job.constraint else { return Ok(first) };
        if constraint.allows(&[first])? {
            return Ok(first);
        }
        let mask = constraint.mask()?;
        #[cfg(test)]
        {
            self.masked += 1;
        }
        draw_among(&mut self.sampler, row, Some(&mask))
    }

    /// Adds a sampled token to the output. Returns why the job ends, if it does.
    pub(crate) fn take(
        &mut self,
        chosen: ChosenToken,
        vocab: &dyn Vocab,
        context_full: bool,
    ) -> Option<Finish> {
        let ChosenToken { token, logprobs } = chosen;
        self.first_token.get_or_insert_with(Instant::now);
        if vocab.is_end_of_generation(token) {
            return Some(Finish::Stop);
        }
        self.completion_tokens += 1;
        if let Some(watch) = &mut self.reasoning {
            watch.take(&vocab.piece(token, true));
        }
        let visible = self.job.visible.contains(&token);
        let bytes = vocab.piece(token, visible);
        let text = self.utf8.push(&bytes);
        let control = ControlText::of(token, &bytes, visible, vocab);
        if let Some(logprobs) = logprobs {
            self.unsent.push(logprobs, &text, self.utf8.is_between_characters());
        }
        let (shown, stopped) = self.stop.push(&text);
        let logprobs = self.unsent.shown(&shown);
        let is_received = self.send(shown, logprobs, control);
        self.next = Some(token);
        if stopped {
            // The held bytes belong to the stop string.
            self.utf8 = Utf8Assembler::default();
            Some(Finish::Stop)
        } else if !is_received {
            Some(Finish::Cancelled)
        } else if self.job.constraint.as_ref().is_some_and(Constraint::is_finished) {
            Some(Finish::Stop)
        } else if self.completion_tokens >= self.job.max_tokens || context_full {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// How many more tokens it may generate.
    pub(crate) fn tokens_left(&self) -> usize {
        self.job.max_tokens.saturating_sub(self.completion_tokens)
    }

    /// Sends the text that was held back, and the outcome. `drafted` is `None` without speculative
    /// decoding.
    pub(crate) fn finish(mut self, finish: Finish, drafted: Option<DraftCounts>) {
        let rest = self.utf8.finish();
        let (shown, stopped) = self.stop.push(rest);
        let held = if stopped { String::new() } else { self.stop.finish() };
        let logprobs = self.unsent.rest();
        self.send(shown + &held, logprobs, None);
        let since =
            |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        let now = Instant::now();
        let first = self.first_token.unwrap_or(now);
        let outcome = JobOutcome {
            finish,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.completion_tokens,
            reasoning_tokens: self.reasoning.as_ref().map_or(0, ReasoningWatch::tokens),
            prompt_ms: since(self.admitted, first),
            predicted_ms: since(first, now),
            drafted,
            threads: self.threads.get(),
        };
        let _ = self.job.updates.send(JobUpdate::Done(outcome));
    }

    pub(crate) fn fail(self, error: Error) {
        let _ = self.job.updates.send(JobUpdate::Failed(error));
    }

    /// Sends text and the control token that it ends with, or that printed nothing. False if the
    /// receiver is dropped.
    fn send(
        &self,
        mut text: String,
        logprobs: Vec<SampledLogprobs>,
        mut control: Option<ControlText>,
    ) -> bool {
        if let Some(ControlText { spelling, visible: true }) = &control {
            match text.strip_suffix(spelling.as_str()) {
                Some(before) => text.truncate(before.len()),
                // A stop string may begin in it, so it comes as text.
                None => control = None,
            }
        }
        let control = control.map(|control| control.spelling);
        text.is_empty() && logprobs.is_empty() && control.is_none()
            || self.job.updates.send(JobUpdate::Piece { text, logprobs, control }).is_ok()
    }
}

/// The spelling of a control token.
struct ControlText {
    spelling: String,
    /// Whether it is part of the text.
    visible: bool,
}

impl ControlText {
    /// `bytes` is what the token prints.
    fn of(token: TokenId, bytes: &[u8], visible: bool, vocab: &dyn Vocab) -> Option<ControlText> {
        let prints =
            if visible { !vocab.piece(token, false).is_empty() } else { !bytes.is_empty() };
        if prints {
            return None;
        }
        let spelling = String::from_utf8(vocab.piece(token, true)).ok()?;
        (!spelling.is_empty()).then_some(ControlText { spelling, visible })
    }
}

fn draw_among(sampler: &mut Sampler, row: &LogitRow, mask: Option<&TokenMask>) -> Result<TokenId> {
    sampler.draw(row, mask).ok_or_else(|| {
        let whose = if mask.is_some() {
            "no token that the grammar allows has a probability"
        } else {
            "no token has a probability"
        };
        Error::new(Code::InferenceFailed, whose)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    use super::super::interrupt::Interrupt;
    use super::super::reasoning_budget::{ReasoningBudget, ReasoningOptions};
    use super::super::special_tokens::SpecialTokens;
    use super::*;
    use crate::api::{ChatRequest, Sampling};
    use crate::constraint::{CompileTime, Grammars, Vocabulary};

    /// Ends a generation. The token before it has no text.
    const END: TokenId = 257;
    const BLANK: TokenId = 256;

    /// A token for each byte, one without text, and the end.
    struct ByteVocabWithEnd(SpecialTokens);

    impl Vocab for ByteVocabWithEnd {
        fn len(&self) -> usize {
            258
        }

        fn tokenize(&self, text: &str, _: bool, _: &Interrupt) -> Result<Vec<TokenId>> {
            Ok(text.bytes().map(TokenId::from).collect())
        }

        fn piece(&self, token: TokenId, special: bool) -> Vec<u8> {
            match u8::try_from(token) {
                Ok(byte) => vec![byte],
                Err(_) if special && token == END => b"<end>".to_vec(),
                Err(_) => Vec::new(),
            }
        }

        fn is_end_of_generation(&self, token: TokenId) -> bool {
            token == END
        }

        fn required_bos(&self) -> Option<TokenId> {
            None
        }

        fn special_tokens(&self) -> &SpecialTokens {
            &self.0
        }
    }

    fn grammar(lark: &str) -> Constraint {
        let vocabulary = || Vocabulary {
            token_bytes: (0..=255)
                .map(|byte| vec![byte])
                .chain([Vec::new(), b"\xFF<end>".to_vec()])
                .collect(),
            end_tokens: vec![END as u32],
            tokenize: Box::new(|text| text.bytes().map(u32::from).collect()),
        };
        Grammars::new(vocabulary).compile(lark, &CompileTime::unlimited()).expect("a grammar")
    }

    fn active(job: Job) -> ActiveJob {
        let sampler = Sampler::new(&job.sampling, &[], &job.breakers).expect("a sampler");
        ActiveJob::new(job, 0, 0, sampler, Instant::now())
    }

    fn job(constraint: Option<Constraint>, budget: Option<usize>) -> (Job, Receiver<JobUpdate>) {
        let (updates, received) = channel();
        let request = serde_json::json!({ "messages": [{ "role": "user", "content": "hi" }], "temperature": 0 });
        let sampling: Sampling = ChatRequest::read(request).expect("a request").sampling;
        let ending = b"</t>".iter().map(|byte| TokenId::from(*byte)).collect();
        let budget = budget.map(|tokens| ReasoningBudget { tokens, ending });
        let job = Job {
            chat: 0,
            prompt: vec![0],
            max_tokens: 100,
            sampling,
            breakers: Arc::default(),
            stop: Vec::new(),
            constraint,
            reasoning: Some(ReasoningOptions {
                open: "<t>".into(),
                close: "</t>".into(),
                inside: false,
                budget,
            }),
            logprobs: Some(1),
            visible: Arc::default(),
            reuse_prefix: true,
            cancel: Arc::default(),
            deadline: None,
            updates,
        };
        (job, received)
    }

    /// `wish` is the likeliest token, then the end, then `x`; all others are equal.
    fn logits(wish: Option<TokenId>) -> Vec<f32> {
        let mut logits = vec![0.0; 258];
        logits[usize::from(b'x')] = 1.0;
        logits[END as usize] = 2.0;
        wish.iter().for_each(|wish| logits[*wish as usize] = 3.0);
        logits
    }

    struct Ran {
        text: String,
        logprobs: Vec<TokenId>,
        outcome: JobOutcome,
        masked: bool,
    }

    fn run(constraint: Option<&str>, budget: Option<usize>, wishes: &[TokenId]) -> Result<Ran> {
        let (job, received) = job(constraint.map(grammar), budget);
        let mut active = active(job);
        let vocab = ByteVocabWithEnd(SpecialTokens::new(Vec::new()));
        let mut wishes = wishes.iter().copied();
        let finish = loop {
            let chosen = active.choose(&logits(wishes.next()))?;
            if let Some(finish) = active.take(chosen, &vocab, false) {
                break finish;
            }
        };
        let masked = active.masked > 0;
        active.finish(finish, None);
        let (mut text, mut logprobs) = (String::new(), Vec::new());
        for update in received.iter() {
            match update {
                JobUpdate::Piece { text: piece, logprobs: sampled, .. } => {
                    text += &piece;
                    logprobs.extend(sampled.iter().map(|each| each.sampled.token));
                }
                JobUpdate::Done(outcome) => {
                    return Ok(Ran { text, logprobs, outcome, masked });
                }
                JobUpdate::Failed(error) => return Err(error),
            }
        }
        panic!("no outcome");
    }

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(TokenId::from).collect()
    }

    #[track_caller]
    fn check(
        constraint: Option<&str>,
        budget: Option<usize>,
        wishes: &[TokenId],
        text: &str,
        masked: bool,
    ) -> JobOutcome {
        let ran = run(constraint, budget, wishes).expect("a reply");
        assert_eq!((&*ran.text, ran.masked), (text, masked));
        assert_eq!(ran.logprobs, tokens(text), "one for each token, in order");
        assert_eq!(ran.outcome.completion_tokens, text.len());
        ran.outcome
    }

    #[test]
    fn a_mask_is_made_only_for_what_is_refused() {
        let lark = r#"start: /[a-z]+/ ";" "#;
        check(Some(lark), None, &tokens("abc;"), "abc;", false);
        check(Some(lark), None, &tokens("aBc;"), "axc;", true);
        check(None, None, &tokens("aBc"), "aBc", false);
    }

    #[test]
    fn the_end_is_allowed_where_the_grammar_may_end() {
        // The end is the likeliest token, but the grammar allows it only after a letter.
        check(Some("start: /[a-z]*/"), None, &[], "", false);
        check(Some(r#"start: "ab" /[a-z]*/"#), None, &[], "ab", true);
        check(Some(r#"start: "ab" /[a-z]*/"#), None, &[TokenId::from(b'a'), END, END], "ab", true);
    }

    #[test]
    fn a_token_without_text_is_never_allowed() {
        check(Some(r#"start: "x" "y""#), None, &[BLANK, BLANK], "xy", true);
    }

    #[test]
    fn a_grammar_that_allows_nothing_with_a_probability_is_an_error() {
        let (job, _received) = job(Some(grammar(r#"start: "ab""#)), None);
        let mut active = active(job);
        let mut logits = logits(None);
        logits[usize::from(b'a')] = f32::NEG_INFINITY;
        let error = active.choose(&logits).err().expect("refused");
        assert_eq!(
            (error.code(), error.message()),
            (Code::InferenceFailed, "no token that the grammar allows has a probability")
        );
        let error = active.choose(&[f32::NAN; 258]).err().expect("refused");
        assert_eq!(error.message(), "no token has a probability");
    }

    #[test]
    fn a_budget_ends_reasoning() {
        let outcome = check(None, Some(2), &tokens("<t>ab????cd"), "<t>ab</t>cd", false);
        assert_eq!(outcome.reasoning_tokens, 6);
        let outcome = check(None, Some(5), &tokens("<t>ab</t>cd"), "<t>ab</t>cd", false);
        assert_eq!(outcome.reasoning_tokens, 6);
        assert_eq!(check(None, None, &tokens("abcd"), "abcd", false).reasoning_tokens, 0);
    }

    #[test]
    fn a_forced_ending_obeys_the_grammar() {
        let lark = r#"start: "<t>" /[a-z]+/ "</t>" /[a-z]+/"#;
        check(Some(lark), Some(2), &tokens("<t>ab????cd"), "<t>ab</t>cd", false);
        // The grammar has no place for the ending before the first letter, so the reasoning
        // continues.
        check(Some(lark), Some(0), &tokens("<t>abc</t>d"), "<t>abc</t>d", false);
    }
}
