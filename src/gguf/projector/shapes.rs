//! The tensors that llama.cpp's encoders expect, with their shapes and types.
//!
//! Source: `load_tensors` in tools/mtmd/clip.cpp, and the graphs in models/llava.cpp and siglip.cpp.
//! A tensor that is named like those of encoders, but is not in the table of its type, is refused:
//! llama.cpp might compute with it.

use std::collections::HashMap;

use super::kind::{ProjectorType, refused};
use crate::error::Result;
use crate::gguf::quantization::tensor_type;
use crate::gguf::tensors::TensorInfo;

const F32: u32 = 0;
const F16: u32 = 1;
/// Types that no matrix can have: Q8_1, Q8_K, I8, I16, I32, I64 and F64.
const NOT_OF_MATRICES: [u32; 7] = [9, 15, 24, 25, 26, 27, 28];
/// The longest row of a feed-forward block, and the longest embedding.
const MAX_LENGTH: u64 = 1 << 20;

/// The types that an operation accepts.
#[derive(Clone, Copy)]
enum Types {
    /// Added or multiplied by element.
    F32,
    /// Copied or unfolded.
    Floats,
    /// Multiplied with.
    Matrix,
}

impl Types {
    fn accept(self, number: u32) -> bool {
        match self {
            Types::F32 => number == F32,
            Types::Floats => number == F32 || number == F16,
            Types::Matrix => tensor_type(number).is_some() && !NOT_OF_MATRICES.contains(&number),
        }
    }
}

/// The sizes that shapes follow from.
pub(super) struct Shapes<'a> {
    pub(super) tensors: &'a [TensorInfo],
    /// The length of the encoder's embeddings.
    pub(super) width: u64,
    /// The side of a patch in pixels.
    pub(super) patch: u64,
    /// The patches of a picture.
    pub(super) patches: u64,
    pub(super) layers: u32,
}

/// The tensors that are not checked yet.
struct Unchecked<'a>(HashMap<&'a str, &'a TensorInfo>);

impl<'a> Unchecked<'a> {
    /// Takes a tensor that may be missing, and checks it.
    fn optional(&mut self, name: &str, types: Types, shape: &[u64]) -> Result<bool> {
        let Some(tensor) = self.0.remove(name) else { return Ok(false) };
        check(tensor, types, shape)?;
        Ok(true)
    }

    fn required(&mut self, name: &str, types: Types, shape: &[u64]) -> Result<()> {
        if self.optional(name, types, shape)? { Ok(()) } else { Err(missing(name)) }
    }

    /// Takes a tensor and checks its type.
    fn take(&mut self, name: &str, types: Types) -> Result<&'a TensorInfo> {
        let tensor = self.0.remove(name).ok_or_else(|| missing(name))?;
        check_type(tensor, types)?;
        Ok(tensor)
    }

    /// A norm with its optional bias.
    fn norm(&mut self, name: &str, length: u64, is_required: bool) -> Result<()> {
        let has_weight = self.optional(&format!("{name}.weight"), Types::F32, &[length])?;
        if is_required && !has_weight {
            return Err(missing(&format!("{name}.weight")));
        }
        self.optional(&format!("{name}.bias"), Types::F32, &[length])?;
        Ok(())
    }
}

