//! Starts helper processes for `isolation`. It is also the first Rust code that runs in a helper.
//!
//! The library is its own helper. The dynamic loader of this process runs a shared library (`ld.so
//! libllb.so`). That needs no other file, and works where the host is a JVM or Python. A program
//! that contains `libllb.a` is started again and becomes a helper before its `main`. Another shared
//! library that contains it becomes one when the loader loads it for a program without code
//! (`LD_PRELOAD`). From the host's environment, the helper gets only `LD_LIBRARY_PATH` and
//! `LLB_BACKENDS`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::version;
use crate::isolation::{self, HelperDescriptors, StartedHelper};
use crate::process;

/// The parameters and results of a start. helper.cpp declares the same struct.
#[repr(C)]
struct HelperStart {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    descriptors: [c_int; 4],
    pidfd: c_int,
    pid: c_int,
    error: c_int,
}

unsafe extern "C" {
    fn llb_helper_start(start: *mut HelperStart) -> bool;
    fn llb_helper_place() -> c_int;
    fn llb_helper_by_loader() -> bool;
    fn llb_helper_interpreter() -> usize;
}

/// What contains this code. helper.cpp declares the same numbers.
const IN_PROGRAM: c_int = 0;
const IN_LIBRARY: c_int = 1;

/// Starts a helper. The helper is not a child of this process.
pub(super) fn start(descriptors: &HelperDescriptors) -> io::Result<StartedHelper> {
    let Program { path, arguments, mut environment } = Program::find()?;
    for name in ["LD_LIBRARY_PATH", "LLB_BACKENDS"] {
        if let Some(value) = std::env::var_os(name) {
            environment.push(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
    }
    let pointers = |texts: &[CString]| {
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]);
        pointers.collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(&arguments), pointers(&environment));
    let mut start = HelperStart {
        program: path.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        descriptors: [
            descriptors.control.as_raw_fd(),
            descriptors.listener.as_raw_fd(),
            descriptors.life.as_raw_fd(),
            descriptors.host.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        ],
        pidfd: -1,
        pid: -1,
        error: 0,
    };
    // SAFETY: all pointers are valid during the call, and both lists end with NULL.
    if !unsafe { llb_helper_start(&raw mut start) } {
        return Err(io::Error::from_raw_os_error(start.error));
    }
    // SAFETY: the call has opened this descriptor, and nothing else knows it.
    let monitor = (start.pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(start.pidfd) });
    Ok(StartedHelper { monitor })
}

struct Program {
    path: CString,
    arguments: Vec<CString>,
    /// The first variable shows helper.cpp how it was started.
    environment: Vec<CString>,
}

impl Program {
    fn find() -> io::Result<Program> {
        const NAME: &CStr = c"llb-helper";
        // SAFETY: takes nothing and only reads addresses.
        let place = unsafe { llb_helper_place() };
        // SAFETY: as above.
        let by_loader = unsafe { llb_helper_by_loader() };
        if place == IN_PROGRAM && !by_loader {
            return Ok(Program {
                path: c"/proc/self/exe".into(),
                arguments: vec![NAME.into()],
                environment: vec![c"LLB_HELPER=program".into()],
            });
        }
        // SAFETY: as above.
        let loader = mapped_file(unsafe { llb_helper_interpreter() })?;
        let own = mapped_file(start as *const () as usize)?;
        let (program, environment) = match place {
            IN_PROGRAM => (own, vec![c"LLB_HELPER=program".into()]),
            IN_LIBRARY => (own, vec![c"LLB_HELPER=library".into()]),
            _ => {
                if own.as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
                    let problem = format!("the path {own:?} has a space or a colon");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
                }
                let nothing = program_without_code(&own)?;
                let preload = CString::new([b"LD_PRELOAD=", own.as_bytes()].concat())?;
                (nothing, vec![c"LLB_HELPER=preloaded".into(), preload])
            }
        };
        Ok(Program { path: loader, arguments: vec![NAME.into(), program], environment })
    }
}

/// A program for the loader that does nothing: libgcc_s.so. It is loaded in every case, and has no
/// entry point, so the helper ends by a signal if the loader cannot load this library. The C library
/// cannot be used, because it must be bound before this library.
#[cfg(target_env = "gnu")]
fn program_without_code(own: &CStr) -> io::Result<CString> {
    unsafe extern "C" {
        /// Of libgcc_s. Only its address is used.
        fn _Unwind_GetIP(context: *mut std::ffi::c_void) -> usize;
    }
    let nothing = mapped_file(_Unwind_GetIP as *const () as usize)?;
    if *nothing == *own {
        let problem = "libgcc is linked statically; link libgcc_s.so";
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    Ok(nothing)
}

/// In musl, the entry point of the program calls the constructors of all libraries.
#[cfg(target_env = "musl")]
fn program_without_code(own: &CStr) -> io::Result<CString> {
    let problem = format!("{own:?} contains llb; with musl only libllb.so and a program can");
    Err(io::Error::new(io::ErrorKind::Unsupported, problem))
}

/// The path of the file that is mapped at an address.
fn mapped_file(address: usize) -> io::Result<CString> {
    let path = process::mapped_file(address).ok_or_else(|| {
        let problem = "the file of this library cannot be found in /proc/self/maps";
        io::Error::new(io::ErrorKind::NotFound, problem)
    })?;
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Defines the name by which helper.cpp calls `serve`. `no_mangle` would export it from the shared
/// library.
macro_rules! name_serve {
    ($jump:literal) => {
        std::arch::global_asm!(
            ".text",
            ".globl llb_helper_serve",
            ".hidden llb_helper_serve",
            "llb_helper_serve:",
            $jump,
            serve = sym serve,
        );
    };
}

#[cfg(target_arch = "x86_64")]
name_serve!("jmp {serve}");
#[cfg(target_arch = "aarch64")]
name_serve!("b {serve}");

/// The entry point of the worker: serves the host on this descriptor, the only one that is still
/// open.
extern "C" fn serve(listener: c_int) {
    // SAFETY: helper.cpp passes an open descriptor that it does not use itself.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    isolation::serve(&listener, version::text());
}
