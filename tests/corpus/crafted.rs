//! Faults that were written by hand: two keys that contradict each other, lists with wrong
//! elements, names of tensors, alignment, splits, extents, lists of tokens that do not match,
//! templates, nested arrays, and the bytes of the file.

use std::sync::Arc;

use llb::gguf::{GgufValue, ValueType};

use crate::combinations;
use crate::model_file::ModelFile;
use crate::mutants::Visit;
use crate::vocabularies::N_TOKENS;

/// Values to assign to keys. A fault assigns two of them at once. The keys of an architecture are
/// given without its name.
fn assignments() -> Vec<(&'static str, GgufValue)> {
    vec![
        ("block_count", 3_u32.into()),
        ("embedding_length", 96_u32.into()),
        ("context_length", 1_u32.into()),
        ("feed_forward_length", 0_u32.into()),
        ("attention.head_count", 3_u32.into()),
        ("attention.head_count_kv", 4_u32.into()),
        ("attention.head_count_kv", vec![0_u32, 1].into()),
        ("attention.key_length", 33_u32.into()),
        ("attention.value_length", 16_u32.into()),
        ("attention.sliding_window", 1_u32.into()),
        ("attention.sliding_window_pattern", 0_u32.into()),
        ("attention.shared_kv_layers", 9_u32.into()),
        ("attention.layer_norm_rms_epsilon", f32::NAN.into()),
        ("attention.causal", false.into()),
        ("rope.dimension_count", 34_u32.into()),
        ("rope.freq_base", 0.0_f32.into()),
        ("rope.scaling.type", "yarn".into()),
        ("rope.scaling.factor", 0.0_f32.into()),
        ("rope.scaling.original_context_length", 0_u32.into()),
        ("expert_count", 5_u32.into()),
        ("expert_used_count", 6_u32.into()),
        ("expert_group_count", 3_u32.into()),
        ("expert_gating_func", 77_u32.into()),
        ("leading_dense_block_count", 99_u32.into()),
        ("nextn_predict_layers", 2_u32.into()),
        ("ssm.conv_kernel", 1_u32.into()),
        ("ssm.state_size", 3_u32.into()),
        ("ssm.group_count", 3_u32.into()),
        ("wkv.head_size", 3_u32.into()),
        ("vocab_size", 1_u32.into()),
    ]
}

/// Visits every fault, with its name and its change.
pub fn each(good: &ModelFile, visit: &mut Visit) {
    pairs(visit);
    lists(good, visit);
    tensors(good, visit);
    file_keys(visit);
    tokens(visit);
    templates(visit);
    bytes(good, visit);
    table(good, visit);
    combinations::each(good, visit);
}

pub fn set(model: &mut ModelFile, key: &str, value: GgufValue) {
    let own = format!("{}.{key}", model.architecture);
    let key = if key.starts_with("general.") || key.starts_with("split.") { key } else { &own };
    model.keys.retain(|(name, _)| name != key);
    model.keys.push((key.to_owned(), value));
}

pub fn set_token(model: &mut ModelFile, key: &str, value: GgufValue) {
    let key = format!("tokenizer.{key}");
    model.vocabulary.keys.retain(|(name, _)| *name != key);
    model.vocabulary.keys.push((key, value));
}

fn pairs(visit: &mut Visit) {
    let all = assignments();
    for (index, first) in all.iter().enumerate() {
        for second in all[index + 1..].iter().filter(|second| second.0 != first.0) {
            let (key, value, other_key, other) = (first.0, &first.1, second.0, &second.1);
            visit(format_args!("{key} = {value:?} and {other_key} = {other:?}"), &|it| {
                set(it, first.0, first.1.clone());
                set(it, second.0, second.1.clone());
            });
        }
    }
}

/// Arrays of one element each, nested `depth` times.
fn nested(depth: usize) -> GgufValue {
    (0..depth)
        .fold(7_u32.into(), |inner: GgufValue, _| GgufValue::Array(inner.value_type(), vec![inner]))
}

