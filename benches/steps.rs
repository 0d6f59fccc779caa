//! Measures how much of a device's speed the scheduler reaches, without a device. The backend takes
//! a fixed time for a step, and returns rows of logits with the shape of a language model's.
//!
//! While the backend computes, the processor is idle, as with a GPU. The times of a step are those
//! of a 7B model on an H100. `LLB_THREADS` is the number of threads that the sampler may use,
//! `LLB_ROUNDS` the number of rounds.
#![allow(clippy::print_stdout, reason = "prints a table")]
#![allow(clippy::unwrap_used, reason = "a bench may fail")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "a program")]

#[allow(dead_code, reason = "needs no model")]
#[path = "measure/mod.rs"]
mod measure;
#[path = "../tests/samplers/rows.rs"]
mod rows;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use llb::api::{AdapterScales, ChatRequest};
use llb::constraint::{CompileTime, Constraint, Grammars, Vocabulary};
use llb::engine::{
    Backend, BatchEntry, Decoded, DraftRequest, Drafter, Engine, Interrupt, Job, JobUpdate, Loaded,
    SpecialTokens, Speculation, ThreadLimits, ThreadPolicy, TokenId, Vocab,
};
use llb::error::Result;
use measure::Figures;
use rows::{Numbers, language_row};
use serde_json::{Value, json};

/// The size of the vocabulary. Its last token ends a generation, and is never likely.
const N_VOCAB: usize = 152_064;
const END: TokenId = N_VOCAB as TokenId - 1;
/// The token that is drafted.
const DRAFTED: TokenId = 300;
const N_PROMPT: usize = 8;
/// The number of tokens in each reply.
const DECODED: usize = 96;
/// The number of rows that are returned in turn. They do not fit in the processor's caches.
const ROWS: usize = 80;

/// The time of a step with this many sequences.
fn step_time(sequences: usize) -> Duration {
    Duration::from_millis(match sequences {
        0..=1 => 4,
        2..=16 => 8,
        _ => 19,
    })
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores);
    let rounds = measure::number("LLB_ROUNDS", 5);
    let mut numbers = Numbers::new(7);
    let rows = (0..ROWS).map(|_| {
        let mut row = language_row(&mut numbers, N_VOCAB);
        row[END as usize] = f32::NEG_INFINITY;
        row
    });
    let rows = Arc::new(rows.collect::<Vec<_>>());
    let vocab = Arc::new(Words::new());
    let grammar = grammar(&vocab);
    let never = || false;
    // The first call compiles the grammar; later calls get it from the cache.
    let constraint = || grammar.compile(AUTO, &CompileTime::until(&never)).unwrap();
    let logprobs = json!({ "logprobs": true, "top_logprobs": 5 });
    let mut same = json!({ "logit_bias": {} });
    same["logit_bias"][DRAFTED.to_string()] = json!(100);
    // The members, whether there is a grammar, and the number of drafted tokens of each sequence.
    let cases: [(&str, Value, bool, usize); 7] = [
        ("temperature 0", json!({ "temperature": 0 }), false, 0),
        ("default sampler", json!({}), false, 0),
        ("default, grammar of tools and auto", json!({}), true, 0),
        ("default, 5 log probabilities", logprobs, false, 0),
        ("default, always the same token", same.clone(), false, 0),
        ("the same, 1 draft", same.clone(), false, 1),
        ("the same, 4 drafts", same, false, 4),
    ];
    println!("share of the backend's own speed, median of {rounds} rounds of {DECODED} tokens");
    println!("{threads} threads, {N_VOCAB} tokens in the vocabulary\n");
    println!("{:36}{:>8}{:>8}{:>8}", "sequences", 1, 16, 64);
    for (name, members, constrained, drafts) in &cases {
        print!("{name:36}");
        for sequences in [1, 16, 64] {
            let engine = engine(sequences, threads, *drafts, &rows, &vocab);
            let shares = (0..=rounds)
                .map(|_| {
                    let constraints = (0..sequences).map(|_| constrained.then(&constraint));
                    run(&engine, members, *drafts, constraints.collect())
                })
                .skip(1);
            print!("{:>8.3}", measure::counted(name, Figures(shares.collect()).median()));
        }
        println!();
    }
}

