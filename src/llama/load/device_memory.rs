//! The memory that is taken on one device.

use super::part_memory::PartMemory;

/// The memory that is taken on one device, in bytes.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    /// llama.cpp's name; `CPU` is main memory.
    pub name: String,
    /// The number of layers on it, the output included. `None` if llama.cpp decides.
    pub layers: Option<u32>,
    /// The tensors of the file.
    pub weights: u64,
    /// The KV cache and the states of recurrent layers.
    pub cache: u64,
    /// The buffers of a decode, including the logits.
    pub compute: u64,
    /// The free memory, if the system reports it.
    pub free: Option<u64>,
    /// The part of the free memory that may be used. The rest is a reserve.
    pub(super) usable: Option<u64>,
}

impl DeviceMemory {
    /// The sum of all parts.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.cache).saturating_add(self.compute)
    }

    /// Whether it fits into the usable memory. `None` if that is unknown.
    pub fn fits(&self) -> Option<bool> {
        self.usable.map(|usable| self.total() <= usable)
    }
}

/// The memory taken on all devices.
pub(super) fn sum(devices: &[DeviceMemory]) -> PartMemory {
    let part = |part: fn(&DeviceMemory) -> u64| devices.iter().map(part).sum();
    PartMemory {
        weights: part(|device| device.weights),
        cache: part(|device| device.cache),
        compute: part(|device| device.compute),
    }
}