fn lists(good: &ModelFile, visit: &mut Visit) {
    let layers = good.n_layers();
    let of =
        |value: GgufValue, count: usize| GgufValue::Array(value.value_type(), vec![value; count]);
    for key in [
        "attention.head_count",
        "attention.head_count_kv",
        "feed_forward_length",
        "attention.sliding_window_pattern",
        "rope.dimension_sections",
        "expert_count",
        "block_count",
    ] {
        let elements: [(&str, GgufValue); 9] = [
            ("texts", "2".into()),
            ("bools", true.into()),
            ("bytes", 2_u8.into()),
            ("negative bytes", (-2_i8).into()),
            ("negative numbers", (-2_i32).into()),
            ("numbers of 64 bits", u64::MAX.into()),
            ("floats of 64 bits", f64::NAN.into()),
            ("lists", nested(1)),
            ("lists of lists", nested(2)),
        ];
        for (name, element) in &elements {
            visit(format_args!("{key}: a list of {name}"), &|it| {
                set(it, key, of(element.clone(), layers))
            });
        }
        for count in [511, 512, 513, 100_000] {
            visit(format_args!("{key}: a list of {count} numbers"), &|it| {
                set(it, key, of(2_u32.into(), count));
            });
        }
    }
    for depth in [2, 3, 64, 1000] {
        visit(format_args!("lists in lists, {depth} deep"), &|it| {
            it.keys.push(("general.tags".to_owned(), nested(depth)));
        });
    }
    for (key, value) in &good.keys {
        let (key, value) = (key.clone(), value.clone());
        visit(format_args!("{key} twice, the second time as a text"), &|it| {
            it.keys.push((key.clone(), "x".into()));
        });
        visit(format_args!("{key} as a list of itself"), &|it| {
            it.keys.retain(|(name, _)| *name != key);
            it.keys.push((key.clone(), GgufValue::Array(value.value_type(), vec![value.clone()])));
        });
    }
}

fn tensors(good: &ModelFile, visit: &mut Visit) {
    let Some(last) = good.tensors.len().checked_sub(1) else { return };
    for index in [0, last / 2, last] {
        let name = good.tensors[index].name.clone();
        visit(format_args!("{name} twice"), &|it| it.tensors.push(it.tensors[index].clone()));
        visit(format_args!("{name} twice, with another shape"), &|it| {
            let mut other = it.tensors[index].clone();
            other.shape = vec![1];
            it.tensors.push(other);
        });
        for other in [
            String::new(),
            " ".to_owned(),
            "blk".to_owned(),
            "blk.0".to_owned(),
            format!("blk.-1.{name}"),
            "blk.4294967296.attn_norm.weight".to_owned(),
            "blk.99.attn_norm.weight".to_owned(),
            "x".repeat(63),
            "x".repeat(64),
            "x".repeat(65),
            "x".repeat(100_000),
            name.to_uppercase(),
            format!("{name}\0"),
            format!("{name}\u{E000}"),
            name.replace("weight", "bias"),
            "%s%n".to_owned(),
        ] {
            let short: String = other.escape_default().take(40).collect();
            visit(format_args!("{name} has the name {short} of {}", other.len()), &|it| {
                it.tensors[index].name = other.clone();
            });
        }
    }
    visit(format_args!("no tensors"), &|it| it.tensors.clear());
    visit(format_args!("the tensors in the other order"), &|it| it.tensors.reverse());
    visit(format_args!("100000 unknown tensors"), &|it| {
        let mut other = it.tensors[0].clone();
        other.shape = vec![1];
        it.tensors.extend((0..100_000).map(|number| {
            other.name = format!("x{number}");
            other.clone()
        }));
    });
    visit(format_args!("the tensors of block 0 also as those of blocks to 600"), &|it| {
        let first: Vec<_> =
            it.tensors.iter().filter(|tensor| tensor.name.starts_with("blk.0.")).cloned().collect();
        let norms = first.into_iter().filter(|tensor| tensor.shape.len() == 1);
        let norms: Vec<_> = norms.collect();
        for block in 2..600 {
            it.tensors.extend(norms.iter().cloned().map(|mut tensor| {
                tensor.name = tensor.name.replace("blk.0.", &format!("blk.{block}."));
                tensor
            }));
        }
        set(it, "block_count", 600_u32.into());
    });
}

