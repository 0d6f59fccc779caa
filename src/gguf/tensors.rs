//! Sums over the tensor table of a GGUF file.
//!
//! In: a cursor after the metadata. Out: the number of tensors and elements, their types, and the
//! size of their data. The data itself is never read.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Seek};

use super::quantization::tensor_type;
use super::reader::{Cursor, invalid};
use crate::diagnostic::Diagnostic;
use crate::error::Result;

/// The maximum number of tensors. The largest known models have a few thousand per file. llama.cpp
/// searches the table for each of them.
const MAX_TENSORS: u64 = 16_384;
/// ggml's limit of 64 bytes includes the terminating NUL.
const MAX_NAME_BYTES: u64 = 63;
const MAX_DIMENSIONS: u32 = 4;
/// llama.cpp's name for a table with one row per position (`LLM_TENSOR_POS_EMBD`).
const POSITIONS: &str = "position_embd.weight";

/// A tensor of the table.
pub(crate) struct TensorInfo {
    pub(crate) name: String,
    /// ggml's number for the type.
    pub(crate) type_number: u32,
    /// The extents, in ggml's order.
    pub(crate) shape: [u64; MAX_DIMENSIONS as usize],
    /// The size of the data in bytes; 0 if the type is unknown.
    pub(crate) bytes: u64,
    /// The number of bytes from the start of the tensor's data to the end of the last tensor of the
    /// same file.
    pub(crate) bytes_to_end: u64,
}

impl TensorInfo {
    /// The number of values that a matrix computes from a row.
    pub(crate) fn rows(&self) -> u64 {
        self.shape[1]
    }
}

#[derive(Default)]
pub(crate) struct TensorTable {
    /// The tensors in the order of the file.
    pub(crate) list: Vec<TensorInfo>,
    pub(crate) count: u64,
    pub(crate) elements: u64,
    pub(crate) elements_by_type: BTreeMap<u32, u64>,
    /// The number of bytes from the start of the data section to the end of the last tensor; `None`
    /// if a type is unknown.
    pub(crate) data_bytes: Option<u64>,
    /// The size of the tensors of each block in bytes, by block number.
    pub(crate) blocks: BTreeMap<u32, u64>,
    /// The size of the tensors after the last block in bytes, and whether they include output
    /// weights.
    pub(crate) output: u64,
    pub(crate) has_output: bool,
    /// The size of the embedding in bytes, and that of the largest tensor of a block.
    pub(crate) embedding: u64,
    pub(crate) largest: u64,
    /// The number of rows in the table of learned positions; `None` without one.
    pub(crate) positions: Option<u64>,
}

