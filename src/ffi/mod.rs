//! The C ABI. Each function is short: guard, check, convert, call, convert.
//!
//! Contract of every function:
//!
//! - Strings are UTF-8 and NUL-terminated. Inputs are copied.
//! - A returned string is never NULL. The caller owns it and frees it with `llb_string_free`. That of
//!   `llb_version` is static and is not freed.
//! - No input ends the process, and nothing is printed.
//! - Any thread may call it.
#![allow(unsafe_code, reason = "the only module called from C")]

mod backends;
mod callback;
mod chat;
mod embed;
mod fetch;
#[cfg(unix)]
mod fork;
mod guard;
mod handle;
mod handle_table;
#[cfg(llb_isolation)]
mod helper;
mod host;
mod memory;
mod model;
mod open_chat;
mod owned;
mod string;
mod template;
mod tokens;
mod unload;
mod version;

pub use backends::llb_backends;
pub use callback::{llb_event_cb, llb_token_cb};
pub use chat::{
    llb_chat_cancel, llb_chat_create, llb_chat_create_with, llb_chat_destroy,
    llb_chat_end_reasoning, llb_chat_explain, llb_chat_infer, llb_chat_infer_stream,
};
pub use embed::{llb_embed, llb_embed_cancel, llb_embed_create, llb_embed_destroy, llb_rank};
pub use fetch::{llb_model_fetch, llb_model_fetch_cancel};
pub use guard::llb_last_error;
pub use handle::{llb_chat, llb_embedder};
pub use memory::llb_memory;
pub use model::llb_model_info;
pub use string::llb_string_free;
pub use template::{
    llb_template_compose, llb_template_info, llb_template_parse, llb_template_render,
};
pub use tokens::{llb_count, llb_detokenize, llb_tokenize};
pub use unload::llb_model_unload;
pub use version::{LLB_ABI_VERSION, llb_abi_version, llb_version};

pub(crate) use guard::catch;
pub(crate) use owned::{OwnedChat, OwnedEmbedder};
pub(crate) use version::used_version;
