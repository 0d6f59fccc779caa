//! The sizes of one of several models.

/// The memory that one of several models takes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartMemory {
    /// The tensors of the file.
    pub weights: u64,
    /// The KV cache, and the states of recurrent layers.
    pub cache: u64,
    /// The buffers of a decode, including the logits.
    pub compute: u64,
}
