//! Replaces `malloc` and related functions, so that an allocation can fail, and the clock, so that
//! it can jump.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

unsafe extern "C" {
    /// Defined in src/llama/raw/shim.cpp. Whether this thread is inside a call of llama.cpp.
    fn llb_shim_is_inside() -> bool;
}

// glibc's own names for these functions.
unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
    fn __libc_free(old: *mut c_void);
}

/// The number of allocations inside llama.cpp until the first one that fails; negative after that.
static UNTIL_FAILURE: AtomicI64 = AtomicI64::new(i64::MAX);
/// The number of allocations that fail from then on.
static FAILURES: AtomicU64 = AtomicU64::new(0);
/// The number of allocations since the last `arm`.
static SEEN: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// The difference of the wall clock from the system's clock, in seconds.
static JUMP: AtomicI64 = AtomicI64::new(0);

/// Lets `failures` allocations fail, after `number` that succeed.
pub fn arm(number: u64, failures: u64) {
    disarm();
    SEEN.store(0, Ordering::SeqCst);
    FAILED.store(0, Ordering::SeqCst);
    FAILURES.store(failures, Ordering::SeqCst);
    UNTIL_FAILURE.store(number as i64, Ordering::SeqCst);
}

/// Lets all allocations succeed again. Returns how many there were, and how many of them failed.
pub fn disarm() -> (u64, u64) {
    UNTIL_FAILURE.store(i64::MAX, Ordering::SeqCst);
    (SEEN.load(Ordering::SeqCst), FAILED.load(Ordering::SeqCst))
}

/// Sets the wall clock forward by this many seconds.
pub fn jump(seconds: i64) {
    JUMP.store(seconds, Ordering::SeqCst);
}

fn fails() -> bool {
    // Any other C allocation is one of the C library itself, which ends the process if it cannot
    // register the destructor of a thread-local variable. SAFETY: reads a variable of this thread.
    if !unsafe { llb_shim_is_inside() } {
        return false;
    }
    SEEN.fetch_add(1, Ordering::Relaxed);
    if UNTIL_FAILURE.load(Ordering::Relaxed) == i64::MAX {
        return false;
    }
    let remaining = UNTIL_FAILURE.fetch_sub(1, Ordering::SeqCst);
    let fails = remaining <= 0 && remaining > -(FAILURES.load(Ordering::SeqCst) as i64);
    if fails {
        FAILED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: takes nothing.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: it is the number of this thread.
        unsafe { *errno = libc::ENOMEM };
    }
    fails
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: has no conditions.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: has no conditions.
    unsafe { __libc_calloc(count, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    if size > 0 && fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller passes what an allocation returned, or NULL.
    unsafe { __libc_realloc(old, size) }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: has no conditions.
    unsafe { __libc_memalign(alignment, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    let memory = aligned_alloc(alignment, size);
    if memory.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller passes a place for the result.
    unsafe { *out = memory };
    0
}

/// Writes seconds and nanoseconds, as the kernel does.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, out: *mut libc::timespec) -> c_int {
    // SAFETY: the caller passes a place for the result.
    let status = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) };
    if status == 0 && clock == libc::CLOCK_REALTIME {
        // SAFETY: the kernel wrote it.
        let time = unsafe { &mut *out };
        time.tv_sec = time.tv_sec.saturating_add(JUMP.load(Ordering::Relaxed));
    }
    status as c_int
}

/// Rust's allocator, which does not use the functions above.
struct Direct;

// SAFETY: glibc's allocator, with the alignment that is asked for.
unsafe impl GlobalAlloc for Direct {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: has no conditions.
            return unsafe { __libc_malloc(layout.size()) }.cast();
        }
        // SAFETY: has no conditions.
        unsafe { __libc_memalign(layout.align(), layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from `alloc`.
        unsafe { __libc_free(memory.cast()) };
    }
}

#[global_allocator]
static DIRECT: Direct = Direct;
