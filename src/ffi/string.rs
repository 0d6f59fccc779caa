//! Strings across the edge: borrowed on the way in, owned by the caller on the way out.

use std::ffi::{CStr, CString, c_char};

use crate::error::{Error, Result};

/// Text of the caller's, or None for NULL. `name` is the argument's name in the header.
///
/// # Safety
/// `text` is NULL or NUL-terminated and stays as it is during the call.
pub(super) unsafe fn borrow_nullable<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL; the caller promises NUL termination.
    let text = unsafe { CStr::from_ptr(text) };
    let utf8 = text.to_str().map_err(|error| Error::invalid(name, format!("not valid UTF-8: {error}")).caused_by(error))?;
    Ok(Some(utf8))
}

/// Text of the caller's; NULL is `INVALID_REQUEST`.
///
/// # Safety
/// As [`borrow_nullable`].
pub(super) unsafe fn borrow<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: passed on to the caller.
    unsafe { borrow_nullable(text, name) }?.ok_or_else(|| Error::invalid(name, "is NULL"))
}

/// The text belongs to the caller now. It ends at a NUL, of which JSON text has none.
pub(super) fn give(text: impl Into<Vec<u8>>) -> *const c_char {
    owned(text).into_raw()
}

/// A C string with the text up to its first NUL.
pub(super) fn owned(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text.into()).unwrap_or_else(|error| {
        let end = error.nul_position();
        let mut bytes = error.into_vec();
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    })
}

/// Frees a string that a function of this library returned. NULL is fine.
///
/// Not for `llb_version`'s string, and not twice.
///
/// # Safety
/// `text` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_string_free(text: *const c_char) {
    if !text.is_null() {
        // SAFETY: the caller promises a string that `give` made.
        drop(unsafe { CString::from_raw(text.cast_mut()) });
    }
}
