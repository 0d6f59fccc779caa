//! What a template can do, found by rendering probes.

pub(crate) mod baseline;
mod call_example;
pub(crate) mod calls;
pub(crate) mod caps;
pub(crate) mod content;
mod details;
mod effort;
pub(crate) mod evidence;
pub(crate) mod generation_prompt;
pub(crate) mod minja;
pub(crate) mod prober;
mod reasoning;
pub(crate) mod reasoning_turns;
mod roles;
pub(crate) mod switches;
pub(crate) mod template_caps;
pub(crate) mod traits;
