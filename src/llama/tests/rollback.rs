//! States that are taken back, with random weights of each architecture: after any changes to the
//! sequences of a context, the logits are those of a context that computes the same tokens at once.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "the files of models are shared by tests")]

#[path = "../../../tests/corpus/architectures.rs"]
mod architectures;
#[path = "../../../tests/corpus/model_file.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod model_file;
#[path = "../../../tests/corpus/numbers.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod numbers;
#[path = "../../../tests/corpus/vocabularies.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod vocabularies;

use std::io::Cursor;

use super::{TestFile, scripted};
use crate::api::{CacheType, FlashAttention};
use crate::engine::{Backend, BatchEntry, Decoded, TokenId};
use crate::gguf::ModelHeader;
use crate::llama::context::{ContextOptions, LlamaContext, Model};
use model_file::{Content, ModelFile};
use numbers::Numbers;

const N_SEQUENCES: usize = 3;
const N_ROLLBACK: u32 = 4;
/// Longer sequences are emptied.
const MAX_LENGTH: usize = 200;
/// How much logits may differ, as a part of the largest one.
const TOLERANCE: f32 = 2e-3;

/// The models whose states llama.cpp can take back. Their states decay slowly.
fn models() -> Vec<ModelFile> {
    let mut models = architectures::all();
    models.retain(|model| header(&model.to_bytes()).can_take_back_states());
    for model in &mut models {
        let decays = model.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("ssm_a"));
        decays.for_each(|tensor| tensor.content = Content::Repeated(-0.02, -0.3));
    }
    models
}

fn header(bytes: &[u8]) -> ModelHeader {
    ModelHeader::read(Cursor::new(bytes), bytes.len() as u64).expect("a header")
}

fn context(model: Model, n_rollback: u32, kv_unified: bool) -> LlamaContext {
    let options = ContextOptions {
        n_ctx: 1024,
        n_batch: 64,
        n_parallel: N_SEQUENCES as u32,
        n_rollback,
        kv_unified,
        n_threads: 1,
        adapts_threads: false,
        flash_attn: FlashAttention::Off,
        cache_type_k: CacheType::F32,
        cache_type_v: CacheType::F32,
        pooling: None,
    };
    LlamaContext::new(model.into(), &options).expect("a context")
}

/// A context with the tokens that each of its sequences should hold, and a context that knows
/// nothing of its changes.
struct Compared {
    context: LlamaContext,
    fresh: LlamaContext,
    held: Vec<Vec<TokenId>>,
    numbers: Numbers,
    /// States with the sequence and the tokens that it held.
    checkpoints: Vec<(usize, Vec<TokenId>, Vec<u8>)>,
    kv_unified: bool,
    /// Whether a sequence was copied since the last decode. With cells of its own, llama.cpp copies
    /// them in the next decode, so that some cannot be saved or restored before.
    has_copied: bool,
    /// How often that was so.
    pending: usize,
    /// How often a few tokens were taken back, and copied while that was pending.
    taken_back: usize,
    copied: usize,
    refused: usize,
    /// How often a few tokens were taken back after a decode of several sequences.
    together: usize,
}

impl Compared {
    fn below(&mut self, limit: usize) -> usize {
        self.numbers.below(limit)
    }

    /// Decodes some tokens of each of these sequences, and compares the last logits of each.
    fn decode(&mut self, counts: &[(usize, usize)]) {
        let mut batch = Vec::new();
        for (sequence, count) in counts {
            if self.held[*sequence].len() + count > MAX_LENGTH {
                self.held[*sequence].clear();
                assert!(self.context.truncate(*sequence, 0));
            }
            for offset in 0..*count {
                let token = TokenId::from(b'a') + self.below(26) as TokenId;
                let position = self.held[*sequence].len();
                self.held[*sequence].push(token);
                let logits = offset + 1 == *count;
                batch.push(BatchEntry { token, position, sequence: *sequence, logits });
            }
        }
        self.has_copied = false;
        assert_eq!(self.context.decode(&batch, &|| false).expect("a decode"), Decoded::Done);
        for (row, entry) in batch.iter().enumerate().filter(|(_, entry)| entry.logits) {
            let expected = self.expected(entry.sequence);
            let found = self.context.logits(row).expect("logits");
            let largest = expected.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
            let differences = expected.iter().zip(found).map(|(one, other)| (one - other).abs());
            let difference = differences.fold(0.0_f32, f32::max) / largest;
            assert!(largest > 0.0 && difference < TOLERANCE, "{difference} after {counts:?}");
        }
    }

