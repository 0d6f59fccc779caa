//! Tests of whole templates.

mod hostile;
