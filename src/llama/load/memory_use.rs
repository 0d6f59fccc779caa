//! The memory that a model takes with its context, computed before it is loaded.
//!
//! In: a file whose header was checked, and options. Out: bytes by device, as llama.cpp computes
//! them: it creates the model and the context without buffers (`no_alloc`). Only the states of
//! recurrent layers and the logits of one token are allocated, briefly. A draft model and its
//! context are created in the same way, as is the context of layers that predict further tokens.
//! Adapters count with the size of their tensors. The encoder of a projector is created too, and its
//! weights are not read.

use llama_cpp_sys_2 as sys;

use super::context_checks::{UNKNOWN_CONTEXT, check_states, context_options};
use super::device_memory::{DeviceMemory, sum};
use super::fit::MemoryNeeds;
use super::part_memory::PartMemory;
use super::projector_file::fitting_projector;
use super::projector_memory::ProjectorMemory;
use super::sized_context::SizedContext;
use super::weight_places::WeightPlaces;
use super::{draft, model_options, placement, predicting};
use crate::api::{CreateOptions, ProjectorChoice, Speculative};
use crate::error::{Code, Error, Result};
use crate::gguf::{ModelHeader, ProjectorHeader};
use crate::llama::context::{ContextOptions, Model, ModelOptions, lora};
use crate::llama::devices::{self, Device};
use crate::llama::raw::shim::MemoryRow;
use crate::llama::raw::{machine_memory, stack};

/// llama.cpp rounds a context up to a multiple of this.
const CELLS: u32 = 256;
/// The most attempts to find the largest context, and the context size of the first attempt.
const MAX_ATTEMPTS: usize = 10;
const FIRST_GUESS: u32 = 4096;
/// The longest context that is created to compute its size, for small and for large files, and the
/// bytes of tensors for each token of it. The size of a longer one is extrapolated, because a file
/// may claim any context length, and llama.cpp keeps some data for each cell even without buffers.
const MAX_CREATED: [u32; 2] = [1 << 16, 1 << 22];
const BYTES_PER_CREATED: u64 = 256;
/// The longest context that "fit" chooses. No model is trained on as many tokens.
const MAX_FITTING: u32 = 1 << 24;
/// The bytes that llama.cpp and llb keep for each token of context besides the cache, overestimated
/// at least fourfold.
const MAX_NOTES: u64 = 256;

/// The memory that a model takes with one context, and the largest context that fits.
#[derive(Debug, Clone)]
pub struct MemoryReport {
    /// Tokens of context.
    pub n_ctx: u32,
    /// Whether all chats share the tokens of context. If not, each has as many of its own.
    pub kv_unified: bool,
    /// Layers on devices other than the processor; `None` if llama.cpp decides.
    pub n_gpu_layers: Option<u32>,
    /// Layers whose experts are in main memory while the layers may be on devices. `None` without
    /// devices, or without experts.
    pub n_cpu_moe: Option<u32>,
    /// Main memory first, then each device that the model uses.
    pub devices: Vec<DeviceMemory>,
    /// The part of it that the draft model takes, or the layers that predict further tokens, on all
    /// devices.
    pub draft: Option<PartMemory>,
    /// The part of the weights that adapters take.
    pub adapters: u64,
    /// The projector, and the part of the memory that it takes.
    pub projector: Option<(ProjectorHeader, PartMemory)>,
    /// The largest context that fits into the free memory, up to the trained context length. `None`
    /// if none fits, if the free memory is unknown, or if it was not searched for.
    pub largest_n_ctx: Option<u32>,
}

