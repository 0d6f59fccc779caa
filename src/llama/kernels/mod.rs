//! The kernels: ggml's functions that compute, compiled for several sets of instructions
//! (variants).
//!
//! This library contains one variant. Files beside it (`libllb-cpu-NAME.so`, scripts/kernels.py)
//! contain others. The first create of a process chooses the fastest variant that the CPU can run,
//! or the one that its option `backend` names. All chats of the process then use it.
//! docs/backends.md has the rules; `kernels.h` describes the interface between a file and the
//! library.

mod kernel_file;
mod survey;
mod variant;

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

#[cfg(all(test, target_os = "linux"))]
pub(super) use self::kernel_file::{IDENTITY, written};
pub(super) use self::kernel_file::{check_file, owners};
pub(super) use self::survey::{FoundKernels, Places, Problem, Survey, folders};
use self::variant::BUILT_IN;
pub(super) use self::variant::present as present_features;
use crate::api::LogLevel;
use crate::error::{Code, Error, Result};
use crate::llama::raw::{LogQueue, exit, faults, log, shim};
use crate::process::{Lazy, Shared};

macro_rules! kernel_functions {
    ($($name:ident($($type:ty),*) $(-> $result:ty)? = $function:ident;)*) => {
        /// The functions of ggml-cpu that llb calls. Same layout as `llb_kernels` in kernels.h.
        #[repr(C)]
        pub(super) struct Kernels {
            $(pub(super) $name: unsafe extern "C-unwind" fn($($type),*) $(-> $result)?,)*
            _barrier: unsafe extern "C-unwind" fn(*mut sys::ggml_threadpool),
        }

        // Checks the types against the declarations of llama-cpp-sys-2.
        $(const _: unsafe extern "C" fn($($type),*) $(-> $result)? = sys::$function;)*
    };
}

kernel_functions! {
    registration() -> sys::ggml_backend_reg_t = ggml_backend_cpu_reg;
    graph_plan(*const sys::ggml_cgraph, c_int, *mut sys::ggml_threadpool) -> sys::ggml_cplan
        = ggml_graph_plan;
    graph_compute(*mut sys::ggml_cgraph, *mut sys::ggml_cplan) -> sys::ggml_status
        = ggml_graph_compute;
    threadpool_new(*mut sys::ggml_threadpool_params) -> *mut sys::ggml_threadpool
        = ggml_threadpool_new;
    threadpool_free(*mut sys::ggml_threadpool) = ggml_threadpool_free;
}

unsafe extern "C" {
    fn llb_kernels_set_built_in(can_run: bool);
    fn llb_kernels_redirected() -> bool;
    fn llb_kernels_built_in() -> *const Kernels;
    fn llb_kernels_use(kernels: *const Kernels);
    fn llb_kernels_used() -> *const Kernels;
}

unsafe extern "C-unwind" {
    fn llb_kernels_load(path: *const c_char, reason: *mut *const c_char) -> *const Kernels;
}

/// The kernels that this process computes with.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(super) name: &'static str,
    /// `None` for this library's own kernels.
    pub(super) file: Option<PathBuf>,
    /// Whether the option `backend` named them.
    pub(super) is_forced: bool,
    /// Log lines about files that were refused.
    pub(super) refused: Vec<String>,
    /// Files that could not be loaded, with the reason.
    pub(super) unloadable: Vec<(PathBuf, String)>,
}

impl Chosen {
    /// Logs which kernels were chosen and which files were refused.
    pub(super) fn log(&self, log: &LogQueue) {
        for refused in &self.refused {
            log.push(LogLevel::Warn, format!("backend: not used: {refused}"));
        }
        let from =
            self.file.as_ref().map_or("this library".to_owned(), |file| file.display().to_string());
        log.push(LogLevel::Info, format!("backend: {} from {from}", self.name));
    }
}

/// Set once, by the first create.
pub(super) static CHOSEN: Shared<Option<&'static Chosen>> = Shared::new(None);

/// The kernels that compute. Before the first create, these are this library's own.
pub(super) fn used() -> &'static Kernels {
    // SAFETY: takes nothing.
    let used = unsafe { llb_kernels_used() };
    // SAFETY: never NULL, and lives forever.
    unsafe { &*used }
}

