//! Whether this process has lost a device of a file. From then on no model is loaded onto the
//! devices of files: a driver gives the same device again.

use crate::process::Shared;

/// What the driver said first.
static LOST: Shared<Option<String>> = Shared::new(None);
/// How a Vulkan driver reports it (vk::DeviceLostError).
const DEVICE_LOST: &str = "ErrorDeviceLost";

/// Takes note of the loss of a device if that is what this error is about.
pub(super) fn note(error: &str) {
    if error.contains(DEVICE_LOST) {
        LOST.lock().get_or_insert_with(|| error.to_owned());
    }
}

/// What the driver said, if a device was lost.
pub(super) fn reason() -> Option<String> {
    LOST.lock().clone()
}
