//! Where the weights of a model may live: the devices, how they divide it, and the tensors that live
//! elsewhere.
//!
//! In: the options of a load and the header of its model. Out: what does not depend on the context.
//! Files of devices are opened if the options may use them.

use super::fit::LayerChoice;
use super::tensor_places::TensorPlaces;
use crate::api::CreateOptions;
use crate::error::Result;
use crate::gguf::ModelHeader;
use crate::llama::devices::{Device, DeviceSelection, DeviceSplit};

/// Where the weights of a model may live.
#[derive(Debug, Clone)]
pub(crate) struct WeightPlaces {
    pub(crate) devices: DeviceSelection,
    pub(crate) split: DeviceSplit,
    pub(crate) tensors: TensorPlaces,
    /// What the options leave to llb.
    pub(crate) choice: LayerChoice,
}

impl WeightPlaces {
    /// The places by these options. `INVALID_REQUEST` with what there is if they name a device or
    /// a tensor that does not exist.
    pub(crate) fn of(options: &CreateOptions, header: &ModelHeader) -> Result<WeightPlaces> {
        let (devices, split) = DeviceSplit::of(options, DeviceSelection::of(options)?)?;
        let choice = LayerChoice {
            n_gpu_layers: options.loading.n_gpu_layers,
            n_cpu_moe: options.placement.n_cpu_moe,
        };
        let tensors =
            TensorPlaces::of(&options.placement, header, &devices, split.is_of_tensors())?;
        Ok(WeightPlaces { devices, split, tensors, choice })
    }

    /// The devices that can hold layers, with their memory. Empty if llb cannot compute what fits on
    /// them: there are none, or one does not report its memory, or they share every tensor.
    pub(crate) fn measured(&self) -> Vec<Device> {
        if self.choice.n_gpu_layers == Some(0) || self.split.is_of_tensors() {
            return Vec::new();
        }
        let devices = self.split.measured(&self.devices);
        if devices.iter().all(|device| device.total > 0) { devices } else { Vec::new() }
    }
}