/// Runs one job for each constraint, with this many drafts in each step. Returns the share of the
/// backend's speed that is reached between the first tokens and the last ones.
fn run(
    engine: &Engine,
    members: &Value,
    drafts: usize,
    constraints: Vec<Option<Constraint>>,
) -> f64 {
    let sequences = constraints.len();
    let received: Vec<Receiver<JobUpdate>> = constraints
        .into_iter()
        .enumerate()
        .map(|(number, constraint)| {
            let (updates, received) = channel();
            engine.submit(job(number, members, constraint, updates)).unwrap();
            received
        })
        .collect();
    let mut first = None;
    for updates in &received {
        assert!(matches!(updates.recv().unwrap(), JobUpdate::Piece { .. }));
        first.get_or_insert_with(Instant::now);
    }
    for updates in &received {
        let mut last = None;
        updates.iter().for_each(|update| last = Some(update));
        let Some(JobUpdate::Done(outcome)) = last else { panic!("a job failed") };
        assert_eq!(outcome.completion_tokens, DECODED);
    }
    let took = first.unwrap().elapsed();
    // All drafts are right.
    let steps = (DECODED - 1).div_ceil(drafts + 1);
    (step_time(sequences) * steps as u32).as_secs_f64() / took.as_secs_f64()
}

fn job(
    number: usize,
    members: &Value,
    constraint: Option<Constraint>,
    updates: std::sync::mpsc::Sender<JobUpdate>,
) -> Job {
    let mut request = json!({ "messages": [{ "role": "user", "content": "x" }], "seed": number });
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let request = ChatRequest::read(request).unwrap();
    Job {
        chat: number as u64,
        prompt: vec![number as TokenId; N_PROMPT],
        media: Vec::new(),
        adapters: AdapterScales::default(),
        max_tokens: Some(DECODED),
        sampling: request.sampling,
        breakers: Arc::default(),
        stop: Vec::new(),
        constraint,
        reasoning: None,
        logprobs: request.output.logprobs,
        visible: Arc::default(),
        shift_keeps: None,
        drafts: true,
        reuse_prefix: false,
        copied_lengths: Vec::new(),
        interrupt: Interrupt::default(),
        updates,
    }
}

fn engine(
    sequences: usize,
    threads: usize,
    drafts: usize,
    rows: &Arc<Vec<Vec<f32>>>,
    vocab: &Arc<Words>,
) -> Engine {
    let backend = TimedBackend { sequences, threads, rows: Arc::clone(rows), steps: 0 };
    let vocab = Arc::clone(vocab) as Arc<dyn Vocab>;
    let load = move |_: &mut dyn FnMut(f32) -> bool| {
        let backend = Box::new(backend) as Box<dyn Backend>;
        // All sequences share the maximum.
        let speculation =
            (drafts > 0).then(|| Speculation::new(Box::new(SameToken(drafts)), drafts * sequences));
        Ok(Loaded { backend, vocab, speculation })
    };
    Engine::start(load, &mut |_| true).unwrap()
}

/// Drafts the token that every job chooses.
struct SameToken(usize);

impl Drafter for SameToken {
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        _: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        wanted.iter().map(|wanted| vec![DRAFTED; self.0.min(wanted.most)]).collect()
    }
}

/// A simulated device: while it computes, the processor is idle.
struct TimedBackend {
    sequences: usize,
    threads: usize,
    rows: Arc<Vec<Vec<f32>>>,
    steps: usize,
}

impl Backend for TimedBackend {
    fn n_ctx(&self) -> usize {
        self.sequences * 256
    }

