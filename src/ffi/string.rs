//! Strings that cross the C boundary. Arguments are borrowed from the caller, and results are owned
//! by the caller.

use std::ffi::{CStr, CString, c_char};

use crate::error::{Error, Result};

/// Borrows a string argument, or returns `None` for NULL. `name` is the argument's name in the
/// header.
///
/// # Safety
/// `text` must be NULL or NUL-terminated, and must not change during the call.
pub(super) unsafe fn borrow_nullable<'a>(
    text: *const c_char,
    name: &str,
) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: `text` is not NULL here, so the caller promises NUL termination.
    let text = unsafe { CStr::from_ptr(text) };
    let utf8 = text.to_str().map_err(|error| {
        Error::invalid(name, format!("not valid UTF-8: {error}")).caused_by(error)
    })?;
    Ok(Some(utf8))
}

/// Borrows a string argument. NULL is `INVALID_REQUEST`.
///
/// # Safety
/// As for [`borrow_nullable`].
pub(super) unsafe fn borrow<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: both functions have the same contract.
    unsafe { borrow_nullable(text, name) }?.ok_or_else(|| Error::invalid(name, "is NULL"))
}

/// Passes ownership of `text` to the C caller. The text ends at its first NUL; JSON contains
/// none.
pub(super) fn into_raw(text: impl Into<Vec<u8>>) -> *const c_char {
    c_string(text).into_raw()
}

/// Copies `text`, up to its first NUL, into a C string.
pub(super) fn c_string(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text.into()).unwrap_or_else(|error| {
        let end = error.nul_position();
        let mut bytes = error.into_vec();
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    })
}

/// Frees a string returned by this library. NULL is a no-op.
///
/// Do not pass the string of `llb_version`, and do not free a string twice. Any thread may free
/// it.
///
/// # Safety
/// `text` must be NULL or a string that this library returned and that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_string_free(text: *const c_char) {
    if !text.is_null() {
        // SAFETY: the caller promises a string made by `into_raw`.
        drop(unsafe { CString::from_raw(text.cast_mut()) });
    }
}
