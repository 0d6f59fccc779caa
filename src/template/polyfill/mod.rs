//! Canonical messages -> messages as a template takes them. One file a polyfill: pure, idempotent, reported by name.

mod object_arguments;

use std::borrow::Cow;

use serde_json::Value;

use super::Caps;
use crate::api::Polyfills;

/// Applies what a template needs and `polyfills` allows. Returns the messages and the names of what changed them.
pub fn apply<'a>(messages: &'a [Value], caps: &Caps, polyfills: Polyfills) -> (Cow<'a, [Value]>, Vec<&'static str>) {
    if polyfills.object_arguments
        && caps.supports_object_arguments
        && let Some(changed) = object_arguments::apply(messages)
    {
        return (Cow::Owned(changed), vec!["object_arguments"]);
    }
    (Cow::Borrowed(messages), Vec::new())
}