/// Computes the memory of chats with these options, reading the file only once. With `n_ctx` "fit"
/// the context is the largest one that fits. The largest context is always searched for the first
/// options. A failure of other options affects only their own report.
///
/// # Errors
/// Those of a create, but no size is refused as too large: `INVALID_REQUEST`, `MODEL_INVALID`,
/// `INFERENCE_FAILED`; `OUT_OF_MEMORY` if the states of the sequences do not fit.
pub fn memory_reports(
    first: &CreateOptions,
    others: &[CreateOptions],
    path: &str,
    header: &ModelHeader,
) -> Result<(MemoryReport, Vec<Result<MemoryReport>>)> {
    crate::llama::kernels::choose(first.loading.backend.as_deref())?;
    let first = Wanted::of(first, path, header)?;
    let others: Vec<Result<Wanted>> =
        others.iter().map(|options| Wanted::of(options, path, header)).collect();
    stack::load_on_thread("llb-load", move || {
        let _alone = placement::alone(&first.sizes.model.devices);
        let mut models = first.sizes.load()?;
        let report = first.report(&models, true)?;
        let mut loaded = first.sizes.options();
        let reports = others.into_iter().map(|wanted| {
            let wanted = wanted?;
            // The number of layers that fit on devices depends on the context.
            if wanted.sizes.options() != loaded {
                models = wanted.sizes.load()?;
                loaded = wanted.sizes.options();
            }
            wanted.report(&models, wanted.fits)
        });
        let reports = reports.collect();
        Ok((report, reports))
    })
}

/// The options of a chat that apply before the file is read.
struct Wanted {
    sizes: Sizes,
    context: ContextOptions,
    /// The trained context length in tokens.
    most: u32,
    /// Whether to use the largest context that fits.
    fits: bool,
}

impl Wanted {
    fn of(options: &CreateOptions, path: &str, header: &ModelHeader) -> Result<Wanted> {
        let places = WeightPlaces::of(options, header)?;
        let context = context_options(options, header, &places)?;
        let sizes = Sizes::of(options, &places, path, header, &context)?;
        Ok(Wanted { sizes, context, most: most_ctx(header), fits: options.context.fits })
    }

    fn report(&self, models: &SizedModels, searches: bool) -> Result<MemoryReport> {
        let (context, most) = (&self.context, self.most);
        let search = || self.sizes.largest(models, context, most);
        let largest_n_ctx = if searches { search()? } else { None };
        let n_ctx =
            if self.fits { largest_n_ctx.unwrap_or(CELLS.min(most)) } else { context.n_ctx };
        let context = ContextOptions { n_ctx, ..context.clone() };
        let (devices, draft) = self.sizes.taken(models, &context)?;
        let Sizes { model, adapters, n_cpu_moe, projector, .. } = &self.sizes;
        let header = projector.as_ref().map(|projector| projector.header.clone());
        let projector = header.zip(models.projector.as_ref().map(ProjectorMemory::part));
        Ok(MemoryReport {
            n_ctx,
            kv_unified: context.kv_unified,
            n_gpu_layers: model.n_gpu_layers,
            n_cpu_moe: *n_cpu_moe,
            devices,
            draft,
            adapters: *adapters,
            projector,
            largest_n_ctx,
        })
    }
}

/// The largest context that fits with these options. `OUT_OF_MEMORY` if none fits.
pub(crate) fn fitting_ctx(
    options: &CreateOptions,
    places: &WeightPlaces,
    path: &str,
    header: &ModelHeader,
    context: &ContextOptions,
) -> Result<u32> {
    let sizes = Sizes::of(options, places, path, header, context)?;
    let (context, most) = (context.clone(), most_ctx(header));
    let largest = stack::load_on_thread("llb-load", move || {
        let _alone = placement::alone(&sizes.model.devices);
        sizes.largest(&sizes.load()?, &context, most)
    })?;
    largest.ok_or_else(|| {
        let message =
            "n_ctx: \"fit\" finds no context that fits; use a smaller model or n_parallel";
        Error::new(Code::OutOfMemory, message)
    })
}

/// The most tokens of context whose bookkeeping takes no more than a fraction of the free memory.
/// No model takes less memory per token.
fn most_noted(free: u64) -> u32 {
    (free / MAX_NOTES).clamp(u64::from(CELLS), i32::MAX as u64) as u32
}

/// The trained context length in tokens, at most [`MAX_FITTING`].
fn most_ctx(header: &ModelHeader) -> u32 {
    let trained = header.extended_context_length().or(header.context_length());
    let most = trained.filter(|tokens| *tokens > 0).unwrap_or(UNKNOWN_CONTEXT);
    let most = most.min(header.learned_positions().unwrap_or(u64::MAX));
    most.min(u64::from(MAX_FITTING)) as u32
}

