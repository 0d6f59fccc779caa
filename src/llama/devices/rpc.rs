//! llama.cpp's RPC: devices of other hosts, and this process as a server of its devices. Both are
//! functions of `libllb-rpc.so` (kernels/device_rpc.cpp).
//!
//! A server is connected when the option `devices` names it, by "rpc:HOST:PORT". All models of the
//! process share the connection. It is closed when no model uses it. If it is lost, the next create
//! that names the server connects again, to devices that are others than before.

use std::ffi::{CStr, CString, c_char, c_void};
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::path::Path;

use llama_cpp_sys_2 as sys;

use super::device_file::{self, DeviceBackend};
use crate::error::{Code, Error, Result};
use crate::llama::raw::{exit, shim, stack};
use crate::process::{self, Shared};

/// The start of a server's name in the option `devices`.
const PREFIX: &str = "rpc:";
/// A part of each error of a server that was lost or cannot be used (kernels/device_rpc.cpp).
const UNUSABLE: &str = ": the RPC server ";

/// Stops the server when it returns true.
pub type ShouldStop = extern "C" fn() -> bool;

type Connect = unsafe extern "C-unwind" fn(
    name: *const c_char,
    address: *const c_char,
    stop: ShouldStop,
    problem: *mut c_char,
    size: usize,
) -> *mut c_void;

type Serve = unsafe extern "C-unwind" fn(
    address: *const c_char,
    cache: *const c_char,
    n_threads: usize,
    devices: *const *mut c_void,
    n_devices: usize,
    stop: ShouldStop,
    on_line: unsafe extern "C" fn(*const c_char, *mut c_void),
    data: *mut c_void,
    problem: *mut c_char,
    size: usize,
) -> bool;

/// A server that was connected.
#[derive(Debug)]
struct RpcServer {
    name: String,
    /// The process that connected it.
    forks: usize,
    backend: DeviceBackend,
}

/// The last connection to each server.
static SERVERS: Shared<Vec<RpcServer>> = Shared::new(Vec::new());

/// Whether this is the name of a server.
pub(super) fn is_server(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Whether an error is about a server that was lost or cannot be used.
pub(crate) fn is_about_server(error: &str) -> bool {
    error.contains(UNUSABLE)
}

/// The devices of the servers that are connected.
pub(super) fn devices() -> Vec<sys::ggml_backend_dev_t> {
    let servers = SERVERS.lock();
    let own = servers.iter().filter(|server| server.forks == process::forks());
    let backends: Vec<DeviceBackend> = own.map(|server| server.backend).collect();
    drop(servers);
    backends.iter().flat_map(DeviceBackend::devices).collect()
}

/// The devices of the server with this name, which is connected unless it is already. `path` is that
/// of the option. `INVALID_REQUEST` if the name or the file cannot be used, `INFERENCE_FAILED` if the
/// server cannot.
pub(super) fn connect(name: &str, path: &str) -> Result<Vec<sys::ggml_backend_dev_t>> {
    let invalid = |problem: String| Error::invalid(path, format!("{name}: {problem}"));
    let address = resolve(name.strip_prefix(PREFIX).unwrap_or(name)).map_err(invalid)?;
    let connect = function(c"llb_rpc_connect").map_err(invalid)?;
    // SAFETY: the function of this name has this type (kernels.h).
    let connect = unsafe { std::mem::transmute::<*mut c_void, Connect>(connect) };
    let texts = CString::new(name).and_then(|name| Ok((name, CString::new(address.to_string())?)));
    let (name_text, address) = texts.map_err(|error| invalid(error.to_string()))?;
    // On a thread of llb, because ggml starts the thread of the connection.
    let connected = stack::load_on_thread("llb-rpc", move || {
        let mut problem = [0_u8; 512];
        let (text, size) = (problem.as_mut_ptr().cast::<c_char>(), problem.len());
        // SAFETY: the texts are NUL-terminated, and the reason is written during the call.
        let registration = shim::guard(|| unsafe {
            connect(name_text.as_ptr(), address.as_ptr(), is_stopping, text, size)
        });
        let registration = registration
            .map_err(|failed| Error::new(Code::InferenceFailed, failed.text().to_owned()))?;
        DeviceBackend::new(registration.cast()).ok_or_else(|| {
            let problem = CStr::from_bytes_until_nul(&problem).unwrap_or_default();
            Error::new(Code::InferenceFailed, problem.to_string_lossy())
        })
    });
    let mut servers = SERVERS.lock();
    servers.retain(|server| server.name != name);
    let backend = connected.map_err(|error| error.about(path))?;
    servers.push(RpcServer { name: name.to_owned(), forks: process::forks(), backend });
    drop(servers);
    Ok(backend.devices())
}

extern "C" fn is_stopping() -> bool {
    exit::is_stopping()
}

/// The address of a server: ggml's sockets have version 4 of the Internet protocol.
fn resolve(address: &str) -> std::result::Result<SocketAddrV4, String> {
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if !has_port {
        return Err("expected \"rpc:HOST:PORT\"".to_owned());
    }
    let found = address.to_socket_addrs();
    let mut found = found.map_err(|error| format!("the host cannot be found: {error}"))?;
    let version_4 = found.find_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    });
    version_4.ok_or_else(|| "the host has no IPv4 address".to_owned())
}

