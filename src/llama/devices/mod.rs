//! The devices such as GPUs, and those that a model may use, by its options.
//!
//! In: the options `devices` and `n_gpu_layers`. Out: a list of devices for llama.cpp. Files of
//! devices are opened only for options that may use one, and servers are connected if they are named.

mod device_file;
mod report;
mod rpc;
mod split;

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;
use serde_json::{Value, json};

pub(crate) use self::report::backends as backends_report;
pub(crate) use self::rpc::is_about_server;
pub use self::rpc::{RpcService, ShouldStop};
pub(crate) use self::split::DeviceSplit;
use super::kernels::{self, start_llama_cpp};
use super::raw::{LogQueue, shim};
use crate::api::{CreateOptions, DeviceChoice};
use crate::error::{Code, Error, Result};

/// The least and the most memory of a device that is left free.
pub(crate) const MIN_RESERVE: u64 = 256 << 20;
pub(crate) const MAX_RESERVE: u64 = 1 << 30;

/// A device that can hold layers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Device {
    /// llama.cpp's name for it.
    pub(crate) name: String,
    /// Free memory in bytes.
    pub(crate) free: u64,
    /// Total memory in bytes.
    pub(crate) total: u64,
    /// What decides its part of the layers: the ratio of this number to those of the others.
    pub(crate) share: f32,
}

impl Device {
    /// A device whose share is its free memory.
    pub(crate) fn new(name: String, free: u64, total: u64) -> Device {
        Device { name, free, total, share: free as f32 }
    }

    /// The memory that a model may use. The rest is a reserve for drivers, other programs and
    /// errors of the estimate.
    pub(crate) fn usable(&self) -> u64 {
        self.free.saturating_sub((self.total / 16).clamp(MIN_RESERVE, MAX_RESERVE))
    }
}

/// A device of ggml, which lives as long as the process. A server that was lost and is connected
/// again has other devices of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NamedDevice(NonNull<sys::ggml_backend_device>);

// SAFETY: a device does not change, and llama.cpp calls its functions from any thread.
unsafe impl Send for NamedDevice {}
// SAFETY: as above.
unsafe impl Sync for NamedDevice {}

impl NamedDevice {
    fn new(device: sys::ggml_backend_dev_t) -> Option<NamedDevice> {
        NonNull::new(device).map(NamedDevice)
    }
}

/// Which devices a model may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum DeviceSelection {
    /// Those that llama.cpp uses by default, of the library and of files.
    Default,
    /// Those that llama.cpp uses by default, of the library alone.
    BuiltIn,
    /// These.
    Named(Vec<NamedDevice>),
    /// None.
    Processor,
}

impl DeviceSelection {
    /// Opens files of devices if the options may use them. `INVALID_REQUEST` if they name an
    /// unknown device.
    pub(crate) fn of(options: &CreateOptions) -> Result<DeviceSelection> {
        if may_use_files(options) {
            device_file::open();
        }
        match (&options.loading.devices, options.loading.n_gpu_layers) {
            (DeviceChoice::Processor, _) => Ok(DeviceSelection::Processor),
            (DeviceChoice::Auto, Some(0)) if !options.placement.puts_tensors_on_devices() => {
                Ok(DeviceSelection::BuiltIn)
            }
            (DeviceChoice::Auto, _) if shim::lost_device().is_some() => {
                Ok(DeviceSelection::BuiltIn)
            }
            (DeviceChoice::Auto, _) => Ok(DeviceSelection::Default),
            (DeviceChoice::Named(names), _) => DeviceSelection::named(names),
        }
    }

