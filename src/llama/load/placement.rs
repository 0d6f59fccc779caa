//! Puts the layers of a model on devices, and loads it with as many of them as fit.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fit::MemoryNeeds;
use crate::api::LogLevel;
use crate::error::{Code, Error, Result};
use crate::llama::context::ModelOptions;
use crate::llama::devices::DeviceSelection;
use crate::llama::raw::{LogQueue, shim};

/// Loads onto devices run one after another: each must see the memory that the previous one took,
/// and backends start a device in its first load, without a lock. The mutex may be held during a
/// fork, because a child computes on the processor.
static FITTING: Mutex<()> = Mutex::new(());

/// Keeps other threads from loading models onto devices. `None` if these options use none.
pub(crate) fn alone(selection: &DeviceSelection) -> Option<MutexGuard<'static, ()>> {
    selection.has_any().then(|| FITTING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Loads a model by `load`. If the options do not set the number of layers, as many layers as fit
/// are put on devices. If llama.cpp then fails, the load is retried with half as many, then with
/// none, and then without devices: a device that computes for layers in main memory needs memory
/// too. Where the memory of the devices is unknown, llama.cpp decides first, which means all
/// layers.
pub(crate) fn load_fitting<T>(
    options: &ModelOptions,
    needs: Option<&MemoryNeeds>,
    log: &LogQueue,
    load: &mut dyn FnMut(&ModelOptions) -> Result<T>,
) -> Result<T> {
    let alone = alone(&options.devices);
    if options.n_gpu_layers.is_some_and(|layers| layers > 0) || alone.is_none() {
        return load(options);
    }
    let devices = options.devices.measured();
    // Fitting is impossible if a device does not report its memory.
    let needs = needs.filter(|_| devices.iter().all(|device| device.total > 0));
    let fitting = match options.n_gpu_layers {
        None => needs.map(|needs| needs.fitting(&devices)),
        Some(layers) => Some(layers as usize),
    };
    let mut notes = Vec::new();
    let loaded = first_that_loads(fitting, &mut notes, &mut |placement| {
        load(&match placement {
            DevicePlacement::Unlimited => options.clone(),
            DevicePlacement::Layers(layers) => {
                ModelOptions { n_gpu_layers: Some(layers as u32), ..options.clone() }
            }
            DevicePlacement::Processor => {
                let devices = DeviceSelection::Processor;
                ModelOptions { n_gpu_layers: Some(0), devices, ..options.clone() }
            }
        })
    });
    if let (Ok((placement, _)), Some(needs), None) = (&loaded, needs, options.n_gpu_layers) {
        let mib = |bytes: u64| bytes / (1 << 20);
        let list =
            devices.iter().map(|device| format!("{} ({} MiB free)", device.name, mib(device.free)));
        let list = list.collect::<Vec<String>>().join(", ");
        let layers = if let DevicePlacement::Layers(layers) = placement { *layers } else { 0 };
        let text = format!("n_gpu_layers: {layers} of {} layers on {list}", needs.n_layers());
        let level = if layers == 0 { LogLevel::Warn } else { LogLevel::Info };
        notes.push((level, text));
    }
    notes.into_iter().for_each(|(level, text)| log.push(level, text));
    loaded.map(|(_, loaded)| loaded)
}

/// Where the layers of a model are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DevicePlacement {
    /// llama.cpp decides.
    Unlimited,
    /// This many layers on devices.
    Layers(usize),
    /// No device is used.
    Processor,
}

impl fmt::Display for DevicePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DevicePlacement::Unlimited => f.write_str("all layers on devices"),
            DevicePlacement::Layers(layers) => write!(f, "{layers} layers on devices"),
            DevicePlacement::Processor => f.write_str("the processor alone"),
        }
    }
}

impl DevicePlacement {
    /// The placement to try if this one fails. There was memory for `fitting` layers.
    fn next(self, fitting: usize) -> Option<DevicePlacement> {
        match self {
            DevicePlacement::Layers(0) | DevicePlacement::Unlimited => {
                Some(DevicePlacement::Processor)
            }
            DevicePlacement::Layers(layers) if layers == fitting => {
                Some(DevicePlacement::Layers(layers / 2))
            }
            DevicePlacement::Layers(_) => Some(DevicePlacement::Layers(0)),
            DevicePlacement::Processor => None,
        }
    }
}

/// Tries placements, starting with this many layers, until one loads. Returns the error of the last
/// attempt.
fn first_that_loads<T>(
    fitting: Option<usize>,
    notes: &mut Vec<(LogLevel, String)>,
    load: &mut dyn FnMut(DevicePlacement) -> Result<T>,
) -> Result<(DevicePlacement, T)> {
    let first = fitting.map_or(DevicePlacement::Unlimited, DevicePlacement::Layers);
    let mut placement = first;
    loop {
        let error = match load(placement) {
            Ok(loaded) => return Ok((placement, loaded)),
            Err(error) => error,
        };
        let may_pass = matches!(error.code(), Code::ModelInvalid | Code::InferenceFailed);
        let next = placement.next(fitting.unwrap_or(0)).filter(|_| may_pass);
        let why = error.message();
        shim::note_lost_device(why);
        let Some(next) = next else {
            if placement == first {
                return Err(error);
            }
            let message = format!("{why} (tried first with {first}, at last with {placement})");
            return Err(Error::new(error.code(), message).caused_by(error));
        };
        let text = format!("n_gpu_layers: loading with {placement} failed, trying {next}: {why}");
        notes.push((LogLevel::Warn, text));
        placement = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The placements that are tried if this many layers fit and only `loads` succeeds.
    fn tried(
        fitting: Option<usize>,
        loads: Option<DevicePlacement>,
    ) -> (Vec<DevicePlacement>, Result<()>) {
        let (mut tried, mut notes) = (Vec::new(), Vec::new());
        let loaded = first_that_loads(fitting, &mut notes, &mut |placement| {
            tried.push(placement);
            let full = || Error::new(Code::InferenceFailed, "failed to allocate compute buffers");
            if Some(placement) == loads { Ok(()) } else { Err(full()) }
        });
        assert_eq!(notes.len() + 1, tried.len(), "each failure is in the log");
        (tried, loaded.map(|_| ()))
    }

    #[test]
    fn a_full_device_leaves_the_processor() {
        use DevicePlacement::{Layers, Processor, Unlimited};
        for (fitting, expected) in [
            (Some(28), vec![Layers(28), Layers(14), Layers(0), Processor]),
            (Some(1), vec![Layers(1), Layers(0), Processor]),
            (Some(0), vec![Layers(0), Processor]),
            (None, vec![Unlimited, Processor]),
        ] {
            let (all, loaded) = tried(fitting, Some(Processor));
            assert!(loaded.is_ok());
            assert_eq!(all, expected);
            let (all, loaded) = tried(fitting, Some(expected[0]));
            assert!(loaded.is_ok());
            assert_eq!(all, expected[..1]);
            let (all, loaded) = tried(fitting, None);
            assert_eq!(all, expected);
            let error = loaded.expect_err("nothing loads");
            assert!(error.message().ends_with("at last with the processor alone)"), "{error:?}");
        }
    }

    #[test]
    fn other_errors_end_the_search() {
        let mut tried = 0;
        let refused = first_that_loads(Some(4), &mut Vec::new(), &mut |_| {
            tried += 1;
            Err::<(), Error>(Error::new(Code::OutOfMemory, "no memory"))
        });
        assert_eq!((refused.expect_err("refused").message(), tried), ("no memory", 1));
    }
}
