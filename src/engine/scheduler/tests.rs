//! Tests the scheduler with a backend in memory, whose next token depends on every token before it:
//! a reply is right only if its sequence held exactly the prompt, at the right positions. One file, because all
//! tests share that backend.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::super::interrupt::Interrupt;
use super::super::special_tokens::SpecialTokens;
use super::super::speculate::{DraftRequest, Drafter};
use super::super::threads::{ThreadLimits, ThreadPolicy};
use super::*;
use crate::api::ChatRequest;
use crate::error::Result;

/// What the backend records, and faults that it injects.
#[derive(Default)]
struct BackendLog {
    /// Tokens that were computed.
    decoded: usize,
    decodes: usize,
    copied: usize,
    /// Decodes, by number, during which these flags are set.
    cancels: Vec<(usize, Arc<AtomicBool>)>,
    refuses_copies: bool,
    /// The threads of each decode that was not aborted.
    threads: Vec<usize>,
    /// Decodes with several threads that do not end by themselves, by number. With `whole` they do,
    /// after a time in which others are given up.
    stalls: Range<usize>,
}

/// The token and cell of each position of each sequence.
struct MemoryBackend {
    sequences: Vec<Vec<(TokenId, usize)>>,
    rows: Vec<Vec<f32>>,
    n_ctx: usize,
    whole: bool,
    /// An aborted batch has destroyed every state. Only if `whole`.
    destroyed: bool,
    next_cell: usize,
    policy: ThreadPolicy,
    /// The threads of the next decode.
    threads: usize,
    seen: Arc<Mutex<BackendLog>>,
}

const N_BATCH: usize = 64;
/// More than the engines of tests that run at the same time, which share them.
const THREADS: usize = 16;
const STALL: Duration = Duration::from_millis(100);

