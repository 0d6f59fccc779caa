//! Handles are keys into a table, not pointers, so a stale or invented handle is detected.
//!
//! A key combines a slot index with the generation of that slot. Destroying a chat raises the
//! generation, so that old keys no longer match. The table grows only to the largest number of
//! chats that were open at once.

use std::sync::Arc;

use super::open_chat::OpenChat;
use crate::error::{Code, Error, Result};
use crate::process::{self, Shared};

/// An open chat. An opaque handle, not a pointer: never dereference or change it.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub struct llb_chat {
    _opaque: [u8; 0],
}

/// The low half of a key is the slot index, the high half the generation.
const INDEX_BITS: u32 = usize::BITS / 2;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;

/// The all-ones generation is never used, so that no handle is `usize::MAX`.
const LAST_GENERATION: usize = INDEX_MASK - 1;

struct Slot {
    generation: usize,
    /// The process that the chat belongs to. In a forked child the chats of the parent stay in
    /// their slots, because their engines cannot be stopped.
    forks: usize,
    chat: Option<Arc<OpenChat>>,
}

static TABLE: Shared<Vec<Slot>> = Shared::new(Vec::new());

impl Slot {
    /// Whether a handle of this generation refers to the slot, in this process.
    fn is(&self, generation: usize) -> bool {
        self.generation == generation && self.forks == process::forks()
    }
}

/// The key of a handle.
pub(super) fn key(handle: *const llb_chat) -> usize {
    handle.addr()
}

/// Slot index and generation of a handle.
fn split(handle: *const llb_chat) -> (usize, usize) {
    (key(handle) & INDEX_MASK, key(handle) >> INDEX_BITS)
}

/// Adds a chat to the table and returns its handle.
pub(super) fn insert(chat: OpenChat) -> *mut llb_chat {
    let chat = Some(Arc::new(chat));
    let forks = process::forks();
    let mut table = TABLE.lock();
    let index = match table.iter().position(|slot| slot.chat.is_none()) {
        Some(index) => {
            table[index].chat = chat;
            table[index].forks = forks;
            index
        }
        None => {
            table.push(Slot { generation: 1, forks, chat });
            table.len() - 1
        }
    };
    // Generations start at 1, so no handle is NULL.
    std::ptr::without_provenance_mut(table[index].generation << INDEX_BITS | index)
}

/// Returns the chat of a handle. NULL and any handle that is not open are `ENGINE_CLOSED`.
pub(super) fn get(handle: *const llb_chat) -> Result<Arc<OpenChat>> {
    let (index, generation) = split(handle);
    let table = TABLE.lock();
    let slot = table.get(index).filter(|slot| slot.is(generation));
    slot.and_then(|slot| slot.chat.clone()).ok_or_else(closed)
}

/// Removes a chat from the table. Its handle is stale afterwards.
pub(super) fn remove(handle: *const llb_chat) -> Option<Arc<OpenChat>> {
    let (index, generation) = split(handle);
    let mut table = TABLE.lock();
    let slot = table.get_mut(index).filter(|slot| slot.is(generation))?;
    let chat = slot.chat.take()?;
    slot.generation = if slot.generation == LAST_GENERATION { 1 } else { slot.generation + 1 };
    Some(chat)
}

/// Ends the call that runs on a chat in the place of its thread, which has left it.
pub(super) fn give_up_call(key: usize) {
    if let Ok(chat) = get(std::ptr::without_provenance(key)) {
        chat.give_up_call();
    }
}

fn closed() -> Error {
    Error::new(
        Code::EngineClosed,
        "chat: not an open chat of this process (NULL, destroyed, or never created)",
    )
}
