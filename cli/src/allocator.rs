//! How the allocator of this process keeps memory.
#![allow(unsafe_code, reason = "calls a function of glibc that no crate of the program wraps")]

/// Makes the allocator of glibc share few arenas among the threads, and return large blocks to the
/// system when they are freed. Otherwise each arena keeps up to 64 MB of address space, and what
/// its largest request took.
pub(crate) fn share_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        unsafe extern "C" {
            /// mallopt(3)
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        const M_TRIM_THRESHOLD: c_int = -1;
        const M_MMAP_THRESHOLD: c_int = -3;
        const M_ARENA_MAX: c_int = -8;
        for (parameter, value) in
            [(M_ARENA_MAX, 2), (M_MMAP_THRESHOLD, 1 << 20), (M_TRIM_THRESHOLD, 4 << 20)]
        {
            // SAFETY: any thread may call it at any time.
            unsafe { mallopt(parameter, value) };
        }
    }
}
