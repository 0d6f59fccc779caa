//! The version of the library and of its ABI.

use std::ffi::{CString, c_char};

use super::string;
use crate::process::Lazy;

/// Version of the C ABI. It grows when functions are added. An incompatible change would also
/// change the SONAME.
pub const LLB_ABI_VERSION: u32 = 1;

static VERSION: Lazy<CString> = Lazy::new(|| {
    #[cfg(feature = "engine")]
    let engine = crate::llama::version();
    #[cfg(not(feature = "engine"))]
    let engine = "not built in";
    string::c_string(format!("llb {} (llama.cpp {engine})", env!("CARGO_PKG_VERSION")))
});

/// Returns `llb <version> (llama.cpp <build>)`. The string is static: do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn llb_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the C ABI version of the loaded library: its `LLB_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn llb_abi_version() -> u32 {
    LLB_ABI_VERSION
}