fn file_keys(visit: &mut Visit) {
    let mut values: Vec<(&str, GgufValue)> = Vec::new();
    for alignment in [0_u32, 1, 2, 3, 4, 8, 16, 31, 33, 64, 4096, 1 << 20, 1 << 31, u32::MAX] {
        values.push(("general.alignment", alignment.into()));
    }
    values.extend([
        ("general.alignment", (-32_i32).into()),
        ("general.alignment", 32_u64.into()),
        ("general.alignment", 32_u16.into()),
        ("general.alignment", 32.0_f32.into()),
        ("general.alignment", "32".into()),
        ("general.alignment", vec![32_u32].into()),
    ]);
    for count in [0_u16, 1, 2, 3, u16::MAX] {
        values.push(("split.count", count.into()));
    }
    values.extend([
        ("split.count", u32::MAX.into()),
        ("split.count", (-1_i16).into()),
        ("split.count", "2".into()),
        ("split.no", 1_u16.into()),
        ("split.no", u16::MAX.into()),
        ("split.tensors.count", (-1_i32).into()),
        ("split.tensors.count", i32::MAX.into()),
        ("general.file_type", u32::MAX.into()),
        ("general.file_type", "x".into()),
        ("general.quantization_version", u32::MAX.into()),
        ("general.type", "adapter".into()),
        ("general.type", "mmproj".into()),
        ("general.type", 1_u32.into()),
        ("general.name", "%s%n%s".repeat(1000).as_str().into()),
        ("general.name", nested(2)),
        ("general.sampling.temp", f32::NAN.into()),
        ("general.sampling.top_k", i32::MIN.into()),
    ]);
    for (key, value) in values {
        let name: String = format!("{value:?}").chars().take(60).collect();
        visit(format_args!("{key} = {name}"), &|it| set(it, key, value.clone()));
    }
    for other in ["llama", "mamba", "bert", "clip", "t5", "rwkv7", "gemma3n", "x", "", "llama\0"] {
        visit(format_args!("the architecture is {}", other.escape_default()), &|it| {
            it.architecture = other.to_owned();
        });
    }
    for length in [0, 1, 65_536, 1 << 20] {
        visit(format_args!("a key of {length} letters"), &|it| {
            it.keys.push(("k".repeat(length), 1_u32.into()));
        });
    }
    visit(format_args!("100000 keys"), &|it| {
        it.keys.extend((0..100_000).map(|number| (format!("x.{number}"), 1_u32.into())));
    });
}

fn tokens(visit: &mut Visit) {
    let scores = |count: usize| GgufValue::from(vec![0.0_f32; count]);
    let types = |count: usize| GgufValue::from(vec![1_i32; count]);
    for scored in [0, 1, N_TOKENS - 1, N_TOKENS, N_TOKENS + 1] {
        for typed in [0, 1, N_TOKENS - 1, N_TOKENS + 1] {
            visit(format_args!("{scored} scores and {typed} types"), &|it| {
                set_token(it, "ggml.scores", scores(scored));
                set_token(it, "ggml.token_type", types(typed));
            });
        }
    }
    let merges: [(&str, Vec<String>); 8] = [
        ("none", Vec::new()),
        ("empty", vec![String::new(); 3]),
        ("without a space", vec!["ab".to_owned()]),
        ("of a space", vec![" ".to_owned()]),
        ("of spaces", vec!["   ".to_owned()]),
        ("of unknown tokens", vec!["qqq zzz".to_owned()]),
        ("that lead to a token that is missing", vec!["a b".to_owned(), "ab ab".to_owned()]),
        ("of NUL", vec!["\0 \0".to_owned()]),
    ];
    for (name, merges) in &merges {
        visit(format_args!("merges {name}"), &|it| {
            set_token(it, "ggml.merges", merges.clone().into())
        });
    }
    visit(format_args!("a million merges"), &|it| {
        set_token(it, "ggml.merges", vec!["a b".to_owned(); 1_000_000].into());
    });
    for count in [0, 1, 2, N_TOKENS - 1, N_TOKENS + 1, 200_000] {
        visit(format_args!("{count} tokens"), &|it| {
            let texts: Vec<String> = (0..count).map(|id| format!("t{id}")).collect();
            set_token(it, "ggml.tokens", texts.into());
        });
    }
    for id in [0_u32, 97, 256, N_TOKENS as u32 - 1, N_TOKENS as u32, u32::MAX] {
        visit(format_args!("every special token is {id}"), &|it| {
            for key in ["bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask"] {
                set_token(it, &format!("ggml.{key}_token_id"), id.into());
            }
            for key in ["bos", "eos", "sep"] {
                set_token(it, &format!("ggml.add_{key}_token"), true.into());
            }
        });
    }
    for kind in [2, 3, 5, 6, 99, -1] {
        visit(format_args!("every token is of type {kind}, and no text"), &|it| {
            set_token(it, "ggml.token_type", vec![kind; N_TOKENS].into());
            set_token(it, "ggml.tokens", vec![String::new(); N_TOKENS].into());
        });
    }
}

