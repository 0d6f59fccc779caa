//! Which library this is.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use super::string;

/// Version of the C ABI; grows when functions are added, and would change the SONAME if one were changed.
pub const LLB_ABI_VERSION: u32 = 1;

static VERSION: LazyLock<CString> = LazyLock::new(|| {
    #[cfg(feature = "engine")]
    let engine = crate::llama::version();
    #[cfg(not(feature = "engine"))]
    let engine = "not built in";
    string::owned(format!("llb {} (llama.cpp {engine})", env!("CARGO_PKG_VERSION")))
});

/// Returns `llb <version> (llama.cpp <build>)`. Static: do not free.
#[unsafe(no_mangle)]
pub extern "C" fn llb_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the version of the C ABI, `LLB_ABI_VERSION` of the header it was built with.
#[unsafe(no_mangle)]
pub extern "C" fn llb_abi_version() -> u32 {
    LLB_ABI_VERSION
}
