//! Handles are keys into a table, not pointers: one that is stale, or was never given out, is recognised.
//!
//! A key is a slot number and the slot's generation. Destroying raises the generation, so an old key matches nothing. The
//! table only grows to the largest number of chats that were open at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chat::Chat;
use crate::error::{Code, Error, Result};

/// An open chat. Not a pointer to anything: pass it back as it is, and never look inside.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub struct llb_chat {
    _opaque: [u8; 0],
}

/// Half of a pointer's bits number the slot, half its generation.
const HALF: u32 = usize::BITS / 2;
const MASK: usize = (1 << HALF) - 1;

struct Slot {
    generation: usize,
    chat: Option<Arc<Chat>>,
}

static TABLE: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

fn table() -> MutexGuard<'static, Vec<Slot>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of a handle.
pub(super) fn key(handle: *const llb_chat) -> usize {
    handle.addr()
}

/// Puts a chat into the table.
pub(super) fn insert(chat: Chat) -> *mut llb_chat {
    let chat = Some(Arc::new(chat));
    let mut table = table();
    let index = match table.iter().position(|slot| slot.chat.is_none()) {
        Some(index) => {
            table[index].chat = chat;
            index
        }
        None => {
            table.push(Slot { generation: 1, chat });
            table.len() - 1
        }
    };
    // A generation is never 0, so no handle is NULL.
    std::ptr::without_provenance_mut(table[index].generation << HALF | index)
}

/// The chat of a handle; `ENGINE_CLOSED` for NULL and every handle that is not open.
pub(super) fn get(handle: *const llb_chat) -> Result<Arc<Chat>> {
    let (index, generation) = (key(handle) & MASK, key(handle) >> HALF);
    let table = table();
    let slot = table.get(index).filter(|slot| slot.generation == generation);
    slot.and_then(|slot| slot.chat.clone()).ok_or_else(closed)
}

/// Takes a chat out of the table; its handle is stale from here on.
pub(super) fn remove(handle: *const llb_chat) -> Option<Arc<Chat>> {
    let (index, generation) = (key(handle) & MASK, key(handle) >> HALF);
    let mut table = table();
    let slot = table.get_mut(index).filter(|slot| slot.generation == generation)?;
    let chat = slot.chat.take()?;
    // The last generation is left out: no handle is all ones.
    slot.generation = if slot.generation == MASK - 1 { 1 } else { slot.generation + 1 };
    Some(chat)
}

fn closed() -> Error {
    Error::new(Code::EngineClosed, "chat: not an open chat (NULL, destroyed, or never created)")
}
