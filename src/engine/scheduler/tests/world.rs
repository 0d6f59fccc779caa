//! A scheduler over the backend in memory, and the jobs that are submitted to it. Each job knows
//! what it writes when it runs alone, and compares its text with that.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::super::super::backend::{ThreadPolicy, TokenId};
use super::super::super::interrupt::Interrupt;
use super::super::super::media::PlacedMedia;
use super::super::super::prefix_cache::{CacheKey, CacheLookup, SavedSequence};
use super::super::super::speculate::{DraftRequest, Drafter};
use super::super::super::vocab::SpecialTokens;
use super::super::*;
use super::memory_backend::{BackendLog, MemoryBackend, SET, next_token};
use crate::api::ChatRequest;
use crate::constraint::{CallTexts, CompileTime, Grammars, Vocabulary};
use crate::error::Result;

struct ByteVocab(SpecialTokens);

impl Vocab for ByteVocab {
    fn len(&self) -> usize {
        256
    }

    fn tokenize(&self, text: &str, _: bool, _: &Interrupt) -> Result<Vec<TokenId>> {
        Ok(text.bytes().map(TokenId::from).collect())
    }

    fn piece(&self, token: TokenId, _: bool) -> Vec<u8> {
        vec![token as u8]
    }

    fn is_end_of_generation(&self, _: TokenId) -> bool {
        false
    }

    fn required_bos(&self) -> Option<TokenId> {
        None
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.0
    }
}

/// Drafts the right reply, with occasional errors.
pub(super) struct OracleDrafter {
    pub(super) state: u64,
}

impl Drafter for OracleDrafter {
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        _: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        let guess = |wanted: &DraftRequest| {
            let mut all = [wanted.tokens, &[wanted.next]].concat();
            let from = all.len();
            for _ in 0..random(&mut self.state) % (wanted.most + 1) {
                let wrong = random(&mut self.state).is_multiple_of(4);
                all.push(next_token(all.iter().copied()) + TokenId::from(wrong));
            }
            all.split_off(from)
        };
        wanted.iter().map(guess).collect()
    }
}

/// A scheduler with its backend, and how its next jobs are submitted.
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) n_ctx: usize,
    pub(super) seen: Arc<Mutex<BackendLog>>,
    /// The `copied_lengths` of the next jobs.
    pub(super) copied_lengths: Vec<usize>,
    /// The stop string of the next jobs.
    pub(super) stop: Option<String>,
    /// The grammar of the next jobs, in Lark.
    pub(super) grammar: Option<String>,
    /// The texts of the calls that this grammar allows.
    pub(super) call_texts: Arc<CallTexts>,
    /// Whether the next jobs may draft.
    pub(super) drafts: bool,
    /// The media in the prompts of the next jobs.
    pub(super) media: Vec<PlacedMedia>,
    /// The sampling members of the next requests. Without them, the temperature is 0 and the seed 7.
    pub(super) sampling: Value,
    pub(super) grammars: Grammars,
}

/// A submitted job, and what the test knows about it.
pub(super) struct SubmittedJob {
    pub(super) prompt: Vec<TokenId>,
    pub(super) set: TokenId,
    pub(super) max_tokens: usize,
    /// The number of tokens that a full context keeps, and its number of cells.
    pub(super) shift: Option<(usize, usize)>,
    pub(super) stop: Option<String>,
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) updates: Receiver<JobUpdate>,
}

/// The result of a job.
#[derive(Debug)]
pub(super) struct FinishedJob {
    pub(super) text: String,
    pub(super) outcome: JobOutcome,
    /// The copies of the prompt that the job sent.
    pub(super) prefixes: Vec<SavedSequence>,
}

impl World {
    pub(super) fn new(n_sequences: usize, n_ctx: usize, whole: bool) -> World {
        World::with(n_sequences, n_ctx, whole, None)
    }

    pub(super) fn with(
        n_sequences: usize,
        n_ctx: usize,
        whole: bool,
        speculation: Option<Speculation>,
    ) -> World {
        World::with_threads(n_sequences, n_ctx, whole, speculation, ThreadPolicy::Pinned)
    }

    pub(super) fn with_threads(
        n_sequences: usize,
        n_ctx: usize,
        whole: bool,
        speculation: Option<Speculation>,
        policy: ThreadPolicy,
    ) -> World {
        let seen = Arc::<Mutex<BackendLog>>::default();
        let memory = MemoryBackend::new(n_sequences, n_ctx, whole, policy, Arc::clone(&seen));
        World::of(memory, n_ctx, seen, speculation)
    }

