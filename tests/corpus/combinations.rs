//! Faults that need several changes at once. Reading llama.cpp's sources shows them; changes of one
//! key or one tensor do not lead to them.

use llb::gguf::GgufValue;

use crate::crafted::{set, set_token};
use crate::model_file::ModelFile;
use crate::mutants::Visit;

/// Visits every fault, with its name and its change.
pub fn each(good: &ModelFile, visit: &mut Visit) {
    names(good, visit);
    numbers(visit);
    experts(good, visit);
    layers(good, visit);
    factors(visit);
}

/// llama.cpp reads names up to their first NUL.
fn names(good: &ModelFile, visit: &mut Visit) {
    for (index, (key, _)) in good.keys.iter().enumerate() {
        visit(format_args!("{key} with a NUL at its end"), &|it| it.keys[index].0.push('\0'));
        visit(format_args!("{key} also with a NUL at its end"), &|it| {
            it.keys.insert(0, (format!("{key}\0"), u32::MAX.into()));
        });
    }
    visit(format_args!("the architecture with a NUL at its end"), &|it| {
        it.architecture.push_str("\0x");
    });
    for kind in ["rwkv\0", "plamo2\0x", "t5\0"] {
        visit(format_args!("the vocabulary {}", kind.escape_default()), &|it| {
            set_token(it, "ggml.model", kind.into());
        });
    }
    visit(format_args!("the vocabulary rwkv, NUL and 100 kB"), &|it| {
        set_token(it, "ggml.model", format!("rwkv\0{}", "x".repeat(100_000)).as_str().into());
    });
    visit(format_args!("tensor names with a NUL at their ends"), &|it| {
        it.tensors.iter_mut().for_each(|tensor| tensor.name.push('\0'));
    });
}

/// Sets keys of the architecture. A key without a value is removed.
fn assign(model: &mut ModelFile, values: &[(&str, Option<GgufValue>)]) {
    for (key, value) in values {
        match value {
            Some(value) => set(model, key, value.clone()),
            None => {
                let own = format!("{}.{key}", model.architecture);
                model.keys.retain(|(name, _)| *name != own);
            }
        }
    }
}

fn numbers(visit: &mut Visit) {
    type Values = Vec<(&'static str, Option<GgufValue>)>;
    let number = |number: u32| Some(GgufValue::from(number));
    let list = |numbers: &[u32]| Some(GgufValue::from(numbers.to_vec()));
    let of_window = |length: u32| {
        [
            ("attention.key_length_swa", number(length)),
            ("attention.value_length_swa", number(length)),
            ("attention.sliding_window", number(16)),
            ("attention.sliding_window_pattern", list(&[1, 1])),
        ]
    };
    let without_rotation = [
        ("rope.dimension_count", None),
        ("attention.key_length", number(0)),
        ("attention.value_length", number(0)),
    ];
    let cases: [(&str, Values); 8] = [
        (
            "a product of cycles that overflows",
            vec![
                ("hrm.layers_per_stack", number(1)),
                ("hrm.h_cycles", number(3)),
                ("hrm.l_cycles", number(0x5555_5555)),
            ],
        ),
        (
            "a product of n-grams that overflows",
            vec![("ple.ngram_size", number(5)), ("ple.heads_per_ngram", number(0x4000_0001))],
        ),
        (
            "experts in a layer that predicts",
            vec![("nextn_predict_layers", number(1)), ("expert_used_count", list(&[2, 0]))],
        ),
        ("nothing rotates", [without_rotation.as_slice(), &of_window(32)].concat()),
        (
            "nothing rotates in the first layer",
            [[("attention.head_count", list(&[0, 2]))].as_slice(), &of_window(32)].concat(),
        ),
        (
            "rotations longer than heads by a list",
            vec![
                ("attention.head_count", list(&[2, 2])),
                ("attention.key_length", None),
                ("rope.dimension_count", number(4096)),
            ],
        ),
        ("dense layers below 0", vec![("leading_dense_block_count", number(u32::MAX))]),
        ("an odd head", vec![("embedding_length", number(66)), ("rope.dimension_count", None)]),
    ];
    for (name, values) in &cases {
        visit(format_args!("{name}"), &|it| assign(it, values));
    }
    for kind in ["none", "no_vocab"] {
        visit(format_args!("60 million tokens of the vocabulary {kind}"), &|it| {
            set_token(it, "ggml.model", kind.into());
            set(it, "vocab_size", 60_000_000_u32.into());
        });
    }
}

fn experts(good: &ModelFile, visit: &mut Visit) {
    let key = format!("{}.expert_count", good.architecture);
    let count = good.keys.iter().find(|(name, _)| *name == key).and_then(|(_, n)| n.as_u64());
    let Some(count) = count else { return };
    for (number, of_group) in [(5_u32, 2_u32), (64, 33), (7, 7), (8, 0)] {
        visit(format_args!("{number} experts in groups of {of_group}"), &|it| {
            set(it, "expert_count", number.into());
            set(it, "experts_per_group", of_group.into());
            it.tensors.retain(|tensor| !tensor.name.ends_with("scale"));
            for tensor in &mut it.tensors {
                let is_group = tensor.name.contains("_chexps");
                let extent = if is_group { number / of_group.max(1) } else { number };
                let last = tensor.shape.last_mut();
                if let Some(last) = last.filter(|last| is_group || **last == count) {
                    *last = extent.into();
                }
            }
        });
    }
}

/// Makes all tensors optional, as in a file for nothing but layers that predict further tokens.
fn layers(good: &ModelFile, visit: &mut Visit) {
    let of_block = |name: &str| name.strip_prefix("blk.1.").map(str::to_owned);
    for missing in good.tensors.iter().filter_map(|tensor| of_block(&tensor.name)) {
        visit(format_args!("nothing but layers that predict, and no {missing}"), &|it| {
            let layers = it.n_layers() as u32;
            set(it, "block_count", (layers + 1).into());
            set(it, "nextn_predict_layers", 1_u32.into());
            let norms = ["blk.0.attn_norm.weight", "blk.0.hc_attn_norm.weight"];
            it.tensors.retain(|tensor| {
                !norms.contains(&&*tensor.name) && tensor.name != format!("blk.1.{missing}")
            });
        });
    }
}

/// llama.cpp removes the endings of factors wherever they are in a name.
fn factors(visit: &mut Visit) {
    visit(format_args!("endings of factors in the middle of names"), &|it| {
        for tensor in &mut it.tensors {
            let Some((matrix, ending)) = tensor.name.rsplit_once('.') else { continue };
            if matrix.contains("_exps.") && ending.starts_with("lora_") {
                let inserted = format!("_e.{ending}xps.");
                tensor.name = format!("{}.{ending}", matrix.replace("_exps.", &inserted));
                tensor.shape.truncate(2);
            }
        }
    });
}
