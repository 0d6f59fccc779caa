//! Tiny models with random weights. Every token depends on all tokens before it: their greedy
//! replies are unknown, but change if the KV cache holds anything other than the prompt.
//!
//! They generate only the letters `a` to `z`, which are one token each, so a reply that is sent
//! back has the same tokens. They never generate the end of turn.

use llb::gguf::GgufValue;

use super::gguf_writer::GgufWriter;

use super::{PLAIN_TEMPLATE, Vocabulary};

/// How a model remembers earlier tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Every layer attends to all tokens.
    Dense,
    /// All but every third layer attend to `WINDOW` tokens only.
    Window,
    /// Every layer has one state for all tokens.
    State,
    /// Every other layer has a state.
    Both,
    /// As `Dense`, with M-RoPE: the places of a picture are a grid.
    Grid,
    /// As `Grid`. The first layers also take states of the encoder of pictures.
    DeepGrid,
}

/// Tokens that a layer of `Memory::Window` attends to, including its own.
pub const WINDOW: u32 = 24;

/// ggml's number of the type.
const Q4_0: u32 = 2;

pub const N_EMBD: u64 = 64;
const N_FF: u64 = 64;
/// The experts of a layer, and how many of them a token uses.
const N_EXPERT: u64 = 4;
const N_EXPERT_USED: u32 = 2;
const N_HEAD: u64 = 2;
// Sizes of a layer with a state: tokens of its convolution, inner size, size of each state, rank of
// the time steps.
const N_CONV: u64 = 4;
const N_INNER: u64 = 2 * N_EMBD;
const N_STATE: u64 = 16;
const N_RANK: u64 = 4;
/// The layers of `Memory::DeepGrid` that take states of the encoder.
pub const N_DEEP: u32 = 1;

/// Pseudo-random numbers, the same in every run.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    /// From -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }

    pub(super) fn list(&mut self, length: u64, scale: f32) -> Vec<f32> {
        (0..length).map(|_| self.next() * scale).collect()
    }
}

/// Builds the file of a model with this memory.
pub fn random(memory: Memory) -> Vec<u8> {
    build(memory, Matrices::Plain, &[], plain())
}

/// A dense model whose vocabulary has these tokens, and these control tokens.
pub fn dense_with_tokens(tokens: &[&str], controls: &[&str]) -> Vec<u8> {
    with_tokens(Memory::Dense, tokens, controls)
}

/// A model whose vocabulary has these tokens, and these control tokens.
pub fn with_tokens(memory: Memory, tokens: &[&str], controls: &[&str]) -> Vec<u8> {
    let pieces = tokens.iter().chain(controls).map(|text| text.as_bytes().to_vec());
    let pieces: Vec<Vec<u8>> = std::iter::once(b"<think>".to_vec()).chain(pieces).collect();
    let controls: Vec<String> = controls.iter().map(|text| (*text).to_owned()).collect();
    let vocabulary = Vocabulary::with_controls(&pieces, &controls);
    build(memory, Matrices::Plain, &[], vocabulary)
}

/// A dense model whose file says more about its architecture, by keys such as `rope.scaling.type`.
pub fn dense_with(metadata: &[(&str, GgufValue)]) -> Vec<u8> {
    build(Memory::Dense, Matrices::Plain, metadata, plain())
}

/// A dense model whose attention has matrices of type Q4_0. llama.cpp reads them while it loads the
/// model, because it orders them for the processor.
pub fn quantized() -> Vec<u8> {
    build(Memory::Dense, Matrices::QuantizedAttention, &[], plain())
}

/// A dense model with experts in its feed-forward blocks.
pub fn experts() -> Vec<u8> {
    let count =
        [("expert_count", (N_EXPERT as u32).into()), ("expert_used_count", N_EXPERT_USED.into())];
    build(Memory::Dense, Matrices::Experts, &count, plain())
}

/// 4 bits for each number, and a scale for 32 of them (ggml's `block_q4_0`).
fn q4_0(numbers: &[f32]) -> Vec<u8> {
    // One eighth as a half, so that numbers are from -1 to 7/8.
    const SCALE: [u8; 2] = 0x3000_u16.to_le_bytes();
    let bits = |number: f32| (number * 8.0 + 8.0).clamp(0.0, 15.0) as u8;
    let block = |block: &[f32]| {
        let pairs = (0..16).map(|index| bits(block[index]) | bits(block[index + 16]) << 4);
        SCALE.into_iter().chain(pairs).collect::<Vec<u8>>()
    };
    numbers.chunks_exact(32).flat_map(block).collect()
}

