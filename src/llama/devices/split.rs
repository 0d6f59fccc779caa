//! How several devices divide a model: the options `split_mode`, `main_gpu` and `tensor_split`.
//!
//! In: the options, and the devices that a model may use. Out: those that remain, and the share of
//! the layers that each of them gets.

use std::ffi::CStr;

use llama_cpp_sys_2 as sys;

use super::{Device, DeviceSelection, NamedDevice, name, rpc};
use crate::api::{CreateOptions, SplitMode};
use crate::error::{Error, Result};
use crate::llama::raw::shim;

/// The function of a backend that can divide the rows of a matrix (llama.cpp, `make_gpu_buft_list`).
const SPLIT_BUFFERS: &CStr = c"ggml_backend_split_buffer_type";

/// How the devices of a model divide it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DeviceSplit {
    mode: SplitMode,
    /// The bits of the numbers of `tensor_split`; empty divides by free memory.
    shares: Vec<u32>,
}

impl DeviceSplit {
    /// By layers, and by free memory.
    pub(crate) const BY_LAYERS: DeviceSplit =
        DeviceSplit { mode: SplitMode::Layer, shares: Vec::new() };

    /// The devices that remain of a selection, and how they divide a model. `INVALID_REQUEST` with
    /// the devices that there are if the options do not suit them.
    pub(crate) fn of(
        options: &CreateOptions,
        selection: DeviceSelection,
    ) -> Result<(DeviceSelection, DeviceSplit)> {
        let choice = &options.placement;
        let shares: Vec<u32> = choice.tensor_split.iter().map(|share| share.to_bits()).collect();
        let split = DeviceSplit { mode: choice.split_mode, shares };
        let is_refused = selection == DeviceSelection::Processor
            || options.loading.n_gpu_layers == Some(0)
            || shim::lost_device().is_some();
        // Without devices by the caller's own wish, or after a loss, nothing is divided.
        if is_refused {
            return Ok((selection, DeviceSplit::BY_LAYERS));
        }
        let devices = selection.devices();
        let names: Vec<String> = devices.iter().filter_map(|device| name(*device)).collect();
        let main = choice.main_gpu as usize;
        if main > 0 && main >= names.len() {
            let problem = format!("there is no device {main}; {}", listed(&names));
            return Err(Error::invalid("main_gpu", problem).with("devices", names));
        }
        if split.shares.len() > names.len() {
            let count = split.shares.len();
            let problem = format!("got {count} numbers, one for each device; {}", listed(&names));
            return Err(Error::invalid("tensor_split", problem).with("devices", names));
        }
        match split.mode {
            SplitMode::Layer => {}
            SplitMode::None => {
                let only = devices.get(main).copied().and_then(NamedDevice::new);
                let selection = match only {
                    Some(only) => DeviceSelection::Named(vec![only]),
                    None => selection,
                };
                return Ok((selection, DeviceSplit::BY_LAYERS));
            }
            SplitMode::Tensor if devices.is_empty() => {
                let problem = format!("\"tensor\" needs a device; {}", listed(&names));
                return Err(Error::invalid("split_mode", problem).with("devices", names));
            }
            SplitMode::Tensor if names.iter().any(|name| rpc::is_server(name)) => {
                let problem = "\"tensor\" cannot be used with devices of other hosts";
                return Err(Error::invalid("split_mode", problem).with("devices", names));
            }
            SplitMode::Tensor => {}
            SplitMode::Row => {
                let unable = devices.iter().find(|device| !divides_rows(**device));
                if let Some(unable) = unable {
                    let unable = name(*unable).unwrap_or_default();
                    let problem = format!(
                        "the backend of {unable} cannot divide matrices by rows; set \"layer\", \
                         \"tensor\" or \"none\""
                    );
                    return Err(Error::invalid("split_mode", problem).with("devices", names));
                }
            }
        }
        Ok((selection, split))
    }

    /// llama.cpp's number for the mode. A model on one device is divided like one on several.
    pub(crate) fn mode(&self) -> sys::llama_split_mode {
        match self.mode {
            SplitMode::None | SplitMode::Layer => sys::LLAMA_SPLIT_MODE_LAYER,
            SplitMode::Row => sys::LLAMA_SPLIT_MODE_ROW,
            SplitMode::Tensor => sys::LLAMA_SPLIT_MODE_TENSOR,
        }
    }

    /// Whether every device has a part of each tensor. llama.cpp then sees one device, and nobody
    /// can compute how many layers fit.
    pub(crate) fn is_of_tensors(&self) -> bool {
        self.mode == SplitMode::Tensor
    }

    /// The share of each device, at least `count` of them. Empty divides by free memory.
    pub(crate) fn shares(&self, count: usize) -> Vec<f32> {
        let mut shares: Vec<f32> = self.shares.iter().map(|bits| f32::from_bits(*bits)).collect();
        if !shares.is_empty() {
            shares.resize(shares.len().max(count), 0.0);
        }
        shares
    }

    /// The selected devices with their memory and their shares.
    pub(crate) fn measured(&self, selection: &DeviceSelection) -> Vec<Device> {
        let mut devices = selection.measured();
        let shares = self.shares(devices.len());
        for (device, share) in devices.iter_mut().zip(shares) {
            device.share = share;
        }
        devices
    }
}

/// The devices for an error message, with their indices.
fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "the model may use no device".to_owned();
    }
    let list: Vec<String> =
        names.iter().enumerate().map(|(index, name)| format!("{index}: {name:?}")).collect();
    format!("the model may use {}", list.join(", "))
}

fn divides_rows(device: sys::ggml_backend_dev_t) -> bool {
    // SAFETY: a device of ggml, which lives as long as the process.
    let backend = unsafe { sys::ggml_backend_dev_backend_reg(device) };
    // SAFETY: a registration lives as long as the process, and the name is NUL-terminated.
    let found = shim::guard(|| unsafe {
        shim::calls::ggml_backend_reg_get_proc_address(backend, SPLIT_BUFFERS.as_ptr())
    });
    found.is_ok_and(|function| !function.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_shares_are_zero() {
        let split = |shares: &[f32]| DeviceSplit {
            mode: SplitMode::Layer,
            shares: shares.iter().map(|share| share.to_bits()).collect(),
        };
        assert_eq!(split(&[3.0, 1.0]).shares(4), [3.0, 1.0, 0.0, 0.0]);
        assert_eq!(split(&[3.0, 1.0]).shares(1), [3.0, 1.0]);
        assert_eq!(split(&[]).shares(4), [0.0; 0]);
    }

    #[test]
    fn devices_are_listed_with_their_indices() {
        let names = ["CUDA0".to_owned(), "CUDA1".to_owned()];
        assert_eq!(listed(&names), r#"the model may use 0: "CUDA0", 1: "CUDA1""#);
        assert_eq!(listed(&[]), "the model may use no device");
    }
}
