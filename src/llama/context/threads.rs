//! The threads that compute for a context: one of ggml's pools.
//!
//! [`Threads::failure`] reports a failed assertion on one of them. [`Threads::end`] then ends them,
//! because ggml would leave them waiting for each other in a loop. `threads.cpp` explains how.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use llama_cpp_sys_2 as sys;

use crate::error::{Code, Error, Result};
use crate::llama::kernels;
use crate::llama::raw::shim::{self, CallFailed, calls};
use crate::llama::raw::system::WaitClock;

/// The `llb_workers` of `threads.cpp`.
#[repr(C)]
struct Workers {
    _opaque: [u8; 0],
}

unsafe extern "C-unwind" {
    fn llb_threads_can_start(count: usize) -> bool;
    fn llb_workers_new(pool: *mut sys::ggml_threadpool, count: usize) -> *mut Workers;
    fn llb_workers_end(workers: *mut Workers) -> bool;
}

unsafe extern "C" {
    fn llb_workers_enter(
        output: *mut sys::ggml_tensor,
        input: *const sys::ggml_tensor,
        index: c_int,
        count: c_int,
        workers: *mut c_void,
    );
    fn llb_workers_help(workers: *mut Workers);
    fn llb_workers_task(workers: *mut Workers, index: usize) -> c_long;
    fn llb_workers_failure(workers: *const Workers) -> *const c_char;
    fn llb_workers_free(workers: *mut Workers);
}

/// A pool that lives as long as its context. Without a pool, llama.cpp starts new threads for every
/// graph.
pub(crate) struct Threads {
    pool: Option<NonNull<sys::ggml_threadpool>>,
    /// The pool's threads except the calling one. `None` if the pool has no others, or if they
    /// cannot be ended.
    workers: Option<NonNull<Workers>>,
    /// One clock per thread, the calling thread's first. Empty if the system does not provide them.
    waits: Vec<WaitClock>,
}

impl Threads {
    /// No threads except the calling one.
    pub(crate) const fn none() -> Self {
        Threads { pool: None, workers: None, waits: Vec::new() }
    }

    /// Starts `n_threads` - 1 threads, because the calling thread computes too. `OUT_OF_MEMORY` if
    /// the system refuses one.
    pub(crate) fn start(n_threads: u32) -> Result<Self> {
        let what = "llama.cpp could not start its threads";
        let n_workers = n_threads.saturating_sub(1) as usize;
        let refused = || {
            Error::new(
                Code::OutOfMemory,
                format!("cannot start all of {n_threads} threads; set a smaller n_threads"),
            )
        };
        // SAFETY: takes a plain number. Checked first because ggml asserts that each thread starts,
        // and a failure would leak the threads started before it.
        let can_start = shim::guard(|| unsafe { llb_threads_can_start(n_workers) });
        if !can_start.map_err(|failed| failed.error(Code::OutOfMemory, what))? {
            return Err(refused());
        }
        // SAFETY: takes and returns plain data.
        let mut params = unsafe { sys::ggml_threadpool_params_default(n_threads as i32) };
        // The threads sleep until the first graph. They also sleep if a failure in ggml leaks them.
        params.paused = true;
        // They also sleep right after each graph. Polling for the next graph gives no measurable
        // gain, and takes a processor from the host: docs/performance.md.
        params.poll = 0;
        // SAFETY: the parameters are read during the call only.
        let pool = shim::guard(|| unsafe { (kernels::used().threadpool_new)(&raw mut params) });
        let pool = pool.map_err(|failed| failed.error(Code::OutOfMemory, what))?;
        let pool = NonNull::new(pool).ok_or_else(refused)?;
        let mut threads = Threads { pool: Some(pool), workers: None, waits: Vec::new() };
        if n_workers > 0 {
            // SAFETY: the pool is alive, and outlives the workers.
            let workers =
                shim::guard(|| unsafe { llb_workers_new(pool.as_ptr(), n_threads as usize) });
            let workers = workers.map_err(|failed| failed.error(Code::OutOfMemory, what))?;
            threads.workers = NonNull::new(workers);
        }
        if let Some(workers) = threads.workers {
            let data = workers.as_ptr().cast::<c_void>();
            let entered = Graph::new(1, n_threads, Some(llb_workers_enter), data)
                .and_then(|graph| graph.compute(&threads, n_threads, None, data));
            if let Err(failed) = entered {
                // It is unknown which threads have entered, so all are leaked.
                std::mem::forget(threads);
                return Err(failed.error(Code::InferenceFailed, what));
            }
            // SAFETY: the workers are alive, and there are `n_threads` of them.
            let task = |index| unsafe { llb_workers_task(workers.as_ptr(), index) };
            let tasks = (0..n_threads as usize).map(|index| WaitClock::open(task(index)));
            threads.waits = tasks.collect::<Option<_>>().unwrap_or_default();
        }
        Ok(threads)
    }

