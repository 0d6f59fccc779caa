//! Tests files that break one rule each, and files that break none.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use crate::gguf::gguf_writer::GgufWriter;
use crate::gguf::{GgufValue, ModelHeader};

/// The problem with a header that has these tensors and keys, which begin with the architecture's
/// name. `None` if it is valid.
fn problem(architecture: &str, keys: &[(&str, GgufValue)], tensors: &[&str]) -> Option<String> {
    let mut writer = GgufWriter::new().metadata("general.architecture", architecture);
    for (key, value) in keys {
        writer = writer.metadata(format!("{architecture}.{key}"), value.clone());
    }
    for name in tensors {
        writer = writer.tensor(*name, &[1], &[1.0]);
    }
    problem_of(&writer)
}

fn problem_of(writer: &GgufWriter) -> Option<String> {
    let bytes = writer.to_bytes();
    let header = ModelHeader::read(Cursor::new(&bytes), bytes.len() as u64).unwrap();
    header.check_loadable().err().map(|error| error.message().to_owned())
}

#[track_caller]
fn check(architecture: &str, key: &str, value: impl Into<GgufValue>, rule: &str) {
    let of_head = [("attention.head_count", 4_u32.into()), ("embedding_length", 256_u32.into())];
    let of_head = of_head.into_iter().filter(|(other, _)| *other != key);
    let keys: Vec<_> = of_head.chain([(key, value.into())]).collect();
    let problem = problem(architecture, &keys, &[]);
    let expected = (!rule.is_empty()).then(|| format!("{architecture}.{key} is {rule}"));
    assert_eq!(problem, expected, "{architecture} {key}");
}

#[test]
fn epsilons_are_above_zero() {
    for key in ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"] {
        check("llama", key, 1e-5_f32, "");
        check("llama", key, 0.0_f32, "0, but must be above 0 and finite");
        check("llama", key, -1e-6_f32, "-0.000001, but must be above 0 and finite");
        check("a new one", key, f32::NAN, "NaN, but must be above 0 and finite");
        check("llama", key, f32::INFINITY, "inf, but must be above 0 and finite");
    }
    // llama.cpp itself refuses other types.
    check("llama", "attention.layer_norm_epsilon", 0_u32, "");
}

#[test]
fn layers_with_experts_use_one() {
    let of = |used: GgufValue, nextn: u32| {
        let keys = [
            ("block_count", 3_u32.into()),
            ("nextn_predict_layers", nextn.into()),
            ("expert_count", 8_u32.into()),
            ("expert_used_count", used),
        ];
        problem("a new one", &keys, &["blk.1.ffn_up_exps.weight", "blk.2.ffn_down_exps.weight"])
    };
    let refusal = |layer| {
        let key = "a new one.expert_used_count";
        Some(format!("{key} is 0 for layer {layer}, but the layer has experts"))
    };
    assert_eq!(of(vec![0_u32, 1, 2].into(), 0), None);
    assert_eq!(of(vec![1_u32, 0, 2].into(), 0), refusal(1));
    assert_eq!(of(vec![1_u32, 2, 0].into(), 0), refusal(2));
    assert_eq!(of(vec![true, true, false].into(), 0), refusal(2));
    assert_eq!(of(vec![1_u32, 2, 0].into(), 1), refusal(2));
    assert_eq!(of(vec![0_u32, 1, 2].into(), 1), None);
}

#[cfg(feature = "engine")]
#[test]
fn tables_and_shared_experts_repeat_experts() {
    let repeats = |name: &str| {
        let writer = GgufWriter::new().metadata("general.architecture", "x");
        let bytes = writer.tensor(name, &[1], &[1.0]).to_bytes();
        let size = bytes.len() as u64;
        ModelHeader::read(Cursor::new(bytes), size).unwrap().repeats_experts()
    };
    assert!(repeats("blk.0.ffn_gate_tid2eid.weight"));
    assert!(repeats("blk.12.ffn_up_chexps.weight"));
    assert!(!repeats("blk.0.ffn_up_exps.weight") && !repeats("blk.0.ffn_up_shexp.weight"));
}

