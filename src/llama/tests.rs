//! Tests contexts of models that `open` refuses because of their header, and contexts of truncated
//! files. llama.cpp fails assertions or faults on them.
//!
//! - A context larger than the table of learned positions: llama.cpp fails an assertion on a token
//!   beyond it, on the thread that looks it up.
//! - A matrix of integers: no function multiplies it, so llama.cpp calls a null pointer.
//! - A norm of integers: an assertion fails on every thread.

#[path = "../../tests/scripted/mod.rs"]
#[allow(clippy::unwrap_used, reason = "its own tests report by panicking")]
mod scripted;

mod rollback;

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llama_cpp_sys_2 as sys;

use super::context::{ContextOptions, LlamaContext, Model, ModelOptions};
use super::devices::{DeviceSelection, DeviceSplit};
use super::embedder;
use super::files_of;
use super::kernels::{self, Places};
use super::raw::faults::FaultHandlers;
use super::raw::shim;
use crate::api::{CacheType, EmbedOptions, FlashAttention, Pooling};
use crate::engine::{Backend, BatchEntry};
use crate::error::{Code, Result};
use crate::gguf::ModelHeader;

const POSITIONS: usize = 300;

fn context(n_threads: u32) -> LlamaContext {
    let context = alone(scripted::learned::learned(POSITIONS as u32));
    context.with_threads(n_threads).expect("threads")
}

/// A context of this file that computes on the calling thread alone.
fn alone(file: Vec<u8>) -> LlamaContext {
    let file = TestFile::new(file);
    context_of(file.load(&mut |_| true).expect("a model"))
}

fn context_of(model: Model) -> LlamaContext {
    let options = ContextOptions {
        n_ctx: 1024,
        n_batch: 512,
        n_parallel: 2,
        n_rollback: 0,
        kv_unified: true,
        n_threads: 1,
        adapts_threads: false,
        flash_attn: FlashAttention::Auto,
        cache_type_k: CacheType::F16,
        cache_type_v: CacheType::F16,
        pooling: None,
    };
    LlamaContext::new(Arc::new(model), &options).expect("a context")
}

/// A model file in its own folder.
struct TestFile {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl TestFile {
    fn new(file: Vec<u8>) -> TestFile {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, file).expect("a file");
        TestFile { _folder: folder, path }
    }

    fn load(&self, on_progress: &mut dyn FnMut(f32) -> bool) -> Result<Model> {
        let path = self.path.to_str().expect("UTF-8").to_owned();
        let options = ModelOptions {
            path,
            n_gpu_layers: Some(0),
            devices: DeviceSelection::Default,
            split: DeviceSplit::BY_LAYERS,
            n_cpu_moe: None,
            rules: Vec::new(),
            use_mmap: true,
            use_mlock: false,
            repacks: true,
            predicts: false,
        };
        Model::load(&options, on_progress)
    }

    /// Truncates the file after its first page.
    fn cut(&self) {
        let file = std::fs::File::options().write(true).open(&self.path).expect("the file");
        file.set_len(4096).expect("it can be cut");
    }
}

