//! GGUF file -> `ModelHeader`: the facts about a model that its file states, without the weights.
//!
//! In: a path, or a source that reads and seeks. Out: metadata (templates, token texts, sizes) and
//! sums over the tensor table. Tensor data and whole vocabularies are never read, and no allocation
//! exceeds what the file's size justifies.

mod file_part;
mod header;
mod layers;
mod loadable;
mod metadata;
mod quantization;
mod reader;
mod split;
mod tensors;
mod token_lengths;
mod value;
mod writer;

#[cfg(feature = "hub")]
pub(crate) use split::PartName;

#[cfg(feature = "engine")]
pub(crate) use split::part_paths;

pub use header::ModelHeader;
pub use layers::{Layer, Layers};
pub use value::{GgufValue, ValueType};
pub use writer::GgufWriter;