/// The sizes that do not depend on the context.
struct Sizes {
    model: ModelOptions,
    draft: Option<ModelOptions>,
    /// The bytes of the layers that predict further tokens. `None` if they are not wanted.
    predicting: Option<u64>,
    /// The size of all adapters in bytes.
    adapters: u64,
    projector: Option<ProjectorFile>,
    /// The devices that the options select.
    devices: Vec<Device>,
    /// The layers on each of them, and in main memory; `None` if llama.cpp decides.
    layers: (Option<Vec<usize>>, Option<usize>),
    /// The layers whose experts are in main memory.
    n_cpu_moe: Option<u32>,
    /// The longest context that is created; the sizes of longer ones are extrapolated.
    most_created: u32,
}

/// A projector, before it is loaded.
struct ProjectorFile {
    path: String,
    header: ProjectorHeader,
}

/// The models of a chat, without weights.
struct SizedModels {
    model: Model,
    draft: Option<Model>,
    projector: Option<ProjectorMemory>,
}

impl Sizes {
    fn of(
        options: &CreateOptions,
        places: &WeightPlaces,
        path: &str,
        header: &ModelHeader,
        context: &ContextOptions,
    ) -> Result<Sizes> {
        check_states(header, context)?;
        let devices = places.split.measured(&places.devices);
        let needs = MemoryNeeds::of(header, context, &places.tensors);
        let measured = places.measured();
        let plan = needs.as_ref().filter(|_| !measured.is_empty());
        let plan = plan.map(|needs| needs.plan(&measured, places.choice));
        let mut model = model_options(options, path, places, &[header]);
        let speculative = &options.loading.speculative;
        model.predicts = predicting::is_wanted(speculative, header)?;
        let predicting = model.predicts.then(|| predicting::weights(header));
        let model = match (plan, places.choice.n_cpu_moe) {
            (Some(plan), _) => placement::planned(&model, plan),
            (None, Some(n_cpu_moe)) => placement::with_experts(&model, n_cpu_moe),
            (None, None) => model,
        };
        let n_experts = needs.as_ref().map_or(0, MemoryNeeds::n_expert_blocks);
        let uses_experts = !devices.is_empty() && n_experts > 0;
        let n_cpu_moe = model.n_cpu_moe.filter(|_| uses_experts).map(|n| n.min(n_experts as u32));
        let on_devices = match plan {
            Some(plan) => Some(plan.layers),
            // Without devices, all layers are in main memory.
            None => (devices.is_empty() || places.choice.n_gpu_layers == Some(0)).then_some(0),
        };
        let layers = on_devices.map(|count| MemoryNeeds::layers_of_devices(count, &devices));
        let other_layers = needs.zip(on_devices).map(|(needs, on)| needs.n_layers() - on);
        let adapters = lora::check_all(&options.loading.lora, header)?;
        let draft = match speculative {
            Speculative::Draft { model: path, .. } => {
                let header = draft::header(path)?;
                check_states(&header, &context.of_draft()).map_err(draft::invalid)?;
                Some(model.for_other(path.clone()))
            }
            _ => None,
        };
        let projector = match &options.loading.projector {
            Some(ProjectorChoice::Path(path)) => {
                let header = fitting_projector(path, header)?;
                Some(ProjectorFile { path: path.clone(), header })
            }
            _ => None,
        };
        let [least, most] = MAX_CREATED.map(u64::from);
        let most_created = (header.tensor_bytes() / BYTES_PER_CREATED).clamp(least, most) as u32;
        let layers = (layers, other_layers);
        Ok(Sizes {
            model,
            draft,
            predicting,
            adapters,
            projector,
            devices,
            layers,
            n_cpu_moe,
            most_created,
        })
    }

    /// The options of the models.
    fn options(&self) -> (ModelOptions, Option<ModelOptions>) {
        (self.model.clone(), self.draft.clone())
    }