impl TensorTable {
    /// Reads `count` entries.
    pub(crate) fn read<R: Read + Seek>(
        cursor: &mut Cursor<R>,
        count: u64,
        alignment: u64,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<TensorTable> {
        if count > MAX_TENSORS {
            return Err(invalid(
                cursor.offset(),
                format_args!(
                    "the file claims {count} tensors, more than the limit of {MAX_TENSORS}"
                ),
            ));
        }
        let mut table = TensorTable { count, data_bytes: Some(0), ..TensorTable::default() };
        let mut names = HashSet::new();
        let mut problems = TensorProblems::default();
        for _ in 0..count {
            let at = cursor.offset();
            let length = cursor.length(MAX_NAME_BYTES, "a tensor name")?;
            let name = cursor.name(length, "a tensor name")?;
            let tensor = table.tensor(cursor, &name, alignment, &mut problems)?;
            table.list.push(tensor);
            if let Some(name) = names.replace(name) {
                return Err(invalid(at, format_args!("tensor name {name:?} occurs twice")));
            }
        }
        let end = table.data_bytes.unwrap_or(0);
        for tensor in &mut table.list {
            tensor.bytes_to_end = end.saturating_sub(tensor.bytes_to_end);
        }
        diagnostics.extend(problems.into_diagnostics());
        Ok(table)
    }

    /// Reads the rest of an entry, after the name. `bytes_to_end` is still the offset of the data.
    fn tensor<R: Read + Seek>(
        &mut self,
        cursor: &mut Cursor<R>,
        name: &str,
        alignment: u64,
        problems: &mut TensorProblems,
    ) -> Result<TensorInfo> {
        let at = cursor.offset();
        let n_dims = cursor.u32(name)?;
        if n_dims > MAX_DIMENSIONS {
            return Err(invalid(
                at,
                format_args!("tensor {name:?} has {n_dims} dimensions, more than {MAX_DIMENSIONS}"),
            ));
        }
        let mut shape = [1_u64; MAX_DIMENSIONS as usize];
        for extent in shape.iter_mut().take(n_dims as usize) {
            *extent = cursor.u64(name)?;
        }
        // A zero extent does not hide an overflow, because ggml multiplies in order, in i64.
        let too_large =
            || invalid(at, format_args!("tensor {name:?} of shape {shape:?} is too large"));
        let product =
            shape.iter().try_fold(1_u64, |product, extent| product.checked_mul((*extent).max(1)));
        product.filter(|product| *product <= i64::MAX as u64).ok_or_else(too_large)?;
        if name == POSITIONS {
            self.positions = Some(shape[1]);
        }
        let elements: u64 = shape.iter().product();
        let type_number = cursor.u32(name)?;
        let offset = cursor.u64(name)?;
        let name_of = name.to_owned();
        let mut tensor =
            TensorInfo { name: name_of, type_number, shape, bytes: 0, bytes_to_end: offset };

        self.elements = self.elements.checked_add(elements).ok_or_else(too_large)?;
        *self.elements_by_type.entry(type_number).or_default() += elements;
        let Some(tensor_type) = tensor_type(type_number) else {
            problems.unknown_type.record(|| {
                format!(
                    "tensor {name:?} has the type {type_number}, which is unknown to the engine"
                )
            });
            self.data_bytes = None;
            return Ok(tensor);
        };
        if !shape[0].is_multiple_of(tensor_type.block_elements) {
            problems.shape.record(|| {
                format!(
                    "tensor {name:?} has rows of {} elements, but {2} needs a multiple of {1}",
                    shape[0], tensor_type.block_elements, tensor_type.name
                )
            });
        }
        if !offset.is_multiple_of(alignment) {
            problems.layout.record(|| {
                format!("data of tensor {name:?} starts at {offset}, not a multiple of {alignment}")
            });
        }
        let bytes =
            elements.div_ceil(tensor_type.block_elements).checked_mul(tensor_type.block_bytes);
        let end = bytes.and_then(|bytes| bytes.checked_add(offset)).ok_or_else(too_large)?;
        self.data_bytes = self.data_bytes.map(|furthest| furthest.max(end));
        tensor.bytes = end - offset;
        self.add_bytes(name, tensor.bytes);
        Ok(tensor)
    }

    /// Adds the size of a tensor to the sum that its name selects: `blk.<number>.…`, `output…`,
    /// `token_embd.…`.
    fn add_bytes(&mut self, name: &str, bytes: u64) {
        self.has_output |= name == "output.weight";
        let sum = match block_of(name) {
            Some((block, _)) => {
                self.largest = self.largest.max(bytes);
                self.blocks.entry(block).or_default()
            }
            None if name.starts_with("output") => &mut self.output,
            None if name.starts_with("token_embd.") => &mut self.embedding,
            None => return,
        };
        *sum = sum.saturating_add(bytes);
    }

    /// Adds the sums of another part of a split model.
    pub(crate) fn add(&mut self, other: TensorTable) {
        self.count = self.count.saturating_add(other.count);
        self.elements = self.elements.saturating_add(other.elements);
        for (type_number, elements) in &other.elements_by_type {
            let sum = self.elements_by_type.entry(*type_number).or_default();
            *sum = sum.saturating_add(*elements);
        }
        self.data_bytes = self.data_bytes.zip(other.data_bytes).map(|(one, two)| one.max(two));
        for (block, bytes) in &other.blocks {
            let sum = self.blocks.entry(*block).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        self.output = self.output.saturating_add(other.output);
        self.has_output |= other.has_output;
        self.embedding = self.embedding.saturating_add(other.embedding);
        self.largest = self.largest.max(other.largest);
        self.positions = self.positions.or(other.positions);
        self.list.extend(other.list);
    }
}

/// The number of the block that a tensor of this name belongs to, and the rest of the name.
pub(crate) fn block_of(name: &str) -> Option<(u32, &str)> {
    let (number, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// The first occurrence of a problem, and the number of further ones. A hostile file cannot cause a
/// long list.
#[derive(Default)]
struct RepeatedProblem {
    first: Option<String>,
    more: u64,
}

impl RepeatedProblem {
    fn record(&mut self, message: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(message());
        } else {
            self.more += 1;
        }
    }

    fn into_diagnostic(self, code: &'static str) -> Option<Diagnostic> {
        let first = self.first?;
        let message =
            if self.more == 0 { first } else { format!("{first}, and {} more", self.more) };
        Some(Diagnostic::new(code, message))
    }
}

#[derive(Default)]
struct TensorProblems {
    unknown_type: RepeatedProblem,
    shape: RepeatedProblem,
    layout: RepeatedProblem,
}

impl TensorProblems {
    fn into_diagnostics(self) -> impl Iterator<Item = Diagnostic> {
        [
            self.unknown_type.into_diagnostic("unknown_tensor_type"),
            self.shape.into_diagnostic("tensor_shape"),
            self.layout.into_diagnostic("tensor_layout"),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Cursor as Bytes;

    use super::*;

    fn entry(name: &str, shape: &[u64], type_number: u32, offset: u64) -> Vec<u8> {
        let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|extent| bytes.extend_from_slice(&extent.to_le_bytes()));
        bytes.extend_from_slice(&type_number.to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8], count: u64) -> Result<(TensorTable, Vec<Diagnostic>)> {
        let mut diagnostics = Vec::new();
        let mut cursor = Cursor::new(Bytes::new(bytes), bytes.len() as u64);
        TensorTable::read(&mut cursor, count, 32, &mut diagnostics)
            .map(|table| (table, diagnostics))
    }

    #[track_caller]
    fn check_refused(bytes: &[u8], count: u64, message: &str) {
        let error = read(bytes, count).err().unwrap();
        assert!(error.message().contains(message), "{error}");
    }

    #[test]
    fn elements_and_data_size_are_summed() {
        let bytes =
            [entry("a", &[256, 2], 12, 0), entry("b", &[3], 0, 288), entry("c", &[], 0, 320)]
                .concat();
        let (table, diagnostics) = read(&bytes, 3).unwrap();
        assert_eq!((table.count, table.elements, table.data_bytes), (3, 516, Some(324)));
        assert!(diagnostics.is_empty());
    }

    #[test]
    fn bytes_are_summed_by_name() {
        let names = [
            "token_embd.weight",
            "blk.0.attn_q.weight",
            "blk.0.ffn_up.weight",
            "blk.11.attn_q.weight",
            "output.weight",
            "output_norm.weight",
            "rope_freqs.weight",
            "blk.x.weight",
        ];
        let tensors = names.iter().enumerate();
        let bytes: Vec<u8> = tensors
            .flat_map(|(index, name)| entry(name, &[1 << index], 0, (index as u64) << 32))
            .collect();
        let (mut table, _) = read(&bytes, names.len() as u64).unwrap();
        assert_eq!((table.embedding, table.output, table.largest), (4, 4 * (16 + 32), 4 * 8));
        assert_eq!(table.blocks, BTreeMap::from([(0, 4 * (2 + 4)), (11, 4 * 8)]));
        let (other, _) = read(&entry("blk.11.ffn_up.weight", &[100], 0, 0), 1).unwrap();
        table.add(other);
        assert_eq!((table.blocks[&11], table.largest), (4 * (8 + 100), 400));
    }

    #[test]
    fn oddities_are_diagnostics() {
        let bytes =
            [entry("a", &[8], 99, 0), entry("b", &[8], 31, 0), entry("c", &[8], 8, 7)].concat();
        let (table, diagnostics) = read(&bytes, 3).unwrap();
        assert_eq!(table.data_bytes, None);
        let codes: Vec<_> = diagnostics.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["unknown_tensor_type", "tensor_shape", "tensor_layout"]);
        assert!(diagnostics[0].message.ends_with("and 1 more"), "{}", diagnostics[0].message);
    }

    #[test]
    fn refusals() {
        check_refused(&[], u64::MAX, "claims 18446744073709551615 tensors");
        check_refused(&[], 16_385, "claims 16385 tensors, more than the limit of 16384");
        check_refused(&entry("a", &[1; 5], 0, 0), 1, "5 dimensions");
        check_refused(&entry("a", &[1 << 32, 1 << 32], 0, 0), 1, "too large");
        check_refused(&entry("a", &[1 << 32, 0, 1 << 32], 0, 0), 1, "too large");
        check_refused(&entry("a", &[1 << 62], 0, 0), 1, "too large");
        check_refused(&entry("a", &[1], 0, u64::MAX), 1, "too large");
        check_refused(&entry(&"n".repeat(64), &[1], 0, 0), 1, "64 bytes long");
        check_refused(
            &[entry("a", &[1], 0, 0), entry("a", &[1], 0, 0)].concat(),
            2,
            "occurs twice",
        );
    }
}
