//! Whether this process has lost a device of a file. From then on no model is loaded onto the
//! devices of files: a driver gives the same device again.

use crate::process::Shared;

/// What the driver said first.
static LOST: Shared<Option<String>> = Shared::new(None);
/// How it is reported: by Vulkan's drivers (vk::DeviceLostError), and by `kernels/device_cuda.cu`.
const DEVICE_LOST: [&str; 2] = ["ErrorDeviceLost", "CUDA device lost"];

/// Takes note of the loss of a device if that is what this error is about.
pub(crate) fn note(error: &str) {
    if DEVICE_LOST.iter().any(|text| error.contains(text)) {
        LOST.lock().get_or_insert_with(|| error.to_owned());
    }
}

/// What the driver said, if a device was lost.
pub(crate) fn reason() -> Option<String> {
    LOST.lock().clone()
}