    fn load(&self) -> Result<SizedModels> {
        let model = Model::load_sizes(&self.model)?;
        let draft = self.draft.as_ref().map(Model::load_sizes);
        let draft = draft.transpose().map_err(draft::invalid)?;
        let measure = |projector: &ProjectorFile| {
            let ProjectorFile { path, header } = projector;
            ProjectorMemory::measure(path, header, model.uses_device())
        };
        let projector = self.projector.as_ref().map(measure).transpose()?;
        Ok(SizedModels { model, draft, projector })
    }

    /// The largest multiple of [`CELLS`] up to `most` with which everything fits, or `most` itself.
    /// Sizes grow almost linearly, so each attempt interpolates between the last two.
    fn largest(
        &self,
        models: &SizedModels,
        context: &ContextOptions,
        most: u32,
    ) -> Result<Option<u32>> {
        let most =
            machine_memory::available_memory().map_or(most, |free| most.min(most_noted(free)));
        // How far the fullest device exceeds its usable memory, in bytes.
        let excess = |n_ctx: u32| -> Result<Option<f64>> {
            let (taken, _) = self.taken(models, &ContextOptions { n_ctx, ..context.clone() })?;
            let over = |it: &DeviceMemory| Some(it.total() as f64 - it.usable? as f64);
            Ok(taken.iter().map(over).try_fold(f64::MIN, |most, over| Some(most.max(over?))))
        };
        let first = CELLS.min(most);
        let Some(at_first) = excess(first)?.filter(|over| *over <= 0.0) else { return Ok(None) };
        let (mut low, mut before) = ((first, at_first), (0, 0.0));
        let mut high: Option<(u32, f64)> = None;
        let mut guess = most.min(FIRST_GUESS);
        for _ in 0..MAX_ATTEMPTS {
            if guess <= low.0 {
                break;
            }
            match excess(guess)?.unwrap_or(f64::MAX) {
                over if over > 0.0 => high = Some((guess, over)),
                over => (before, low) = (low, (guess, over)),
            }
            let other = high.unwrap_or(before);
            let slope = (low.1 - other.1) / (f64::from(low.0) - f64::from(other.0));
            let room = if slope > 0.0 { -low.1 / slope } else { f64::MAX };
            let end = (f64::from(low.0) + room).min(f64::from(most)) as u32;
            let end = high.map_or(end, |(high, _)| end.min(high - 1));
            guess = if end == most { most } else { end / CELLS * CELLS };
            // Advances by at least one step if the last attempt was too small.
            if guess <= low.0 && high.is_none_or(|(high, _)| low.0 + CELLS < high) {
                guess = most.min(low.0 / CELLS * CELLS + CELLS);
            }
        }
        Ok(Some(low.0))
    }

    /// The memory taken on each device, and the part of it that the draft model takes.
    fn taken(
        &self,
        models: &SizedModels,
        context: &ContextOptions,
    ) -> Result<(Vec<DeviceMemory>, Option<PartMemory>)> {
        let most = self.most_created;
        if context.n_ctx <= most {
            return self.taken_by_created(models, context);
        }
        let with =
            |n_ctx| self.taken_by_created(models, &ContextOptions { n_ctx, ..context.clone() });
        let (half, half_draft) = with(most / 2)?;
        let (mut taken, mut draft) = with(most)?;
        let steps = f64::from(context.n_ctx - most) / f64::from(most / 2);
        let extend = |half: u64, full: &mut u64| {
            *full = full.saturating_add((full.saturating_sub(half) as f64 * steps) as u64);
        };
        for (half, full) in half.iter().zip(&mut taken) {
            extend(half.cache, &mut full.cache);
            extend(half.compute, &mut full.compute);
        }
        if let (Some(half), Some(full)) = (half_draft, &mut draft) {
            extend(half.cache, &mut full.cache);
            extend(half.compute, &mut full.compute);
        }
        Ok((taken, draft))
    }