#[test]
fn groups_of_experts_are_whole() {
    let of = |count: u32, of_group: u32| {
        let keys = [("expert_count", count.into()), ("experts_per_group", of_group.into())];
        problem("grovemoe", &keys, &[])
    };
    let refusal = |of_group| {
        let key = format!("grovemoe.experts_per_group is {of_group}");
        Some(format!("{key}, but must divide grovemoe.expert_count, 64"))
    };
    let found = [1, 2, 64, 0, 33, 128].map(|of_group| of(64, of_group));
    assert_eq!(found, [None, None, None, refusal(0), refusal(33), refusal(128)]);
}

#[test]
fn deepstack_layers_come_before_the_last() {
    let of = |count: u32| {
        let keys = [
            ("rope.dimension_sections", vec![24_i32, 20, 20, 0].into()),
            ("block_count", 28_u32.into()),
            ("n_deepstack_layers", count.into()),
        ];
        problem("qwen3vl", &keys, &[])
    };
    let refusal = |count| {
        let count = format!("qwen3vl.n_deepstack_layers is {count}");
        Some(format!("{count}, but must be below qwen3vl.block_count, 28"))
    };
    let found = [0, 3, 27, 28, 65_535].map(of);
    assert_eq!(found, [None, None, None, refusal(28), refusal(65_535)]);
}

#[test]
fn each_layer_adds_one_part_of_an_image() {
    let of = |numbers: Vec<i32>| {
        problem(
            "granite",
            &[("block_count", 3_u32.into()), ("deepstack_mapping", numbers.into())],
            &[],
        )
    };
    assert_eq!(of(vec![-1, 0, 1]), None);
    let refusal = "granite.deepstack_mapping must have at most 3 numbers, as many as \
                   granite.block_count";
    assert_eq!(of(vec![0, 1, 2, 3]).as_deref(), Some(refusal));
    assert_eq!(of(vec![0; 5000]).as_deref(), Some(refusal));
}

#[test]
fn counts_that_decide_time_or_memory_are_limited() {
    let iterations = "hyper_connection.sinkhorn_iterations";
    check("deepseek4", iterations, 20_u32, "");
    check("deepseek4", iterations, 1000_u32, "");
    check("deepseek4", iterations, 1001_u32, "1001, but must be at most 1000");
    check("rwkv6", "token_shift_count", 3_u32, "3, but must be at most 2");
    check("mamba2", "ssm.state_size", 1025_u32, "1025, but must be at most 1024");
    for key in ["ssm.conv_kernel", "ple.conv_kernel", "shortconv.l_cache"] {
        check("a new one", key, 65_u32, "65, but must be at most 64");
    }
    check("glm5-next", "attention.indexer.kpool", 4097_u32, "4097, but must be at most 4096");
    check("llama", "pooling_type", 4_u32, "");
    check("llama", "pooling_type", 5_u32, "5, but must be at most 4");
    let window = "attention.sliding_window";
    check("a new one", window, 262_144_u32, "");
    check("a new one", window, (1_u32 << 24) + 1, "16777217, but must be at most 16777216");
    check("llama", "feed_forward_length", 53_248_u32, "");
    let rule = "262145, but must be at most 262144";
    check("llama", "feed_forward_length", vec![1_u32, 262_145], rule);
    let groups = "attention.group_norm_groups";
    check("wavtokenizer-dec", groups, 32_u32, "");
    check("wavtokenizer-dec", groups, i32::MAX as u32, "2147483647, but must be at most 65536");
}

