//! Tiny BERT models with random weights, which make vectors of texts or scores of pairs. Every
//! number of a vector depends on all tokens of the text. tests/data/embeddings.json has the vectors
//! of some texts, computed in NumPy (scripts/embeddings.py).

use super::gguf_writer::GgufWriter;

use super::random::Numbers;

const N_EMBD: u64 = 32;
const N_FF: u64 = 64;
const N_HEAD: u32 = 4;
const N_LAYER: usize = 2;
/// The most tokens of a text.
pub const POSITIONS: u32 = 64;

const CONTROLS: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
const WORDS: [&str; 6] = ["the", "cat", "dog", "sits", "query", "document"];

/// What a model makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Vectors: the mean of a text's tokens.
    Mean,
    /// One score for a text, by a layer, tanh and a second layer.
    Score,
}

/// Vectors.
pub fn embedding() -> Vec<u8> {
    encoder(Output::Mean)
}

/// Scores.
pub fn reranker() -> Vec<u8> {
    encoder(Output::Score)
}

/// Lower-case letters and the digits, at the start of a word and inside one; a few words.
fn tokens() -> Vec<String> {
    let letters = ('a'..='z').chain('0'..='9').map(String::from);
    let start =
        letters.clone().chain(WORDS.map(String::from)).map(|text| format!("\u{2581}{text}"));
    let controls = CONTROLS.map(String::from).into_iter();
    controls.chain(start).chain(letters).chain([".".into(), "\u{2581}.".into()]).collect()
}

fn encoder(output: Output) -> Vec<u8> {
    let tokens = tokens();
    let n_vocab = tokens.len() as u64;
    let types: Vec<i32> =
        (0..tokens.len()).map(|index| if index < CONTROLS.len() { 3 } else { 1 }).collect();
    let pooling = if output == Output::Score { 4_u32 } else { 1 };
    let mut writer = GgufWriter::new()
        .metadata("general.architecture", "bert")
        .metadata("general.name", format!("Random {output:?}").as_str())
        .metadata("general.file_type", 0_u32)
        .metadata("bert.context_length", POSITIONS)
        .metadata("bert.embedding_length", N_EMBD as u32)
        .metadata("bert.feed_forward_length", N_FF as u32)
        .metadata("bert.block_count", N_LAYER as u32)
        .metadata("bert.attention.head_count", N_HEAD)
        .metadata("bert.attention.layer_norm_epsilon", 1e-12_f32)
        .metadata("bert.attention.causal", false)
        .metadata("bert.pooling_type", pooling)
        .metadata("tokenizer.ggml.model", "bert")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", types)
        .metadata("tokenizer.ggml.token_type_count", 2_u32)
        .metadata("tokenizer.ggml.padding_token_id", 0_u32)
        .metadata("tokenizer.ggml.unknown_token_id", 1_u32)
        .metadata("tokenizer.ggml.bos_token_id", 2_u32)
        .metadata("tokenizer.ggml.seperator_token_id", 3_u32)
        .metadata("tokenizer.ggml.mask_token_id", 4_u32);
    let mut numbers = Numbers::new(7);
    // Large enough that a layer depends on more than its own token.
    let mut add = |writer: GgufWriter, name: String, shape: &[u64]| {
        let scale = if shape.len() == 2 { 2.0 / (shape[0] as f32).sqrt() } else { 0.5 };
        let mut list = numbers.list(shape.iter().product(), scale);
        if name.contains("norm") && name.ends_with("weight") {
            list.iter_mut().for_each(|number| *number += 1.0);
        }
        writer.tensor(name, shape, &list)
    };
    for (name, rows) in
        [("token_embd", n_vocab), ("position_embd", u64::from(POSITIONS)), ("token_types", 2)]
    {
        writer = add(writer, format!("{name}.weight"), &[N_EMBD, rows]);
    }
    let mut layer = |writer, name: &str, from: Option<u64>, to: u64| {
        let shape = from.map_or(vec![to], |from| vec![from, to]);
        let writer = add(writer, format!("{name}.weight"), &shape);
        add(writer, format!("{name}.bias"), &[to])
    };
    writer = layer(writer, "token_embd_norm", None, N_EMBD);
    for block in 0..N_LAYER {
        let dense =
            ["attn_q", "attn_k", "attn_v", "attn_output"].map(|name| (name, N_EMBD, N_EMBD));
        for (name, from, to) in
            dense.into_iter().chain([("ffn_up", N_EMBD, N_FF), ("ffn_down", N_FF, N_EMBD)])
        {
            writer = layer(writer, &format!("blk.{block}.{name}"), Some(from), to);
        }
        for name in ["attn_output_norm", "layer_output_norm"] {
            writer = layer(writer, &format!("blk.{block}.{name}"), None, N_EMBD);
        }
    }
    if output == Output::Score {
        writer = layer(writer, "cls", Some(N_EMBD), N_EMBD);
        writer = layer(writer, "cls.output", Some(N_EMBD), 1);
    }
    writer.to_bytes()
}