    /// The processor may be named too, because `llb_backends` lists it, but it is used in any case.
    fn named(names: &[String]) -> Result<DeviceSelection> {
        let mut wanted: Vec<NamedDevice> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let path = format!("devices[{index}]");
            let found = match rpc::is_server(name) {
                true => rpc::connect(name, &path)?,
                false => find(name, &path)?.into_iter().collect(),
            };
            for device in found.into_iter().filter_map(NamedDevice::new) {
                if !wanted.contains(&device) {
                    wanted.push(device);
                }
            }
        }
        Ok(match wanted.is_empty() {
            true => DeviceSelection::Processor,
            false => DeviceSelection::Named(wanted),
        })
    }

    /// Whether there is a device that the model may use.
    pub(crate) fn has_any(&self) -> bool {
        !self.devices().is_empty()
    }

    /// The devices, without the processor.
    pub(crate) fn devices(&self) -> Vec<sys::ggml_backend_dev_t> {
        if start_llama_cpp().is_err() {
            return Vec::new();
        }
        match self {
            DeviceSelection::Processor => Vec::new(),
            DeviceSelection::Default => usual(&local()),
            DeviceSelection::BuiltIn => usual(&built_in()),
            DeviceSelection::Named(devices) => {
                let devices = devices.iter().map(|device| device.0.as_ptr());
                devices.filter(|device| !was_lost(*device)).collect()
            }
        }
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.devices().into_iter().filter_map(name).collect()
    }

    /// The selected devices, with their memory.
    pub(crate) fn measured(&self) -> Vec<Device> {
        self.devices().into_iter().map(measure).collect()
    }

    /// The list of devices for llama.cpp, which ends with NULL. `None` if llama.cpp chooses.
    pub(crate) fn list(&self) -> Option<Vec<sys::ggml_backend_dev_t>> {
        let chooses = match self {
            DeviceSelection::BuiltIn => true,
            DeviceSelection::Default => device_file::devices().is_empty(),
            DeviceSelection::Named(_) | DeviceSelection::Processor => false,
        };
        (!chooses).then(|| self.devices().into_iter().chain([std::ptr::null_mut()]).collect())
    }
}

/// The device of this host with this name, unless it is the processor or was lost. `path` is that of
/// the option.
fn find(wanted: &str, path: &str) -> Result<Option<sys::ggml_backend_dev_t>> {
    let all: Vec<_> = built_in().into_iter().chain(device_file::known_devices()).collect();
    let Some(found) = all.iter().find(|device| name(**device).as_deref() == Some(wanted)) else {
        let there: Vec<String> = all.iter().filter_map(|device| name(*device)).collect();
        let list: Vec<String> = there.iter().map(|name| format!("{name:?}")).collect();
        let problem =
            format!("there is no device {wanted:?}; llb_backends lists {}", list.join(", "));
        return Err(Error::invalid(path, problem).with("devices", there));
    };
    match kind(*found) {
        sys::GGML_BACKEND_DEVICE_TYPE_CPU => Ok(None),
        sys::GGML_BACKEND_DEVICE_TYPE_GPU | sys::GGML_BACKEND_DEVICE_TYPE_IGPU => {
            Ok((!was_lost(*found)).then_some(*found))
        }
        _ => Err(Error::invalid(path, format!("{wanted:?} cannot hold layers"))),
    }
}

/// Whether a driver has lost this device or another one of a file.
fn was_lost(device: sys::ggml_backend_dev_t) -> bool {
    shim::lost_device().is_some() && device_file::known_devices().contains(&device)
}

/// Serves devices of this host to other hosts, until `should_stop`: those with these names, or those
/// that a model would use, or the processor if there are none. `on_line` gets what the server says.
/// For the program.
pub fn serve_rpc(
    service: &RpcService<'_>,
    names: &[String],
    should_stop: ShouldStop,
    on_line: &mut dyn FnMut(&str),
) -> Result<()> {
    kernels::choose(None)?;
    let mut devices = match names {
        [] => default_devices(),
        _ => {
            device_file::open();
            let find = |name: &String| match find(name, "devices")? {
                Some(device) => Ok(device),
                None => processor(),
            };
            names.iter().map(find).collect::<Result<_>>()?
        }
    };
    if devices.is_empty() {
        devices.push(processor()?);
    }
    rpc::serve(service, &devices, should_stop, on_line)
}