type Text = fn() -> String;

fn templates(visit: &mut Visit) {
    let texts: [(&str, Text); 8] = [
        ("20 MB of text", || "x".repeat(20 << 20)),
        ("20 MB of braces", || "{{".repeat(10 << 20)),
        ("20 MB of a string", || format!("{{{{ '{}' }}}}", "y".repeat(20 << 20))),
        ("100000 conditions in each other", || "{% if 1 %}".repeat(100_000)),
        ("100000 brackets", || format!("{{{{ {} }}}}", "[".repeat(100_000))),
        ("a loop without an end", || "{% for a in range(10**9) %}{% endfor %}".to_owned()),
        ("NUL", || "{{ '\0' }}\0".to_owned()),
        ("only a comment that does not end", || "{#".to_owned()),
    ];
    for (name, text) in texts {
        visit(format_args!("a template of {name}"), &|it| {
            set_token(it, "chat_template", text().as_str().into());
        });
    }
    for (name, value) in [
        ("a number", GgufValue::from(1_u32)),
        ("a list", vec!["x".to_owned()].into()),
        ("nested lists", nested(3)),
        ("an empty list", GgufValue::Array(ValueType::String, Vec::new())),
    ] {
        visit(format_args!("the template is {name}"), &|it| {
            set_token(it, "chat_template", value.clone())
        });
        visit(format_args!("the list of templates is {name}"), &|it| {
            set_token(it, "chat_templates", value.clone());
        });
    }
    visit(format_args!("1000 templates without a text"), &|it| {
        set_token(
            it,
            "chat_templates",
            (0..1000).map(|n| format!("t{n}")).collect::<Vec<_>>().into(),
        );
    });
}

type Edit = fn(&mut Vec<u8>);

