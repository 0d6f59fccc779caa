//! Decides whether layers that predict further tokens are loaded, and creates their context.

use std::sync::Arc;

use super::Loader;
use crate::api::Speculative;
use crate::engine::LayerDrafter;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::context::{ContextOptions, LlamaContext, Model, PredictingContext};

/// Whether the layers are loaded. Refuses "mtp" if the file has none that can be used.
pub(crate) fn is_wanted(speculative: &Speculative, header: &ModelHeader) -> Result<bool> {
    match speculative {
        Speculative::Mtp { .. } => match header.predicting_blocks() {
            Ok(_) => Ok(true),
            Err(reason) => Err(Error::invalid("speculative", refusal(&reason))),
        },
        Speculative::Off
        | Speculative::Auto
        | Speculative::Ngram { .. }
        | Speculative::Draft { .. } => Ok(false),
    }
}

/// The bytes of these layers.
pub(crate) fn weights(header: &ModelHeader) -> u64 {
    let (Ok(blocks), Some(layers)) = (header.predicting_blocks(), header.layers(2.0, 2.0)) else {
        return 0;
    };
    let of_block = |block| layers.blocks.get(block as usize).map_or(0, |block| block.weights);
    blocks.map(of_block).sum()
}

/// Marks an error as being about the option, not about the model.
pub(crate) fn invalid(error: Error) -> Error {
    if error.code() == Code::OutOfMemory {
        return error.about("speculative");
    }
    Error::invalid("speculative", refusal(error.message())).caused_by(error)
}

fn refusal(reason: &str) -> String {
    format!("\"mtp\" cannot be used: {reason}; use \"auto\" or \"off\"")
}

/// Creates the context of the layers of a model that was loaded with them, and tries it. Runs on the
/// engine thread.
pub(crate) fn load(
    model: Arc<Model>,
    context: &ContextOptions,
    loader: &Loader,
) -> Result<LayerDrafter> {
    let layers = LlamaContext::predicting(model, context);
    let layers = layers.map_err(|error| loader.with_reason(error));
    let layers = layers.and_then(|layers| loader.tried(layers)).map_err(invalid)?;
    let layers = PredictingContext(layers.with_threads(context.n_threads)?);
    Ok(LayerDrafter::new(Box::new(layers)))
}