impl Shapes<'_> {
    /// Checks all tensors. Returns the length of the embeddings that the projector computes.
    pub(super) fn check(&self, kind: ProjectorType) -> Result<u64> {
        let named = self.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor));
        let mut rest = Unchecked(named.collect());
        let patch = [self.patch, self.patch, 3, self.width];
        rest.required("v.patch_embd.weight", Types::Floats, &patch)?;
        rest.optional("v.patch_embd.bias", Types::F32, &[self.width])?;
        rest.norm("v.pre_ln", self.width, false)?;
        rest.norm("v.post_ln", self.width, false)?;
        for layer in 0..self.layers {
            self.check_layer(&mut rest, layer)?;
        }
        let positions = "v.position_embd.weight";
        let embedding = match kind {
            ProjectorType::Mlp => {
                let has_class = rest.optional("v.class_embd", Types::F32, &[self.width])?;
                let rows = self.patches + u64::from(has_class);
                rest.required(positions, Types::Floats, &[self.width, rows])?;
                // llama.cpp loads it, and computes nothing with it.
                rest.0.remove("v.image_newline");
                self.check_two_layers(&mut rest, "mm.0", "mm.2")?
            }
            ProjectorType::JanusPro => {
                rest.required(positions, Types::F32, &[self.width, self.patches])?;
                self.check_two_layers(&mut rest, "mm.0", "mm.1")?
            }
            ProjectorType::Gemma3 => {
                rest.required(positions, Types::F32, &[self.width, self.patches])?;
                rest.required("mm.soft_emb_norm.weight", Types::F32, &[self.width])?;
                let projection = rest.take("mm.input_projection.weight", Types::Floats)?;
                let embedding = length(projection, 0)?;
                check(projection, Types::Floats, &[embedding, self.width])?;
                embedding
            }
        };
        let is_known_prefix =
            |name: &&&str| ["v.", "mm.", "a."].iter().any(|prefix| name.starts_with(prefix));
        match rest.0.keys().filter(is_known_prefix).min() {
            Some(name) => Err(refused(format!(
                "tensor {name:?} is not one of a projector of type {:?}",
                kind.as_str()
            ))),
            None => Ok(embedding),
        }
    }

    /// Checks two matrices with their biases. Returns the length of the embeddings.
    fn check_two_layers(&self, rest: &mut Unchecked, inner: &str, outer: &str) -> Result<u64> {
        let matrix = rest.take(&format!("{inner}.weight"), Types::Matrix)?;
        let length = length(matrix, 1)?;
        check(matrix, Types::Matrix, &[self.width, length])?;
        rest.required(&format!("{inner}.bias"), Types::F32, &[length])?;
        let matrix = rest.take(&format!("{outer}.weight"), Types::Matrix)?;
        let embedding = self::length(matrix, 1)?;
        check(matrix, Types::Matrix, &[length, embedding])?;
        rest.required(&format!("{outer}.bias"), Types::F32, &[embedding])?;
        Ok(embedding)
    }

    fn check_layer(&self, rest: &mut Unchecked, layer: u32) -> Result<()> {
        let name = |tensor: &str| format!("v.blk.{layer}.{tensor}");
        for norm in ["ln1", "ln2"] {
            rest.norm(&name(norm), self.width, true)?;
        }
        for matrix in ["attn_q", "attn_k", "attn_v", "attn_out"] {
            let shape = [self.width, self.width];
            rest.required(&name(&format!("{matrix}.weight")), Types::Matrix, &shape)?;
            rest.optional(&name(&format!("{matrix}.bias")), Types::F32, &[self.width])?;
        }
        // Old files have the names of the two matrices swapped; llama.cpp looks at the shape.
        let down = rest.take(&name("ffn_down.weight"), Types::Matrix)?;
        let up = rest.take(&name("ffn_up.weight"), Types::Matrix)?;
        let is_swapped = down.shape[0] == self.width;
        let (up, down) = if is_swapped { (down, up) } else { (up, down) };
        let inner = length(up, 1)?;
        check(up, Types::Matrix, &[self.width, inner])?;
        check(down, Types::Matrix, &[inner, self.width])?;
        let biases = [("ffn_up.bias", "ffn_down.bias"), ("ffn_down.bias", "ffn_up.bias")];
        let (up, down) = biases[usize::from(is_swapped)];
        rest.optional(&name(up), Types::F32, &[inner])?;
        rest.optional(&name(down), Types::F32, &[self.width])?;
        Ok(())
    }
}

/// A length that only the file states.
fn length(tensor: &TensorInfo, dimension: usize) -> Result<u64> {
    let length = tensor.shape[dimension];
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(length);
    }
    Err(refused(format!("tensor {:?} has rows or columns of length {length}", tensor.name)))
}

fn check(tensor: &TensorInfo, types: Types, shape: &[u64]) -> Result<()> {
    check_type(tensor, types)?;
    let mut expected = [1; 4];
    expected[..shape.len()].copy_from_slice(shape);
    if tensor.shape == expected {
        return Ok(());
    }
    Err(refused(format!(
        "tensor {:?} has the shape {:?}, but its projector needs {:?}",
        tensor.name,
        trimmed(&tensor.shape),
        trimmed(&expected)
    )))
}

fn check_type(tensor: &TensorInfo, types: Types) -> Result<()> {
    if types.accept(tensor.type_number) {
        return Ok(());
    }
    let name = tensor_type(tensor.type_number).map_or("an unknown type", |kind| kind.name);
    Err(refused(format!(
        "tensor {:?} has the type {name}, with which llama.cpp cannot compute it",
        tensor.name
    )))
}

/// A shape without the ones at its end.
fn trimmed(shape: &[u64; 4]) -> &[u64] {
    let length = shape.iter().rposition(|extent| *extent != 1).map_or(1, |last| last + 1);
    &shape[..length]
}

fn missing(name: &str) -> crate::error::Error {
    refused(format!("tensor {name:?} is missing"))
}
