//! `llb rpc`: serves the devices of this machine to llb and llama.cpp on other machines.

use std::fs;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;

use crate::abi;
use crate::failure::{Failure, Result};
use crate::interrupt;

/// Whether Ctrl-C was pressed.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// IPv4 address and port of the server. The protocol has no authentication and no encryption
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:50052")]
    listen: SocketAddrV4,
    /// Devices to serve, by their names in `llb doctor`, or CPU [default: all GPUs, else CPU]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    devices: Vec<String>,
    /// Number of threads of the device CPU [default: the processors of this machine]
    #[arg(long, short = 't', visible_alias = "threads", value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=512))]
    n_threads: Option<u16>,
    /// Folder that keeps the large tensors of models, so that they are sent once
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.listen.ip().is_loopback() {
        say!(
            "warning: everyone who can reach {} can use these devices, read what others compute on \
             them, and crash this program: the protocol has no authentication and no encryption",
            arguments.listen
        );
    }
    if let Some(folder) = &arguments.cache_dir {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("--cache-dir: {}: {error}", folder.display())))?;
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let service = abi::RpcService {
        address: arguments.listen,
        n_threads: arguments.n_threads.map_or(processors, usize::from),
        cache: arguments.cache_dir.as_deref(),
    };
    let cancel = || IS_INTERRUPTED.store(true, Ordering::Relaxed);
    let print = &mut |line: &str| say!("{line}");
    interrupt::cancellable(cancel, || {
        abi::serve_rpc(&service, &arguments.devices, is_interrupted, print)
    })
}

extern "C" fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}
