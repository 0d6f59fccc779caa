//! The probe kit: conversations to render, a cache of their renders, and comparison of prompts.
//!
//! `template::probe`, `output::detect` and `compose::derive` learn about a template by rendering
//! conversations that differ in one thing. Each of them has its own conversation texts, which
//! differ on purpose.

pub(crate) mod diff;
mod probe;
mod renderer;

pub(crate) use probe::{Probe, assistant_message, call, tool};
pub(crate) use renderer::{ProbeRenderer, RenderCache};

/// The time that every probe sees: 2024-07-26T00:00:00.
pub(crate) const PROBE_TIME: i64 = 1_721_952_000;
