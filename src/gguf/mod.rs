//! GGUF file -> `ModelHeader`: what a model file says about itself, without its weights.
//!
//! In: a path, or anything that reads and seeks. Out: the metadata that decides (templates, token
//! texts, sizes) and sums over the tensor table. Never: tensor data, whole vocabularies, or an
//! allocation that the file's size does not vouch for.

mod file_part;
mod header;
mod layers;
mod metadata;
mod quantization;
mod reader;
mod split;
mod tensors;
mod writer;

#[cfg(feature = "hub")]
pub(crate) use split::PartName;

pub use header::ModelHeader;
pub use layers::{Layer, Layers};
pub use metadata::{GgufValue, ValueType};
pub use writer::GgufWriter;
