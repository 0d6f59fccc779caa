//! A model in memory: an embedding model, or the chats of a chat model, which share the weights and
//! are decoded together. Dropping the last reference frees the memory.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::abi::{Chat, Embedder, OnEvent};
use crate::failure::{Failure, Result};

/// The purpose of a served model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Chat,
    Embedding,
}

pub(crate) enum LoadedModel {
    Chat(ChatModel),
    Embedding(Embedder),
}

pub(crate) struct ChatModel {
    options: Value,
    /// Chats that no request uses.
    idle: Mutex<Vec<Arc<Chat>>>,
    /// Also one of the idle chats. It is used for explanations, which do not wait for a running
    /// request.
    first: Arc<Chat>,
}

impl LoadedModel {
    /// Loads a model with the options of a create. Blocks.
    pub(super) fn open(
        purpose: Purpose,
        options: &Value,
        on_event: OnEvent,
    ) -> Result<LoadedModel> {
        match purpose {
            Purpose::Chat => ChatModel::open(options, on_event).map(LoadedModel::Chat),
            Purpose::Embedding => Embedder::open(options).map(LoadedModel::Embedding),
        }
    }

    pub(crate) fn chats(&self) -> Result<&ChatModel> {
        match self {
            LoadedModel::Chat(chats) => Ok(chats),
            LoadedModel::Embedding(_) => Err(Failure::new("the model makes vectors, not replies")),
        }
    }

    pub(crate) fn embedder(&self) -> Result<&Embedder> {
        match self {
            LoadedModel::Embedding(embedder) => Ok(embedder),
            LoadedModel::Chat(_) => Err(Failure::new("the model makes replies, not vectors")),
        }
    }
}

impl ChatModel {
    fn open(options: &Value, on_event: OnEvent) -> Result<ChatModel> {
        let first = Arc::new(Chat::open(options, on_event)?);
        let idle = Mutex::new(vec![Arc::clone(&first)]);
        Ok(ChatModel { options: options.clone(), idle, first })
    }

    /// An idle chat, or a new one. Blocks.
    pub(super) fn chat(&self) -> Result<Arc<Chat>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(chat) => Ok(chat),
            None => Ok(Arc::new(Chat::open(&self.options, Box::new(|_| ()))?)),
        }
    }

    /// Keeps a chat for later requests.
    pub(super) fn give_back(&self, chat: Arc<Chat>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(chat);
    }

    /// Explains a request without running it. Blocks briefly.
    pub(crate) fn explain(&self, request: &Value) -> Result<Value> {
        self.first.explain(request)
    }
}
