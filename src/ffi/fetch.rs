//! `llb_model_fetch*`: models from the hub.

use std::ffi::{c_char, c_void};

use super::callback::{Callback, llb_event_cb};
use super::{guard, string};

/// Fetches a model of the Hugging Face hub into the cache, and verifies it: `{"type":"model_fetched","path",...}`
/// (docs/hub.md). Blocks until the file is there, whole and judged by its header.
///
/// `on_event` may be NULL. It is called on this thread: `fetch_start`, `fetch_progress:<bytes>/<total>` at most ten times a
/// second, `fetch_verify`, and last `fetch_success` or `fetch_failure:<code>`. `llb_model_fetch_cancel` may be called in it.
/// Any thread; two fetches of one file wait for each other, in other processes too. Never NULL; free the result with
/// `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated. `on_event` may be called with `user_data` until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_fetch(
    request_json: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *const c_char {
    // SAFETY: promised by the caller.
    let events = unsafe { Callback::new(on_event, user_data) };
    guard::json(|| {
        // SAFETY: passed on to the caller.
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
            Err(Error::new(Code::InvalidRequest, "llb_model_fetch: not built into this library (the feature `hub`)"))
        }
    })
}

/// Ends the fetches of a model: `org/name:quant` those asked for by just that text, `org/name` all of that model. They answer
/// `CANCELLED`, and the next fetch goes on where they ended.
///
/// Returns at once. Any thread, also a callback; NULL and an id that nobody fetches do nothing.
///
/// # Safety
/// `id` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_fetch_cancel(id: *const c_char) {
    guard::quietly(|| {
        // SAFETY: passed on to the caller.
        let id = unsafe { string::borrow_nullable(id, "id") };
        #[cfg(feature = "hub")]
        if let Ok(Some(id)) = id {
            crate::hub::cancel(id);
        }
        #[cfg(not(feature = "hub"))]
        let _ = id;
    });
}
