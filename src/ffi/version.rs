//! The version of the library and of its ABI.

use std::ffi::{CStr, CString, c_char};

use super::{guard, string};
use crate::llama;
use crate::process::{Lazy, Shared};

/// Version of the C ABI. It grows when functions are added. An incompatible change would also
/// change the SONAME.
pub const LLB_ABI_VERSION: u32 = 2;

static VERSION: Lazy<CString> = Lazy::new(|| {
    string::c_string(format!("llb {} (llama.cpp b{})", env!("CARGO_PKG_VERSION"), llama::BUILD))
});

/// The version texts that name a variant of kernels, by variant. They are never freed.
static WITH_KERNELS: Shared<Vec<(&str, &CStr)>> = Shared::new(Vec::new());

/// Returns `llb <version> (llama.cpp b<build>)`. If kernels from a file are used, or will be after
/// the first chat is created, ` <variant>` follows (docs/backends.md). The string is static: do not
/// free it.
#[unsafe(no_mangle)]
pub extern "C" fn llb_version() -> *const c_char {
    with_used_kernels().as_ptr()
}

/// The text of `llb_version`.
pub(crate) fn used_version() -> &'static str {
    with_used_kernels().to_str().unwrap_or_default()
}

fn with_used_kernels() -> &'static CStr {
    let variant = guard::catch(|| Ok(llama::file_variant())).ok().flatten();
    variant.map_or(&VERSION, with_kernels)
}

fn with_kernels(variant: &'static str) -> &'static CStr {
    let mut texts = WITH_KERNELS.lock();
    if let Some((_, text)) = texts.iter().find(|(known, _)| *known == variant) {
        return text;
    }
    let text = string::c_string(format!("{} {variant}", VERSION.to_str().unwrap_or_default()));
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    texts.push((variant, text));
    text
}

/// The text of `llb_version` without kernels.
#[cfg(llb_isolation)]
pub(super) fn text() -> &'static str {
    VERSION.to_str().unwrap_or_default()
}

/// Returns the C ABI version of the loaded library: its `LLB_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn llb_abi_version() -> u32 {
    LLB_ABI_VERSION
}
