//! Puts the layers of a model on devices, and loads it with as many of them, and of their experts, as
//! fit.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fit::{LayerChoice, LayerPlan, MemoryNeeds};
use super::tensor_places::expert_rule;
use crate::api::LogLevel;
use crate::error::{Code, Error, Result};
use crate::llama::context::ModelOptions;
use crate::llama::devices::{self, DeviceSelection, DeviceSplit};
use crate::llama::raw::{LogQueue, shim};

/// Loads onto devices run one after another: each must see the memory that the previous one took,
/// and backends start a device in its first load, without a lock. The mutex may be held during a
/// fork, because a child computes on the processor.
static FITTING: Mutex<()> = Mutex::new(());

/// Keeps other threads from loading models onto devices. `None` if these options use none.
pub(crate) fn alone(selection: &DeviceSelection) -> Option<MutexGuard<'static, ()>> {
    selection.has_any().then(|| FITTING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The options with this plan: the number of layers on devices, and the rule for the experts that
/// stay in main memory.
pub(crate) fn planned(options: &ModelOptions, plan: LayerPlan) -> ModelOptions {
    let layers = u32::try_from(plan.layers).unwrap_or(u32::MAX);
    let n_cpu_moe = u32::try_from(plan.n_cpu_moe).unwrap_or(u32::MAX);
    with_experts(&ModelOptions { n_gpu_layers: Some(layers), ..options.clone() }, n_cpu_moe)
}

/// The options with the experts of this many blocks in main memory.
pub(crate) fn with_experts(options: &ModelOptions, n_cpu_moe: u32) -> ModelOptions {
    let mut options = ModelOptions { n_cpu_moe: Some(n_cpu_moe), ..options.clone() };
    if n_cpu_moe > 0 {
        options.rules.push(expert_rule(n_cpu_moe));
    }
    options
}

/// Loads a model by `load`. If the options do not set the number of layers, as many layers as fit
/// are put on devices, and likewise for their experts. If llama.cpp then fails, the load is retried
/// with all experts in main memory, with half as many layers, then with none, and then without
/// devices: a device that computes for layers in main memory needs memory too. Where the memory of
/// the devices is unknown, llama.cpp decides first, which means all layers.
pub(crate) fn load_fitting<T>(
    options: &ModelOptions,
    needs: Option<&MemoryNeeds>,
    log: &LogQueue,
    load: &mut dyn FnMut(&ModelOptions) -> Result<T>,
) -> Result<T> {
    let Some(_alone) = alone(&options.devices) else { return load(options) };
    let choice = LayerChoice { n_gpu_layers: options.n_gpu_layers, n_cpu_moe: options.n_cpu_moe };
    let devices = options.split.measured(&options.devices);
    // Fitting is impossible if a device does not report its memory, or if they share every tensor.
    let can_fit = !options.split.is_of_tensors() && devices.iter().all(|device| device.total > 0);
    let needs = needs.filter(|_| can_fit);
    let most_experts = needs.map_or(0, MemoryNeeds::n_expert_blocks);
    let first = match (needs, choice.n_gpu_layers) {
        (Some(needs), _) => DevicePlacement::Planned(needs.plan(&devices, choice)),
        (None, None) => DevicePlacement::Unlimited,
        (None, Some(layers)) => {
            let n_cpu_moe = choice.n_cpu_moe.unwrap_or(0) as usize;
            DevicePlacement::Planned(LayerPlan { layers: layers as usize, n_cpu_moe })
        }
    };
    let attempts = Attempts { first, choice, most_experts };
    let mut notes = Vec::new();
    let loaded = attempts.first_that_loads(&mut notes, &mut |placement| {
        load(&match placement {
            DevicePlacement::Unlimited => with_experts(options, choice.n_cpu_moe.unwrap_or(0)),
            DevicePlacement::Planned(plan) => planned(options, plan),
            DevicePlacement::Processor => {
                let devices = DeviceSelection::Processor;
                let split = DeviceSplit::BY_LAYERS;
                ModelOptions { n_gpu_layers: Some(0), devices, split, ..options.clone() }
            }
        })
    });
    if let (Ok((placement, _)), Some(needs)) = (&loaded, needs) {
        let mib = |bytes: u64| bytes / (1 << 20);
        let list =
            devices.iter().map(|device| format!("{} ({} MiB free)", device.name, mib(device.free)));
        let list = list.collect::<Vec<String>>().join(", ");
        let none = LayerPlan { layers: 0, n_cpu_moe: 0 };
        let plan = if let DevicePlacement::Planned(plan) = placement { *plan } else { none };
        if choice.n_gpu_layers.is_none() {
            let layers = plan.layers;
            let text = format!("n_gpu_layers: {layers} of {} layers on {list}", needs.n_layers());
            let level = if layers == 0 { LogLevel::Warn } else { LogLevel::Info };
            notes.push((level, text));
        }
        if choice.n_cpu_moe.is_none() && plan.layers > 0 && plan.n_cpu_moe > 0 {
            let text = format!(
                "n_cpu_moe: the experts of the first {} of {} layers in main memory",
                plan.n_cpu_moe,
                needs.n_layers() - 1
            );
            notes.push((LogLevel::Info, text));
        }
    }
    notes.into_iter().for_each(|(level, text)| log.push(level, text));
    loaded.map(|(_, loaded)| loaded)
}

/// Where the layers of a model are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DevicePlacement {
    /// llama.cpp decides.
    Unlimited,
    /// This many layers on devices, and the experts of so many in main memory.
    Planned(LayerPlan),
    /// No device is used.
    Processor,
}