    /// Makes a context compute with these threads. The context must be freed before the threads.
    pub(crate) fn attach(&self, context: NonNull<sys::llama_context>) -> Result<()> {
        let Some(pool) = self.pool else { return Ok(()) };
        // SAFETY: context and pool are alive, and the pool is freed after the context.
        let attached = shim::guard(|| unsafe {
            calls::llama_attach_threadpool(context.as_ptr(), pool.as_ptr(), pool.as_ptr())
        });
        attached.map_err(|failed| {
            failed.error(Code::InferenceFailed, "llama.cpp could not use its threads")
        })
    }

    /// Runs a call that computes. If an assertion fails on this thread, the other threads are ended
    /// before the call returns.
    pub(crate) fn help<T>(&self, call: impl FnOnce() -> T) -> T {
        let workers = self.workers.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the workers are alive during the call.
        unsafe { llb_workers_help(workers) };
        let result = call();
        // SAFETY: takes NULL.
        unsafe { llb_workers_help(std::ptr::null_mut()) };
        result
    }

    /// The total time that the first `count` threads have waited for a processor so far. `None` if
    /// the system does not report it.
    pub(crate) fn waited(&self, count: usize) -> Option<Duration> {
        self.waits.get(..count)?.iter().map(WaitClock::read).sum()
    }

    /// The message of an assertion that failed on a thread of the pool other than the calling one.
    pub(crate) fn failure(&self) -> Option<String> {
        let message = self.raw_failure()?.to_string_lossy();
        Some(shim::without_folder(&message))
    }

    /// Whether [`Threads::failure`] has a message.
    pub(crate) fn has_failure(&self) -> bool {
        self.raw_failure().is_some()
    }

    fn raw_failure(&self) -> Option<&CStr> {
        // SAFETY: the workers are alive.
        let message = unsafe { llb_workers_failure(self.workers?.as_ptr()) };
        // SAFETY: a NUL-terminated text that lives as long as the workers and does not change.
        (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) })
    }

    /// Ends all threads after a failed call. Nothing may compute with them at that time, and the
    /// context must not compute again. Takes up to a second of each thread's processor time.
    pub(crate) fn end(&mut self) {
        let (Some(_), Some(workers)) = (self.pool.take(), self.workers.take()) else { return };
        // SAFETY: workers and pool are alive; no thread computes with them.
        let ended = shim::guard(|| unsafe { llb_workers_end(workers.as_ptr()) });
        if matches!(ended, Ok(true)) {
            // SAFETY: created by llb_workers_new, freed once; the threads have ended.
            unsafe { llb_workers_free(workers.as_ptr()) };
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let Some(pool) = self.pool else { return };
        // SAFETY: created by ggml_threadpool_new, freed once, after the context that used it.
        let freed = shim::guard(|| unsafe { (kernels::used().threadpool_free)(pool.as_ptr()) });
        if let (Ok(()), Some(workers)) = (freed, self.workers) {
            // SAFETY: created by llb_workers_new, freed once; the threads have ended.
            unsafe { llb_workers_free(workers.as_ptr()) };
        }
    }
}

/// A graph in which every operation runs on each thread of a pool.
struct Graph {
    memory: *mut sys::ggml_context,
    raw: *mut sys::ggml_cgraph,
}

/// Enough memory for a graph and a few numbers.
const GRAPH_MEMORY: usize = 1 << 20;