    /// With batches of this many tokens.
    pub(super) fn with_batch(n_sequences: usize, n_ctx: usize, n_batch: usize) -> World {
        let seen = Arc::<Mutex<BackendLog>>::default();
        let policy = ThreadPolicy::Pinned;
        let memory = MemoryBackend::new(n_sequences, n_ctx, false, policy, Arc::clone(&seen));
        World::of(memory.with_batch(n_batch), n_ctx, seen, None)
    }

    /// With states from which this many tokens can be removed after a decode.
    pub(super) fn with_rollback(
        n_sequences: usize,
        n_ctx: usize,
        rollback: usize,
        speculation: Option<Speculation>,
    ) -> World {
        let seen = Arc::<Mutex<BackendLog>>::default();
        let policy = ThreadPolicy::Pinned;
        let memory = MemoryBackend::new(n_sequences, n_ctx, true, policy, Arc::clone(&seen));
        World::of(memory.with_rollback(rollback), n_ctx, seen, speculation)
    }

    fn of(
        memory: MemoryBackend,
        n_ctx: usize,
        seen: Arc<Mutex<BackendLog>>,
        speculation: Option<Speculation>,
    ) -> World {
        let vocab = Arc::new(ByteVocab(SpecialTokens::new(Vec::new())));
        let scheduler = Scheduler::new(Box::new(memory), vocab, speculation);
        let grammars = Grammars::new(|| Vocabulary {
            token_bytes: (0..=255).map(|byte| vec![byte]).collect(),
            end_tokens: vec![0],
            tokenize: Box::new(|text| text.bytes().map(u32::from).collect()),
        });
        World {
            scheduler,
            n_ctx,
            seen,
            copied_lengths: Vec::new(),
            stop: None,
            grammar: None,
            call_texts: Arc::default(),
            drafts: true,
            media: Vec::new(),
            sampling: json!({}),
            grammars,
        }
    }

    pub(super) fn ask(&mut self, chat: u64, prompt: &[TokenId], max_tokens: usize) -> SubmittedJob {
        self.ask_as((0, None), chat, prompt, max_tokens)
    }

    /// Submits a job with an adapter of this scale.
    pub(super) fn ask_with(
        &mut self,
        scale: i16,
        chat: u64,
        prompt: &[TokenId],
        max_tokens: usize,
    ) -> SubmittedJob {
        self.ask_as((scale, None), chat, prompt, max_tokens)
    }

    /// Submits a job that keeps this many tokens when its context is shifted.
    pub(super) fn ask_shifting(
        &mut self,
        chat: u64,
        prompt: &[TokenId],
        max_tokens: usize,
        keeps: Option<usize>,
    ) -> SubmittedJob {
        self.ask_as((0, keeps), chat, prompt, max_tokens)
    }

    pub(super) fn ask_as(
        &mut self,
        set: (i16, Option<usize>),
        chat: u64,
        prompt: &[TokenId],
        max_tokens: usize,
    ) -> SubmittedJob {
        self.submit(set, chat, prompt, Some(max_tokens))
    }

    /// Submits a job that ends when the context is full.
    pub(super) fn ask_without_limit(&mut self, chat: u64, prompt: &[TokenId]) -> SubmittedJob {
        self.submit((0, None), chat, prompt, None)
    }