impl fmt::Display for DevicePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DevicePlacement::Unlimited => f.write_str("all layers on devices"),
            DevicePlacement::Planned(LayerPlan { layers, n_cpu_moe: 0 }) => {
                write!(f, "{layers} layers on devices")
            }
            DevicePlacement::Planned(LayerPlan { layers, n_cpu_moe }) => {
                write!(f, "{layers} layers on devices without the experts of {n_cpu_moe}")
            }
            DevicePlacement::Processor => f.write_str("the processor alone"),
        }
    }
}

/// The placements to try.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    first: DevicePlacement,
    choice: LayerChoice,
    /// The number of blocks whose experts can be in main memory.
    most_experts: usize,
}

impl Attempts {
    /// The placement to try if this one fails. What the caller has chosen stays, except that no
    /// layers on devices may become no devices.
    fn after(&self, failed: DevicePlacement) -> Option<DevicePlacement> {
        let DevicePlacement::Planned(plan) = failed else {
            let is_first = failed == DevicePlacement::Unlimited;
            return is_first.then_some(DevicePlacement::Processor);
        };
        if plan.layers == 0 {
            return Some(DevicePlacement::Processor);
        }
        let is_free = self.choice.n_cpu_moe.is_none();
        if is_free && plan.n_cpu_moe < self.most_experts {
            let n_cpu_moe = self.most_experts;
            return Some(DevicePlacement::Planned(LayerPlan { n_cpu_moe, ..plan }));
        }
        if self.choice.n_gpu_layers.is_some() {
            return None;
        }
        let was_full =
            matches!(self.first, DevicePlacement::Planned(first) if first.layers == plan.layers);
        let layers = if was_full { plan.layers / 2 } else { 0 };
        Some(DevicePlacement::Planned(LayerPlan { layers, ..plan }))
    }

