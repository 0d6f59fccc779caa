//! The `llb_template_*` requests: JSON in, JSON out.

mod additions;
mod compose;
mod render;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

pub use compose::compose;
pub use render::{info, parse, render};
