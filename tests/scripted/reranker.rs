//! A tiny decoder with random weights that scores pairs of texts, as Qwen3-Reranker does: a
//! template for the pair, and for its last token the probability of the first of two answers.

use super::gguf_writer::GgufWriter;

use super::Vocabulary;
use super::random::Numbers;

const N_EMBD: u64 = 32;
const N_FF: u64 = 64;
const N_HEAD: u64 = 2;
const N_HEAD_KV: u64 = 1;
const HEAD_LENGTH: u64 = 16;
const N_LAYER: usize = 2;

/// `<|im_start|>` and `<|im_end|>` are control tokens of the vocabulary.
pub const TEMPLATE: &str =
    "<|im_start|>Is it?\n<Query>: {query}\n<Document>: {document}<|im_end|>\n";

/// Builds the file.
pub fn decoder() -> Vec<u8> {
    let vocabulary = Vocabulary::of(&[b"<think>".to_vec()]);
    let n_vocab = vocabulary.texts.len() as u64;
    let mut numbers = Numbers::new(11);
    let writer = GgufWriter::new()
        .metadata("general.architecture", "qwen3")
        .metadata("general.name", "Random decoder of scores")
        .metadata("general.file_type", 0_u32)
        .metadata("qwen3.context_length", super::N_CTX)
        .metadata("qwen3.embedding_length", N_EMBD as u32)
        .metadata("qwen3.feed_forward_length", N_FF as u32)
        .metadata("qwen3.block_count", N_LAYER as u32)
        .metadata("qwen3.attention.head_count", N_HEAD as u32)
        .metadata("qwen3.attention.head_count_kv", N_HEAD_KV as u32)
        .metadata("qwen3.attention.key_length", HEAD_LENGTH as u32)
        .metadata("qwen3.attention.value_length", HEAD_LENGTH as u32)
        .metadata("qwen3.attention.layer_norm_rms_epsilon", 1e-6_f32)
        .metadata("qwen3.pooling_type", 4_u32)
        .metadata("qwen3.classifier.output_labels", vec!["yes".to_owned(), "no".to_owned()])
        .metadata("tokenizer.chat_template", super::PLAIN_TEMPLATE)
        .metadata("tokenizer.chat_template.rerank", TEMPLATE);
    let mut writer = vocabulary.write(writer, "gpt2");
    let mut add = |writer: GgufWriter, name: String, shape: &[u64]| {
        let is_norm = name.contains("norm");
        let scale = if is_norm { 0.5 } else { 2.0 / (shape[0] as f32).sqrt() };
        let mut list = numbers.list(shape.iter().product(), scale);
        list.iter_mut().filter(|_| is_norm).for_each(|number| *number += 1.0);
        writer.tensor(name, shape, &list)
    };
    for (name, shape) in [
        ("token_embd", &[N_EMBD, n_vocab][..]),
        ("output_norm", &[N_EMBD]),
        ("cls.output", &[N_EMBD, 2]),
    ] {
        writer = add(writer, format!("{name}.weight"), shape);
    }
    let (queries, keys) = (N_HEAD * HEAD_LENGTH, N_HEAD_KV * HEAD_LENGTH);
    for block in 0..N_LAYER {
        for (name, shape) in [
            ("attn_norm", &[N_EMBD][..]),
            ("attn_q", &[N_EMBD, queries]),
            ("attn_k", &[N_EMBD, keys]),
            ("attn_v", &[N_EMBD, keys]),
            ("attn_output", &[queries, N_EMBD]),
            ("attn_q_norm", &[HEAD_LENGTH]),
            ("attn_k_norm", &[HEAD_LENGTH]),
            ("ffn_norm", &[N_EMBD]),
            ("ffn_gate", &[N_EMBD, N_FF]),
            ("ffn_up", &[N_EMBD, N_FF]),
            ("ffn_down", &[N_FF, N_EMBD]),
        ] {
            writer = add(writer, format!("blk.{block}.{name}.weight"), shape);
        }
    }
    writer.to_bytes()
}
