//! Reads the header of a GGUF file into a `ModelHeader`: the facts that the file states about its
//! model, without the weights.
//!
//! In: a path, or a source that reads and seeks. Out: metadata (templates, token texts, sizes) and
//! sums over the tensor table. Tensor data and whole vocabularies are never read, and the size of
//! an allocation is limited by the size of the file.

mod embedding;
mod file_part;
mod header;
mod layers;
mod loadable;
mod metadata;
#[cfg(feature = "engine")]
mod predicting;
mod projector;
mod quantization;
mod reader;
#[cfg(feature = "engine")]
mod rollback;
mod split;
mod template_header;
mod tensors;
mod token_lengths;
mod value;

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "the test models of other tests have it too")]
#[path = "../../tests/scripted/gguf_writer.rs"]
pub(crate) mod gguf_writer;

#[cfg(feature = "hub")]
pub(crate) use file_part::FilePart;
#[cfg(feature = "hub")]
pub(crate) use split::PartName;

#[cfg(feature = "engine")]
pub(crate) use split::part_paths;
#[cfg(feature = "engine")]
pub(crate) use tensors::block_of;

pub use header::ModelHeader;
#[cfg(feature = "engine")]
pub(crate) use header::unusable;
pub use layers::{Attention, Layer, Layers};
pub use projector::{
    MediaPart, PictureLayout, ProjectorHeader, ProjectorType, SoundWindows, is_projector,
    preferred_projector, projector_beside,
};
pub use template_header::TemplateHeader;
pub use value::{GgufValue, ValueType};