/// Runs a test of this module in a child process, because a fault would end it. `run` runs in the
/// child, `check` with the child's exit status.
#[track_caller]
fn child(name: &str, run: fn(), check: fn(ExitStatus) -> bool) {
    const CHILD: &str = "LLB_TEST_LLAMA_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let name = format!("llama::{name}");
    let child = Command::new(std::env::current_exe().expect("a path"))
        .args([name.as_str(), "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let printed = String::from_utf8_lossy(&child.stdout);
    assert!(printed.contains("running 1 test"), "{name} did not run: {printed}");
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(check(child.status), "{name}: {}: {printed}{errors}", child.status);
}

#[track_caller]
pub(super) fn in_child(name: &str, run: fn()) {
    child(name, run, |status| status.success());
}

fn tokens(positions: std::ops::Range<usize>) -> Vec<BatchEntry> {
    let entry = |position| BatchEntry { token: 0, position, sequence: 0, logits: false };
    positions.map(entry).collect()
}

/// The number of this process's threads with this name. ggml's threads have the name of the thread
/// that started them.
pub(super) fn running(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Decodes `fine`, then `faulty`, on a thread with this name.
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
fn a_failed_assertion_ends_the_decode_and_its_threads() {
    // A single token is looked up by the calling thread; the last of many by the last thread.
    check("on-the-caller", 0..POSITIONS, POSITIONS..POSITIONS + 1);
    check("on-a-worker", 0..0, 0..POSITIONS + 1);
    check("on-all", 0..POSITIONS, POSITIONS..2 * POSITIONS);
}

/// A model with two equal layers in which this tensor contains integers.
fn with_integers(tensor: &str) -> Vec<u8> {
    const I32: u8 = 26;
    let mut file = dense();
    let name = tensor.as_bytes();
    let at = file.windows(name.len()).position(|part| part == name).expect("it has the tensor");
    // Skips the number of extents, then the extents, to the type.
    let extents = at + name.len();
    let number = extents + 4 + 8 * usize::from(file[extents]);
    assert_eq!(file[number..number + 4], [0; 4], "the type is F32");
    file[number] = I32;
    file
}

fn dense() -> Vec<u8> {
    scripted::random::random(scripted::random::Memory::Dense)
}

const NULL_POINTER: &str =
    "llama.cpp could not decode: the model made llama.cpp use a null pointer (SIGSEGV)";

#[test]
fn tensors_of_types_that_have_no_function_end_the_decode() {
    in_child("tests::tensors_of_types_that_have_no_function_end_the_decode", || {
        let check = |tensor: &str, n_threads: u32, expected: &str| {
            let mut context =
                alone(with_integers(tensor)).with_threads(n_threads).expect("threads");
            let error = context.decode(&tokens(0..64), &|| false).expect_err(tensor);
            assert_eq!(error.code(), Code::InferenceFailed);
            assert!(error.message().starts_with(expected), "{}", error.message());
            assert!(context.is_broken());
        };
        for n_threads in [1, 2, 3] {
            check("blk.1.attn_q.weight", n_threads, NULL_POINTER);
            check(
                "blk.1.attn_norm.weight",
                n_threads,
                "llama.cpp could not decode: binary-ops.cpp:",
            );
        }
    });
}

/// The same with the kernels of a file, which has its own code and threads. The file is one that
/// every processor can run, because the fastest kernels may be those of the library.
#[test]
fn faults_in_the_kernels_of_a_file_end_the_decode() {
    in_child("tests::faults_in_the_kernels_of_a_file_end_the_decode", || {
        let program = std::env::current_exe().expect("a path");
        let named = program.parent().and_then(Path::parent).map(Path::to_owned);
        let places = Places { named, library: None };
        if kernels::choose_in(&places, Some("sse42")).is_err() {
            assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "no file of kernels: sse42");
            return;
        }
        assert!(kernels::is_registered(), "llama.cpp takes other kernels");
        for n_threads in [1, 2, 3] {
            for (tensor, expected) in [
                ("blk.1.attn_q.weight", NULL_POINTER),
                ("blk.1.attn_norm.weight", "llama.cpp could not decode: binary-ops.cpp:"),
            ] {
                let mut context =
                    alone(with_integers(tensor)).with_threads(n_threads).expect("threads");
                let error = context.decode(&tokens(0..64), &|| false).expect_err(tensor);
                assert!(error.message().starts_with(expected), "{}", error.message());
                assert!(context.is_broken());
            }
        }
        let mut context = alone(dense()).with_threads(3).expect("threads");
        context.decode(&tokens(0..64), &|| false).expect("a good model");
        drop(context);
        let _handlers = FaultHandlers::install();
        let failed = shim::guard(square_nothing).expect_err("a fault in the code of the file");
        let message = failed.error(Code::InferenceFailed, "").message().to_owned();
        assert!(message.contains("use a null pointer (SIGSEGV)"), "{message}");
    });
}

/// Computes with a tensor that has no data.
fn square_nothing() {
    let memory = sys::ggml_init_params {
        mem_size: 1 << 20,
        mem_buffer: std::ptr::null_mut(),
        no_alloc: true,
    };
    // SAFETY: plain data.
    let memory = unsafe { shim::calls::ggml_init(memory) };
    // SAFETY: the memory is alive and large enough, here and below.
    let nothing = unsafe { shim::calls::ggml_new_tensor_1d(memory, sys::GGML_TYPE_F32, 64) };
    // SAFETY: as above.
    let square = unsafe { sys::ggml_sqr(memory, nothing) };
    // SAFETY: as above.
    let graph = unsafe { shim::calls::ggml_new_graph(memory) };
    // SAFETY: as above.
    unsafe { shim::calls::ggml_build_forward_expand(graph, square) };
    // SAFETY: the graph is alive; one thread needs no pool.
    let mut plan = unsafe { (kernels::used().graph_plan)(graph, 1, std::ptr::null_mut()) };
    let mut work = vec![0_u8; plan.work_size];
    plan.work_data = work.as_mut_ptr();
    // SAFETY: graph and plan are alive. The kernel faults.
    unsafe { (kernels::used().graph_compute)(graph, &raw mut plan) };
}

#[test]
fn a_trial_refuses_what_cannot_be_computed() {
    in_child("tests::a_trial_refuses_what_cannot_be_computed", || {
        let check = |tensor: &str, reason: &str| {
            let error = alone(with_integers(tensor)).tried().err().expect(tensor);
            assert_eq!(error.code(), Code::ModelInvalid);
            let expected = format!("the model cannot be used: {reason}");
            assert!(error.message().starts_with(&expected), "{}", error.message());
        };
        // The two layers differ, so both are tried.
        for layer in [0, 1] {
            check(&format!("blk.{layer}.attn_q.weight"), NULL_POINTER);
            let assertion = "llama.cpp could not decode: binary-ops.cpp:";
            check(&format!("blk.{layer}.ffn_norm.weight"), assertion);
        }
        check("output.weight", NULL_POINTER);
    });
}

#[test]
fn a_model_that_fails_its_trial_is_freed() {
    in_child("tests::a_model_that_fails_its_trial_is_freed", || {
        for tensor in ["blk.0.attn_q.weight", "blk.0.ffn_norm.weight"] {
            let file = TestFile::new(with_integers(tensor));
            let is_mapped = || {
                let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
                maps.contains(file.path.to_str().expect("UTF-8"))
            };
            let context = context_of(file.load(&mut |_| true).expect("a model"));
            assert!(is_mapped(), "{tensor}");
            context.tried().err().expect(tensor);
            assert!(!is_mapped(), "{tensor}");
            alone(dense()).tried().expect("what comes next works");
        }
    });
}

#[test]
fn a_trial_leaves_no_trace() {
    use scripted::random::{Memory, random};
    let logits = |mut context: LlamaContext| {
        let mut batch = tokens(0..5);
        batch[4].logits = true;
        context.decode(&batch, &|| false).expect("a prompt");
        let after_prompt = context.logits(4).expect("logits").to_vec();
        let next = BatchEntry { token: 1, position: 5, sequence: 0, logits: true };
        context.decode(&[next], &|| false).expect("a token");
        (after_prompt, context.logits(0).expect("logits").to_vec())
    };
    for memory in [Memory::Dense, Memory::Window, Memory::State, Memory::Both] {
        let plain = logits(alone(random(memory)));
        assert!(plain.0.iter().any(|logit| *logit != 0.0));
        assert!(plain == logits(alone(random(memory)).tried().expect("it passes")), "{memory:?}");
    }
}

const CUT: &str = "the file was cut short or could not be read while it was in use";

#[test]
fn a_file_that_is_cut_while_it_is_loaded_is_an_error() {
    in_child("tests::a_file_that_is_cut_while_it_is_loaded_is_an_error", || {
        let file = TestFile::new(scripted::random::quantized());
        let cut = |file: &TestFile| {
            file.cut();
            true
        };
        let error = file.load(&mut |_| cut(&file)).err().expect("a file that is cut");
        assert_eq!(error.code(), Code::ModelInvalid);
        assert!(error.message().contains(CUT), "{}", error.message());
    });
}

#[test]
fn a_file_that_is_cut_before_the_trial_is_an_error() {
    in_child("tests::a_file_that_is_cut_before_the_trial_is_an_error", || {
        let file = TestFile::new(dense());
        let context = context_of(file.load(&mut |_| true).expect("a model"));
        file.cut();
        let error = context.tried().err().expect("a file that is cut");
        assert_eq!(error.code(), Code::ModelInvalid);
        assert!(error.message().contains(CUT), "{}", error.message());
    });
}

#[test]
fn a_file_that_is_cut_during_a_decode_is_an_error() {
    in_child("tests::a_file_that_is_cut_during_a_decode_is_an_error", || {
        for n_threads in [1, 2] {
            let file = TestFile::new(dense());
            let context = context_of(file.load(&mut |_| true).expect("a model"));
            let mut context = context.with_threads(n_threads).expect("threads");
            context.decode(&tokens(0..4), &|| false).expect("a whole file");
            let asked = AtomicUsize::new(0);
            let cut_later = || {
                if asked.fetch_add(1, Ordering::SeqCst) == 8 {
                    file.cut();
                }
                false
            };
            let error = context.decode(&tokens(4..8), &cut_later).expect_err("a file that is cut");
            assert!(asked.load(Ordering::SeqCst) > 8);
            assert_eq!(error.code(), Code::InferenceFailed);
            assert!(error.message().contains(CUT), "{}", error.message());
            assert!(context.is_broken());
        }
    });
}

/// Checks a fault that must not be handled, because memory may be damaged or a lock may be held.
#[track_caller]
fn check_unhandled(name: &str, run: fn()) {
    child(name, run, |status| status.signal() == Some(libc::SIGSEGV));
}

#[test]
fn a_pointer_to_nowhere_ends_the_process() {
    check_unhandled("tests::a_pointer_to_nowhere_ends_the_process", || {
        let _handlers = FaultHandlers::install();
        let nowhere = std::hint::black_box(0x10_0000 as *const u8);
        // SAFETY: none. The test wants the fault.
        let _ = shim::guard(|| unsafe { nowhere.read_volatile() });
    });
}

#[test]
fn a_fault_in_the_c_library_ends_the_process() {
    check_unhandled("tests::a_fault_in_the_c_library_ends_the_process", || {
        let _handlers = FaultHandlers::install();
        let null = std::hint::black_box(std::ptr::null_mut());
        // SAFETY: none. The test wants the fault.
        let _ = shim::guard(|| unsafe { libc::fputs(c"text".as_ptr(), null) });
    });
}

#[test]
fn a_fault_of_a_function_that_holds_no_lock_is_an_error() {
    in_child("tests::a_fault_of_a_function_that_holds_no_lock_is_an_error", || {
        let _handlers = FaultHandlers::install();
        let null = std::hint::black_box(std::ptr::null_mut());
        let size = std::hint::black_box(1000);
        for _ in 0..2 {
            // SAFETY: none. The test wants the fault.
            let failed = shim::guard(|| unsafe { libc::memset(null, 1, size) });
            let failed = failed.expect_err("nothing is mapped there");
            assert!(failed.text().contains("use a null pointer (SIGSEGV)"), "{}", failed.text());
            // SAFETY: as above.
            let failed = shim::guard(|| unsafe { libc::strlen(null.cast()) });
            assert!(failed.is_err());
        }
    });
}

/// Counts its destructions.
struct Counted<'a>(&'a Cell<u32>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn without_memory_a_call_is_left_and_nothing_is_destroyed() {
    unsafe extern "C-unwind" {
        fn ggml_abort(file: *const c_char, line: c_int, format: *const c_char, ...) -> !;
    }
    in_child("tests::without_memory_a_call_is_left_and_nothing_is_destroyed", || {
        let _handlers = FaultHandlers::install();
        for (file, code, destroyed) in [
            (c"/folder/ggml.c", Code::OutOfMemory, 0),
            (c"/folder/ggml-backend.cpp", Code::ModelInvalid, 1),
        ] {
            let count = Cell::new(0);
            let failed = shim::guard(|| {
                let _counted = Counted(&count);
                // SAFETY: texts without conversions; unwinds or does not return.
                unsafe { ggml_abort(file.as_ptr(), 414, c"fatal error".as_ptr()) }
            });
            let failed = failed.expect_err("it was aborted");
            assert_eq!(failed.error(Code::ModelInvalid, "").code(), code, "{}", failed.text());
            assert_eq!(count.get(), destroyed);
        }
    });
}

#[test]
fn a_file_that_is_replaced_when_the_load_begins_is_refused() {
    let file = TestFile::new(scripted::encoder::embedding());
    let options = serde_json::json!({ "model": file.path, "n_threads": 1 });
    let options = EmbedOptions::read(&options).expect("options");
    for is_replaced in [false, true] {
        let files = Arc::new(files_of(&options.load, &options.model));
        let header = ModelHeader::read_file(&file.path).expect("a header");
        let load =
            embedder::load_embedder(&options, Pooling::Mean, &files, &header).expect("a load");
        if is_replaced {
            let new = file.path.with_extension("new");
            std::fs::copy(&file.path, &new).expect("a copy");
            std::fs::rename(&new, &file.path).expect("a file");
            let error = load().err().expect("another file");
            assert_eq!(error.code(), Code::ModelInvalid);
            assert!(error.message().contains("has changed since it was checked"), "{error}");
        } else {
            assert!(load().is_ok());
        }
    }
}

#[test]
fn logits_do_not_depend_on_the_number_of_threads() {
    let mut context = context(3);
    let mut entries = tokens(0..100);
    entries[99].logits = true;
    let mut rows = Vec::new();
    for threads in [3, 1, 2, 3] {
        context.set_threads(threads);
        context.decode(&entries, &|| false).expect("a decode");
        rows.push(context.logits(99).expect("a row").to_vec());
        context.truncate(0, 0);
    }
    assert!(rows[0].iter().any(|logit| *logit != 0.0));
    assert!(rows.iter().all(|row| *row == rows[0]));
}

#[test]
#[cfg(target_os = "linux")]
fn the_time_without_a_processor_is_known() {
    let context = context(3);
    let waited = [1, 2, 3].map(|threads| context.waited(threads).expect("Linux counts it"));
    assert!(waited.is_sorted());
    assert_eq!(context.waited(4), None);
}
