//! The handles of chats and embedding models. Handles are keys into a table, not pointers. All
//! types share one table, so a handle of the wrong type is detected too.

use std::sync::Arc;

use super::handle_table::HandleTable;
use super::open_chat::OpenChat;
use crate::embed::EmbeddingModel;
use crate::error::{Code, Error, Result};

/// An open chat. An opaque handle, not a pointer: never dereference or change it.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub struct llb_chat {
    _opaque: [u8; 0],
}

/// An open embedding model. An opaque handle, not a pointer: never dereference or change it.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub struct llb_embedder {
    _opaque: [u8; 0],
}

/// The object that a handle refers to.
#[derive(Clone)]
enum OpenHandle {
    Chat(Arc<OpenChat>),
    Embed(Arc<EmbeddingModel>),
}

static TABLE: HandleTable<OpenHandle> = HandleTable::new();

pub(super) fn key(handle: *const llb_chat) -> usize {
    handle.addr()
}

/// Adds a chat to the table and returns its handle.
pub(super) fn insert(chat: OpenChat) -> *mut llb_chat {
    std::ptr::without_provenance_mut(TABLE.insert(OpenHandle::Chat(Arc::new(chat))))
}

/// Adds an embedding model to the table and returns its handle.
pub(super) fn insert_embed(model: EmbeddingModel) -> *mut llb_embedder {
    std::ptr::without_provenance_mut(TABLE.insert(OpenHandle::Embed(Arc::new(model))))
}

/// Returns the chat of a handle. NULL and any handle that is not open are `ENGINE_CLOSED`.
pub(super) fn get(handle: *const llb_chat) -> Result<Arc<OpenChat>> {
    match TABLE.get(key(handle)) {
        Some(OpenHandle::Chat(chat)) => Ok(chat),
        _ => Err(closed("chat: not an open chat")),
    }
}

/// Like [`get`], for an embedding model.
pub(super) fn get_embed(handle: *const llb_embedder) -> Result<Arc<EmbeddingModel>> {
    match TABLE.get(handle.addr()) {
        Some(OpenHandle::Embed(model)) => Ok(model),
        _ => Err(closed("embedder: not an open embedding model")),
    }
}

/// Removes a chat from the table. Its handle is stale afterwards.
pub(super) fn remove(handle: *const llb_chat) -> Option<Arc<OpenChat>> {
    match TABLE.remove(key(handle), |open| matches!(open, OpenHandle::Chat(_)))? {
        OpenHandle::Chat(chat) => Some(chat),
        OpenHandle::Embed(_) => None,
    }
}

/// Like [`remove`], for an embedding model.
pub(super) fn remove_embed(handle: *const llb_embedder) -> Option<Arc<EmbeddingModel>> {
    match TABLE.remove(handle.addr(), |open| matches!(open, OpenHandle::Embed(_)))? {
        OpenHandle::Embed(model) => Some(model),
        OpenHandle::Chat(_) => None,
    }
}

/// Ends the call that runs on a chat, for a thread that has left the call without ending it.
pub(super) fn give_up_call(key: usize) {
    if let Ok(chat) = get(std::ptr::without_provenance(key)) {
        chat.give_up_call();
    }
}

fn closed(what: &str) -> Error {
    let message = format!("{what} of this process (NULL, destroyed, or never created)");
    Error::new(Code::EngineClosed, message)
}
