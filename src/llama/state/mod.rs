//! Sequences in files: the state file of a chat, and the folder of stored prefixes.

pub(super) mod prefix_folder;
pub(super) mod prefix_store;
pub(super) mod state_file;
pub(super) mod state_store;