    /// Tries placements until one loads. Returns the error of the last attempt.
    fn first_that_loads<T>(
        &self,
        notes: &mut Vec<(LogLevel, String)>,
        load: &mut dyn FnMut(DevicePlacement) -> Result<T>,
    ) -> Result<(DevicePlacement, T)> {
        let first = self.first;
        let mut placement = first;
        loop {
            let error = match load(placement) {
                Ok(loaded) => return Ok((placement, loaded)),
                Err(error) => error,
            };
            // Without the server that the caller has named, nothing else is tried.
            if devices::is_about_server(error.message()) {
                let message = error.message().to_owned();
                return Err(Error::new(Code::InferenceFailed, message).caused_by(error));
            }
            let may_pass = matches!(error.code(), Code::ModelInvalid | Code::InferenceFailed);
            let next = self.after(placement).filter(|_| may_pass);
            let why = error.message();
            shim::note_lost_device(why);
            let Some(next) = next else {
                if placement == first {
                    return Err(error);
                }
                let message = format!("{why} (tried first with {first}, at last with {placement})");
                return Err(Error::new(error.code(), message).caused_by(error));
            };
            let text =
                format!("n_gpu_layers: loading with {placement} failed, trying {next}: {why}");
            notes.push((LogLevel::Warn, text));
            placement = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(layers: usize) -> DevicePlacement {
        experts(layers, 0)
    }

    fn experts(layers: usize, n_cpu_moe: usize) -> DevicePlacement {
        DevicePlacement::Planned(LayerPlan { layers, n_cpu_moe })
    }

    /// The placements that are tried if only `loads` succeeds.
    fn tried(
        attempts: Attempts,
        loads: Option<DevicePlacement>,
    ) -> (Vec<DevicePlacement>, Result<()>) {
        let (mut tried, mut notes) = (Vec::new(), Vec::new());
        let loaded = attempts.first_that_loads(&mut notes, &mut |placement| {
            tried.push(placement);
            let full = || Error::new(Code::InferenceFailed, "failed to allocate compute buffers");
            if Some(placement) == loads { Ok(()) } else { Err(full()) }
        });
        assert_eq!(notes.len() + 1, tried.len(), "each failure is in the log");
        (tried, loaded.map(|_| ()))
    }

    #[test]
    fn a_full_device_leaves_the_processor() {
        use DevicePlacement::{Processor, Unlimited};
        let choice = LayerChoice::default();
        for (first, most_experts, expected) in [
            (layers(28), 0, vec![layers(28), layers(14), layers(0), Processor]),
            (layers(1), 0, vec![layers(1), layers(0), Processor]),
            (layers(0), 0, vec![layers(0), Processor]),
            (Unlimited, 0, vec![Unlimited, Processor]),
            (
                experts(28, 5),
                27,
                vec![experts(28, 5), experts(28, 27), experts(14, 27), experts(0, 27), Processor],
            ),
        ] {
            let attempts = Attempts { first, choice, most_experts };
            let (all, loaded) = tried(attempts, Some(Processor));
            assert!(loaded.is_ok());
            assert_eq!(all, expected);
            let (all, loaded) = tried(attempts, Some(expected[0]));
            assert!(loaded.is_ok());
            assert_eq!(all, expected[..1]);
            let (all, loaded) = tried(attempts, None);
            assert_eq!(all, expected);
            let error = loaded.expect_err("nothing loads");
            assert!(error.message().ends_with("at last with the processor alone)"), "{error:?}");
        }
    }

    #[test]
    fn what_the_caller_has_chosen_stays() {
        let choice =
            |n_gpu_layers, n_cpu_moe| LayerChoice { n_gpu_layers: Some(n_gpu_layers), n_cpu_moe };
        let all = |first, choice| tried(Attempts { first, choice, most_experts: 27 }, None).0;
        assert_eq!(all(layers(28), choice(28, Some(0))), [layers(28)]);
        assert_eq!(all(layers(28), choice(28, None)), [layers(28), experts(28, 27)]);
        assert_eq!(all(layers(0), choice(0, None)), [layers(0), DevicePlacement::Processor]);
    }

    #[test]
    fn other_errors_end_the_search() {
        let mut tried = 0;
        let choice = LayerChoice::default();
        let attempts = Attempts { first: layers(4), choice, most_experts: 0 };
        let refused = attempts.first_that_loads(&mut Vec::new(), &mut |_| {
            tried += 1;
            Err::<(), Error>(Error::new(Code::OutOfMemory, "no memory"))
        });
        assert_eq!((refused.expect_err("refused").message(), tried), ("no memory", 1));
    }
}
