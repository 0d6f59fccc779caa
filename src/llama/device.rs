//! Devices such as GPUs that can hold layers, and loading a model onto them.

use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

use llama_cpp_sys_2 as sys;
use serde_json::{Value, json};

use super::fit::{Device, MemoryNeeds};
use super::log::LogQueue;
use super::model::{self, ModelOptions};
use super::shim;
use crate::api::LogLevel;
use crate::error::{Code, Error, Result};

/// Loads that fit layers run one after another, because each must see the memory that the previous
/// one took.
static FITTING: Mutex<()> = Mutex::new(());

/// Whether there is a device. CPU-only builds have none.
pub(crate) fn exists() -> bool {
    model::start_backend();
    !raw().is_empty()
}

/// Loads by `load`. If the options leave the number of layers open, as many are put on devices as
/// fit. If llama.cpp then fails, half of them are tried, and then none. Without devices, or with a
/// header that lacks the sizes, llama.cpp decides: all layers.
pub(crate) fn load_fitting<T>(
    options: &ModelOptions,
    needs: Option<&MemoryNeeds>,
    log: &LogQueue,
    load: &mut dyn FnMut(&ModelOptions) -> Result<T>,
) -> Result<T> {
    let (None, Some(needs), true) = (options.n_gpu_layers, needs, exists()) else {
        return load(options);
    };
    let _one = FITTING.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = measured();
    // A device that does not report its memory makes fitting impossible.
    if devices.iter().any(|device| device.total == 0) {
        return load(options);
    }
    let all = needs.n_layers();
    let fitting = needs.fitting(&devices);
    let mut notes = Vec::new();
    let mut layers = fitting;
    let loaded = loop {
        match load(&ModelOptions { n_gpu_layers: Some(layers as u32), ..options.clone() }) {
            Err(error)
                if layers > 0
                    && matches!(error.code(), Code::ModelInvalid | Code::InferenceFailed) =>
            {
                let less = if layers == fitting { layers / 2 } else { 0 };
                let why = error.message();
                notes.push((
                    LogLevel::Warn,
                    format!("n_gpu_layers: loading {layers} of {all} layers failed, trying {less}: {why}"),
                ));
                layers = less;
            }
            Err(error) if fitting > 0 => {
                let message = format!(
                    "{} (tried with {fitting} layers on devices and with none)",
                    error.message()
                );
                break Err(Error::new(error.code(), message).caused_by(error));
            }
            other => break other,
        }
    };
    let mib = |bytes: u64| bytes / (1 << 20);
    let list =
        devices.iter().map(|device| format!("{} ({} MiB free)", device.name, mib(device.free)));
    let list = list.collect::<Vec<String>>().join(", ");
    notes.push((LogLevel::Info, format!("n_gpu_layers: {layers} of {all} layers on {list}")));
    notes.into_iter().for_each(|(level, text)| log.push(level, text));
    loaded
}

/// All devices of ggml, the CPU included: name, description and type.
pub(super) fn report() -> Vec<Value> {
    model::start_backend();
    let describe = |device: sys::ggml_backend_dev_t| {
        // SAFETY: a device of the registry.
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
    // SAFETY: a device of the registry, whose entries live as long as the process.
    let name = unsafe { sys::ggml_backend_dev_name(device) };
    // SAFETY: a text of the device, which lives as long as it.
    unsafe { text(name) }
}

/// # Safety
/// NULL, or a NUL-terminated text.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

fn measured() -> Vec<Device> {
    raw().into_iter().map(measure).collect()
}

fn measure(device: sys::ggml_backend_dev_t) -> Device {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the device is from the registry, whose entries live as long as the process; both
    // numbers are written during the call.
    let measured = shim::guard(|| unsafe {
        shim::calls::ggml_backend_dev_memory(device, &raw mut free, &raw mut total)
    });
    if measured.is_err() {
        (free, total) = (0, 0);
    }
    let name = name(device).unwrap_or_else(|| "?".to_owned());
    Device { name, free: free as u64, total: total as u64 }
}

/// The devices that llama.cpp uses by default: GPUs with their own memory, each once even if
/// several backends know it; else the GPUs of one backend that share the system's memory
/// (llama.cpp, `llama_prepare_model_devices`).
fn raw() -> Vec<sys::ggml_backend_dev_t> {
    let all = all();
    // SAFETY: the device is from the registry.
    let kind = |device: &sys::ggml_backend_dev_t| unsafe { sys::ggml_backend_dev_type(*device) };
    let of = |wanted| all.iter().copied().filter(move |device| kind(device) == wanted);
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
    // SAFETY: the device is from the registry.
    let backend =
        |device: sys::ggml_backend_dev_t| unsafe { sys::ggml_backend_dev_backend_reg(device) };
    let shared: Vec<_> = of(sys::GGML_BACKEND_DEVICE_TYPE_IGPU).collect();
    let first = shared.first().map(|device| backend(*device));
    shared.into_iter().filter(|device| Some(backend(*device)) == first).collect()
}

/// The devices of ggml's registry.
fn all() -> Vec<sys::ggml_backend_dev_t> {
    // SAFETY: `start_backend` has filled the registry; the call only reads it.
    let count = shim::guard(|| unsafe { shim::calls::ggml_backend_dev_count() }).unwrap_or(0);
    let get = |index| {
        // SAFETY: as above; the index is below the count.
        shim::guard(|| unsafe { shim::calls::ggml_backend_dev_get(index) }).ok()
    };
    (0..count).filter_map(get).collect()
}

/// The id of a device, the same in every backend.
fn id(device: sys::ggml_backend_dev_t) -> Option<String> {
    // SAFETY: a plain struct of numbers and pointers; zeros are valid values.
    let mut props: sys::ggml_backend_dev_props = unsafe { std::mem::zeroed() };
    // SAFETY: the device is from the registry; the struct is written during the call.
    let read =
        shim::guard(|| unsafe { shim::calls::ggml_backend_dev_get_props(device, &raw mut props) });
    if read.is_err() || props.device_id.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated text that lives as long as the device.
    Some(unsafe { CStr::from_ptr(props.device_id) }.to_string_lossy().into_owned())
}