/// The letter that follows these tokens.
fn next_token(tokens: impl Iterator<Item = TokenId>) -> TokenId {
    let hash = tokens.fold(7_u64, |hash, token| {
        (hash ^ token as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
    });
    TokenId::from(b'a') + (hash % 26) as TokenId
}

impl Backend for MemoryBackend {
    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn n_batch(&self) -> usize {
        N_BATCH
    }

    fn n_sequences(&self) -> usize {
        self.sequences.len()
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn threads(&self) -> ThreadLimits {
        ThreadLimits { most: THREADS, processors: THREADS, policy: self.policy }
    }

    fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    fn waited(&self, _: usize) -> Option<Duration> {
        None
    }

    fn decode(
        &mut self,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded> {
        assert!(!batch.is_empty() && batch.len() <= N_BATCH);
        assert!(!self.destroyed, "no sequence may be used before the backend is cleared");
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.decodes += 1;
        let number = seen.decodes;
        self.rows.clear();
        let stalls = self.threads > 1 && seen.stalls.contains(&number);
        let begun = Instant::now();
        while stalls && !abort() && !(self.whole && begun.elapsed() > STALL) {
            std::hint::spin_loop();
        }
        for (place, entry) in batch.iter().enumerate() {
            if place == batch.len() / 2 {
                seen.cancels
                    .iter()
                    .filter(|(at, _)| *at == number)
                    .for_each(|(_, flag)| flag.store(true, Ordering::Relaxed));
                if abort() {
                    self.destroyed = self.whole;
                    return Ok(Decoded::Aborted);
                }
            }
            let sequence = &mut self.sequences[entry.sequence];
            assert_eq!(entry.position, sequence.len(), "positions of a sequence leave nothing out");
            sequence.push((entry.token, self.next_cell));
            self.next_cell += 1;
            let mut row = vec![0.0; 256];
            row[next_token(sequence.iter().map(|(token, _)| *token)) as usize] = 1.0;
            self.rows.push(if entry.logits { row } else { Vec::new() });
        }
        seen.decoded += batch.len();
        seen.threads.push(self.threads);
        let mut cells: Vec<usize> =
            self.sequences.iter().flatten().map(|(_, cell)| *cell).collect();
        cells.sort_unstable();
        cells.dedup();
        assert!(cells.len() <= self.n_ctx, "{} cells of {}", cells.len(), self.n_ctx);
        Ok(Decoded::Done)
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> bool {
        let part = length > 0 && length < self.sequences[sequence].len();
        if !(self.whole && part) {
            self.sequences[sequence].truncate(length);
        }
        !(self.whole && part)
    }

    fn clear(&mut self) {
        self.sequences.iter_mut().for_each(Vec::clear);
        self.destroyed = false;
    }

    fn is_divisible(&self) -> bool {
        !self.whole
    }

    fn shortest(&self, _: usize, length: usize) -> usize {
        if self.whole { length } else { 1 }
    }

    fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        Ok(self.sequences[sequence].iter().map(|(token, _)| *token as u8).collect())
    }

    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()> {
        assert!(self.sequences[sequence].is_empty() && data.len() == n_tokens);
        let cells = self.next_cell..self.next_cell + n_tokens;
        self.next_cell = cells.end;
        self.sequences[sequence] =
            data.iter().map(|byte| TokenId::from(*byte)).zip(cells).collect();
        Ok(())
    }

    fn copy(&mut self, from: usize, to: usize, range: Range<usize>) -> bool {
        assert!(
            !self.whole
                && from != to
                && self.sequences[to].len() == range.start
                && !range.is_empty()
        );
        let same = |index: usize| self.sequences[from][index].0 == self.sequences[to][index].0;
        assert!((0..range.start).all(same), "only what goes on is copied");
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.refuses_copies {
            self.sequences[to].clear();
            return false;
        }
        seen.copied += range.len();
        let part = self.sequences[from][range].to_vec();
        self.sequences[to].extend(part);
        true
    }

    fn logits(&self, row: usize) -> Result<&[f32]> {
        Ok(&self.rows[row])
    }
}

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

/// Drafts the right reply with occasional errors.
struct OracleDrafter {
    state: u64,
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

struct World {
    scheduler: Scheduler,
    seen: Arc<Mutex<BackendLog>>,
}

/// A submitted job.
struct SubmittedJob {
    prompt: Vec<TokenId>,
    max_tokens: usize,
    cancel: Arc<AtomicBool>,
    updates: Receiver<JobUpdate>,
}

/// The result of a job.
#[derive(Debug)]
struct FinishedJob {
    text: String,
    outcome: JobOutcome,
}

impl World {
    fn new(n_sequences: usize, n_ctx: usize, whole: bool) -> World {
        World::with(n_sequences, n_ctx, whole, None)
    }

    fn with(
        n_sequences: usize,
        n_ctx: usize,
        whole: bool,
        speculation: Option<Speculation>,
    ) -> World {
        World::with_threads(n_sequences, n_ctx, whole, speculation, ThreadPolicy::Pinned)
    }

    fn with_threads(
        n_sequences: usize,
        n_ctx: usize,
        whole: bool,
        speculation: Option<Speculation>,
        policy: ThreadPolicy,
    ) -> World {
        let seen = Arc::<Mutex<BackendLog>>::default();
        let sequences = vec![Vec::new(); n_sequences];
        let memory = MemoryBackend {
            sequences,
            rows: Vec::new(),
            n_ctx,
            whole,
            destroyed: false,
            next_cell: 0,
            policy,
            threads: THREADS,
            seen: Arc::clone(&seen),
        };
        let vocab = Arc::new(ByteVocab(SpecialTokens::new(Vec::new())));
        World { scheduler: Scheduler::new(Box::new(memory), vocab, speculation), seen }
    }

    fn ask(&mut self, chat: u64, prompt: &[TokenId], max_tokens: usize) -> SubmittedJob {
        let (sender, updates) = channel();
        let request = serde_json::json!({ "messages": [{ "role": "user", "content": "" }], "temperature": 0 });
        let cancel = Arc::<AtomicBool>::default();
        self.scheduler.add(Job {
            chat,
            prompt: prompt.to_vec(),
            max_tokens,
            sampling: ChatRequest::read(request).expect("a request").sampling,
            breakers: Arc::default(),
            stop: Vec::new(),
            constraint: None,
            reasoning: None,
            logprobs: None,
            visible: Arc::default(),
            reuse_prefix: true,
            cancel: Arc::clone(&cancel),
            deadline: None,
            updates: sender,
        });
        SubmittedJob { prompt: prompt.to_vec(), max_tokens, cancel, updates }
    }

    fn run(&mut self) {
        // More steps than any test needs, so that a loop without progress fails instead of hanging.
        for _ in 0..20_000 {
            if self.scheduler.is_idle() {
                return;
            }
            self.scheduler.step();
        }
        panic!("the scheduler makes no progress");
    }

    fn seen<T>(&self, read: impl FnOnce(&mut BackendLog) -> T) -> T {
        read(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SubmittedJob {
    /// The result. Its text must be a prefix of what the job says when it runs alone, and all of it
    /// unless it was cancelled.
    #[track_caller]
    fn ended(&self) -> FinishedJob {
        let mut text = String::new();
        for update in self.updates.try_iter() {
            match update {
                JobUpdate::Piece { text: piece, .. } => text += &piece,
                JobUpdate::Done(outcome) => {
                    let mut all = self.prompt.clone();
                    for _ in 0..text.len() {
                        all.push(next_token(all.iter().copied()));
                    }
                    let lone: String = all[self.prompt.len()..]
                        .iter()
                        .map(|token| char::from(*token as u8))
                        .collect();
                    assert_eq!(text, lone, "the reply of a lone run");
                    let whole = outcome.finish == Finish::Length && text.len() == self.max_tokens;
                    assert!(whole || outcome.finish == Finish::Cancelled, "{outcome:?} {text}");
                    return FinishedJob { text, outcome };
                }
                JobUpdate::Failed(error) => panic!("{error:?}"),
            }
        }
        panic!("no end");
    }
}

/// `length` tokens that depend on the seed.
fn part(seed: TokenId, length: usize) -> Vec<TokenId> {
    (0..length as TokenId)
        .map(|index| (seed * 31 + index * 7) % 251)
        .chain([seed])
        .take(length)
        .collect()
}

fn prompt(system: &[TokenId], seed: TokenId) -> Vec<TokenId> {
    [system, &part(seed, 20)].concat()
}

#[test]
fn a_common_prefix_is_computed_once() {
    let system = part(1, 500);
    for (whole, decoded, copied, cached) in
        [(false, 500 + 4 * 20, 3 * 500, 3 * 500), (true, 4 * 520, 0, 0)]
    {
        let mut world = World::new(4, 4096, whole);
        let asked: Vec<SubmittedJob> =
            (0..4).map(|chat| world.ask(chat, &prompt(&system, chat as TokenId + 2), 8)).collect();
        world.run();
        let sum: usize = asked.iter().map(|asked| asked.ended().outcome.cached_tokens).sum();
        // The last token of a reply is never decoded.
        let seen = world.seen(|seen| (seen.decoded, seen.copied));
        assert_eq!((sum, seen), (cached, (decoded + 4 * 7, copied)), "whole: {whole}");
    }
}

#[test]
fn a_new_chat_does_not_overwrite_a_cached_conversation() {
    let system = part(1, 100);
    let mut world = World::new(2, 4096, false);
    let first = prompt(&system, 2);
    let asked = world.ask(1, &first, 8);
    world.run();
    let reply: Vec<TokenId> = asked.ended().text.bytes().map(TokenId::from).collect();
    let other = world.ask(2, &prompt(&system, 3), 8);
    world.run();
    assert_eq!(other.ended().outcome.cached_tokens, 100);
    let again = world.ask(1, &[&first[..], &reply, &part(4, 10)].concat(), 8);
    world.run();
    // All of the prompt and the reply except the last token, which was never decoded.
    assert_eq!(again.ended().outcome.cached_tokens, 120 + 7);
    let held = world.scheduler.look_up(2, &prompt(&system, 5));
    assert_eq!(held, CacheLookup { cached: 100, own: Some((120 + 7, 100)) });
}

#[test]
fn a_job_does_not_wait_for_a_cancelled_one() {
    let system = part(1, 500);
    let mut world = World::new(3, 4096, false);
    let first = world.ask(1, &prompt(&system, 2), 8);
    let second = world.ask(2, &prompt(&system, 3), 8);
    world.scheduler.step();
    world.scheduler.step();
    assert_eq!(world.scheduler.waiting.len(), 1, "the second one waits");
    first.cancel.store(true, Ordering::Relaxed);
    world.run();
    assert_eq!(first.ended().outcome.finish, Finish::Cancelled);
    // What the first job computed is not lost.
    assert_eq!(second.ended().outcome.cached_tokens, 2 * N_BATCH);
}

#[test]
fn a_cancel_takes_one_step() {
    let mut world = World::new(2, 4096, false);
    let (long, short) = (world.ask(1, &part(1, 2000), 8), world.ask(2, &part(2, 10), 100));
    world.scheduler.step();
    long.cancel.store(true, Ordering::Relaxed);
    let before = world.seen(|seen| seen.decodes);
    world.scheduler.step();
    assert_eq!(long.ended().outcome.finish, Finish::Cancelled);
    assert_eq!(world.seen(|seen| seen.decodes), before + 1, "of the other job");
    // During a decode: the batch is undone, and the reply of the other job is unchanged.
    let third = world.ask(3, &part(3, 500), 8);
    let number = world.seen(|seen| {
        seen.cancels.push((seen.decodes + 3, Arc::clone(&third.cancel)));
        seen.decodes
    });
    world.run();
    assert_eq!(third.ended().outcome.finish, Finish::Cancelled);
    assert_eq!(short.ended().outcome.finish, Finish::Length);
    assert!(world.seen(|seen| seen.decodes) > number + 3);
    // A deadline that has passed cancels.
    let late = world.ask(4, &part(4, 500), 8);
    world.scheduler.waiting.iter_mut().for_each(|job| job.deadline = Some(Instant::now()));
    let before = world.seen(|seen| seen.decodes);
    world.scheduler.step();
    assert_eq!(
        (late.ended().outcome.finish, world.seen(|seen| seen.decodes)),
        (Finish::Cancelled, before)
    );
}

#[test]
fn a_copy_that_fails_is_computed() {
    let system = part(1, 200);
    let mut world = World::new(2, 480, false);
    world.seen(|seen| seen.refuses_copies = true);
    // With a shared prefix both would fit at once. Without it, one waits for the other and takes
    // its sequence.
    let asked: Vec<SubmittedJob> =
        (0..2).map(|chat| world.ask(chat, &prompt(&system, chat as TokenId + 2), 40)).collect();
    world.run();
    assert_eq!(
        asked.iter().map(|asked| asked.ended().outcome.cached_tokens).collect::<Vec<_>>(),
        [0, 200]
    );
    assert_eq!(world.seen(|seen| seen.copied), 0);
}

/// Pseudo-random numbers, the same in every run.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn replies_do_not_depend_on_other_jobs() {
    for seed in 0..60 {
        let mut state = seed;
        let whole = seed % 5 == 4;
        let guesses =
            (seed % 2 == 1).then(|| Speculation::new(Box::new(OracleDrafter { state: seed }), 8));
        let mut world =
            World::with(1 + random(&mut state) % 4, 300 + random(&mut state) % 300, whole, guesses);
        let mut asked: Vec<SubmittedJob> = Vec::new();
        for _ in 0..30 {
            // A few beginnings, and sometimes a continued conversation.
            let mut tokens = part(random(&mut state) as TokenId % 3, 10 + random(&mut state) % 150);
            if let Some(before) = asked.last().filter(|_| random(&mut state).is_multiple_of(3)) {
                tokens = before.prompt[..before.prompt.len().min(180)].to_vec();
            }
            tokens.extend(part(random(&mut state) as TokenId % 200, 1 + random(&mut state) % 20));
            let job =
                world.ask(random(&mut state) as u64 % 5, &tokens, 1 + random(&mut state) % 40);
            if random(&mut state).is_multiple_of(4) {
                let at = world.seen(|seen| seen.decodes) + random(&mut state) % 12;
                world.seen(|seen| seen.cancels.push((at, Arc::clone(&job.cancel))));
            }
            asked.push(job);
            for _ in 0..random(&mut state) % 8 {
                world.scheduler.step();
            }
        }
        world.run();
        let drafted = asked.iter().filter_map(|asked| asked.ended().outcome.drafted);
        let accepted: usize = drafted.map(|drafted| drafted.accepted).sum();
        assert_eq!(accepted > 0, seed % 2 == 1 && !whole);
        let copied = world.seen(|seen| seen.copied);
        assert!(!whole || copied == 0);
    }
}

#[test]
fn a_chat_is_saved_and_restored() {
    let mut world = World::new(2, 400, false);
    let first = world.ask(1, &part(1, 100), 10);
    world.run();
    let text = first.ended().text;
    // The last token was sampled but not decoded.
    let held: Vec<TokenId> =
        part(1, 100).into_iter().chain(text.bytes().take(9).map(TokenId::from)).collect();
    let kept = world.scheduler.save(1).expect("kept").expect("something");
    assert_eq!(kept.tokens, held);
    assert!(world.scheduler.save(2).expect("kept").is_none(), "a chat that asked nothing");

    let mut other = World::new(1, 200, false);
    other.scheduler.restore(7, &kept).expect("restored");
    let next = other.ask(7, &[held.as_slice(), &part(5, 10)].concat(), 5);
    other.run();
    assert_eq!(next.ended().outcome.cached_tokens, held.len());

    let mut small = World::new(1, 50, false);
    assert_eq!(small.scheduler.restore(7, &kept).expect_err("too long").code(), Code::Busy);
    assert!(small.scheduler.save(7).expect("kept").is_none());
}

#[test]
fn a_decode_that_stalls_is_computed_with_fewer_threads() {
    let mut world = World::with_threads(2, 400, false, None, ThreadPolicy::Adaptive);
    // Those that are tried later stall too.
    world.seen(|seen| seen.stalls = 20..usize::MAX);
    let asked = [world.ask(1, &part(1, 100), 30), world.ask(2, &part(2, 30), 60)];
    world.run();
    for asked in asked {
        let threads = asked.ended().outcome.threads.expect("it was decoded");
        assert!((1.0..THREADS as f64).contains(&threads), "{threads}");
    }
    let (decodes, threads) = world.seen(|seen| (seen.decodes, seen.threads.clone()));
    assert!(threads[..19].iter().all(|threads| *threads > 1), "{threads:?}");
    assert!(threads[19..].iter().all(|threads| *threads == 1), "{threads:?}");
    assert!(decodes > threads.len(), "some were given up");
}

#[test]
fn a_stall_does_not_destroy_a_state() {
    let mut world = World::with_threads(1, 400, true, None, ThreadPolicy::Adaptive);
    world.seen(|seen| seen.stalls = 5..6);
    let asked = world.ask(1, &part(1, 30), 10);
    world.run();
    asked.ended();
    let (decodes, ended) = world.seen(|seen| (seen.decodes, seen.threads.len()));
    assert_eq!(decodes, ended, "none was given up");
}
