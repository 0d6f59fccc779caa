//! Loaded models: chats with the same file and load options share one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::context_checks::{check_memory, check_positions, context_options};
use super::context_fit::BATCHES;
use super::file_identity::{ModelFiles, SINCE_CHECKED, identify};
use super::loaded_model::{AdapterKey, HeaderFacts, LoadKey, LoadedModel};
use super::projector_file::{fitting_projector, places_in_one_batch, projector_error};
use super::projector_memory::check_projector_memory;
use super::weight_places::WeightPlaces;
use super::{draft, memory_use, model_options, predicting, rollback};
use crate::api::{CreateOptions, LogLevel, ProjectorChoice, Speculative};
use crate::engine::LoadProgress;
use crate::error::Result;
use crate::gguf::ModelHeader;
use crate::llama::context::{ContextOptions, lora};
use crate::llama::devices;
use crate::llama::kernels;
use crate::process::{self, Shared};
use crate::regular_file::FileIdentity;

type ModelSlot = Arc<Mutex<Weak<LoadedModel>>>;

static LOADED: Shared<Option<HashMap<LoadKey, ModelSlot>>> = Shared::new(None);

/// Returns the model for these options, shared or newly loaded. `header` was read after `files`
/// were identified. `OUT_OF_MEMORY` if it does not fit, `MODEL_INVALID` if a file has changed since
/// or llama.cpp refuses it, `INFERENCE_FAILED` if it refuses the options.
pub(crate) fn open(
    options: &CreateOptions,
    files: &Arc<ModelFiles>,
    header: &ModelHeader,
    on_progress: &mut dyn FnMut(LoadProgress) -> bool,
) -> Result<Arc<LoadedModel>> {
    let kernels = kernels::choose(options.loading.backend.as_deref())?;
    let (key, facts) = key_of(options, files, header)?;
    let slot = slot(&key);
    // Locked while loading, so that a second chat with the same key waits for the load.
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(model) = slot.upgrade().filter(|model| !model.engine.is_broken()) {
        on_progress(1.0);
        return Ok(model);
    }
    if let Some((_, path)) = &key.projector {
        check_projector_memory(path, &key.model, facts.main_memory)?;
    }
    let model = Arc::new(LoadedModel::load(&key, facts, files, on_progress)?);
    if options.context.kv_unified.is_none() {
        model.log.push(LogLevel::Info, cells(&key.context));
    }
    kernels.log(&model.log);
    devices::log(options, &model.log);
    *slot = Arc::downgrade(&model);
    Ok(model)
}

/// Which cells the chats of a model have, for the log.
fn cells(context: &ContextOptions) -> String {
    let ContextOptions { n_ctx, n_parallel, kv_unified, .. } = context;
    match kv_unified {
        true => format!("kv_unified: true: {n_parallel} chats share {n_ctx} tokens of context"),
        false => {
            format!("kv_unified: false: each of {n_parallel} chats has {n_ctx} tokens of context")
        }
    }
}

/// Checks the options, and returns the key of the load with what the headers say.
fn key_of(
    options: &CreateOptions,
    files: &ModelFiles,
    header: &ModelHeader,
) -> Result<(LoadKey, HeaderFacts)> {
    let path = files.path();
    let places = WeightPlaces::of(options, header)?;
    let mut context = context_options(options, header, &places)?;
    let file = identify(Path::new(path))?;
    if options.context.fits && options.context.n_ctx.is_none() {
        context.n_ctx = match loaded_fit(&file, &context, options) {
            Some(n_ctx) => n_ctx,
            None => memory_use::fitting_ctx(options, &places, path, header, &context)?,
        };
    }
    let (draft, draft_header) = checked_draft(options, &context)?.unzip();
    let headers: Vec<&ModelHeader> = std::iter::once(header).chain(&draft_header).collect();
    let mut model = model_options(options, path, &places, &headers);
    model.predicts = predicting::is_wanted(&options.loading.speculative, header)?;
    let main_memory = check_memory(&model, &context, &headers)?;
    lora::check_all(&options.loading.lora, header)?;
    let lora = options.loading.lora.iter().enumerate().map(|(index, lora)| {
        let file = identify(Path::new(&lora.path));
        let file = file.map_err(|error| lora::option_error(index, error))?;
        Ok(AdapterKey { file, path: lora.path.clone() })
    });
    let lora = lora.collect::<Result<Vec<_>>>()?;
    let projector = checked_projector(options, header)?;
    files.check_unchanged(SINCE_CHECKED)?;
    let (forks, fits_ctx) = (process::forks(), options.context.fits);
    let speculative = options.loading.speculative.clone();
    let mut key =
        LoadKey { forks, file, model, context, fits_ctx, lora, speculative, draft, projector };
    if let Some(context) = loaded_context(&key, options) {
        key.context = context;
    }
    let (draft, tensors) = (draft_header.as_ref(), &places.tensors);
    let facts = HeaderFacts::of(header, draft, &key.context, tensors, main_memory);
    Ok((key, facts))
}

