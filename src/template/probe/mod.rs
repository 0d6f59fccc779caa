//! Finds out what a template can do, by rendering conversations.

pub(crate) mod baseline;
mod call_example;
pub(crate) mod calls;
pub(crate) mod content;
pub(crate) mod effort;
pub(crate) mod evidence;
pub(crate) mod exchange_form;
pub(crate) mod llama_cpp_caps;
mod message_roles;
pub(crate) mod minja_caps;
pub(crate) mod prober;
mod reasoning;
pub(crate) mod reasoning_turns;
pub(crate) mod switches;
pub(crate) mod template_caps;
pub(crate) mod traits;
mod traits_json;
pub(crate) mod usage;
