//! Starts helper processes for `isolation`. It is also the first Rust code that runs in a helper.
//!
//! The library is its own helper. The dynamic loader of this process runs a shared library (`ld.so
//! libllb.so`). That needs no other file, and works where the host is a JVM or Python. A program
//! that contains `libllb.a` is started again and becomes a helper before its `main`. From the
//! host's environment, the helper gets only `LD_LIBRARY_PATH` and `LLB_BACKENDS`.

use std::ffi::{CString, c_char, c_int};
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
    descriptors: [c_int; 3],
    pidfd: c_int,
    pid: c_int,
    error: c_int,
}

unsafe extern "C" {
    fn llb_helper_start(start: *mut HelperStart) -> bool;
    fn llb_helper_in_program() -> bool;
    fn llb_helper_interpreter() -> usize;
}

/// Starts a helper. The helper is not a child of this process.
pub(super) fn start(descriptors: &HelperDescriptors) -> io::Result<StartedHelper> {
    let Program { path, arguments, mark } = Program::find()?;
    let mut environment = vec![mark];
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
            descriptors.door.as_raw_fd(),
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

/// The program of a helper.
struct Program {
    path: CString,
    arguments: Vec<CString>,
    /// Shows helper.cpp how it was started.
    mark: CString,
}

impl Program {
    fn find() -> io::Result<Program> {
        const NAME: &std::ffi::CStr = c"llb-helper";
        // SAFETY: takes nothing and only reads addresses.
        if unsafe { llb_helper_in_program() } {
            return Ok(Program {
                path: c"/proc/self/exe".into(),
                arguments: vec![NAME.into()],
                mark: c"LLB_HELPER=program".into(),
            });
        }
        // SAFETY: as above.
        let loader = process::mapped_file(unsafe { llb_helper_interpreter() });
        let library = process::mapped_file(start as *const () as usize);
        let (Some(loader), Some(library)) = (loader, library) else {
            let problem = "the file of this library cannot be found in /proc/self/maps";
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        };
        Ok(Program {
            path: CString::new(loader.as_os_str().as_bytes())?,
            arguments: vec![NAME.into(), CString::new(library.as_os_str().as_bytes())?],
            mark: c"LLB_HELPER=library".into(),
        })
    }
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
extern "C" fn serve(door: c_int) {
    // SAFETY: helper.cpp passes an open descriptor that it does not use itself.
    let door = unsafe { OwnedFd::from_raw_fd(door) };
    isolation::serve(&door, version::text());
}