/// The draft model's file and header, if the options name one.
fn checked_draft(
    options: &CreateOptions,
    context: &ContextOptions,
) -> Result<Option<(FileIdentity, ModelHeader)>> {
    let Speculative::Draft { model, .. } = &options.loading.speculative else { return Ok(None) };
    let header = draft::header(model)?;
    let file = identify(Path::new(model)).map_err(draft::invalid)?;
    check_positions(&header, context.n_ctx).map_err(draft::invalid)?;
    Ok(Some((file, header)))
}

/// The projector's file and path, if the options name one that fits the model.
fn checked_projector(
    options: &CreateOptions,
    header: &ModelHeader,
) -> Result<Option<(FileIdentity, String)>> {
    let Some(ProjectorChoice::Path(path)) = &options.loading.projector else { return Ok(None) };
    let file = identify(Path::new(path)).map_err(projector_error)?;
    fitting_projector(path, header)?;
    Ok(Some((file, path.clone())))
}

/// The slot of a key. Removes models that were dropped and are not being loaded.
fn slot(key: &LoadKey) -> ModelSlot {
    let mut loaded = LOADED.lock();
    let loaded = loaded.get_or_insert_default();
    // Slots of a parent process may be locked forever.
    loaded.retain(|other, slot| {
        other.forks != key.forks
            || Arc::strong_count(slot) > 1
            || slot.lock().is_ok_and(|model| model.strong_count() > 0)
    });
    Arc::clone(loaded.entry(key.clone()).or_default())
}

/// Whether the model of a slot is loaded, or being loaded: then the slot is locked.
fn is_loaded(slot: &ModelSlot) -> bool {
    slot.try_lock().map_or(true, |model| model.strong_count() > 0)
}

/// The context of a loaded model that was fitted with these options. Fitting again would give a
/// smaller one, because the model itself takes memory now. Where the options leave it to llb, the
/// model may have any batch ([`BATCHES`]), and any number of states for drafts.
fn loaded_fit(
    file: &FileIdentity,
    context: &ContextOptions,
    options: &CreateOptions,
) -> Option<u32> {
    let has_any_batch = options.context.n_batch.is_none();
    let has_any_states = rollback::is_chosen(&options.loading.speculative);
    let forks = process::forks();
    let loaded = LOADED.lock();
    let fitted = loaded.iter().flatten().find(|(key, slot)| {
        let ContextOptions { n_ctx, n_batch, .. } = *context;
        let found = key.context.n_batch;
        let has_batch = found == n_batch || has_any_batch && BATCHES.contains(&found);
        let mut like = ContextOptions { n_ctx, n_batch, ..key.context.clone() };
        if has_any_states {
            like.n_rollback = context.n_rollback;
        }
        let is_like = has_batch && key.file == *file && like == *context;
        key.fits_ctx && key.forks == forks && is_like && is_loaded(slot)
    });
    fitted.map(|(key, _)| key.context.n_ctx)
}

/// The context of a loaded model whose key differs from this one only in what llb has chosen: the
/// batch, the form of the cells and the number of states for drafts. They were chosen by the memory
/// that was free before it was loaded, so this load may have chosen others.
fn loaded_context(key: &LoadKey, options: &CreateOptions) -> Option<ContextOptions> {
    let loaded = LOADED.lock();
    let loaded = loaded.as_ref()?;
    let batches = match options.context.n_batch {
        Some(_) => vec![key.context.n_batch],
        None => {
            let least = places_in_one_batch(options).unwrap_or(0);
            BATCHES.into_iter().rev().filter(|batch| *batch >= least).collect()
        }
    };
    let cells = match options.context.kv_unified {
        Some(given) => vec![given],
        None => vec![false, true],
    };
    let states = match rollback::is_chosen(&key.speculative) {
        false => vec![key.context.n_rollback],
        true => (0..=rollback::MAX_STATES).rev().collect(),
    };
    let with = |n_batch: u32| {
        let cells = cells.iter().flat_map(|cells| states.iter().map(|states| (*cells, *states)));
        let contexts = cells.map(|(kv_unified, n_rollback)| ContextOptions {
            n_batch,
            kv_unified,
            n_rollback,
            ..key.context.clone()
        });
        contexts.collect::<Vec<_>>()
    };
    batches.into_iter().flat_map(with).find(|context| {
        let other = LoadKey { context: context.clone(), ..key.clone() };
        loaded.get(&other).is_some_and(is_loaded)
    })
}
