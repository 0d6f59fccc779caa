//! Fuzzes a model file with any keys and tensors, some of whose bytes are changed: the header, the
//! reported facts, and the checks before llama.cpp would open it.
#![no_main]

#[path = "../../scripted/gguf_writer.rs"]
mod gguf_writer;

use std::io::Write;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::gguf::{GgufValue, ModelHeader, ValueType};
use llb::profile;
use llb_fuzz::{in_time, sound};

use gguf_writer::GgufWriter;

const ARCHITECTURES: [&str; 10] =
    ["llama", "qwen2vl", "phi3", "gemma3", "mamba", "rwkv6", "falcon-h1", "t5", "afmoe", "x"];
/// Keys whose prefix is the architecture's name.
const OF_ARCHITECTURE: [&str; 22] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.dimension_sections",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "expert_count",
    "expert_used_count",
    "ssm.conv_kernel",
    "ssm.state_size",
    "wkv.head_size",
    "pooling_type",
];
const OTHERS: [&str; 24] = [
    "general.alignment",
    "general.name",
    "general.tags",
    "general.languages",
    "general.license",
    "general.base_model.count",
    "general.base_model.0.name",
    "general.sampling.temp",
    "general.sampling.sequence",
    "general.quantization_version",
    "split.count",
    "split.no",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.suppress_tokens",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.chat_template",
    "tokenizer.chat_templates",
];
const TEXTS: [&str; 10] = [
    "gpt2",
    "llama",
    "rwkv",
    "bert",
    "yarn",
    "default",
    "<s>",
    "tool_use",
    "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}",
    "{% if %}",
];
const TENSORS: [&str; 12] = [
    "token_embd.weight",
    "output_norm.weight",
    "output.weight",
    "rope_freqs.weight",
    "blk.0.attn_q.weight",
    "blk.0.attn_k.weight",
    "blk.0.attn_norm.weight",
    "blk.1.ffn_up_exps.weight",
    "blk.0.ssm_conv1d.weight",
    "blk.99999999999.attn_q.weight",
    "position_embd.weight",
    "blk.0.time_mix_lerp_fused.weight",
];

#[derive(Debug)]
struct Input(Vec<u8>);

fn value(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<GgufValue> {
    let numbers = [0, 1, 2, 3, 8, 64, 1 << 20, u32::MAX];
    Ok(match u.int_in_range(0..=14)? {
        0..=3 => GgufValue::U32(*u.choose(&numbers)?),
        4 => GgufValue::U64(u.arbitrary()?),
        5 => GgufValue::I32(u.arbitrary()?),
        6 => GgufValue::F32(*u.choose(&[0.0, 1e-5, -1.0, f32::NAN, f32::INFINITY])?),
        7 => GgufValue::Bool(u.arbitrary()?),
        8 | 9 => GgufValue::String((*u.choose(&TEXTS)?).to_owned()),
        10 => GgufValue::String(u.arbitrary()?),
        11 => GgufValue::F64(u.arbitrary()?),
        12 => GgufValue::U8(u.arbitrary()?),
        13 if depth < 2 => {
            let first = value(u, depth + 1)?;
            let length = u.int_in_range(0..=6)?;
            GgufValue::Array(first.value_type(), vec![first; length])
        }
        _ => {
            let mut texts = Vec::new();
            for _ in 0..u.int_in_range(0..=8)? {
                texts.push(GgufValue::String(u.arbitrary()?));
            }
            GgufValue::Array(ValueType::String, texts)
        }
    })
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let architecture = *u.choose(&ARCHITECTURES)?;
        let mut file = GgufWriter::new();
        if !u.ratio(1, 16)? {
            file = file.metadata("general.architecture", architecture.to_owned());
        }
        for _ in 0..u.int_in_range(0..=12)? {
            let key = match u.ratio(1, 2)? {
                true => format!("{architecture}.{}", u.choose(&OF_ARCHITECTURE)?),
                false => (*u.choose(&OTHERS)?).to_owned(),
            };
            file = file.metadata(key, value(u, 0)?);
        }
        for _ in 0..u.int_in_range(0..=4)? {
            let shape: Vec<u64> = (0..u.int_in_range(0..=5)?)
                .map(|_| u.choose(&[0, 1, 2, 64, 256, u64::MAX]).copied())
                .collect::<arbitrary::Result<_>>()?;
            let name = *u.choose(&TENSORS)?;
            file = file.tensor_bytes(name, &shape, u.int_in_range(0..=45)?, vec![0; 64]);
        }
        let mut bytes = file.to_bytes();
        for _ in 0..u.int_in_range(0..=3)? {
            let at = u.choose_index(bytes.len())?;
            bytes[at] = u.arbitrary()?;
        }
        if u.ratio(1, 8)? {
            bytes.truncate(u.choose_index(bytes.len())?);
        }
        Ok(Input(bytes))
    }
}

fuzz_target!(|input: Input| {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&input.0).expect("a small file fits");
    let path = file.path();
    let read = in_time(|| ModelHeader::read_file(path));
    match &read {
        Ok(header) => {
            let checks = [header.check_loadable(), header.check_tokens(path)];
            checks.iter().filter_map(|check| check.as_ref().err()).for_each(sound);
            // Takes at most a fifth of a mebibyte, because no value of the header is multiplied.
            let layers = in_time(|| header.layers(2.0, 2.0));
            assert!(layers.is_none_or(|layers| !format!("{layers:?}").is_empty()));
        }
        Err(error) => sound(error),
    }
    match in_time(|| profile::model_info(path.to_str().expect("a UTF-8 path"))) {
        Ok(info) => assert_eq!(info["type"], "model_info"),
        Err((_, error)) => sound(&error),
    }
});