#[test]
fn heads_and_experts_are_limited() {
    const HEADS: &str = "attention.head_count";
    let of = |architecture: &str, heads: GgufValue| {
        problem(architecture, &[(HEADS, heads), ("attention.key_length", 64_u32.into())], &[])
    };
    let refusal = |architecture: &str, heads: u32, most: u32| {
        Some(format!("{architecture}.{HEADS} is {heads}, but must be at most {most}"))
    };
    // Falcon-180B has 232.
    assert_eq!(of("falcon", 232_u32.into()), None);
    assert_eq!(of("falcon", 1025_u32.into()), refusal("falcon", 1025, 1024));
    assert_eq!(of("falcon", vec![2_u32, 1025].into()), refusal("falcon", 1025, 1024));
    // llama.cpp reads signed numbers as unsigned ones.
    assert_eq!(of("falcon", vec![2_i32, -1].into()), refusal("falcon", u32::MAX, 1024));
    let negative =
        [(HEADS, vec![2_i32, 0].into()), ("attention.head_count_kv", vec![2_i32, -1].into())];
    let message = "jamba.attention.head_count_kv is 4294967295, but must be at most 1024";
    assert_eq!(problem("jamba", &negative, &[]).as_deref(), Some(message));
    assert_eq!(of("grok", 256_u32.into()), None);
    assert_eq!(of("grok", 257_u32.into()), refusal("grok", 257, 256));
    let used = "expert_used_count";
    check("qwen3moe", used, 64_u32, "");
    check("qwen3moe", used, 65_u32, "65, but must be at most 64");
    check("qwen3moe", used, vec![400_u32, 1], "400, but must be at most 64");
}

#[test]
fn products_and_signed_numbers_do_not_overflow() {
    check("hrm_text", "hrm.l_cycles", 2_u32, "");
    check("hrm_text", "hrm.l_cycles", 0x5555_5555_u32, "1431655765, but must be at most 512");
    check("hrm_text", "hrm.h_cycles", 0x4000_0001_u32, "1073741825, but must be at most 512");
    check("a new one", "ple.heads_per_ngram", 65_u32, "65, but must be at most 64");
    check("kimi-k3", "leading_dense_block_count", 99_u32, "");
    let rule = "4294967295, but must be at most 2147483647";
    check("kimi-k3", "leading_dense_block_count", u32::MAX, rule);
}

#[test]
fn blocks_of_numbers_are_whole() {
    check("rwkv7", "wkv.head_size", 64_u32, "");
    check("rwkv7", "wkv.head_size", 32_u32, "32, but must be a multiple of 64");
    check("rwkv6", "wkv.head_size", 32_u32, "");
    let state = "ssm.state_size";
    let rule = "8, but must be 1 or a multiple of 16";
    for (architecture, rule) in [("mamba", rule), ("jamba", rule), ("mamba2", "")] {
        check(architecture, state, 8_u32, rule);
        check(architecture, state, 16_u32, "");
        check(architecture, state, 1_u32, "");
    }
    let block = "attention.indexer.block_size";
    check("minimax-m3", block, 128_u32, "");
    check("minimax-m3", block, 24_u32, "24, but must be a power of two");
    check("minimax-m3", block, 8192_u32, "8192, but must be at most 4096");
}

#[test]
fn buckets_of_distances_end_before_128() {
    let of = |architecture: &str, buckets: u32| {
        let tensors = ["enc.blk.0.attn_rel_b.weight", "dec.blk.0.attn_rel_b.weight"];
        problem(architecture, &[("attention.relative_buckets_count", buckets.into())], &tensors)
    };
    let refusal = |architecture: &str, buckets: u32, most: u32| {
        let key = format!("{architecture}.attention.relative_buckets_count is {buckets}");
        Some(format!("{key}, but must be from 4 to {most}"))
    };
    for (architecture, most) in [("t5encoder", 508), ("t5", 252)] {
        assert_eq!([4, 32, most].map(|n| of(architecture, n)), [None, None, None]);
        for wrong in [0, 3, most + 1] {
            assert_eq!(of(architecture, wrong), refusal(architecture, wrong, most));
        }
    }
    assert_eq!(of("a new one", 0), None);
}