/// What is special about the matrices of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matrices {
    Plain,
    /// Those of the attention are of type Q4_0.
    QuantizedAttention,
    /// Those of feed-forward blocks are experts.
    Experts,
}

fn plain() -> Vocabulary {
    Vocabulary::of(&[b"<think>".to_vec()])
}

fn build(
    memory: Memory,
    matrices: Matrices,
    metadata: &[(&str, GgufValue)],
    vocabulary: Vocabulary,
) -> Vec<u8> {
    let n_vocab = vocabulary.texts.len() as u64;
    let mut numbers = Numbers::new(41);
    let name = match memory {
        Memory::Dense => "llama",
        Memory::Window => "gemma3",
        Memory::State => "mamba",
        Memory::Both => "jamba",
        Memory::Grid => "qwen2vl",
        Memory::DeepGrid => "qwen3vl",
    };
    let n_layer: usize = if memory == Memory::Window { 3 } else { 2 };
    let has_state = |layer: usize| memory == Memory::State || memory == Memory::Both && layer == 0;
    let heads = |layer: usize| if has_state(layer) { 0 } else { N_HEAD as u32 };
    let key = |key: &str| format!("{name}.{key}");
    let mut writer = GgufWriter::new()
        .metadata("general.architecture", name)
        .metadata("general.name", format!("Random {memory:?}").as_str())
        .metadata("general.file_type", 0_u32)
        .metadata(key("context_length"), super::N_CTX)
        .metadata(key("embedding_length"), N_EMBD as u32)
        .metadata(key("block_count"), n_layer as u32)
        .metadata(key("feed_forward_length"), if memory == Memory::State { 0 } else { N_FF as u32 })
        .metadata(key("attention.layer_norm_rms_epsilon"), 1e-6_f32)
        .metadata(
            key("attention.head_count"),
            if memory == Memory::State { 0 } else { N_HEAD as u32 },
        )
        .metadata(key("attention.head_count_kv"), (0..n_layer).map(heads).collect::<Vec<u32>>());
    let further = metadata.iter().map(|(name, value)| (key(name), value.clone()));
    writer = further.fold(writer, |writer, (key, value)| writer.metadata(key, value));
    if memory == Memory::Window {
        let windows: Vec<bool> = (0..n_layer).map(|layer| layer != 1).collect();
        writer = writer
            .metadata(key("attention.sliding_window"), WINDOW)
            .metadata(key("attention.sliding_window_pattern"), windows)
            .metadata(key("attention.key_length"), (N_EMBD / N_HEAD) as u32)
            .metadata(key("attention.value_length"), (N_EMBD / N_HEAD) as u32);
    }
    if matches!(memory, Memory::Grid | Memory::DeepGrid) {
        writer = writer.metadata(key("rope.dimension_sections"), vec![6_i32, 5, 5, 0]);
    }
    if memory == Memory::DeepGrid {
        writer = writer.metadata(key("n_deepstack_layers"), N_DEEP);
    }
    if has_state(0) {
        writer = writer
            .metadata(key("ssm.conv_kernel"), N_CONV as u32)
            .metadata(key("ssm.inner_size"), N_INNER as u32)
            .metadata(key("ssm.state_size"), N_STATE as u32)
            .metadata(key("ssm.time_step_rank"), N_RANK as u32);
    }
    writer = vocabulary.write(writer, "gpt2").metadata("tokenizer.chat_template", PLAIN_TEMPLATE);

    let ones = |length: u64| vec![1.0_f32; length as usize];
    let mut output = vec![0.0; (n_vocab * N_EMBD) as usize];
    for letter in b'a'..=b'z' {
        let row = usize::from(letter) * N_EMBD as usize;
        output[row..row + N_EMBD as usize].copy_from_slice(&numbers.list(N_EMBD, 1.0));
    }
    // This architecture multiplies the embedding by the root of its size.
    let scale = if memory == Memory::Window { (N_EMBD as f32).sqrt().recip() } else { 1.0 };
    let embedding = numbers.list(n_vocab * N_EMBD, scale);
    writer = writer
        .tensor("token_embd.weight", &[N_EMBD, n_vocab], &embedding)
        .tensor("output_norm.weight", &[N_EMBD], &ones(N_EMBD))
        .tensor("output.weight", &[N_EMBD, n_vocab], &output);
    for layer in 0..n_layer {
        let block = |tensor: &str| format!("blk.{layer}.{tensor}");
        // Large enough that a layer depends on more than its own token.
        let mut matrix = |from: u64, to: u64, gain: f32| {
            numbers.list(from * to, gain * (3.0 / from as f32).sqrt())
        };
        writer = writer.tensor(block("attn_norm.weight"), &[N_EMBD], &ones(N_EMBD));
        if has_state(layer) {
            let rows = N_RANK + 2 * N_STATE;
            // Slow decay: half of it is left after a hundred tokens.
            let decay: Vec<f32> =
                (0..N_STATE * N_INNER).map(|index| -0.01 * (1 + index % N_STATE) as f32).collect();
            writer = writer
                .tensor(
                    block("ssm_in.weight"),
                    &[N_EMBD, 2 * N_INNER],
                    &matrix(N_EMBD, 2 * N_INNER, 1.0),
                )
                .tensor(
                    block("ssm_conv1d.weight"),
                    &[N_CONV, N_INNER],
                    &matrix(N_CONV, N_INNER, 1.0),
                )
                .tensor(block("ssm_conv1d.bias"), &[N_INNER], &vec![0.0; N_INNER as usize])
                .tensor(block("ssm_x.weight"), &[N_INNER, rows], &matrix(N_INNER, rows, 2.0))
                .tensor(block("ssm_dt.weight"), &[N_RANK, N_INNER], &matrix(N_RANK, N_INNER, 1.0))
                .tensor(block("ssm_dt.bias"), &[N_INNER], &vec![0.0; N_INNER as usize])
                .tensor(block("ssm_a"), &[N_STATE, N_INNER], &decay)
                .tensor(block("ssm_d"), &[N_INNER], &ones(N_INNER))
                .tensor(block("ssm_out.weight"), &[N_INNER, N_EMBD], &matrix(N_INNER, N_EMBD, 2.0));
        } else {
            for name in ["attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"] {
                let (shape, numbers) = ([N_EMBD, N_EMBD], matrix(N_EMBD, N_EMBD, 2.0));
                writer = if matrices == Matrices::QuantizedAttention {
                    writer.tensor_bytes(block(name), &shape, Q4_0, q4_0(&numbers))
                } else {
                    writer.tensor(block(name), &shape, &numbers)
                };
            }
        }
        if memory == Memory::State {
            continue;
        }
        if memory == Memory::Both && has_state(layer) {
            writer = writer
                .tensor(block("ssm_dt_norm.weight"), &[N_RANK], &ones(N_RANK))
                .tensor(block("ssm_b_norm.weight"), &[N_STATE], &ones(N_STATE))
                .tensor(block("ssm_c_norm.weight"), &[N_STATE], &ones(N_STATE));
        }
        if matches!(memory, Memory::Window | Memory::DeepGrid) {
            let head = N_EMBD / N_HEAD;
            writer = writer
                // Above one: it attends to few tokens, not to the mean of all.
                .tensor(block("attn_q_norm.weight"), &[head], &vec![4.0; head as usize])
                .tensor(block("attn_k_norm.weight"), &[head], &ones(head));
        }
        if memory == Memory::Window {
            writer = writer
                .tensor(block("post_attention_norm.weight"), &[N_EMBD], &ones(N_EMBD))
                .tensor(block("post_ffw_norm.weight"), &[N_EMBD], &ones(N_EMBD));
        }
        writer = writer.tensor(block("ffn_norm.weight"), &[N_EMBD], &ones(N_EMBD));
        if matrices == Matrices::Experts {
            let router = matrix(N_EMBD, N_EXPERT, 4.0);
            writer = writer.tensor(block("ffn_gate_inp.weight"), &[N_EMBD, N_EXPERT], &router);
            for name in ["ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"] {
                let numbers = matrix(N_EMBD, N_FF * N_EXPERT, 1.0);
                writer = writer.tensor(block(name), &[N_EMBD, N_FF, N_EXPERT], &numbers);
            }
            continue;
        }
        writer = writer
            .tensor(block("ffn_gate.weight"), &[N_EMBD, N_FF], &matrix(N_EMBD, N_FF, 1.0))
            .tensor(block("ffn_up.weight"), &[N_EMBD, N_FF], &matrix(N_EMBD, N_FF, 1.0))
            .tensor(block("ffn_down.weight"), &[N_FF, N_EMBD], &matrix(N_FF, N_EMBD, 1.0));
    }
    writer.to_bytes()
}