/// Starts llama.cpp, once per process, before any other call. Fails if it cannot start on this
/// processor.
pub(crate) fn start_llama_cpp() -> Result<()> {
    static STARTED: Lazy<()> = Lazy::new(|| {
        log::install();
        exit::install();
        // SAFETY: takes a plain value; ggml's registry has not started.
        unsafe { llb_kernels_set_built_in(can_run_built_in()) };
        // SAFETY: once per process, before any other call. A failure shows in the calls that
        // follow.
        let _ = shim::guard(|| unsafe { shim::calls::llama_backend_init() });
    });
    check_registry()?;
    *STARTED;
    Ok(())
}

/// Fails if ggml's registry would run this library's own kernels on a processor that cannot.
fn check_registry() -> Result<()> {
    // SAFETY: takes nothing.
    if can_run_built_in() || unsafe { llb_kernels_redirected() } {
        return Ok(());
    }
    let missing = variant::missing(BUILT_IN).unwrap_or_default();
    let message = format!(
        "this processor lacks {}, which the kernels in this program need; to use files of kernels, \
         link libllb.a as `pkg-config --static --libs llb` says, or use libllb.so",
        missing.join(", ")
    );
    Err(Error::new(Code::InferenceFailed, message).with("missing_cpu_features", missing))
}

/// Whether this processor can run the kernels in this library.
pub(crate) fn can_run_built_in() -> bool {
    variant::missing(BUILT_IN).is_some_and(|missing| missing.is_empty())
}

/// Chooses the kernels of this process, unless an earlier create has done so. `wanted` is the
/// option `backend`. `INVALID_REQUEST` if the variant does not exist, or if the process has already
/// chosen another one. `INFERENCE_FAILED` if the CPU can run no variant.
pub(crate) fn choose(wanted: Option<&str>) -> Result<&'static Chosen> {
    choose_in(&Places::now(), wanted)
}

pub(super) fn choose_in(places: &Places, wanted: Option<&str>) -> Result<&'static Chosen> {
    let mut chosen = CHOSEN.lock();
    match (*chosen, wanted) {
        (Some(chosen), None) => return Ok(chosen),
        (Some(chosen), Some(wanted)) if chosen.name == wanted => return Ok(chosen),
        _ => {}
    }
    let survey = Survey::of(places);
    if let Some(wanted) = wanted {
        check_wanted(&survey, wanted)?;
    }
    if let (Some(chosen), Some(wanted)) = (*chosen, wanted) {
        let problem = format!(
            "{wanted:?} cannot be used: this process computes with {:?} since its first create, \
             for all chats; name {wanted:?} in the first create, or use isolation",
            chosen.name
        );
        return Err(Error::invalid("backend", problem));
    }
    let new: &'static Chosen = Box::leak(Box::new(load_first(&survey, wanted)?));
    *chosen = Some(new);
    Ok(new)
}

/// The variant that computes, or that the first create would choose, if it is in a file. `None` if
/// it is in this library.
pub(crate) fn file_variant() -> Option<&'static str> {
    let chosen = *CHOSEN.lock();
    match chosen {
        Some(chosen) => chosen.file.is_some().then_some(chosen.name),
        None => {
            let survey = Survey::of(&Places::now());
            let first = survey.usable().next()?;
            first.file.is_some().then_some(first.name)?
        }
    }
}

/// Fails unless a variant of this name exists and can be used.
fn check_wanted(survey: &Survey, wanted: &str) -> Result<()> {
    if survey.usable().any(|found| found.name == Some(wanted)) {
        return Ok(());
    }
    let there: Vec<&str> = survey.usable().filter_map(|found| found.name).collect();
    let list = there.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let problem = survey.found.iter().find(|found| found.name == Some(wanted));
    let problem = match problem.and_then(|found| found.problem.as_ref()) {
        Some(problem) => format!("{wanted:?} cannot be used, because {}", problem.text()),
        None => format!("there is no {wanted:?} here"),
    };
    let message = format!("{problem}; there is: {list} (llb_backends has more)");
    Err(Error::invalid("backend", message).with("backends", there))
}

