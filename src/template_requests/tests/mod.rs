//! Compares the requests with the shared conformance data.

mod composed;
mod conformance;
mod continued;
mod controls;
mod growth;
mod prompts;
mod reasoning;
mod unseen;
mod untagged;
