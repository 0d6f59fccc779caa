//! What a request holds while it uses a model: a lease, which keeps the model in memory, and a
//! slot, which is the right to use one of its chats.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;

use super::fair_queue::{Place, QueueFull, Waiter};
use super::model::{LoadState, LoadedModel, ServedModel};
use crate::abi::{Chat, Embedder};
use crate::failure::Result;

/// Keeps a model in memory until it is dropped.
pub(crate) struct Lease {
    model: Arc<ServedModel>,
    pub(crate) loaded: Arc<LoadedModel>,
    /// Tells the pool that a lease has ended.
    ended: Arc<Notify>,
}

impl Lease {
    pub(super) fn new(
        model: &Arc<ServedModel>,
        state: &mut LoadState,
        loaded: Arc<LoadedModel>,
        ended: &Arc<Notify>,
    ) -> Lease {
        state.leases += 1;
        Lease { model: Arc::clone(model), loaded, ended: Arc::clone(ended) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.model.state();
        state.leases -= 1;
        state.last_use = Instant::now();
        drop(state);
        self.ended.notify_one();
    }
}

/// The right to use one chat, or one embedding handle, of the model.
pub(crate) struct Slot {
    lease: Lease,
    _place: Place,
}

impl Slot {
    /// Waits for the turn of the request in the queue of the model.
    pub(super) async fn wait(lease: Lease, waiter: Waiter) -> std::result::Result<Slot, QueueFull> {
        Ok(Slot { lease, _place: waiter.place().await? })
    }

    /// An idle chat, or a new one. Blocks.
    pub(crate) fn chat(&self) -> Result<Arc<Chat>> {
        self.lease.loaded.chats()?.chat()
    }

    /// A chat with another template. It is not given back. Blocks.
    pub(crate) fn chat_with_template(&self, template: &str) -> Result<Arc<Chat>> {
        self.lease.loaded.chats()?.with_template(template)
    }

    /// Keeps a chat for later requests.
    pub(crate) fn give_back(&self, chat: Arc<Chat>) {
        if let Ok(chats) = self.lease.loaded.chats() {
            chats.give_back(chat);
        }
    }

    /// An idle handle of an embedding model, or a new one. Blocks.
    pub(super) fn embedder(&self) -> Result<Arc<Embedder>> {
        self.lease.loaded.embedders()?.embedder()
    }

    /// Keeps a handle for later requests.
    pub(super) fn give_back_embedder(&self, embedder: Arc<Embedder>) {
        if let Ok(embedders) = self.lease.loaded.embedders() {
            embedders.give_back(embedder);
        }
    }

    /// Unloads the model, because its engine has stopped. The next request loads it again.
    pub(crate) fn discard(&self) {
        let mut state = self.lease.model.state();
        if state.loaded.as_ref().is_some_and(|loaded| Arc::ptr_eq(loaded, &self.lease.loaded)) {
            state.loaded = None;
        }
    }
}
