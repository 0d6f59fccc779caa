//! The devices of ggml, and memory that is held on one of them.

use std::ffi::CStr;

use llama_cpp_sys_2 as sys;

/// The number of bytes in a MiB.
pub(crate) const MIB: usize = 1 << 20;

/// The device that the checks are for.
pub(crate) struct Device(sys::ggml_backend_dev_t);

impl Device {
    /// The first device that llb uses by default, if any.
    pub(crate) fn first() -> Option<Device> {
        llb::llama::default_devices().first().map(|device| Device(*device))
    }

    /// For llama.cpp.
    pub(crate) fn handle(&self) -> sys::ggml_backend_dev_t {
        self.0
    }

    pub(crate) fn description(&self) -> String {
        // SAFETY: devices live forever.
        let text = unsafe { sys::ggml_backend_dev_description(self.0) };
        // SAFETY: the description is NUL-terminated and lives as long as the device.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// The number of free bytes.
    pub(crate) fn free(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are valid for the call.
        unsafe { sys::ggml_backend_dev_memory(self.0, &raw mut free, &raw mut total) };
        free
    }

    /// Allocates memory until `free` bytes are left. `None` if the device does not have that much
    /// free memory.
    pub(crate) fn leave(&self, free: usize) -> Option<HeldMemory> {
        let size = self.free().checked_sub(free)?;
        // SAFETY: the device lives forever.
        let kind = unsafe { sys::ggml_backend_dev_buffer_type(self.0) };
        // SAFETY: the buffer type belongs to the device.
        let buffer = unsafe { sys::ggml_backend_buft_alloc_buffer(kind, size) };
        (!buffer.is_null()).then_some(HeldMemory(buffer))
    }
}

/// Memory of a device, which is freed when this is dropped.
pub(crate) struct HeldMemory(sys::ggml_backend_buffer_t);

impl Drop for HeldMemory {
    fn drop(&mut self) {
        // SAFETY: made by `leave`, freed once.
        unsafe { sys::ggml_backend_buffer_free(self.0) };
    }
}