#[test]
fn first_layers_have_what_all_use() {
    let refusal = |name: &str| Some(format!("tensor {name:?} is missing"));
    let [encoder, decoder] = ["enc.blk.0.attn_rel_b.weight", "dec.blk.0.attn_rel_b.weight"];
    assert_eq!(problem("t5", &[], &[encoder, decoder]), None);
    assert_eq!(problem("t5", &[], &[encoder]), refusal(decoder));
    assert_eq!(problem("t5encoder", &[], &[encoder]), None);
    assert_eq!(problem("t5encoder", &[], &["enc.blk.1.attn_rel_b.weight"]), refusal(encoder));
}

#[test]
fn layers_that_predict_further_tokens_are_no_model() {
    let of = |architecture: &str, nextn: u32, tensors: &[&str]| {
        problem(architecture, &[("nextn_predict_layers", nextn.into())], tensors)
    };
    let refusal = "tensor \"blk.0.attn_norm.weight\" is missing, and layers that predict further \
                   tokens are no model";
    assert_eq!(of("mimo2", 1, &["blk.0.attn_norm.weight"]), None);
    assert_eq!(of("deepseek4", 1, &["blk.0.hc_attn_norm.weight"]), None);
    assert_eq!(of("mimo2", 1, &["blk.1.attn_norm.weight"]), Some(refusal.to_owned()));
    // llama.cpp itself refuses the others without a tensor that they need.
    assert_eq!(of("mimo2", 0, &[]), None);
    assert_eq!(of("llama", 1, &[]), None);
}

#[test]
fn caches_of_latent_vectors_have_their_matrices() {
    let of = |length: u32, tensor: &str| {
        let lengths = ["attention.key_length_mla", "attention.value_length_mla"];
        problem("kimi-linear", &lengths.map(|key| (key, length.into())), &[tensor])
    };
    assert_eq!(of(32, "blk.3.attn_k_b.weight"), None);
    assert_eq!(of(0, "blk.3.attn_kv_b.weight"), None);
    let refusal = |tensor: &str, lengths: &str| {
        Some(format!(
            "tensor \"blk.3.{tensor}.weight\" must not be there if \
             kimi-linear.attention.key_length_mla and kimi-linear.attention.value_length_mla are \
             {lengths}"
        ))
    };
    assert_eq!(of(32, "blk.3.attn_kv_b.weight"), refusal("attn_kv_b", "above 0"));
    assert_eq!(of(0, "blk.3.attn_k_b.weight"), refusal("attn_k_b", "0 or missing"));
}

#[test]
fn factors_of_rotations_are_not_at_the_end() {
    let of = |tensors: &[(&str, u64)]| {
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", "phi3")
            .metadata("phi3.attention.head_count", 4_u32)
            .metadata("phi3.embedding_length", 256_u32);
        for (name, length) in tensors {
            writer = writer.tensor(*name, &[*length], &vec![1.0; *length as usize]);
        }
        problem_of(&writer)
    };
    let name = "blk.0.rope_factors_long.weight";
    assert_eq!(of(&[("token_embd.weight", 256), (name, 32)]), None);
    // Phi-4-mini has factors for three quarters of a head.
    assert_eq!(of(&[(name, 24), ("token_embd.weight", 256)]), None);
    let refusal = format!(
        "tensor {name:?} is at the end of the file and has fewer than 32 numbers, half the length \
         of a head"
    );
    assert_eq!(of(&[("token_embd.weight", 256), (name, 24)]), Some(refusal));
}