/// Loads the fastest usable variant, or the wanted one. Files that cannot be loaded are skipped.
fn load_first(survey: &Survey, wanted: Option<&str>) -> Result<Chosen> {
    start_llama_cpp()?;
    let mut refused: Vec<String> = survey.found.iter().filter_map(refusal).collect();
    let mut unloadable = Vec::new();
    let is_candidate =
        |found: &&FoundKernels| wanted.is_none_or(|wanted| found.name == Some(wanted));
    for found in survey.usable().filter(is_candidate) {
        let Some(name) = found.name else { continue };
        match use_kernels(found.file.as_deref()) {
            Ok(()) => {
                let (file, is_forced) = (found.file.clone(), wanted.is_some());
                return Ok(Chosen { name, file, is_forced, refused, unloadable });
            }
            Err(problem) => {
                let file = found.file.clone().unwrap_or_default();
                let message = format!("{} {problem}", file.display());
                if wanted.is_some() {
                    return Err(Error::invalid("backend", message));
                }
                refused.push(message);
                unloadable.push((file, problem));
            }
        }
    }
    let missing = variant::missing(BUILT_IN).unwrap_or_default();
    let mut message = format!(
        "this processor lacks {}, which the kernels in this library need; put the files that \
         `make backends` compiles beside the library, or use the baseline build (`make baseline`)",
        missing.join(", ")
    );
    if !refused.is_empty() {
        message = format!("{message}; not used: {}", refused.join("; "));
    }
    Err(Error::new(Code::InferenceFailed, message).with("missing_cpu_features", missing))
}

/// The log line for a file that is not a valid file of kernels; `None` for all others.
fn refusal(found: &FoundKernels) -> Option<String> {
    match (&found.file, found.name, &found.problem) {
        (Some(file), None, Some(Problem::File(problem))) => {
            Some(format!("{} {problem}", file.display()))
        }
        _ => None,
    }
}

/// Makes ggml compute with the kernels of a file, or with this library's own. Must run after
/// llama.cpp has started and before any model is loaded.
fn use_kernels(file: Option<&Path>) -> Result<(), String> {
    let kernels = match file {
        Some(file) => load(file)?,
        // SAFETY: takes nothing.
        None => NonNull::new(unsafe { llb_kernels_built_in() }.cast_mut()).ok_or("are missing")?,
    };
    // SAFETY: the functions of a file of this build, or of this library, live forever.
    let registration = unsafe { kernels.as_ref() }.registration;
    // SAFETY: no model is loaded, so nothing holds a device of the registry.
    let registered = shim::guard(|| unsafe { register(registration) });
    if registered.is_err() {
        return Err("llama.cpp did not accept its kernels".to_owned());
    }
    faults::add_code(registration as *const () as usize);
    // SAFETY: the functions live forever, and nothing computes yet.
    unsafe { llb_kernels_use(kernels.as_ptr()) };
    Ok(())
}

/// Replaces the CPU backend in ggml's registry.
///
/// # Safety
/// No device of the registry is in use.
unsafe fn register(registration: unsafe extern "C-unwind" fn() -> sys::ggml_backend_reg_t) {
    // SAFETY: takes nothing.
    let new = unsafe { registration() };
    // SAFETY: a NUL-terminated text.
    let old = unsafe { shim::calls::ggml_backend_reg_by_name(c"CPU".as_ptr()) };
    if old == new {
        return;
    }
    if !old.is_null() {
        // SAFETY: it is registered, and nothing uses its devices.
        unsafe { shim::calls::ggml_backend_unload(old) };
    }
    // SAFETY: a registration lives forever.
    unsafe { shim::calls::ggml_backend_register(new) };
}

/// Whether ggml's registry has the kernels of a file and not this library's own.
#[cfg(all(test, target_os = "linux"))]
pub(super) fn is_registered() -> bool {
    // SAFETY: takes nothing.
    let used = unsafe { (used().registration)() };
    // SAFETY: as above.
    let built_in = unsafe { sys::ggml_backend_cpu_reg() };
    // SAFETY: the registry has started.
    let all = (0..unsafe { sys::ggml_backend_reg_count() })
        // SAFETY: the index is below the count.
        .map(|index| unsafe { sys::ggml_backend_reg_get(index) });
    let all: Vec<_> = all.collect();
    used != built_in && all.contains(&used) && !all.contains(&built_in)
}

/// Loads a checked file.
fn load(file: &Path) -> Result<NonNull<Kernels>, String> {
    let path = file.to_str().and_then(|path| CString::new(path).ok());
    let path = path.ok_or("has a path that is not valid UTF-8")?;
    let mut reason: *const c_char = std::ptr::null();
    // SAFETY: the path is NUL-terminated, and the reason is written during the call. Constructors
    // of the file run: it is of this build, and only trusted users can write it.
    let kernels = shim::guard(|| unsafe { llb_kernels_load(path.as_ptr(), &raw mut reason) });
    let kernels = kernels.map_err(|_| "cannot be loaded".to_owned())?;
    NonNull::new(kernels.cast_mut()).ok_or_else(|| {
        if reason.is_null() {
            return "cannot be loaded".to_owned();
        }
        // SAFETY: a NUL-terminated text that lives until the next call on this thread.
        let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
        format!("cannot be loaded: {reason}")
    })
}
