//! The C functions `llb_tokenize`, `llb_detokenize` and `llb_count`: a model file's vocabulary,
//! without a chat.

use std::ffi::c_char;

use serde_json::Value;

use super::guard::ToJson;
use super::{guard, string};
use crate::api::{self, Isolation};
use crate::error::Result;
use crate::tokens::{self, TokenCall, TokenReply};

/// Returns the tokens of a text: `{"type":"tokens","n_tokens","ids","tokens"?}` (docs/tokens.md).
///
/// Reads only the vocabulary of the file at `model_path`, which stays in memory for later calls.
/// Never returns NULL. Free the result with `llb_string_free`. May be called from any thread and
/// from callbacks.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_tokenize(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        run(TokenCall::Tokenize, unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Returns the text of tokens: `{"type":"text","text","bytes"?}` (docs/tokens.md).
///
/// All other rules are those of `llb_tokenize`.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_detokenize(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        run(TokenCall::Detokenize, unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Counts the tokens of a chat request's prompt, the same number as `usage.prompt_tokens` of its
/// reply: `{"type":"count","prompt_tokens","context_length","polyfills_applied"}` (docs/tokens.md).
///
/// The request is one of `llb_chat_infer` with `model_path`. All other rules are those of
/// `llb_tokenize`.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_count(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        run(TokenCall::Count, unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// A reply from this process or from a helper process.
enum TokenCallReply {
    Here(TokenReply),
    #[cfg(llb_isolation)]
    Isolated(String),
}

impl ToJson for TokenCallReply {
    fn into_json(self) -> serde_json::Result<Vec<u8>> {
        match self {
            TokenCallReply::Here(reply) => reply.into_json(),
            #[cfg(llb_isolation)]
            TokenCallReply::Isolated(text) => Ok(text.into_bytes()),
        }
    }
}

fn run(call: TokenCall, request: &str) -> Result<TokenCallReply> {
    guard::with_engine(|| {
        let request = api::parse(request, "request_json")?;
        match tokens::isolation(&request)? {
            Isolation::None => tokens::run(call, request).map(TokenCallReply::Here),
            Isolation::Process => isolated(call, request),
        }
    })
}

#[cfg(llb_isolation)]
fn isolated(call: TokenCall, request: Value) -> Result<TokenCallReply> {
    let version = super::version::text();
    crate::isolation::run_tokens(call, request, version, super::helper::start)
        .map(TokenCallReply::Isolated)
}

#[cfg(not(llb_isolation))]
fn isolated(_: TokenCall, _: Value) -> Result<TokenCallReply> {
    let problem = "\"process\" needs Linux on x86-64 or aarch64";
    Err(crate::error::Error::invalid("isolation", problem))
}