impl Graph {
    /// Creates the operations. Each receives `data`.
    fn new(
        n_operations: usize,
        n_threads: u32,
        operation: sys::ggml_custom1_op_t,
        data: *mut c_void,
    ) -> Result<Graph, CallFailed> {
        let params = sys::ggml_init_params {
            mem_size: GRAPH_MEMORY,
            mem_buffer: std::ptr::null_mut(),
            no_alloc: false,
        };
        // SAFETY: plain data. ggml asserts that there is memory, so the result is not NULL.
        let memory = shim::guard(|| unsafe { calls::ggml_init(params) })?;
        let mut graph = Graph { memory, raw: std::ptr::null_mut() };
        // SAFETY: the memory is alive and large enough.
        graph.raw = shim::guard(|| unsafe { calls::ggml_new_graph(memory) })?;
        let number = sys::GGML_TYPE_F32;
        // SAFETY: as above.
        let mut last = shim::guard(|| unsafe { calls::ggml_new_tensor_1d(memory, number, 1) })?;
        for _ in 0..n_operations {
            // SAFETY: as above; the input is in the same memory.
            last = shim::guard(|| unsafe {
                calls::ggml_map_custom1(memory, last, operation, n_threads as c_int, data)
            })?;
        }
        // SAFETY: graph and tensor are in the same memory.
        shim::guard(|| unsafe { calls::ggml_build_forward_expand(graph.raw, last) })?;
        Ok(graph)
    }

