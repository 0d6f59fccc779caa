//! Tests of whole templates.

mod costs;
mod hostile;