    fn submit(
        &mut self,
        (scale, keeps): (i16, Option<usize>),
        chat: u64,
        prompt: &[TokenId],
        max_tokens: Option<usize>,
    ) -> SubmittedJob {
        let (sender, updates) = channel();
        let mut request = json!({
            "messages": [{ "role": "user", "content": "" }],
            "temperature": 0,
            "seed": 7,
        });
        let members = self.sampling.as_object().into_iter().flatten();
        members.for_each(|(name, value)| request[name] = value.clone());
        let compile = |lark: &String| self.grammars.compile(lark, &CompileTime::unlimited());
        let constraint = self.grammar.as_ref().map(|lark| {
            compile(lark).expect("a grammar").with_call_texts(Arc::clone(&self.call_texts))
        });
        let cancel = Arc::<AtomicBool>::default();
        self.scheduler.add(Job {
            chat,
            prompt: prompt.to_vec(),
            media: self.media.clone(),
            adapters: AdapterScales([f32::from(scale)].into()),
            max_tokens,
            sampling: ChatRequest::read(request).expect("a request").sampling,
            breakers: Arc::default(),
            stop: self.stop.clone().into_iter().collect(),
            constraint,
            reasoning: None,
            shift_keeps: keeps,
            logprobs: None,
            visible: Arc::default(),
            drafts: self.drafts,
            reuse_prefix: true,
            copied_lengths: self.copied_lengths.clone(),
            interrupt: Interrupt { cancel: Arc::clone(&cancel), ..Interrupt::default() },
            updates: sender,
        });
        let set = TokenId::from(scale) * SET;
        let shift = keeps.map(|keeps| (keeps, self.n_ctx));
        let (prompt, stop) = (prompt.to_vec(), self.stop.clone());
        // The last token is sampled from a full context.
        let max_tokens = max_tokens.unwrap_or((self.n_ctx + 1).saturating_sub(prompt.len()));
        SubmittedJob { prompt, set, max_tokens, shift, stop, cancel, updates }
    }

    /// Looks up a prompt without adapters.
    pub(super) fn look_up(&mut self, chat: u64, tokens: &[TokenId]) -> CacheLookup {
        let adapters = &AdapterScales([0.0].into());
        self.scheduler.look_up(chat, CacheKey { tokens, adapters })
    }

    pub(super) fn run(&mut self) {
        // More steps than any test needs, so that a loop without progress fails instead of hanging.
        for _ in 0..20_000 {
            if self.scheduler.is_idle() {
                return;
            }
            self.scheduler.step();
        }
        panic!("the scheduler makes no progress");
    }

    pub(super) fn seen<T>(&self, read: impl FnOnce(&mut BackendLog) -> T) -> T {
        read(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SubmittedJob {
    /// The text and the outcome of a job with a grammar.
    #[track_caller]
    pub(super) fn constrained(&self) -> (String, JobOutcome) {
        let mut text = String::new();
        for update in self.updates.try_iter() {
            match update {
                JobUpdate::Prefix(_) => {}
                JobUpdate::Piece { text: piece, .. } => text += &piece,
                JobUpdate::Done(outcome) => return (text, outcome),
                JobUpdate::Failed(error) => panic!("{error:?}"),
            }
        }
        panic!("no end");
    }

    /// The result. Its text must be a prefix of what the job writes when it runs alone, and all of
    /// it unless the job was cancelled.
    #[track_caller]
    pub(super) fn ended(&self) -> FinishedJob {
        let mut text = String::new();
        let mut prefixes = Vec::new();
        for update in self.updates.try_iter() {
            match update {
                JobUpdate::Prefix(prefix) => prefixes.push(prefix),
                JobUpdate::Piece { text: piece, .. } => text += &piece,
                JobUpdate::Done(outcome) => {
                    let lone = self.lone(text.len());
                    assert_eq!(text, lone, "the reply of a lone run");
                    let stop = self.stop.as_deref().unwrap_or("-");
                    let is_expected = match outcome.finish {
                        Finish::Length => text.len() == self.max_tokens,
                        Finish::Stop => self.lone(outcome.completion_tokens) == text.clone() + stop,
                        Finish::Cancelled => true,
                    };
                    assert!(is_expected && !text.contains(stop), "{outcome:?} {text}");
                    return FinishedJob { text, outcome, prefixes };
                }
                JobUpdate::Failed(error) => panic!("{error:?}"),
            }
        }
        panic!("no end");
    }

    /// The first letters that the job writes when it runs alone. Shifts follow llama-server's
    /// rules: before the token that would take the last cell, half of the tokens that are not kept
    /// are dropped, and four cells are never kept.
    pub(super) fn lone(&self, letters: usize) -> String {
        let mut held = self.prompt.clone();
        let mut text = String::new();
        for _ in 0..letters {
            let next = next_token(held.iter().map(|token| token + self.set));
            text.push(char::from(next as u8));
            if let Some((keeps, n_ctx)) = self.shift
                && held.len() + 1 >= n_ctx
            {
                let kept = keeps.min(n_ctx - 4);
                held.drain(kept..kept + (held.len() - kept) / 2);
            }
            held.push(next);
        }
        text
    }
}

/// Pseudo-random numbers, the same in every run.
pub(super) fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}
