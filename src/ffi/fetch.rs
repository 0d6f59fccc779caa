//! The C functions `llb_model_fetch*`: models from the Hugging Face hub.

use std::ffi::{c_char, c_void};

use super::callback::{Callback, llb_event_cb};
use super::{guard, string};

/// Downloads a model from the Hugging Face hub into the cache and verifies it:
/// `{"type":"model_fetched","path",...}` (docs/hub.md).
///
/// Blocks until the file is complete and its header has been checked. Never returns NULL. Free
/// the result with `llb_string_free`. May be called from any thread. Fetches of the same file run
/// one at a time, also across processes.
///
/// `on_event` is called on the calling thread: `fetch_start`, then
/// `fetch_progress:<bytes>/<total>` at most ten times a second, `fetch_verify`, and last
/// `fetch_success` or `fetch_failure:<code>`. It may call `llb_model_fetch_cancel`.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated. `on_event` may be NULL; otherwise it may be
/// called with `user_data` until this function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_fetch(
    request_json: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *const c_char {
    // SAFETY: the caller allows calls of `on_event` until this function returns.
    let events = unsafe { Callback::new(on_event, user_data) };
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") };
        #[cfg(feature = "hub")]
        {
            use crate::hub::{Environment, fetch};
            fetch(request?, &Environment::process(), &mut |event| events.call(event))
        }
        #[cfg(not(feature = "hub"))]
        {
            use crate::error::{Code, Error};
            let _ = (request?, events);
            Err::<serde_json::Value, _>(Error::new(
                Code::InvalidRequest,
                "llb_model_fetch: this library was built without the feature `hub`",
            ))
        }
    })
}

/// Cancels the fetches of a model: `org/name:quant` cancels those requested by exactly that id, and
/// `org/name` all fetches of that model. They return `CANCELLED`. The next fetch resumes the
/// download.
///
/// Does not wait. May be called from any thread and from callbacks. NULL and an id with no
/// running fetch are no-ops.
///
/// # Safety
/// `id` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_fetch_cancel(id: *const c_char) {
    guard::void(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let id = unsafe { string::borrow_nullable(id, "id") };
        #[cfg(feature = "hub")]
        if let Ok(Some(id)) = id {
            crate::hub::cancel(id);
        }
        #[cfg(not(feature = "hub"))]
        let _ = id;
    });
}
