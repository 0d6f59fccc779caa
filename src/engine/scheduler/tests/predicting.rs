//! Drafts of layers that predict further tokens. The layers here are always right if they get the
//! hidden state of the token before each token, and if their cache holds the tokens of the sequence
//! without a gap. So every wrong draft shows an error of the drafter.

use super::super::super::{Decoded, LayerDrafter, PredictingLayers};
use super::memory_backend::{HIDDEN, after, hidden_of, letter};
use super::*;
use crate::error::Result;

/// The state and the token of each position of each sequence. Earlier positions may be missing.
struct RightLayers {
    sequences: Vec<Vec<(usize, TokenId)>>,
    rows: Vec<(Vec<f32>, [f32; HIDDEN])>,
    n_cells: usize,
    /// Wrong hidden states come in: the layers then only keep account of positions.
    is_right: bool,
}

impl RightLayers {
    fn drafter(n_sequences: usize, n_cells: usize, is_right: bool) -> LayerDrafter {
        let sequences = vec![Vec::new(); n_sequences];
        LayerDrafter::new(Box::new(RightLayers { sequences, rows: Vec::new(), n_cells, is_right }))
    }
}

impl PredictingLayers for RightLayers {
    fn hidden_length(&self) -> usize {
        HIDDEN
    }

    fn n_batch(&self) -> usize {
        N_BATCH
    }

    fn n_cells(&self) -> usize {
        self.n_cells
    }

    fn n_sequences(&self) -> usize {
        self.sequences.len()
    }

    fn set_threads(&mut self, _: usize) {}

    fn decode(
        &mut self,
        batch: &[BatchEntry],
        hidden: &[f32],
        _: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded> {
        assert!(!batch.is_empty() && batch.len() <= N_BATCH);
        assert_eq!(hidden.len(), batch.len() * HIDDEN);
        self.rows.clear();
        for (entry, hidden) in batch.iter().zip(hidden.chunks_exact(HIDDEN)) {
            let sequence = &mut self.sequences[entry.sequence];
            if let Some((last, _)) = sequence.last() {
                assert_eq!(entry.position, last + 1, "positions leave nothing out");
            }
            assert!(entry.position > 0, "nothing is before the first token");
            sequence.push((entry.position, entry.token));
            let parts = hidden.iter().zip([0, 16, 32, 48]);
            let before = parts.fold(0, |sum, (part, shift)| sum | (*part as u64) << shift);
            let state = after(before, entry.token) + u64::from(!self.is_right);
            let mut row = vec![0.0; 256];
            row[letter(state) as usize] = 10.0;
            self.rows.push((row, hidden_of(state)));
        }
        let cells: usize = self.sequences.iter().map(Vec::len).sum();
        assert!(cells <= self.n_cells, "{cells} cells of {}", self.n_cells);
        Ok(Decoded::Done)
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> bool {
        self.sequences[sequence].retain(|(position, _)| *position < length);
        true
    }

    fn logits(&self, entry: usize) -> Result<&[f32]> {
        Ok(&self.rows[entry].0)
    }

    fn hidden(&self, entry: usize) -> Result<&[f32]> {
        Ok(&self.rows[entry].1)
    }
}

/// Runs jobs that share prefixes, continue others, are cancelled, and shift their contexts. Returns
/// the numbers of drafted and of accepted tokens, and of tokens and decodes.
fn run(seed: u64, is_right: bool) -> [usize; 4] {
    let mut state = seed;
    let (n_sequences, n_ctx) = (1 + random(&mut state) % 4, 300 + random(&mut state) % 300);
    let layers = RightLayers::drafter(n_sequences, n_ctx, is_right);
    let speculation = Speculation::new(Box::new(layers), 5);
    let mut world = World::with(n_sequences, n_ctx, false, Some(speculation));
    let mut asked: Vec<SubmittedJob> = Vec::new();
    for _ in 0..30 {
        let mut tokens = part(random(&mut state) as TokenId % 3, 10 + random(&mut state) % 150);
        if let Some(before) = asked.last().filter(|_| random(&mut state).is_multiple_of(3)) {
            tokens = before.prompt[..before.prompt.len().min(180)].to_vec();
        }
        tokens.extend(part(random(&mut state) as TokenId % 200, 1 + random(&mut state) % 20));
        let chat = random(&mut state) as u64 % 9;
        world.drafts = !random(&mut state).is_multiple_of(5);
        let job = if random(&mut state).is_multiple_of(8) {
            let (keeps, most) = (random(&mut state) % 400, random(&mut state) % 600);
            world.ask_shifting(chat, &tokens, 1 + most, Some(keeps))
        } else {
            world.ask(chat, &tokens, 1 + random(&mut state) % 60)
        };
        if random(&mut state).is_multiple_of(6) {
            let at = world.seen(|seen| seen.decodes) + random(&mut state) % 12;
            world.seen(|seen| seen.cancels.push((at, Arc::clone(&job.cancel))));
        }
        asked.push(job);
        (0..random(&mut state) % 8).for_each(|_| world.scheduler.step());
    }
    world.run();
    let mut sums = [0; 4];
    for asked in &asked {
        let outcome = asked.ended().outcome;
        let counts = outcome.drafted.unwrap_or_default();
        sums[0] += counts.tokens;
        sums[1] += counts.accepted;
        sums[2] += outcome.completion_tokens;
    }
    sums[3] = world.seen(|seen| seen.decodes);
    sums
}

#[test]
fn right_layers_are_always_right_and_no_reply_changes() {
    let mut all = [0; 4];
    for seed in 0..8 {
        for (sum, one) in all.iter_mut().zip(run(seed, true)) {
            *sum += one;
        }
    }
    let [drafted, accepted, written, _] = all;
    // A job that is cancelled or ends takes no part of its last draft.
    assert!(accepted * 20 > drafted * 19, "{accepted} of {drafted}");
    assert!(accepted * 2 > written, "{accepted} of {written}");
}

#[test]
fn wrong_layers_change_no_reply() {
    for seed in 0..8 {
        let [drafted, accepted, ..] = run(seed, false);
        assert!(drafted > 0 && accepted * 5 < drafted, "{accepted} of {drafted}");
    }
}

/// Each token is computed once by the model. A draft of five saves five of six decodes.
#[test]
fn right_layers_save_decodes() {
    let layers = RightLayers::drafter(1, 1024, true);
    let mut world = World::with(1, 1024, false, Some(Speculation::new(Box::new(layers), 5)));
    let asked = world.ask(1, &part(1, 100), 240);
    world.run();
    let counts = asked.ended().outcome.drafted.expect("counts");
    assert_eq!(counts.tokens, counts.accepted);
    let decodes = world.seen(|seen| seen.decodes);
    // Two for the prompt.
    assert!(decodes <= 2 + 240 / 6 + 1, "{decodes}");
}
