//! Contexts of models with learned positions, larger than the table of positions. `open` refuses
//! them, because llama.cpp asserts on a token beyond the table: on the thread that looks it up.

#[path = "../../tests/scripted/mod.rs"]
#[allow(clippy::unwrap_used, reason = "its own tests report by panicking")]
mod scripted;

use std::sync::Arc;

use super::context::{ContextOptions, LlamaContext};
use super::model::{Model, ModelOptions};
use crate::api::{CacheType, FlashAttention};
use crate::engine::{Backend, BatchEntry};
use crate::error::Code;

const POSITIONS: usize = 300;

fn context(n_threads: u32) -> LlamaContext {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("learned.gguf");
    std::fs::write(&path, scripted::learned::learned(POSITIONS as u32)).expect("a file");
    let path = path.to_str().expect("UTF-8").to_owned();
    let options = ModelOptions { path, n_gpu_layers: Some(0), use_mmap: true, use_mlock: false };
    let model = Arc::new(Model::load(&options, &mut |_| ()).expect("a model"));
    let options = ContextOptions {
        n_ctx: 1024,
        n_batch: 512,
        n_parallel: 1,
        n_threads,
        flash_attn: FlashAttention::Auto,
        cache_type_k: CacheType::F16,
        cache_type_v: CacheType::F16,
    };
    LlamaContext::new(model, &options).expect("a context")
}

fn tokens(positions: std::ops::Range<usize>) -> Vec<BatchEntry> {
    let entry = |position| BatchEntry { token: 0, position, sequence: 0, logits: false };
    positions.map(entry).collect()
}

/// The threads of this process with this name. ggml's have that of the thread that started them.
#[cfg(target_os = "linux")]
pub(super) fn running(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Decodes `fine`, then `faulty`, on a thread with this name.
#[cfg(target_os = "linux")]
#[track_caller]
fn check(name: &'static str, fine: std::ops::Range<usize>, faulty: std::ops::Range<usize>) {
    let run = move || {
        let mut context = context(3);
        assert_eq!(running(name), 3);
        if !fine.is_empty() {
            context.decode(&tokens(fine), &|| false).expect("positions inside the table");
        }
        let error = context.decode(&tokens(faulty), &|| false).expect_err("a failed assertion");
        assert_eq!(error.code(), Code::InferenceFailed);
        let message = error.message();
        let start = "llama.cpp could not decode: ops.cpp:";
        assert!(message.starts_with(start) && message.contains("GGML_ASSERT"), "{message}");
        assert!(context.is_broken());
        while running(name) > 1 {
            std::thread::yield_now();
        }
        assert!(context.decode(&tokens(0..1), &|| false).is_err());
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.expect("a thread").join().expect("the case passes");
}

#[test]
#[cfg(target_os = "linux")]
fn a_failed_assertion_ends_the_decode_and_its_threads() {
    // One token is looked up by the calling thread; the last of many by the last thread.
    check("on-the-caller", 0..POSITIONS, POSITIONS..POSITIONS + 1);
    check("on-a-worker", 0..0, 0..POSITIONS + 1);
    check("on-all", 0..POSITIONS, POSITIONS..2 * POSITIONS);
}