    fn n_batch(&self) -> usize {
        512
    }

    fn n_sequences(&self) -> usize {
        self.sequences
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn set_adapters(&mut self, _: &AdapterScales) -> Result<()> {
        Ok(())
    }

    fn threads(&self) -> ThreadLimits {
        let policy = ThreadPolicy::Device;
        ThreadLimits { most: self.threads, processors: self.threads, policy }
    }

    fn set_threads(&mut self, _: usize) {}

    fn waited(&self, _: usize) -> Option<Duration> {
        None
    }

    fn decode(&mut self, _: &[BatchEntry], _: &(dyn Fn() -> bool + Sync)) -> Result<Decoded> {
        let done = Instant::now() + step_time(self.sequences);
        // A sleep ends late, so the rest of the time is spent in a busy loop.
        std::thread::sleep(step_time(self.sequences) - Duration::from_micros(300));
        while Instant::now() < done {
            std::hint::spin_loop();
        }
        self.steps += 1;
        Ok(Decoded::Done)
    }

    fn truncate(&mut self, _: usize, _: usize) -> bool {
        true
    }

    fn clear(&mut self) {}

    fn checkpoint(&self, _: usize) -> Option<Vec<u8>> {
        None
    }

    fn rewind(&mut self, _: usize, _: usize, _: &[u8]) -> bool {
        false
    }

    fn is_divisible(&self) -> bool {
        true
    }

    fn shortest(&self, _: usize, _: usize) -> usize {
        1
    }

    fn copy(&mut self, _: usize, _: usize, _: usize) -> bool {
        true
    }

    fn shift(&mut self, _: usize, _: usize, _: usize) -> Option<usize> {
        None
    }

    fn save(&self, _: usize) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn restore(&mut self, _: usize, _: &[u8], _: usize) -> Result<()> {
        Ok(())
    }

    fn logits(&self, row: usize) -> Result<&[f32]> {
        Ok(&self.rows[(self.steps * 13 + row) % ROWS])
    }
}

/// A vocabulary of one token for each byte, then random words.
struct Words {
    pieces: Vec<Vec<u8>>,
    special: SpecialTokens,
}

impl Words {
    fn new() -> Words {
        let mut numbers = Numbers::new(3);
        let mut pieces: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        pieces.resize_with(N_VOCAB, || {
            let length = 2 + numbers.below(6);
            (0..length).map(|_| b" etaoinshrdlu"[numbers.below(13)]).collect()
        });
        pieces[END as usize] = Vec::new();
        Words { pieces, special: SpecialTokens::new(Vec::new()) }
    }
}

impl Vocab for Words {
    fn len(&self) -> usize {
        N_VOCAB
    }

    fn tokenize(&self, text: &str, _: bool, _: &Interrupt) -> Result<Vec<TokenId>> {
        Ok(text.bytes().map(TokenId::from).collect())
    }

    fn piece(&self, token: TokenId, _: bool) -> Vec<u8> {
        self.pieces[token as usize].clone()
    }

    fn is_end_of_generation(&self, token: TokenId) -> bool {
        token == END
    }

    fn required_bos(&self) -> Option<TokenId> {
        None
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }
}

/// A grammar of free text and calls in JSON.
const AUTO: &str = r#"start: text (call text)*
text: /[^<]*/
call: "<tool_call>" object "</tool_call>"
object: %json {"type": "object", "properties": {"name": {"enum": ["a"]}}}
"#;

fn grammar(vocab: &Arc<Words>) -> Grammars {
    let vocab = Arc::clone(vocab);
    Grammars::new(move || Vocabulary {
        token_bytes: vocab
            .pieces
            .iter()
            .map(|piece| if piece.is_empty() { b"\xFF<end>".to_vec() } else { piece.clone() })
            .collect(),
        end_tokens: vec![END as u32],
        tokenize: Box::new(|text| text.bytes().map(u32::from).collect()),
    })
}