    /// Saves a sequence and restores it as another one.
    fn save_as(&mut self, sequence: usize, other: usize) {
        let tokens = self.held[sequence].clone();
        let restored = self.context.save(sequence).and_then(|saved| {
            assert!(self.context.truncate(other, 0));
            self.held[other].clear();
            self.checkpoints.retain(|(of, ..)| *of != other);
            self.context.restore(other, &saved, tokens.len())
        });
        match restored {
            Ok(()) => self.held[other] = tokens,
            Err(error) => {
                assert!(self.has_copied && !self.kv_unified, "{error}");
                self.pending += 1;
            }
        }
    }

    /// The logits after the tokens of a sequence, computed at once.
    fn expected(&mut self, sequence: usize) -> Vec<f32> {
        assert!(self.fresh.truncate(0, 0));
        let tokens = &self.held[sequence];
        let mut row = 0;
        for start in (0..tokens.len()).step_by(64) {
            let end = tokens.len().min(start + 64);
            let entry = |position| BatchEntry {
                token: tokens[position],
                position,
                sequence: 0,
                logits: position + 1 == tokens.len(),
            };
            let batch: Vec<BatchEntry> = (start..end).map(entry).collect();
            self.fresh.decode(&batch, &|| false).expect("a decode");
            row = batch.len() - 1;
        }
        self.fresh.logits(row).expect("logits").to_vec()
    }

    /// Tries to remove the last tokens of a sequence.
    fn remove(&mut self, sequence: usize, count: usize, must: bool) {
        let length = self.held[sequence].len().saturating_sub(count);
        if length == 0 {
            return;
        }
        let removed = self.context.truncate(sequence, length);
        assert!(removed || !must, "{count} tokens cannot be removed");
        if removed {
            self.held[sequence].truncate(length);
            let is_longer = |sequence: usize, of: usize, tokens: &[TokenId]| {
                sequence == of && tokens.len() > length
            };
            self.checkpoints.retain(|(of, tokens, _)| !is_longer(sequence, *of, tokens));
        }
        self.taken_back += usize::from(removed && count > 0);
        self.refused += usize::from(!removed);
    }