    /// The same, for a context that llama.cpp creates without buffers.
    fn taken_by_created(
        &self,
        models: &SizedModels,
        context: &ContextOptions,
    ) -> Result<(Vec<DeviceMemory>, Option<PartMemory>)> {
        let free = machine_memory::available_memory();
        let mut taken = vec![DeviceMemory {
            name: "CPU".to_owned(),
            layers: self.layers.1.map(|count| count as u32),
            weights: 0,
            cache: 0,
            compute: 0,
            free,
            usable: free.map(|free| free - free / 16),
        }];
        self.add(&mut taken, &models.model, context)?;
        // An adapter's tensors are where those are that they change.
        let weights: Vec<u64> = taken.iter().map(|device| device.weights).collect();
        let all = weights.iter().sum::<u64>().max(1);
        for (device, weights) in taken.iter_mut().zip(weights) {
            device.weights +=
                (u128::from(self.adapters) * u128::from(weights) / u128::from(all)) as u64;
        }
        let projector = models.projector.iter().flat_map(ProjectorMemory::rows);
        projector.for_each(|row| self.add_row(&mut taken, &row));
        let before = sum(&taken);
        // The weights that only the drafts need, among those of the model.
        let weights = if let Some(weights) = self.predicting {
            self.add_predicting(&mut taken, &models.model, context).map_err(predicting::invalid)?;
            weights
        } else if let Some(draft) = &models.draft {
            let context = context.of_draft();
            self.add(&mut taken, draft, &context).map_err(draft::invalid)?;
            0
        } else {
            return Ok((taken, None));
        };
        let after = sum(&taken);
        let draft = PartMemory {
            weights: after.weights - before.weights + weights,
            cache: after.cache - before.cache,
            compute: after.compute - before.compute,
        };
        Ok((taken, Some(draft)))
    }

    /// Adds the memory that a model takes with a context, as computed by llama.cpp.
    fn add(
        &self,
        taken: &mut Vec<DeviceMemory>,
        model: &Model,
        context: &ContextOptions,
    ) -> Result<()> {
        // The logits of one token per sequence, which llama.cpp does not count.
        taken[0].compute += u64::from(context.n_parallel) * 4 * u64::from(model.n_tokens());
        let context = SizedContext::new(model, context, sys::LLAMA_CONTEXT_TYPE_DEFAULT)?;
        context.rows()?.iter().for_each(|row| self.add_row(taken, row));
        Ok(())
    }

    /// Adds the memory of drafts by layers that predict further tokens, without their weights.
    fn add_predicting(
        &self,
        taken: &mut Vec<DeviceMemory>,
        model: &Model,
        context: &ContextOptions,
    ) -> Result<()> {
        let layers = SizedContext::new(model, context, sys::LLAMA_CONTEXT_TYPE_MTP)?;
        // llama.cpp does not count the hidden states of a batch of the model, and the logits and
        // hidden states of one token per sequence.
        let (state, n_parallel) = (model.vector_length() as u64, u64::from(context.n_parallel));
        let n_batch = u64::from(context.n_batch.min(context.n_cells()));
        let outputs = n_parallel * (u64::from(model.n_tokens()) + state);
        taken[0].compute += 4 * (n_batch * state + outputs);
        for row in layers.rows()? {
            self.add_row(taken, &MemoryRow { weights: 0, ..row });
        }
        Ok(())
    }

    fn add_row(&self, taken: &mut Vec<DeviceMemory>, row: &MemoryRow) {
        let layers = self.layers.0.as_ref();
        let name = devices::name_of_other(row.device);
        let place = name.and_then(|name| self.devices.iter().position(|it| it.name == name));
        let index = match place.map(|index| (index, &self.devices[index])) {
            None => 0,
            Some((device, place)) => match taken.iter().position(|it| it.name == place.name) {
                Some(index) => index,
                None => {
                    let known = (place.total > 0).then_some(place);
                    taken.push(DeviceMemory {
                        name: place.name.clone(),
                        layers: layers.and_then(|layers| Some(*layers.get(device)? as u32)),
                        weights: 0,
                        cache: 0,
                        compute: 0,
                        free: known.map(|place| place.free),
                        usable: known.map(Device::usable),
                    });
                    taken.len() - 1
                }
            },
        };
        taken[index].weights += row.weights as u64;
        taken[index].cache += row.cache as u64;
        taken[index].compute += row.compute as u64;
    }
}