    /// Computes the graph with a pool. `should_stop` receives `data` after each operation.
    fn compute(
        &self,
        threads: &Threads,
        n_threads: u32,
        should_stop: sys::ggml_abort_callback,
        data: *mut c_void,
    ) -> Result<sys::ggml_status, CallFailed> {
        let pool = threads.pool.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: graph and pool are alive.
        let plan = shim::guard(|| unsafe {
            (kernels::used().graph_plan)(self.raw, n_threads as c_int, pool)
        });
        let mut plan = plan?;
        let mut work = vec![0_u8; plan.work_size];
        plan.work_data = work.as_mut_ptr();
        plan.abort_callback = should_stop;
        plan.abort_callback_data = data;
        threads.help(|| {
            // SAFETY: graph, pool and the memory of the plan are alive during the call.
            shim::guard(|| unsafe { (kernels::used().graph_compute)(self.raw, &raw mut plan) })
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: created by ggml_init, freed once, with the graph and its tensors.
        shim::free(|| unsafe { calls::ggml_free(self.memory) });
    }
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::llama::raw::faults::FaultHandlers;
    #[cfg(target_os = "linux")]
    use crate::llama::tests::{in_child, running};

    /// A fault that is not handled ends all tests there.
    #[cfg(windows)]
    fn in_child(_name: &str, run: fn()) {
        run();
    }

    unsafe extern "C-unwind" {
        fn ggml_abort(file: *const c_char, line: c_int, format: *const c_char, ...) -> !;
    }

    /// The fault to cause.
    #[derive(Clone, Copy)]
    enum Fault {
        Assertion,
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        NullPointer,
        /// On ARM the quotient is 0.
        #[cfg(target_arch = "x86_64")]
        DivisionByZero,
    }

    impl Fault {
        fn message(self) -> &'static str {
            match self {
                Fault::Assertion => ": ops.cpp:7: provoked",
                #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
                Fault::NullPointer if cfg!(windows) => {
                    ": the model made llama.cpp use a null pointer"
                }
                #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
                Fault::NullPointer => ": the model made llama.cpp use a null pointer (SIGSEGV)",
                #[cfg(target_arch = "x86_64")]
                Fault::DivisionByZero if cfg!(windows) => {
                    ": the model made llama.cpp divide by zero"
                }
                #[cfg(target_arch = "x86_64")]
                Fault::DivisionByZero => ": the model made llama.cpp divide by zero (SIGFPE)",
            }
        }

        fn provoke(self) {
            match self {
                // SAFETY: texts without conversions; unwinds or does not return.
                Fault::Assertion => unsafe {
                    ggml_abort(c"/folder/ops.cpp".as_ptr(), 7, c"provoked".as_ptr())
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the load faults, and changes nothing else.
                Fault::NullPointer => unsafe {
                    std::arch::asm!("mov {value}, [{value}]", value = inout(reg) 16_usize => _)
                },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: as above.
                Fault::NullPointer => unsafe {
                    std::arch::asm!("ldr {value}, [{value}]", value = inout(reg) 16_usize => _)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the division faults, and changes nothing else.
                Fault::DivisionByZero => unsafe {
                    std::arch::asm!(
                        "div {zero}",
                        zero = in(reg) 0_usize,
                        inout("rax") 1_usize => _,
                        inout("rdx") 0_usize => _
                    )
                },
            }
        }
    }

    /// Causes the fault in the first operation, on the threads in this mask.
    struct Faulty<'a> {
        threads: &'a Threads,
        mask: usize,
        fault: Fault,
        /// For each operation, the number of threads that have begun it.
        ran: [AtomicUsize; 3],
    }

    unsafe extern "C-unwind" fn operation(
        _output: *mut sys::ggml_tensor,
        _input: *const sys::ggml_tensor,
        index: c_int,
        count: c_int,
        faulty: *mut c_void,
    ) {
        // SAFETY: the test passes a pointer to it, which outlives the graph.
        let faulty = unsafe { &*faulty.cast::<Faulty<'_>>() };
        let all = count as usize;
        let step = faulty.ran.iter().position(|ran| ran.load(Ordering::SeqCst) < all);
        let step = step.expect("three operations");
        faulty.ran[step].fetch_add(1, Ordering::SeqCst);
        if step == 0 && faulty.mask & 1 << index != 0 {
            faulty.fault.provoke();
        }
    }

    unsafe extern "C" fn should_stop(faulty: *mut c_void) -> bool {
        // SAFETY: as above.
        let faulty = unsafe { &*faulty.cast::<Faulty<'_>>() };
        faulty.threads.has_failure()
    }

    /// Causes a fault on the threads of `mask` and returns its message. The threads get the name
    /// `name`.
    #[track_caller]
    fn check(fault: Fault, name: &'static str, n_threads: u32, mask: usize) {
        let run = move || {
            let _handlers = FaultHandlers::install();
            let mut threads = Threads::start(n_threads).expect("threads");
            #[cfg(target_os = "linux")]
            assert_eq!(running(name), n_threads as usize);
            let ran = Default::default();
            let mut faulty = Faulty { threads: &threads, mask, fault, ran };
            let data = (&raw mut faulty).cast::<c_void>();
            let function: unsafe extern "C-unwind" fn(_, _, _, _, _) = operation;
            // SAFETY: only the declared unwinding differs. ggml's C code has unwind tables.
            let function = unsafe {
                std::mem::transmute::<
                    unsafe extern "C-unwind" fn(
                        *mut sys::ggml_tensor,
                        *const sys::ggml_tensor,
                        c_int,
                        c_int,
                        *mut c_void,
                    ),
                    unsafe extern "C" fn(
                        *mut sys::ggml_tensor,
                        *const sys::ggml_tensor,
                        c_int,
                        c_int,
                        *mut c_void,
                    ),
                >(function)
            };
            let graph = Graph::new(3, n_threads, Some(function), data).expect("a graph");
            let status = graph.compute(&threads, n_threads, Some(should_stop), data);
            let failed = match (&status, threads.failure()) {
                (Err(failed), _) => Some(failed.error(Code::InferenceFailed, "").message().into()),
                (Ok(_), failure) => failure.map(|message| format!(": {message}")),
            };
            let expected = (mask != 0).then(|| fault.message().to_owned());
            assert_eq!(failed, expected, "{status:?}");
            let finished = faulty.ran[2].load(Ordering::SeqCst) > 0;
            assert_eq!(finished, mask == 0, "the graph must be cut short by a failure only");
            // Joins all threads.
            threads.end();
            #[cfg(target_os = "linux")]
            while running(name) > 1 {
                std::thread::yield_now();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        thread.expect("a thread").join().expect("the case passes");
    }

    #[test]
    fn threads_end_after_a_failed_assertion() {
        let check = |name, n_threads, mask| check(Fault::Assertion, name, n_threads, mask);
        check("nobody-fails", 4, 0);
        check("caller-fails", 4, 0b0001);
        check("worker-fails", 4, 0b0100);
        check("workers-fail", 4, 0b1110);
        check("all-fail", 4, 0b1111);
        check("one-of-two", 2, 0b10);
        check("alone", 1, 0b1);
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn threads_end_after_a_fault() {
        in_child("context::threads::tests::threads_end_after_a_fault", || {
            check(Fault::NullPointer, "null-caller", 3, 0b001);
            check(Fault::NullPointer, "null-worker", 3, 0b010);
            check(Fault::NullPointer, "null-alone", 1, 0b1);
            #[cfg(target_arch = "x86_64")]
            check(Fault::DivisionByZero, "zero-caller", 3, 0b001);
            #[cfg(target_arch = "x86_64")]
            check(Fault::DivisionByZero, "zero-workers", 3, 0b110);
        });
    }

    #[test]
    fn healthy_threads_end_when_they_are_dropped() {
        drop(Threads::start(3).expect("threads"));
    }
}
