//! A tiny model with learned positions (GPT-2): a table with one row for each position, and no way
//! to compute others. Its greedy reply is `aaa…` without an end.

use super::gguf_writer::GgufWriter;

use super::{TOOLS_TEMPLATE, Vocabulary};

const N_EMBD: u64 = 32;
const N_FF: u64 = 32;

/// Builds the file of a model with this many positions.
pub fn learned(positions: u32) -> Vec<u8> {
    let vocabulary = Vocabulary::of(&[b"<think>".to_vec()]);
    let n_vocab = vocabulary.texts.len() as u64;
    let zeros = |shape: &[u64]| vec![0.0_f32; shape.iter().product::<u64>() as usize];
    let mut embedding = zeros(&[N_EMBD, n_vocab]);
    embedding.chunks_exact_mut(N_EMBD as usize).for_each(|row| row[0] = 1.0);
    let mut output = zeros(&[N_EMBD, n_vocab]);
    output[usize::from(b'a') * N_EMBD as usize] = 10.0;
    let mut writer = GgufWriter::new()
        .metadata("general.architecture", "gpt2")
        .metadata("general.name", "Learned positions")
        .metadata("general.file_type", 0_u32)
        .metadata("gpt2.context_length", positions)
        .metadata("gpt2.embedding_length", N_EMBD as u32)
        .metadata("gpt2.block_count", 1_u32)
        .metadata("gpt2.feed_forward_length", N_FF as u32)
        .metadata("gpt2.attention.head_count", 1_u32)
        .metadata("gpt2.attention.layer_norm_epsilon", 1e-5_f32);
    writer = vocabulary.write(writer, "gpt2").metadata("tokenizer.chat_template", TOOLS_TEMPLATE);
    let positions = u64::from(positions);
    writer = writer
        .tensor("token_embd.weight", &[N_EMBD, n_vocab], &embedding)
        .tensor("output.weight", &[N_EMBD, n_vocab], &output)
        .tensor("position_embd.weight", &[N_EMBD, positions], &zeros(&[N_EMBD, positions]));
    let ones = vec![1.0; N_EMBD as usize];
    for norm in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"] {
        writer = writer.tensor(format!("{norm}.weight"), &[N_EMBD], &ones).tensor(
            format!("{norm}.bias"),
            &[N_EMBD],
            &zeros(&[N_EMBD]),
        );
    }
    let matrices = [
        ("blk.0.attn_qkv", N_EMBD, 3 * N_EMBD),
        ("blk.0.attn_output", N_EMBD, N_EMBD),
        ("blk.0.ffn_up", N_EMBD, N_FF),
        ("blk.0.ffn_down", N_FF, N_EMBD),
    ];
    for (name, from, to) in matrices {
        writer = writer.tensor(format!("{name}.weight"), &[from, to], &zeros(&[from, to])).tensor(
            format!("{name}.bias"),
            &[to],
            &zeros(&[to]),
        );
    }
    writer.to_bytes()
}