/// Faults in the bytes of the written file.
fn bytes(_: &ModelFile, visit: &mut Visit) {
    fn put(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    const TENSORS: usize = 8;
    const KEYS: usize = 16;
    let edits: [(&str, Edit); 32] = [
        ("empty", |it| it.clear()),
        ("4 bytes", |it| it.truncate(4)),
        ("8 bytes", |it| it.truncate(8)),
        ("23 bytes", |it| it.truncate(23)),
        ("24 bytes", |it| it.truncate(24)),
        ("100 bytes", |it| it.truncate(100)),
        ("a quarter", |it| it.truncate(it.len() / 4)),
        ("a half", |it| it.truncate(it.len() / 2)),
        ("without the last byte", |it| it.truncate(it.len() - 1)),
        ("without the last 4096 bytes", |it| it.truncate(it.len().saturating_sub(4096))),
        ("with a byte more", |it| it.push(1)),
        ("with a megabyte more", |it| it.resize(it.len() + (1 << 20), 7)),
        ("twice", |it| it.extend_from_within(..)),
        ("another magic number", |it| it[3] = b'f'),
        ("version 0", |it| it[4] = 0),
        ("version 1", |it| it[4] = 1),
        ("version 2", |it| it[4] = 2),
        ("version 4", |it| it[4] = 4),
        ("big endian", |it| it[4..8].copy_from_slice(&[0, 0, 0, 3])),
        ("no tensors in the count", |it| put(it, TENSORS, 0)),
        ("one tensor more", |it| it[TENSORS] = it[TENSORS].wrapping_add(1)),
        ("one tensor less", |it| it[TENSORS] = it[TENSORS].wrapping_sub(1)),
        ("2^32 tensors", |it| put(it, TENSORS, 1 << 32)),
        ("2^63 tensors", |it| put(it, TENSORS, 1 << 63)),
        ("2^64 - 1 tensors", |it| put(it, TENSORS, u64::MAX)),
        ("no keys in the count", |it| put(it, KEYS, 0)),
        ("one key more", |it| it[KEYS] = it[KEYS].wrapping_add(1)),
        ("one key less", |it| it[KEYS] = it[KEYS].wrapping_sub(1)),
        ("2^32 keys", |it| put(it, KEYS, 1 << 32)),
        ("2^63 keys", |it| put(it, KEYS, 1 << 63)),
        ("2^64 - 1 keys", |it| put(it, KEYS, u64::MAX)),
        ("zeros after the counts", |it| it[24..].fill(0)),
    ];
    for (name, edit) in edits {
        visit(format_args!("the file: {name}"), &|it| it.edits.push(Arc::new(edit)));
    }
    // The length of a text, or the type and the length of a list, directly after the key.
    for (key, what, value) in [
        ("tokenizer.chat_template", 4, 1 << 40),
        ("tokenizer.chat_template", 4, 1 << 63),
        ("tokenizer.chat_template", 4, u64::MAX),
        ("tokenizer.ggml.tokens", 8, 1 << 32),
        ("tokenizer.ggml.tokens", 8, 1 << 60),
        ("tokenizer.ggml.tokens", 8, u64::MAX),
        ("tokenizer.ggml.tokens", 16, 1 << 62),
        ("tokenizer.ggml.tokens", 4, 0x0000_0107_0000_0009),
        ("tokenizer.ggml.token_type", 4, 0x0000_0107_0000_0063),
        ("general.architecture", 4, u64::MAX),
    ] {
        visit(format_args!("{key}: {value:#x} at {what}"), &|it| {
            it.edits.push(Arc::new(move |bytes: &mut Vec<u8>| {
                if let Some(after) = after(bytes, key) {
                    put(bytes, after + what, value);
                }
            }));
        });
    }
}

/// The position after the first occurrence of a name. `None` for the empty name of an earlier fault.
fn after(bytes: &[u8], name: &str) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let found = bytes.windows(name.len()).position(|window| window == name.as_bytes())?;
    Some(found + name.len())
}

/// Faults in the tensor table: extents, types and offsets that no writer produces.
fn table(good: &ModelFile, visit: &mut Visit) {
    let Some(last) = good.tensors.len().checked_sub(1) else { return };
    for index in [0, last] {
        let (name, dimensions) = (&good.tensors[index].name, good.tensors[index].shape.len());
        let mut entry = |what: String, at: usize, value: Vec<u8>| {
            visit(format_args!("{name}: {what}"), &|it| {
                let (name, value) = (name.clone(), value.clone());
                it.edits.push(Arc::new(move |bytes: &mut Vec<u8>| {
                    if let Some(after) = after(bytes, &name) {
                        bytes[after + at..after + at + value.len()].copy_from_slice(&value);
                    }
                }));
            });
        };
        for count in [0_u32, 1, 3, 4, 5, 1 << 31, u32::MAX] {
            entry(format!("{count} dimensions"), 0, count.to_le_bytes().to_vec());
        }
        for extent in [0, 1, 1 << 31, 1 << 32, 1 << 61, 1 << 62, 1 << 63, u64::MAX, u64::MAX - 31] {
            entry(format!("an extent of {extent}"), 4, extent.to_le_bytes().to_vec());
        }
        let end = 4 + 8 * dimensions;
        for kind in [4_u32, 31, 36, 1 << 31, u32::MAX] {
            entry(format!("type {kind}"), end, kind.to_le_bytes().to_vec());
        }
        for offset in [0, 1, 31, 33, 1 << 20, 1 << 40, 1 << 63, u64::MAX, u64::MAX - 31] {
            entry(format!("offset {offset}"), end + 4, offset.to_le_bytes().to_vec());
        }
    }
}
