//! The tensors of a projector file, each of which is taken once and checked.

use std::collections::HashMap;

use super::kind::{ProjectorType, refused};
use crate::error::{Error, Result};
use crate::gguf::quantization::tensor_type;
use crate::gguf::tensors::TensorInfo;

const F32: u32 = 0;
const F16: u32 = 1;
const BF16: u32 = 30;
/// Types that no matrix can have: Q8_1, Q8_K, I8, I16, I32, I64 and F64.
const NOT_OF_MATRICES: [u32; 7] = [9, 15, 24, 25, 26, 27, 28];
/// The longest row of a feed-forward block, and the longest embedding.
const MAX_LENGTH: u64 = 1 << 20;

/// The types that an operation accepts.
#[derive(Clone, Copy)]
pub(super) enum Types {
    /// Added or multiplied by element.
    F32,
    /// Copied or unfolded.
    Floats,
    /// Multiplied with numbers of 16 bits.
    Halves,
    /// Multiplied with, and also read in another shape, which blocks of numbers do not have.
    Unblocked,
    /// Multiplied with.
    Matrix,
}

impl Types {
    fn accept(self, number: u32) -> bool {
        match self {
            Types::F32 => number == F32,
            Types::Floats => number == F32 || number == F16,
            Types::Halves => [F16, BF16].contains(&number),
            Types::Unblocked => [F32, F16, BF16].contains(&number),
            Types::Matrix => tensor_type(number).is_some() && !NOT_OF_MATRICES.contains(&number),
        }
    }
}

/// The tensors that are not checked yet.
pub(super) struct Unchecked<'a>(HashMap<&'a str, &'a TensorInfo>);

impl<'a> Unchecked<'a> {
    pub(super) fn new(tensors: &'a [TensorInfo]) -> Self {
        Unchecked(tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect())
    }

    /// Takes a tensor that may be missing, and checks it.
    pub(super) fn optional(&mut self, name: &str, types: Types, shape: &[u64]) -> Result<bool> {
        let Some(tensor) = self.0.remove(name) else { return Ok(false) };
        check(tensor, types, shape)?;
        Ok(true)
    }

    pub(super) fn required(&mut self, name: &str, types: Types, shape: &[u64]) -> Result<()> {
        if self.optional(name, types, shape)? { Ok(()) } else { Err(missing(name)) }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Takes a tensor and checks its type.
    pub(super) fn take(&mut self, name: &str, types: Types) -> Result<&'a TensorInfo> {
        let tensor = self.0.remove(name).ok_or_else(|| missing(name))?;
        check_type(tensor, types)?;
        Ok(tensor)
    }

    /// Takes a vector, such as a bias.
    pub(super) fn vector(&mut self, name: &str, length: u64) -> Result<()> {
        self.required(name, Types::F32, &[length])
    }

    /// Takes a vector that may be missing.
    pub(super) fn optional_vector(&mut self, name: &str, length: u64) -> Result<bool> {
        self.optional(name, Types::F32, &[length])
    }

    /// Takes a number for each channel of a convolution: a vector, also one with the shape of a
    /// picture of one pixel.
    pub(super) fn channels(&mut self, name: &str, count: u64) -> Result<()> {
        let bias = self.take(name, Types::F32)?;
        if bias.shape == [1, 1, count, 1] {
            return Ok(());
        }
        check(bias, Types::F32, &[count])
    }

    /// A convolution with squares of this side. Returns the channels that it makes of so many.
    pub(super) fn convolution(&mut self, name: &str, side: u64, channels: u64) -> Result<u64> {
        let convolution = self.take(name, Types::Floats)?;
        let made = length(convolution, 3)?;
        check(convolution, Types::Floats, &[side, side, channels, made])?;
        Ok(made)
    }

    /// A convolution with a square for each channel, which are in the third or fourth dimension.
    pub(super) fn depthwise(&mut self, name: &str, side: u64, channels: u64) -> Result<()> {
        let squares = self.take(name, Types::Halves)?;
        if squares.shape == [side, side, channels, 1] {
            return Ok(());
        }
        check(squares, Types::Halves, &[side, side, 1, channels])
    }

    /// A norm with its bias.
    pub(super) fn full_norm(&mut self, name: &str, length: u64) -> Result<()> {
        self.vector(&format!("{name}.weight"), length)?;
        self.vector(&format!("{name}.bias"), length)
    }

    /// A norm with its optional bias.
    pub(super) fn norm(&mut self, name: &str, length: u64, is_required: bool) -> Result<()> {
        let weight = format!("{name}.weight");
        if !self.optional_vector(&weight, length)? && is_required {
            return Err(missing(&weight));
        }
        self.optional_vector(&format!("{name}.bias"), length)?;
        Ok(())
    }

    /// A matrix for rows of this length. Returns the length of the rows that it makes of them.
    pub(super) fn matrix(&mut self, name: &str, row: u64) -> Result<u64> {
        let matrix = self.take(name, Types::Matrix)?;
        let length = length(matrix, 1)?;
        check(matrix, Types::Matrix, &[row, length])?;
        Ok(length)
    }

    /// A matrix with its bias. Otherwise as [`Unchecked::matrix`].
    pub(super) fn linear(&mut self, name: &str, row: u64) -> Result<u64> {
        let length = self.matrix(&format!("{name}.weight"), row)?;
        self.vector(&format!("{name}.bias"), length)?;
        Ok(length)
    }

    /// Takes the optional bounds of what a matrix takes and computes.
    pub(super) fn bounds(&mut self, matrix: &str) -> Result<()> {
        for bound in ["input_min", "input_max", "output_min", "output_max"] {
            self.optional_vector(&format!("{matrix}.{bound}"), 1)?;
        }
        Ok(())
    }

    /// Takes a tensor that llama.cpp does not compute with.
    pub(super) fn ignore(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Takes all tensors of an encoder of sound, which llama.cpp does not load.
    pub(super) fn ignore_sound(&mut self) {
        self.0.retain(|name, _| !name.starts_with("a.") && !name.starts_with("mm.a."));
    }

    /// The length of a row.
    pub(super) fn row(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(|tensor| tensor.shape[0])
    }

    /// Refuses further tensors that are named like those of encoders.
    pub(super) fn check_empty(&self, kinds: &[ProjectorType]) -> Result<()> {
        let is_known_prefix = |name: &&&str| {
            ["v.", "mm.", "a.", "adapter.", "resampler."]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        };
        match self.0.keys().filter(is_known_prefix).min() {
            Some(name) => {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
                Err(refused(format!(
                    "tensor {name:?} is not one of a projector of type {:?}",
                    kinds.join(" and ")
                )))
            }
            None => Ok(()),
        }
    }
}

/// A length that only the file states.
pub(super) fn length(tensor: &TensorInfo, dimension: usize) -> Result<u64> {
    let length = tensor.shape[dimension];
    if (1..=MAX_LENGTH).contains(&length) {
        return Ok(length);
    }
    Err(refused(format!("tensor {:?} has rows or columns of length {length}", tensor.name)))
}

pub(super) fn check(tensor: &TensorInfo, types: Types, shape: &[u64]) -> Result<()> {
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

pub(super) fn missing(name: &str) -> Error {
    refused(format!("tensor {name:?} is missing"))
}
