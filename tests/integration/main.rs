//! Tests the C ABI with real llama.cpp: with scripted models whose output is known, and with real
//! models if they are present.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a skipped test prints a line")]
#![allow(missing_docs, unreachable_pub, reason = "a test program")]

#[path = "../../src/test_support/conformance_folder.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod conformance_folder;
#[path = "../scripted/mod.rs"]
mod scripted;
#[path = "../../src/test_support/growth.rs"]
mod time_growth;

#[path = "../corpus/architectures.rs"]
mod architectures;
#[path = "../corpus/model_file.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod model_file;
#[path = "../corpus/numbers.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod numbers;
#[path = "../corpus/predicting.rs"]
mod predicting_models;
#[path = "../corpus/vocabularies.rs"]
#[allow(dead_code, reason = "uses a part of it")]
mod vocabularies;

mod abi;
mod adaptive_threads;
#[cfg(target_os = "linux")]
mod backends;
mod cache_dir;
mod classic;
mod compose;
mod context_shift;
mod create;
#[cfg(target_os = "linux")]
mod devices;
mod documented_codes;
mod drafts;
mod embeddings;
#[cfg(target_os = "linux")]
mod faults;
mod file_imports;
mod growth;
mod hostile;
mod infer;
#[cfg(target_os = "linux")]
mod isolation;
#[cfg(target_os = "linux")]
mod isolation_host;
mod large;
mod layers;
mod learned;
mod library;
mod lifetime;
mod logprobs;
mod lora;
mod markup;
#[cfg(feature = "media")]
mod media;
#[cfg(all(feature = "media", target_os = "linux"))]
mod media_isolation;
#[cfg(all(feature = "media", target_os = "linux"))]
mod media_threads;
#[cfg(all(feature = "hub", feature = "media"))]
mod media_urls;
mod memory;
mod memory_use;
mod model_info;
mod names;
mod odd_files;
#[cfg(feature = "media")]
mod omni;
mod overflow;
mod placement;
mod plain_prompt;
mod predicting;
mod prefix;
mod prompts;
mod ranking;
mod real_model;
mod reasoning;
mod recommended;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "remote")]
mod remote_hostile;
#[cfg(feature = "remote")]
mod remote_server;
#[cfg(feature = "remote")]
mod remote_sglang;
mod remote_tokens;
mod rollback;
#[cfg(target_os = "linux")]
mod rpc;
mod run_folder;
mod sglang_server;
mod soak;
#[cfg(feature = "media")]
mod sounds;
mod speculative;
mod state;
mod stop;
mod template;
#[cfg(target_os = "linux")]
mod thread_limit;
mod tokenize;
mod tokens;
mod tools;
mod typed;
mod unload;
#[cfg(feature = "remote")]
mod vllm_server;
