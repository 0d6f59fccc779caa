//! Checks that each tensor has a type that its operation accepts.
//!
//! Source: `type_traits_cpu` in ggml-cpu.c (a matrix needs `vec_dot`), `binary_op` in
//! binary-ops.cpp and the assertions of ops.cpp (other operands are F32).

use std::borrow::Cow;
use std::collections::HashSet;

use super::facts::{Facts, refused};
use crate::error::Result;
use crate::gguf::quantization::tensor_type;
use crate::gguf::tensors::TensorInfo;
use crate::process::Lazy;

const F32: u32 = 0;
/// Types that no matrix can have: Q8_1, Q8_K, I8, I16, I32, I64 and F64.
const NOT_OF_MATRICES: [u32; 7] = [9, 15, 24, 25, 26, 27, 28];
/// Tensors that contain row numbers.
const OF_INTEGERS: [&str; 3] = ["d2t", "ffn_gate_tid2eid", "masked_embd_ordering"];

/// Names of tensors that llama.cpp adds, multiplies by element or scans (`LLM_TENSOR_INFOS`), with
/// `%d` for a number and without `.weight`. After `unless` come the architectures that accept other
/// types for that tensor, or do not use it.
const OPERANDS: &str = include_str!("operands.txt");

struct Operands {
    names: HashSet<&'static str>,
    unused: HashSet<(&'static str, &'static str)>,
}

static TABLE: Lazy<Operands> = Lazy::new(|| {
    let mut table = Operands { names: HashSet::new(), unused: HashSet::new() };
    for line in OPERANDS.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(" unless ") {
            Some((name, architecture)) => drop(table.unused.insert((name, architecture))),
            None => drop(table.names.insert(line)),
        }
    }
    table
});

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    facts.tensors.iter().try_for_each(|tensor| check_tensor(facts.architecture, tensor))
}

fn check_tensor(architecture: &str, tensor: &TensorInfo) -> Result<()> {
    let Some(actual) = tensor_type(tensor.type_number) else { return Ok(()) };
    let pattern = pattern(&tensor.name);
    let unused = TABLE.unused.contains(&(&*pattern, architecture));
    if tensor.type_number != F32 && is_operand(&pattern) && !unused {
        return Err(refused(format!(
            "tensor {:?} has the type {}, but llama.cpp computes with it only as F32",
            tensor.name, actual.name
        )));
    }
    let of_integers = OF_INTEGERS.iter().any(|name| pattern.contains(name));
    if NOT_OF_MATRICES.contains(&tensor.type_number) && !of_integers && !unused {
        return Err(refused(format!(
            "tensor {:?} has the type {}, with which llama.cpp cannot multiply",
            tensor.name, actual.name
        )));
    }
    Ok(())
}

fn is_operand(pattern: &str) -> bool {
    pattern.ends_with(".bias")
        || TABLE.names.contains(pattern.strip_suffix(".weight").unwrap_or(pattern))
}

/// The name of a tensor with its numbers replaced by `%d`.
fn pattern(name: &str) -> Cow<'_, str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !name.split('.').any(is_number) {
        return Cow::Borrowed(name);
    }
    let parts = name.split('.').map(|part| if is_number(part) { "%d" } else { part });
    Cow::Owned(parts.collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(name: &str, type_number: u32, message: &str) {
        let tensor = TensorInfo {
            name: name.to_owned(),
            type_number,
            shape: [1; 4],
            bytes: 4,
            bytes_to_end: 4,
        };
        let problem = check_tensor("llama", &tensor).err();
        assert_eq!(problem.as_ref().map_or("", |error| error.message()), message, "{name}");
    }

    #[test]
    fn types_of_operations() {
        for number in [0, 1, 2, 8, 12, 16, 30, 34, 39] {
            check("blk.0.attn_q.weight", number, "");
            check("token_embd.weight", number, "");
            check("blk.3.ffn_gate_exps.weight", number, "");
        }
        check(
            "blk.0.attn_q.weight",
            9,
            "tensor \"blk.0.attn_q.weight\" has the type Q8_1, with which llama.cpp cannot \
             multiply",
        );
        check(
            "output.weight",
            28,
            "tensor \"output.weight\" has the type F64, with which llama.cpp cannot multiply",
        );
        for name in ["blk.11.attn_norm.weight", "output_norm.weight", "blk.0.attn_k.bias"] {
            check(name, 0, "");
            check(
                name,
                1,
                &format!(
                    "tensor {name:?} has the type F16, but llama.cpp computes with it only as F32"
                ),
            );
        }
        check("blk.0.ffn_gate_tid2eid.weight", 26, "");
        check("blk.0.attn_q.weight", 99, "");
    }

    #[test]
    fn patterns() {
        assert_eq!(pattern("output.weight"), "output.weight");
        assert_eq!(pattern("enc.blk.12.attn_q.weight"), "enc.blk.%d.attn_q.weight");
        assert_eq!(pattern("blk.0.ffn_up.3.weight"), "blk.%d.ffn_up.%d.weight");
    }
}