#[test]
fn heads_that_rotate_are_even() {
    let of = |architecture: &str, heads: GgufValue, more: &[(&str, GgufValue)]| {
        let keys = [("attention.head_count", heads), ("embedding_length", 66_u32.into())];
        problem(architecture, &[keys.as_slice(), more].concat(), &[])
    };
    let refusal = |length| {
        Some(format!(
            "the length of a head is {length}, llama.embedding_length divided by \
             llama.attention.head_count, but must be even and above 0"
        ))
    };
    assert_eq!(of("llama", 3_u32.into(), &[]), None);
    assert_eq!(of("llama", 2_u32.into(), &[]), refusal(33));
    assert_eq!(of("llama", vec![2_u32, 3].into(), &[]), refusal(33));
    // Nothing rotates, and the operation never ends.
    assert_eq!(of("llama", 67_u32.into(), &[]), refusal(0));
    assert_eq!(of("gpt2", 2_u32.into(), &[]), None);
    let rule = "0 for the first layer, but its heads decide how long the others are";
    let zero = Some(format!("llama.attention.head_count is {rule}"));
    assert_eq!(of("llama", vec![0_u32, 3].into(), &[]), zero);
    assert_eq!(of("llama", vec![0_u32, 0].into(), &[]), None);
    let of_32 = |key: &'static str| of("llama", 3_u32.into(), &[(key, 31_u32.into())]);
    for key in ["attention.key_length", "attention.key_length_swa", "attention.indexer.key_length"]
    {
        let message = format!("llama.{key} is 31, but must be even and above 0");
        assert_eq!(of_32(key), Some(message));
    }
}

#[test]
fn rotations_fit_a_head() {
    for (n, rule) in [
        (2_u32, ""),
        (64, ""),
        (0, "0, but must be even and above 0"),
        (63, "63, but must be even and above 0"),
        (66, "66, but must be at most the length of a head, 64"),
    ] {
        check("llama", "rope.dimension_count", n, rule);
        check("gpt2", "rope.dimension_count", n, "");
    }
    check("llama", "rope.freq_base", 1e6_f32, "");
    check("llama", "rope.freq_base", 0.0_f32, "0, but must be above 0 and finite");
    check("bloom", "rope.freq_base", 0.0_f32, "");
}

#[test]
fn sections_are_not_all_empty() {
    const KEY: &str = "rope.dimension_sections";
    check("qwen2vl", KEY, vec![16_i32, 24, 24, 0], "");
    check("llama", KEY, vec![0_i32; 4], "");
    check(
        "qwen2vl",
        KEY,
        vec![0_i32, 0, 0, 5],
        "[0, 0, 0, 5], but one of the first three must be above 0",
    );
    check("qwen2vl", KEY, vec![8_i32, -1, 8, 0], "[8, -1, 8, 0], but none may be below 0");
    check(
        "qwen2vl",
        KEY,
        vec![64_i32, 64, 0, 0],
        "[64, 64, 0, 0], but their sum must be at most the length of a head, 64",
    );
}

#[test]
fn heads_are_shared_evenly() {
    const KEY: &str = "attention.head_count_kv";
    for n in [1_u32, 2, 4, 0] {
        check("llama", KEY, n, "");
    }
    check("llama", KEY, vec![0_u32, 2, 4], "");
    check("llama", KEY, 3_u32, "3, but must divide llama.attention.head_count, 4");
    check("llama", KEY, vec![4_u32, 3], "3, but must divide llama.attention.head_count, 4");
    // llama.cpp reads signed numbers as unsigned ones.
    let rule = "4294967295, but must divide llama.attention.head_count, 4";
    check("llama", KEY, vec![2_i32, -1, 4], rule);
    check("llama", KEY, vec![true, false], "");
    let missing = Some(
        "llama.attention.head_count is missing or 0, but there are layers with attention"
            .to_owned(),
    );
    assert_eq!(problem("llama", &[], &["blk.0.attn_q.weight"]), missing);
    assert_eq!(problem("mamba", &[], &["blk.0.ssm_in.weight"]), None);
    let keys = [("attention.head_count", 4_u32.into()), (KEY, vec![0_u32, 0].into())];
    let none = "modern-bert.attention.head_count_kv is 0, but there are layers with attention";
    let found = problem("modern-bert", &keys, &["blk.0.attn_qkv.weight"]);
    assert_eq!(found.as_deref(), Some(none));
}

