//! The version of the library and of its ABI.

use std::ffi::{CString, c_char};

use super::string;
use crate::llama;
use crate::process::Lazy;

/// Version of the C ABI. It grows when functions are added. An incompatible change would also
/// change the SONAME.
pub const LLB_ABI_VERSION: u32 = 1;

static VERSION: Lazy<CString> = Lazy::new(|| {
    string::c_string(format!("llb {} (llama.cpp b{})", env!("CARGO_PKG_VERSION"), llama::BUILD))
});

/// Returns `llb <version> (llama.cpp b<build>)`. The string is static: do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn llb_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The text of `llb_version`.
#[cfg(llb_isolation)]
pub(super) fn text() -> &'static str {
    VERSION.to_str().unwrap_or_default()
}

/// Returns the C ABI version of the loaded library: its `LLB_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn llb_abi_version() -> u32 {
    LLB_ABI_VERSION
}
