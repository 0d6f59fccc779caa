//! Code that the tests of several modules share.

pub(crate) mod conformance;
pub(crate) mod conformance_folder;
pub(crate) mod growth;
pub(crate) mod random;
pub(crate) mod replies;

use std::time::Duration;

#[cfg(feature = "engine")]
use serde_json::Value;

#[cfg(feature = "engine")]
use crate::api::ToolChoice;
#[cfg(feature = "engine")]
use crate::constraint::ReplyRequirements;
use crate::jinja::thread_time;

/// The processor time that `run` takes on this thread, which other load on the machine hardly
/// changes.
pub(crate) fn cpu_time(run: impl FnOnce()) -> Duration {
    let started = thread_time();
    run();
    thread_time().saturating_sub(started)
}

/// The requirements of a request that forces one call of one of these tools.
#[cfg(feature = "engine")]
pub(crate) fn call_requirements(tools: &[Value]) -> ReplyRequirements<'_> {
    ReplyRequirements {
        tools,
        choice: &ToolChoice::Required,
        parallel: false,
        untagged: false,
        response_format: None,
        bounded: false,
        grammar: None,
        reasoning_open: false,
        content_open: false,
        reasons: false,
    }
}