#[test]
fn heads_fit_the_matrices_of_attention() {
    let with = |key: &str, length: u32, tensors: &[(&str, &[u64])]| {
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", "a new one")
            .metadata("a new one.attention.head_count", 2_u32)
            .metadata("a new one.attention.head_count_kv", 1_u32)
            .metadata(format!("a new one.{key}"), length);
        for (name, shape) in tensors {
            let elements = vec![0.0; shape.iter().product::<u64>() as usize];
            writer = writer.tensor(*name, shape, &elements);
        }
        problem_of(&writer)
    };
    let tensors: [(&str, &[u64]); 4] = [
        ("token_embd.weight", &[1, 16]),
        ("blk.0.attn_norm.weight", &[16]),
        ("blk.0.attn_k.weight", &[1, 4]),
        ("blk.1.attn_k.weight", &[1, 8]),
    ];
    for key in ["key_length", "value_length", "key_length_swa", "value_length_swa"] {
        let key = format!("attention.{key}");
        assert_eq!(with(&key, 8, &tensors), None);
        let message =
            format!("a new one.{key} is 9, but the widest matrix of attention has 8 rows");
        assert_eq!(with(&key, 9, &tensors), Some(message));
        // Without a matrix of attention, nothing is known of it.
        assert_eq!(with(&key, 2048, &tensors[..2]), None);
        let message = format!("a new one.{key} is 4096, but must be at most 2048");
        assert_eq!(with(&key, 4096, &tensors[..2]), Some(message));
    }
    for key in ["embedding_length_out", "ssm.inner_size"] {
        assert_eq!(with(key, 16, &tensors), None);
        let message = format!("a new one.{key} is 17, but the widest matrix has 16 rows");
        assert_eq!(with(key, 17, &tensors), Some(message));
    }
    assert_eq!(with("token_shift_count", 2, &tensors), None);
    let message = "a new one.token_shift_count is 3, but must be at most 2";
    assert_eq!(with("token_shift_count", 3, &tensors).as_deref(), Some(message));
}

#[test]
fn caches_of_all_layers_fit_the_matrices_of_attention() {
    // The widest matrix has 128 rows.
    let of = |matrix: &str, keys: &[(&str, GgufValue)]| {
        let of_model = [("embedding_length", 64_u32.into()), ("block_count", 2_u32.into())];
        let mut writer = GgufWriter::new().metadata("general.architecture", "x");
        for (key, value) in of_model.iter().chain(keys) {
            writer = writer.metadata(format!("x.{key}"), value.clone());
        }
        problem_of(&writer.tensor(matrix, &[1, 128], &[0.0; 128]))
    };
    let matrix = "blk.0.attn_q.weight";
    let heads = |n: u32| ("attention.head_count", vec![2_u32, n].into());
    let shared = |n: u32| ("attention.head_count_kv", vec![2_u32, n].into());
    let refusal = |key: &str, heads: u32, length: u32| {
        Some(format!(
            "x.attention.{key} is {heads}, but the widest matrix of attention has 128 rows, too \
             few for heads of length {length}"
        ))
    };
    // Heads of length 32, 64 divided by 2.
    assert_eq!(of(matrix, &[heads(4)]), None);
    assert_eq!(of(matrix, &[heads(1024)]), refusal("head_count", 1024, 32));
    assert_eq!(of(matrix, &[heads(1024), shared(4)]), None);
    assert_eq!(of(matrix, &[heads(1024), shared(8)]), refusal("head_count_kv", 8, 32));
    let scalar = [heads(1024), ("attention.head_count_kv", 8_u32.into())];
    assert!(of(matrix, &scalar).is_some());
    for key in ["key_length", "value_length", "key_length_swa", "value_length_swa"] {
        let longer = (format!("attention.{key}"), 64_u32.into());
        let longer = (longer.0.as_str(), longer.1);
        assert_eq!(of(matrix, &[heads(2), longer.clone()]), None);
        assert_eq!(of(matrix, &[heads(4), longer]), refusal("head_count", 4, 64));
    }
    let encoder = "enc.blk.0.attn_q.weight";
    assert_eq!(of(encoder, &[heads(8)]), refusal("head_count", 8, 32));
    assert_eq!(of("blk.0.ffn_up.weight", &[heads(1024)]), None);
}