/// The processor as a device.
fn processor() -> Result<sys::ggml_backend_dev_t> {
    let is_processor = |device: &_| kind(*device) == sys::GGML_BACKEND_DEVICE_TYPE_CPU;
    built_in()
        .into_iter()
        .find(is_processor)
        .ok_or_else(|| Error::new(Code::InferenceFailed, "ggml has no device for the processor"))
}

/// The devices that a model uses if its options name none. Opens files of devices. For benchmarks,
/// which use llama.cpp on the same devices.
pub fn default_devices() -> Vec<sys::ggml_backend_dev_t> {
    device_file::open();
    DeviceSelection::Default.devices()
}

/// The buffers of the device with this name; those of main memory for `None`. `None` if there is no
/// such device.
pub(crate) fn buffer_type(device: Option<&str>) -> Option<sys::ggml_backend_buffer_type_t> {
    let Some(wanted) = device else {
        // SAFETY: takes nothing; the type lives as long as the process.
        return shim::guard(|| unsafe { shim::calls::ggml_backend_cpu_buffer_type() }).ok();
    };
    let found = all().into_iter().find(|device| name(*device).as_deref() == Some(wanted))?;
    // SAFETY: a device of ggml, which lives as long as the process.
    shim::guard(|| unsafe { shim::calls::ggml_backend_dev_buffer_type(found) }).ok()
}

/// Whether a device of this name was lost.
pub(crate) fn is_lost(wanted: &str) -> bool {
    let is_it = |device| name(device).as_deref() == Some(wanted);
    shim::lost_device().is_some() && device_file::known_devices().into_iter().any(is_it)
}

/// Logs which files of devices were not used for these options.
pub(crate) fn log(options: &CreateOptions, log: &LogQueue) {
    if may_use_files(options) {
        device_file::log(log);
    }
}

/// Whether files of devices are opened for these options.
fn may_use_files(options: &CreateOptions) -> bool {
    match options.loading.devices {
        DeviceChoice::Auto => {
            options.loading.n_gpu_layers != Some(0) || options.placement.puts_tensors_on_devices()
        }
        DeviceChoice::Named(_) => true,
        DeviceChoice::Processor => false,
    }
}

fn kind(device: sys::ggml_backend_dev_t) -> sys::ggml_backend_dev_type {
    // SAFETY: a device of ggml, which lives as long as the process.
    unsafe { sys::ggml_backend_dev_type(device) }
}

/// Those of the devices that llama.cpp uses by default. These are the GPUs with their own memory,
/// each once even if several backends support it. Without such GPUs, they are the GPUs of one
/// backend that share the system's memory (llama.cpp, `llama_prepare_model_devices`).
fn usual(all: &[sys::ggml_backend_dev_t]) -> Vec<sys::ggml_backend_dev_t> {
    let of = |wanted| all.iter().copied().filter(move |device| kind(*device) == wanted);
    let mut seen: Vec<String> = Vec::new();
    let own: Vec<_> = of(sys::GGML_BACKEND_DEVICE_TYPE_GPU)
        .filter(|device| match id(*device) {
            Some(id) if seen.contains(&id) => false,
            Some(id) => {
                seen.push(id);
                true
            }
            None => true,
        })
        .collect();
    if !own.is_empty() {
        return own;
    }
    // SAFETY: a device of ggml, which lives as long as the process.
    let backend =
        |device: sys::ggml_backend_dev_t| unsafe { sys::ggml_backend_dev_backend_reg(device) };
    let shared: Vec<_> = of(sys::GGML_BACKEND_DEVICE_TYPE_IGPU).collect();
    let first = shared.first().map(|device| backend(*device));
    shared.into_iter().filter(|device| Some(backend(*device)) == first).collect()
}

