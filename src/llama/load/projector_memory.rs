//! The memory that a projector takes, and whether it is there, before the projector is loaded.
//!
//! In: a file whose header was checked. Out: bytes by device, as mtmd computes them: it creates the
//! encoder with its buffers, and reads no weights.

use std::path::Path;

use super::part_memory::PartMemory;
use super::projector_file::projector_error;
use crate::error::{Code, Error, Result};
use crate::gguf::ProjectorHeader;
use crate::llama::context::ModelOptions;
use crate::llama::devices;
use crate::llama::raw::shim::MemoryRow;
use crate::llama::raw::{machine_memory, stack};

/// The memory of a projector.
pub(super) struct ProjectorMemory {
    /// All of it as `compute`, a row for each device.
    rows: Vec<MemoryRow>,
    weights: u64,
}

impl ProjectorMemory {
    /// Measures a projector.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if the buffers of the encoder cannot be allocated. They are not touched.
    pub(super) fn measure(path: &str, header: &ProjectorHeader, use_gpu: bool) -> Result<Self> {
        let memory = ProjectorMemory { rows: rows(path, use_gpu)?, weights: header.bytes() };
        // An encoder without buffers is one whose buffers llama.cpp could not allocate.
        if memory.part().compute == 0 {
            let message = format!(
                "projector: {path}: there is not enough memory for the buffers of its encoder; use a smaller projector or leave it out"
            );
            return Err(Error::new(Code::OutOfMemory, message));
        }
        Ok(memory)
    }

    /// The sum of all devices.
    pub(super) fn part(&self) -> PartMemory {
        let all: u64 = self.rows.iter().map(|row| row.compute as u64).sum();
        let compute = all.saturating_sub(self.weights);
        PartMemory { weights: self.weights, cache: 0, compute }
    }

    /// The rows with the weights apart. They are on one device, the one that has most.
    pub(super) fn rows(&self) -> impl Iterator<Item = MemoryRow> {
        let largest = self.rows.iter().map(|row| row.compute).max();
        let mut weights = self.weights as usize;
        self.rows.iter().map(move |row| {
            let mut row = *row;
            if Some(row.compute) == largest {
                row.weights = row.compute.min(std::mem::take(&mut weights));
                row.compute -= row.weights;
            }
            row
        })
    }
}

/// Refuses a projector that does not fit into memory. `beside` is what the contexts of the models
/// take in main memory.
///
/// # Errors
/// `OUT_OF_MEMORY` with the path of the projector.
pub(super) fn check_projector_memory(path: &str, model: &ModelOptions, beside: u64) -> Result<()> {
    let header = ProjectorHeader::read_file(Path::new(path)).map_err(projector_error)?;
    let free = Free { available: machine_memory::available_memory(), beside };
    let use_gpu = model.may_use_devices();
    if !use_gpu {
        // Without buffers. llama.cpp could not even reserve the weights of a hostile file.
        free.check(path, PartMemory { weights: header.bytes(), ..PartMemory::default() })?;
    }
    let (path, devices) = (path.to_owned(), model.devices.clone());
    stack::load_on_thread("llb-load", move || {
        let memory = ProjectorMemory::measure(&path, &header, use_gpu)?;
        let devices = if use_gpu { devices.measured() } else { Vec::new() };
        memory.rows().try_for_each(|row| {
            let (weights, compute) = (row.weights as u64, row.compute as u64);
            let needed = PartMemory { weights, cache: 0, compute };
            let Some(name) = devices::name_of_other(row.device) else {
                return free.check(&path, needed);
            };
            let device = devices.iter().find(|device| device.name == name && device.total > 0);
            let available = device.map(|device| device.free);
            Free { available, beside: 0 }.check(&path, needed)
        })
    })
}

/// The memory that is free on a device.
struct Free {
    /// `None` if the system does not report it.
    available: Option<u64>,
    /// What else will be taken of it.
    beside: u64,
}

impl Free {
    fn check(&self, path: &str, projector: PartMemory) -> Result<()> {
        let PartMemory { weights, compute, .. } = projector;
        let needed = weights.saturating_add(compute);
        let Some(available) = self.available else { return Ok(()) };
        if needed.saturating_add(self.beside) <= available {
            return Ok(());
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let beside = match self.beside {
            0 => String::new(),
            beside => format!(" beside {} MiB for the context", mib(beside)),
        };
        let message = format!(
            "projector: {path} needs {} MiB ({} MiB weights, {} MiB buffers of its encoder){beside}, but {} MiB are available; use a smaller projector or leave it out",
            mib(needed),
            mib(weights),
            mib(compute),
            available >> 20
        );
        Err(Error::new(Code::OutOfMemory, message)
            .with("needed_bytes", needed.saturating_add(self.beside))
            .with("available_bytes", available))
    }
}

#[cfg(feature = "media")]
fn rows(path: &str, use_gpu: bool) -> Result<Vec<MemoryRow>> {
    crate::llama::projector::memory_rows(path, use_gpu)
}

#[cfg(not(feature = "media"))]
fn rows(_: &str, _: bool) -> Result<Vec<MemoryRow>> {
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_projector_must_fit_beside_the_context() {
        let projector = PartMemory { weights: 600 * MIB, cache: 0, compute: 100 * MIB };
        let check = |available, beside| Free { available, beside }.check("p.gguf", projector);
        assert!(check(None, u64::MAX).is_ok());
        assert!(check(Some(700 * MIB), 0).is_ok());
        assert!(check(Some(1000 * MIB), 300 * MIB).is_ok());
        let refused = check(Some(1000 * MIB), 301 * MIB).expect_err("refused");
        assert_eq!(refused.code(), Code::OutOfMemory);
        assert_eq!(
            refused.message(),
            "projector: p.gguf needs 700 MiB (600 MiB weights, 100 MiB buffers of its encoder) beside 301 MiB for the context, but 1000 MiB are available; use a smaller projector or leave it out"
        );
        assert!(check(Some(700 * MIB - 1), 0).is_err());
        assert!(check(Some(u64::MAX - 1), u64::MAX).is_err());
    }
}