#[test]
fn layers_have_what_is_used() {
    let heads = [("attention.head_count", 4_u32.into())];
    let of = |architecture, tensors: &[&str]| problem(architecture, &heads, tensors);
    let output = "blk.1.attn_output.weight";
    let (q, k, v) = ("blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight");
    assert_eq!(of("phi3", &[output, "blk.1.attn_qkv.weight"]), None);
    assert_eq!(of("phi3", &[output, q, k, v]), None);
    assert_eq!(of("llama", &[output, q, v]), None);
    let expected = "layer blk.1 has attn_output.weight, so it must have attn_qkv.weight, or \
                    attn_q.weight and attn_k.weight and attn_v.weight";
    assert_eq!(of("phi3", &[output, q, v]).as_deref(), Some(expected));
    let window = "afmoe.attention.sliding_window is missing or 0, but afmoe needs a window";
    assert_eq!(of("afmoe", &[]).as_deref(), Some(window));
}

#[test]
fn no_cache_of_rotated_indexers_is_without_layers() {
    let of = |architecture: &str, lists: &[(&str, Vec<u32>)], lengths: [u32; 2]| {
        let mut keys: Vec<(&str, GgufValue)> = vec![
            ("block_count", 2_u32.into()),
            ("attention.key_length", lengths[0].into()),
            ("attention.indexer.key_length", lengths[1].into()),
        ];
        keys.extend(lists.iter().map(|(key, list)| (*key, list.clone().into())));
        problem(architecture, &keys, &[])
    };
    let ratios = |list: [u32; 2]| vec![("attention.compress_ratios", list.to_vec())];
    assert_eq!(of("deepseek4", &ratios([4, 128]), [128, 64]), None);
    let none = "deepseek4.attention.compress_ratios has no layer with an indexer";
    assert_eq!(of("deepseek4", &ratios([0, 128]), [128, 64]).as_deref(), Some(none));
    let same = "deepseek4.attention.indexer.key_length is 64, but must differ from the length of a \
                head, because no layer or every layer has a window";
    assert_eq!(of("deepseek4", &ratios([4, 128]), [64, 64]).as_deref(), Some(same));
    // The lists may be longer than the model. Only its own layers count.
    let marks = |windows: [u32; 3], types: [u32; 3]| {
        vec![
            ("attention.sliding_window_pattern", windows.to_vec()),
            ("attention.indexer.types", types.to_vec()),
        ]
    };
    assert_eq!(of("dots3note", &marks([1, 0, 0], [1, 0, 0]), [64, 64]), None);
    assert_eq!(of("dots3note", &marks([1, 1, 0], [1, 0, 0]), [48, 64]), None);
    assert!(of("dots3note", &marks([1, 1, 0], [1, 0, 0]), [64, 64]).is_some());
    assert!(of("dots3note", &marks([1, 0, 0], [0, 0, 1]), [64, 64]).is_some());
    assert_eq!(of("glm-dsa", &[], [64, 64]), None);
    let scalar = |types: u32| {
        let keys = [("block_count", 2_u32.into()), ("attention.indexer.types", types.into())];
        problem("glm-dsa", &keys, &[])
    };
    assert_eq!(scalar(1), None);
    assert!(scalar(0).is_some());
    let marks =
        [("block_count", 2_u32.into()), ("attention.indexer.types", vec![false, true].into())];
    assert_eq!(problem("glm-dsa", &marks, &[]), None);
    assert_eq!(of("llama", &ratios([0, 0]), [64, 64]), None);
}