/// A function of the file.
fn function(name: &CStr) -> std::result::Result<*mut c_void, String> {
    let backend = device_file::rpc_backend()?;
    // SAFETY: a registration lives as long as the process, and the name is NUL-terminated.
    let found = shim::guard(|| unsafe {
        shim::calls::ggml_backend_reg_get_proc_address(backend.as_ptr(), name.as_ptr())
    });
    let found = found.map_err(|failed| failed.text().to_owned())?;
    match found.is_null() {
        true => Err("libllb-rpc.so has another interface".to_owned()),
        false => Ok(found),
    }
}

/// What a server serves, and how.
#[derive(Debug)]
pub struct RpcService<'a> {
    /// Where it listens. The port 0 is any free one.
    pub address: SocketAddrV4,
    /// Threads for each computation of the processor.
    pub n_threads: usize,
    /// Where it keeps tensors that it has received, if anywhere.
    pub cache: Option<&'a Path>,
}

/// Serves devices until `should_stop`. `on_line` gets what the server says.
pub(super) fn serve(
    service: &RpcService<'_>,
    devices: &[sys::ggml_backend_dev_t],
    should_stop: ShouldStop,
    mut on_line: &mut dyn FnMut(&str),
) -> Result<()> {
    let failed = |problem: String| Error::new(Code::InferenceFailed, problem);
    let serve = function(c"llb_rpc_serve").map_err(failed)?;
    // SAFETY: the function of this name has this type (kernels.h).
    let serve = unsafe { std::mem::transmute::<*mut c_void, Serve>(serve) };
    let cache = service.cache.map(|path| path.to_str().and_then(|path| CString::new(path).ok()));
    let cache = match cache {
        Some(None) => return Err(failed("the path of the cache is not valid UTF-8".to_owned())),
        Some(Some(path)) => Some(path),
        None => None,
    };
    let address = CString::new(service.address.to_string());
    let address = address.map_err(|error| failed(error.to_string()))?;
    let devices: Vec<*mut c_void> = devices.iter().map(|device| device.cast()).collect();
    let data = (&raw mut on_line).cast::<c_void>();
    let mut problem = [0_u8; 512];
    let (text, size) = (problem.as_mut_ptr().cast::<c_char>(), problem.len());
    let ended = shim::guard(|| {
        // SAFETY: all pointers are valid during the call. The closure is called by `take_line`
        // alone, on this thread.
        unsafe {
            serve(
                address.as_ptr(),
                cache.as_ref().map_or(std::ptr::null(), |cache| cache.as_ptr()),
                service.n_threads,
                devices.as_ptr(),
                devices.len(),
                should_stop,
                take_line,
                data,
                text,
                size,
            )
        }
    });
    match ended {
        Ok(true) => Ok(()),
        Ok(false) => {
            let problem = CStr::from_bytes_until_nul(&problem).unwrap_or_default();
            Err(failed(problem.to_string_lossy().into_owned()))
        }
        Err(call) => {
            Err(failed(format!("a client's request could not be served: {}", call.text())))
        }
    }
}

unsafe extern "C" fn take_line(line: *const c_char, data: *mut c_void) {
    // SAFETY: `serve` passes a pointer to its closure, which lives until the call returns.
    let on_line = unsafe { &mut *data.cast::<&mut dyn FnMut(&str)>() };
    // SAFETY: a NUL-terminated text that lives during the call.
    let line = unsafe { CStr::from_ptr(line) };
    shim::callback((), || on_line(&line.to_string_lossy()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        assert_eq!(resolve("127.0.0.1:50052"), Ok(SocketAddrV4::new([127, 0, 0, 1].into(), 50052)));
        let shape = Err("expected \"rpc:HOST:PORT\"".to_owned());
        for address in ["", "host", ":50052", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536"] {
            assert_eq!(resolve(address), shape, "{address:?}");
        }
        let version_6 = Err("the host has no IPv4 address".to_owned());
        assert_eq!(resolve("[::1]:50052"), version_6);
    }
}
