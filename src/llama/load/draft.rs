//! The draft model of speculative decoding.

use std::path::Path;
use std::sync::Arc;

use super::fit::MemoryNeeds;
use super::{Loader, placement};
use crate::engine::ModelDrafter;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::context::{ContextOptions, LlamaContext, Model, ModelOptions};
use crate::llama::vocab::LlamaVocab;

/// The header of a draft model, checked before any weights are read. Every error names the option.
pub(crate) fn header(path: &str) -> Result<ModelHeader> {
    let header = ModelHeader::read_file(Path::new(path)).map_err(invalid)?;
    header.check_before_load(Path::new(path)).map_err(invalid)?;
    Ok(header)
}

/// Loads a draft model and creates its context, with the same options as the main model. Runs on the
/// engine thread, after the main model has allocated its memory.
pub(crate) fn load(
    options: &ModelOptions,
    context: &ContextOptions,
    needs: Option<&MemoryNeeds>,
    vocab: &LlamaVocab,
    loader: &Loader,
) -> Result<ModelDrafter> {
    let context = placement::load_fitting(options, needs, &loader.log, &mut |options| {
        loader.tried(load_as(options, context, vocab)?)?.with_threads(context.n_threads)
    });
    Ok(ModelDrafter::new(Box::new(context.map_err(invalid)?)))
}

fn load_as(
    options: &ModelOptions,
    context: &ContextOptions,
    vocab: &LlamaVocab,
) -> Result<LlamaContext> {
    let model = Arc::new(Model::load(options, &mut |_| true)?);
    if !model.has_decoder() || !model.has_vocabulary() {
        return Err(not_usable(format!("{}: not a model that generates text", options.path)));
    }
    if let Some(difference) = vocab.difference(&LlamaVocab::new(Arc::clone(&model))) {
        let path = &options.path;
        return Err(not_usable(format!(
            "{path}: a draft model needs the vocabulary of the main model, but {difference}"
        )));
    }
    LlamaContext::new(model, context)
}

fn not_usable(message: String) -> Error {
    Error::new(Code::InvalidRequest, message)
}

/// Marks an error as being about the option `draft_model`, not about the model.
pub(crate) fn invalid(error: Error) -> Error {
    if error.code() == Code::OutOfMemory {
        return error.about("draft_model");
    }
    Error::invalid("draft_model", error.message()).caused_by(error)
}
