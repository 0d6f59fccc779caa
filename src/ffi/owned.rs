//! The handles of the typed API, which are destroyed when they are dropped. Their calls have the
//! guard, the order and the table of handles of the C functions.

use std::ptr::without_provenance_mut;

use serde_json::Value;

use super::handle::{self, llb_chat, llb_embedder};
use super::open_chat::OpenChat;
use super::{chat, embed, guard};
use crate::api::{CreateOptions, EmbedOptions, Isolation};
use crate::chat::{Chat, EventSink};
use crate::embed::EmbeddingModel;
use crate::error::{Error, Result};

/// A chat in this process.
#[derive(Debug)]
pub(crate) struct OwnedChat(usize);

impl OwnedChat {
    /// Opens a chat. Emits the events of `llb_chat_create_with`.
    pub(crate) fn open(
        options: impl FnOnce() -> Result<CreateOptions>,
        events: EventSink,
    ) -> Result<OwnedChat> {
        let read = || {
            let options = options()?;
            match options.isolation {
                // Only isolated chats need the JSON.
                Isolation::None => Ok((options, Value::Null)),
                Isolation::Process => {
                    let problem = "the Rust API has no isolated chats; call llb_chat_create_with";
                    Err(Error::invalid("isolation", problem))
                }
            }
        };
        chat::open(read, events).map(|chat| OwnedChat(handle::key(chat)))
    }

    /// Runs a call on the chat. `BUSY` from a callback of the same chat.
    pub(crate) fn call<T>(&self, body: impl FnOnce(&Chat) -> Result<T>) -> Result<T> {
        let body = |chat: &OpenChat| match chat {
            OpenChat::Here(chat) => body(chat),
            #[cfg(llb_isolation)]
            OpenChat::Isolated(_) => unreachable!("`open` refuses isolated chats"),
        };
        guard::catch(|| chat::call(self.handle(), body))
    }

    /// See `llb_chat_cancel`.
    pub(crate) fn cancel(&self) {
        chat::llb_chat_cancel(self.handle());
    }

    /// See `llb_chat_end_reasoning`.
    pub(crate) fn end_reasoning(&self) {
        chat::llb_chat_end_reasoning(self.handle());
    }

    fn handle(&self) -> *mut llb_chat {
        without_provenance_mut(self.0)
    }
}

impl Drop for OwnedChat {
    fn drop(&mut self) {
        chat::llb_chat_destroy(self.handle());
    }
}

/// An embedding model.
#[derive(Debug)]
pub(crate) struct OwnedEmbedder(usize);

impl OwnedEmbedder {
    pub(crate) fn open(options: impl FnOnce() -> Result<EmbedOptions>) -> Result<OwnedEmbedder> {
        embed::open(options).map(|model| OwnedEmbedder(model.addr()))
    }

    /// Runs a call on the model.
    pub(crate) fn call<T>(&self, body: impl FnOnce(&EmbeddingModel) -> Result<T>) -> Result<T> {
        guard::catch(|| embed::call(self.handle(), body))
    }

    /// See `llb_embed_cancel`.
    pub(crate) fn cancel(&self) {
        embed::llb_embed_cancel(self.handle());
    }

    fn handle(&self) -> *mut llb_embedder {
        without_provenance_mut(self.0)
    }
}

impl Drop for OwnedEmbedder {
    fn drop(&mut self) {
        embed::llb_embed_destroy(self.handle());
    }
}
