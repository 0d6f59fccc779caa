//! How many states of each sequence llama.cpp keeps for models with recurrent layers, so that drafts
//! can be taken back. Each takes as much memory as the current state.

use super::context_fit::ContextFit;
use crate::api::Speculative;
use crate::gguf::ModelHeader;
use crate::llama::context::ContextOptions;
use crate::llama::raw::machine_memory;

/// The maximum number that llb chooses by itself. A draft of eight tokens saves eight ninths of the
/// decodes, and for each of these states some architectures copy a part of it in every decode.
pub(crate) const MAX_STATES: u32 = 8;
/// The parts of the weights, and of the free main memory, that these states may take, as divisors.
const WEIGHTS_SHARE: u64 = 8;
const MEMORY_SHARE: u64 = 16;

/// Whether llb chooses the number, by the memory.
pub(crate) fn is_chosen(speculative: &Speculative) -> bool {
    matches!(speculative, Speculative::Auto)
}

/// The number of states that this context keeps beside the current one. With a drafter that the
/// caller has chosen, they suffice for its longest draft. `fit` is where the model goes.
pub(crate) fn n_rollback(
    speculative: &Speculative,
    header: &ModelHeader,
    context: &ContextOptions,
    fit: Option<&ContextFit>,
) -> u32 {
    if !header.can_take_back_states() {
        return 0;
    }
    match speculative {
        Speculative::Off => 0,
        Speculative::Ngram { n_max, .. }
        | Speculative::Mtp { n_max }
        | Speculative::Draft { n_max, .. } => *n_max,
        Speculative::Auto => {
            let count = affordable(header, context.n_parallel, machine_memory::available_memory());
            let with = ContextOptions { n_rollback: count, ..context.clone() };
            let has_room = fit.is_none_or(|fit| fit.has_room_for_states(&with));
            if has_room { count } else { 0 }
        }
    }
}

/// The number of states that take little memory beside the weights.
fn affordable(header: &ModelHeader, n_parallel: u32, available: Option<u64>) -> u32 {
    let Some(layers) = header.layers(2.0, 2.0) else { return 0 };
    let state = layers.blocks.iter().map(|block| block.per_sequence).fold(0, u64::saturating_add);
    let of_all = state.saturating_mul(u64::from(n_parallel));
    let of_weights = header.tensor_bytes() / WEIGHTS_SHARE;
    let most = available.map_or(of_weights, |free| of_weights.min(free / MEMORY_SHARE));
    most.checked_div(of_all).map_or(0, |count| count.min(u64::from(MAX_STATES)) as u32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::gguf::gguf_writer::GgufWriter;
    use crate::llama::load::fit::tests::context;

    /// Two layers with states of 4 * (3 * (16 + 2 * 8) + 16 * 8) = 896 bytes, and this many bytes of
    /// weights.
    fn header(architecture: &str, weights: usize, window: u32) -> ModelHeader {
        let name = |key: &str| format!("{architecture}.{key}");
        let bytes = GgufWriter::new()
            .metadata("general.architecture", architecture)
            .metadata(name("block_count"), 2_u32)
            .metadata(name("embedding_length"), 8_u32)
            .metadata(name("attention.head_count"), 0_u32)
            .metadata(name("attention.sliding_window"), window)
            .metadata(name("ssm.conv_kernel"), 4_u32)
            .metadata(name("ssm.inner_size"), 16_u32)
            .metadata(name("ssm.state_size"), 8_u32)
            .metadata(name("ssm.group_count"), 1_u32)
            .tensor_bytes("blk.0.x", &[weights as u64], 24, vec![0; weights])
            .to_bytes();
        let size = bytes.len() as u64;
        ModelHeader::read(Cursor::new(bytes), size).unwrap()
    }

    #[test]
    fn states_take_a_part_of_the_weights() {
        let count = |weights, n_parallel, available| {
            affordable(&header("qwen35", weights, 0), n_parallel, available)
        };
        let of_two = 2 * 896;
        assert_eq!(count(8 * of_two - 8, 1, None), 0);
        assert_eq!(count(8 * of_two, 1, None), 1);
        assert_eq!(count(8 * 3 * of_two, 1, None), 3);
        assert_eq!(count(8 * 3 * of_two, 4, None), 0);
        assert_eq!(count(8 * 12 * of_two, 4, None), 3);
        assert_eq!(count(8 * 100 * of_two, 1, None), MAX_STATES);
        let free = |states: u64| Some(16 * states * of_two as u64);
        assert_eq!(count(8 * 3 * of_two, 1, free(2)), 2);
        assert_eq!(count(8 * 3 * of_two, 1, free(9)), 3);
    }

    #[test]
    fn a_drafter_has_states_for_its_longest_draft() {
        let count = |speculative: Speculative, architecture, window| {
            n_rollback(&speculative, &header(architecture, 8, window), &context(256), None)
        };
        let ngram = || Speculative::Ngram { n_max: 20, ngram: 3 };
        assert_eq!(count(ngram(), "qwen35", 0), 20);
        assert_eq!(count(Speculative::Mtp { n_max: 3 }, "qwen35", 0), 3);
        assert_eq!(count(Speculative::Auto, "qwen35", 0), 0, "it has almost no weights");
        assert_eq!(count(Speculative::Off, "qwen35", 0), 0);
        // llama.cpp cannot take back states of others, and a window loses cells.
        assert_eq!(count(ngram(), "qwen3next", 0), 0);
        assert_eq!(count(ngram(), "qwen4exp", 0), 0);
        assert_eq!(count(ngram(), "llama", 0), 0);
        assert_eq!(count(ngram(), "lfm2", 64), 0);
    }
}