/// A device's id, which is the same in every backend.
fn id(device: sys::ggml_backend_dev_t) -> Option<String> {
    // SAFETY: a plain struct of numbers and pointers; zeros are valid values.
    let mut props: sys::ggml_backend_dev_props = unsafe { std::mem::zeroed() };
    // SAFETY: the device lives as long as the process; the struct is written during the call.
    let read =
        shim::guard(|| unsafe { shim::calls::ggml_backend_dev_get_props(device, &raw mut props) });
    if read.is_err() || props.device_id.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated text that lives as long as the device.
    Some(unsafe { CStr::from_ptr(props.device_id) }.to_string_lossy().into_owned())
}

/// All devices, the CPU included: name, description and type. Opens files of devices.
pub(crate) fn report() -> Vec<Value> {
    device_file::open();
    let describe = |device: sys::ggml_backend_dev_t| {
        // SAFETY: a device of ggml.
        let kind = match unsafe { sys::ggml_backend_dev_type(device) } {
            sys::GGML_BACKEND_DEVICE_TYPE_CPU => "cpu",
            sys::GGML_BACKEND_DEVICE_TYPE_GPU => "gpu",
            sys::GGML_BACKEND_DEVICE_TYPE_IGPU => "integrated_gpu",
            _ => "accelerator",
        };
        // SAFETY: as above.
        let description = unsafe { sys::ggml_backend_dev_description(device) };
        // SAFETY: a text of the device, which lives as long as the process.
        let description = unsafe { text(description) };
        json!({ "name": name(device), "description": description, "type": kind })
    };
    all().into_iter().map(describe).collect()
}

fn name(device: sys::ggml_backend_dev_t) -> Option<String> {
    // SAFETY: a device of ggml, which lives as long as the process.
    let name = unsafe { sys::ggml_backend_dev_name(device) };
    // SAFETY: a text of the device, which lives as long as it.
    unsafe { text(name) }
}

/// The name of a device other than the CPU; `None` for the CPU and for NULL.
pub(crate) fn name_of_other(device: sys::ggml_backend_dev_t) -> Option<String> {
    if device.is_null() {
        return None;
    }
    // SAFETY: a device of ggml.
    let kind = unsafe { sys::ggml_backend_dev_type(device) };
    (kind != sys::GGML_BACKEND_DEVICE_TYPE_CPU).then(|| name(device)).flatten()
}

/// # Safety
/// NULL, or a NUL-terminated text.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

fn measure(device: sys::ggml_backend_dev_t) -> Device {
    let (mut free, mut total) = (0, 0);
    // SAFETY: a device of ggml, which lives as long as the process; both numbers are written during
    // the call.
    let measured = shim::guard(|| unsafe {
        shim::calls::ggml_backend_dev_memory(device, &raw mut free, &raw mut total)
    });
    if measured.is_err() {
        (free, total) = (0, 0);
    }
    let name = name(device).unwrap_or_else(|| "?".to_owned());
    Device::new(name, free as u64, total as u64)
}

/// All devices: those of this host, and those of servers that are connected.
fn all() -> Vec<sys::ggml_backend_dev_t> {
    local().into_iter().chain(rpc::devices()).collect()
}

/// The devices of this host: those of the library, the processor included, and those of files that
/// were opened.
fn local() -> Vec<sys::ggml_backend_dev_t> {
    built_in().into_iter().chain(device_file::devices()).collect()
}

/// The devices of ggml's registry.
fn built_in() -> Vec<sys::ggml_backend_dev_t> {
    // SAFETY: `start_llama_cpp` has filled the registry; the call only reads it.
    let count = shim::guard(|| unsafe { shim::calls::ggml_backend_dev_count() }).unwrap_or(0);
    let get = |index| {
        // SAFETY: as above; the index is below the count.
        shim::guard(|| unsafe { shim::calls::ggml_backend_dev_get(index) }).ok()
    };
    (0..count).filter_map(get).collect()
}