    fn change(&mut self) {
        let (sequence, other) = (self.below(N_SEQUENCES), self.below(N_SEQUENCES));
        match self.below(14) {
            // As a draft, of which a part is accepted.
            0..=4 => {
                let count = 1 + self.below(8);
                self.decode(&[(sequence, count)]);
                let most = (N_ROLLBACK as usize).min(count - 1).min(self.held[sequence].len() - 1);
                let count = self.below(most + 1);
                self.remove(sequence, count, true);
            }
            5 => {
                let count = 1 + self.below(8);
                self.decode(&[(sequence, count)]);
            }
            6 | 7 => {
                let mut counts: Vec<(usize, usize)> = Vec::new();
                let first = self.below(N_SEQUENCES);
                for index in 0..2 + self.below(N_SEQUENCES - 1) {
                    counts.push(((first + index) % N_SEQUENCES, 1 + self.below(6)));
                }
                self.decode(&counts);
            }
            // As drafts of several jobs, in one part.
            12 | 13 => {
                let count = 1 + self.below(6);
                let mut counts: Vec<(usize, usize)> =
                    (sequence..N_SEQUENCES).map(|sequence| (sequence, count)).collect();
                if self.kv_unified {
                    counts.reverse();
                }
                self.decode(&counts);
                for (sequence, count) in &counts {
                    let length = self.held[*sequence].len();
                    let most = (N_ROLLBACK as usize).min(count - 1).min(length - 1);
                    let removed = self.below(most + 1);
                    self.remove(*sequence, removed, true);
                    self.together += usize::from(removed > 0 && counts.len() > 1);
                }
            }
            8 => {
                let count = self.below(6);
                self.remove(sequence, count, false);
            }
            9 if sequence != other && !self.held[sequence].is_empty() => {
                let length = self.held[sequence].len();
                assert!(self.context.copy(sequence, other, length));
                self.held[other] = self.held[sequence].clone();
                self.checkpoints.retain(|(of, ..)| *of != other);
                self.copied += 1;
                self.has_copied = true;
            }
            10 if !self.held[sequence].is_empty() => {
                let state = self.context.checkpoint(sequence).expect("a state");
                self.checkpoints.retain(|(of, ..)| *of != sequence);
                self.checkpoints.push((sequence, self.held[sequence].clone(), state));
            }
            11 => {
                let found = self.checkpoints.iter().find(|(of, ..)| *of == sequence).cloned();
                match found {
                    Some((_, tokens, state)) if tokens.len() < self.held[sequence].len() => {
                        assert!(self.context.rewind(sequence, tokens.len(), &state));
                        self.held[sequence] = tokens;
                    }
                    _ if !self.held[sequence].is_empty() => self.save_as(sequence, other),
                    _ => {}
                }
            }
            _ => {}
        }
        // An emptied sequence has no checkpoints.
        let held = &self.held;
        self.checkpoints.retain(|(of, tokens, _)| held[*of].starts_with(tokens));
    }
}

#[test]
fn a_state_that_is_taken_back_is_the_one_before_the_tokens() {
    let models = models();
    assert!(models.len() >= 15, "{} models", models.len());
    for model in models {
        let file = TestFile::new(model.to_bytes());
        let load = || file.load(&mut |_| true).expect("a model");
        for kv_unified in [true, false] {
            let mut compared = Compared {
                context: context(load(), N_ROLLBACK, kv_unified),
                fresh: context(load(), 0, true),
                held: vec![Vec::new(); N_SEQUENCES],
                numbers: Numbers(7),
                checkpoints: Vec::new(),
                kv_unified,
                has_copied: false,
                pending: 0,
                taken_back: 0,
                copied: 0,
                refused: 0,
                together: 0,
            };
            assert_eq!(compared.context.max_rollback(), N_ROLLBACK as usize, "{}", model.name);
            for _ in 0..300 {
                compared.change();
            }
            let Compared { taken_back, copied, refused, pending, together, .. } = compared;
            assert_eq!(pending > 0, !kv_unified, "{pending}");
            assert!(
                taken_back > 50 && copied > 5 && refused > 5 && together > 20,
                "{taken_back} {copied} {refused} {together}"
            );
        }
    }
}

/// llama.cpp decides by the architecture alone, and can take back more than is used.
#[test]
fn llama_cpp_can_take_back_the_states_of_these_architectures() {
    const UNUSED: [&str; 3] = ["deepseek4", "glm5-next", "qwen4exp"];
    let mut with_states = 0;
    for model in architectures::all() {
        let bytes = model.to_bytes();
        let expected = header(&bytes).can_take_back_states();
        let file = TestFile::new(bytes);
        // Encoders and others have no context like this one.
        let Ok(loaded) = file.load(&mut |_| true) else { continue };
        if !loaded.has_state() {
            assert!(!expected, "{}", model.name);
            continue;
        }
        if UNUSED.contains(&model.architecture.as_str()) {
            assert!(!expected, "{}", model.name);
            continue;
        }
        with_states += 1;
        let context = context(loaded, N_ROLLBACK, true);
        let most = if expected { N_ROLLBACK as usize } else { 0 };
        assert_eq!(context.max_rollback(), most, "{}", model.name);
    }
    assert!(with_states > 20, "{with_states}");
}
