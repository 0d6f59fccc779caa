//! A loaded model: its key, how the engine thread loads it, and the states that it can use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use once_cell::sync::OnceCell;
use serde_json::{Value, json};

use super::file_identity::{self, FileChange, ModelFiles, identify};
use super::fit::MemoryNeeds;
use super::tensor_places::TensorPlaces;
use super::{Loader, draft, placement, predicting};
use crate::api::{AdapterScales, Speculative};
use crate::constraint::Grammars;
use crate::engine::{
    Drafter, Engine, LoadProgress, Loaded, NgramDrafter, SavedSequence, Speculation, TokenId,
};
use crate::error::{Code, Error, Result};
use crate::gguf::{self, Layer, ModelHeader};
use crate::llama::MediaEncoder;
use crate::llama::context::{ContextOptions, LlamaContext, Model, ModelOptions, Verdicts};
use crate::llama::raw::{LogQueue, exit};
use crate::llama::state::StateStore;
use crate::llama::state::state_file::{self, StateLimits};
use crate::llama::vocab::{self, LlamaVocab};
use crate::regular_file::FileIdentity;
use crate::sync::lock;

/// The reason for refusing a model without a decoder, or without memory of earlier tokens.
const ENCODER: &str = "the model does not generate text token by token; if it is an encoder, open it \
                       with llb_embed_create for vectors of texts";

/// The reason for refusing a model that generates from the text of an encoder (T5).
const ENCODER_AND_DECODER: &str = "the model has an encoder and a decoder; llb generates text only \
                                   with models that have a decoder alone";

/// Two loads with equal keys share one model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LoadKey {
    /// The process that loaded the model. A forked child cannot use its parent's engines.
    pub(crate) forks: usize,
    pub(crate) file: FileIdentity,
    pub(crate) model: ModelOptions,
    pub(crate) context: ContextOptions,
    /// Whether the context is the largest one that fitted.
    pub(crate) fits_ctx: bool,
    pub(crate) lora: Vec<AdapterKey>,
    pub(crate) speculative: Speculative,
    /// The draft model's file.
    pub(crate) draft: Option<FileIdentity>,
    /// The projector's file and its path.
    pub(crate) projector: Option<(FileIdentity, String)>,
}

/// An adapter in a load key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AdapterKey {
    pub(crate) file: FileIdentity,
    pub(crate) path: String,
}

impl LoadKey {
    /// The ctimes of all files, including all parts of split models. `None` where the system does
    /// not report one.
    pub(crate) fn changes(&self) -> Vec<Option<FileChange>> {
        let draft = match &self.speculative {
            Speculative::Draft { model, .. } => Some(model),
            _ => None,
        };
        let models = std::iter::once(&self.model.path).chain(draft);
        let parts = models.flat_map(|model| gguf::part_paths(Path::new(model)));
        let adapters = self.lora.iter().map(|adapter| PathBuf::from(&adapter.path));
        let projector = self.projector.iter().map(|(_, path)| PathBuf::from(path));
        parts.chain(adapters).chain(projector).map(|path| file_identity::changed(&path)).collect()
    }
}

/// What a load needs from the headers of its models.
pub(crate) struct HeaderFacts {
    /// The device memory for the model and the draft model.
    model: Option<MemoryNeeds>,
    draft: Option<MemoryNeeds>,
    /// The main memory for the contexts.
    pub(super) main_memory: u64,
    most_state_bytes: u64,
    most_ctx: Option<usize>,
    trained_ctx: Option<usize>,
}

impl HeaderFacts {
    pub(crate) fn of(
        header: &ModelHeader,
        draft: Option<&ModelHeader>,
        context: &ContextOptions,
        tensors: &TensorPlaces,
        main_memory: u64,
    ) -> HeaderFacts {
        let tensors_of_draft = draft.map(TensorPlaces::of_experts);
        let draft = draft.zip(tensors_of_draft.as_ref());
        let of_draft = context.of_draft();
        HeaderFacts {
            model: MemoryNeeds::of(header, context, tensors),
            draft: draft.and_then(|(draft, tensors)| MemoryNeeds::of(draft, &of_draft, tensors)),
            main_memory,
            most_state_bytes: most_state_bytes(header, context),
            most_ctx: header.learned_positions().map(|positions| positions as usize),
            trained_ctx: header.extended_context_length().map(|tokens| tokens as usize),
        }
    }
}

/// A model in memory with its engine.
pub struct LoadedModel {
    /// Runs the jobs.
    pub engine: Engine,
    /// Compiles grammars for the vocabulary.
    pub grammars: Grammars,
    /// What llama.cpp logged.
    pub log: Arc<LogQueue>,
    /// Tokens of context.
    pub n_ctx: usize,
    /// The most tokens of context that the model supports, if there is a limit.
    pub most_ctx: Option<usize>,
    /// The trained context length in tokens, if the file contains it.
    pub trained_ctx: Option<usize>,
    /// The reason why a full context cannot be shifted; `None` if it can be.
    pub shift_refusal: Option<&'static str>,
    /// The projector; `None` if the model takes text only.
    pub media: Option<MediaEncoder>,
    key: LoadKey,
    /// The most bytes of data in a state file.
    most_state_bytes: u64,
    /// The description that a state file must match, computed on first use.
    description: OnceCell<Value>,
}

impl LoadedModel {
    /// Starts an engine, which loads the model. `MODEL_INVALID` if a file has changed since it was
    /// checked, or llama.cpp refuses it; `INFERENCE_FAILED` if it refuses the options.
    pub(crate) fn load(
        key: &LoadKey,
        facts: HeaderFacts,
        files: &Arc<ModelFiles>,
        on_progress: &mut dyn FnMut(LoadProgress) -> bool,
    ) -> Result<LoadedModel> {
        let log = Arc::new(LogQueue::default());
        let shift_refusal = Arc::new(OnceCell::new());
        let media = Arc::new(Mutex::new(None));
        let HeaderFacts { most_state_bytes, most_ctx, trained_ctx, .. } = facts;
        let load = ChatLoad {
            key: key.clone(),
            facts,
            files: Arc::clone(files),
            log: Arc::clone(&log),
            shift_refusal: Arc::clone(&shift_refusal),
            media: Arc::clone(&media),
        };
        let engine = Engine::start(move |on_progress: &mut _| load.run(on_progress), on_progress)?;
        exit::register();
        let vocab = Arc::clone(engine.vocab());
        // Built in advance, because most chats have tools and their first request should not wait.
        let grammars = Grammars::new(move || vocab::grammar_vocabulary(&vocab)).begin();
        Ok(LoadedModel {
            engine,
            grammars,
            log,
            n_ctx: key.context.n_ctx as usize,
            most_ctx,
            trained_ctx,
            shift_refusal: shift_refusal.get().copied().flatten(),
            media: lock(&media).take(),
            key: key.clone(),
            most_state_bytes,
            description: OnceCell::new(),
        })
    }

    /// Reads a state file, which must match this model, the llama.cpp version and these options.
    /// `None` if the file does not exist. The error is a message that says why the file cannot be
    /// used.
    pub fn read_state(&self, store: &dyn StateStore) -> Result<Option<SavedSequence>, String> {
        let description = self.description().map_err(|error| error.to_string())?;
        let vocab = self.engine.vocab();
        let fits = |token: TokenId| usize::try_from(token).is_ok_and(|token| token < vocab.len());
        let limits = StateLimits {
            n_tokens: self.n_ctx,
            n_bytes: self.most_state_bytes,
            n_adapters: self.key.lora.len(),
        };
        state_file::read(store, description, limits, fits)
    }

    /// Writes a state file, replacing an existing one.
    pub fn write_state(&self, store: &dyn StateStore, kept: &SavedSequence) -> Result<()> {
        let written = self
            .state_description(&kept.adapters)
            .and_then(|description| state_file::write(store, &description, kept));
        written.map_err(|error| {
            Error::new(Code::InferenceFailed, format!("{}: {error}", store.name())).caused_by(error)
        })
    }

    /// What a state of this model with these adapters can be used by: a model of the same content,
    /// llama.cpp, and options that shape a state.
    pub fn state_description(&self, adapters: &AdapterScales) -> io::Result<Value> {
        let mut description = self.description()?.clone();
        description["lora_scales"] = adapters.to_json();
        Ok(description)
    }

    fn description(&self) -> io::Result<&Value> {
        self.description.get_or_try_init(|| {
            let LoadKey { file, model, context, lora, .. } = &self.key;
            let adapters = lora
                .iter()
                .map(|lora| Ok(file_identity::content_of(Path::new(&lora.path))?.into()));
            let adapters = adapters.collect::<io::Result<Vec<Value>>>()?;
            let content = file_identity::content_of_all(&gguf::part_paths(Path::new(&model.path)))?;
            // The files may have been replaced while the model in memory is the old one.
            let loaded = std::iter::once((&model.path, file));
            for (path, loaded) in loaded.chain(lora.iter().map(|lora| (&lora.path, &lora.file))) {
                if identify(Path::new(path)).ok().as_ref() != Some(loaded) {
                    let problem = format!("{path}: the file has changed since it was loaded");
                    return Err(io::Error::other(problem));
                }
            }
            Ok(json!({
                "model": content,
                "lora": adapters,
                "llama.cpp": crate::llama::BUILD,
                "n_ctx": context.n_ctx,
                "kv_unified": context.kv_unified,
                "flash_attn": format!("{:?}", context.flash_attn),
                "cache_type_k": format!("{:?}", context.cache_type_k),
                "cache_type_v": format!("{:?}", context.cache_type_v),
            }))
        })
    }
}

/// Loads that passed their trials, each with the ctimes of its files.
static PASSED: Verdicts<(LoadKey, Vec<Option<FileChange>>)> = Verdicts::new();

/// A load on the engine thread.
struct ChatLoad {
    key: LoadKey,
    facts: HeaderFacts,
    files: Arc<ModelFiles>,
    log: Arc<LogQueue>,
    /// Set by the load.
    shift_refusal: Arc<OnceCell<Option<&'static str>>>,
    /// Set by the load.
    media: Arc<Mutex<Option<MediaEncoder>>>,
}

impl ChatLoad {
    fn run(&self, on_progress: &mut dyn FnMut(LoadProgress) -> bool) -> Result<Loaded> {
        // Read before the files, so that later changes are noticed.
        let verdict = (self.key.clone(), self.key.changes());
        let is_trusted = PASSED.has_passed(&verdict);
        let loader = Loader::new(Arc::clone(&self.log), Arc::clone(&self.files), is_trusted);
        let load = &mut |options: &ModelOptions| self.load_as(options, &loader, on_progress);
        let (options, needs) = (&self.key.model, self.facts.model.as_ref());
        let (model, mut context) = placement::load_fitting(options, needs, &self.log, load)?;
        if let Some((_, path)) = &self.key.projector {
            let n_threads = self.key.context.n_threads;
            let media = MediaEncoder::load(path, &model, &mut context, n_threads, is_trusted);
            *lock(&self.media) = Some(media.map_err(|error| loader.with_reason(error))?);
        }
        let vocab = Arc::new(LlamaVocab::new(Arc::clone(&model)));
        let speculation = self.speculation(&vocab, &model, &mut context, &loader);
        let speculation = speculation.map_err(|error| loader.with_reason(error))?;
        // All adapters are on during the trial. Each request sets its own scales.
        let adapters = self.key.lora.iter().map(|adapter| (adapter.path.as_str(), 1.0));
        let context = loader.with_adapters(context, adapters)?;
        let context = context.with_threads(self.key.context.n_threads)?;
        PASSED.pass(verdict);
        self.shift_refusal.get_or_init(|| context.shift_refusal());
        Ok(Loaded { backend: Box::new(context), vocab, speculation })
    }

    /// Loads the weights with these options, and tries a context.
    fn load_as(
        &self,
        options: &ModelOptions,
        loader: &Loader,
        on_progress: &mut dyn FnMut(LoadProgress) -> bool,
    ) -> Result<(Arc<Model>, LlamaContext)> {
        let with_reason = |error: Error| loader.with_reason(error);
        let model = Arc::new(Model::load(options, on_progress).map_err(with_reason)?);
        if !model.has_decoder() {
            return Err(Error::new(Code::ModelInvalid, ENCODER));
        }
        if !model.has_vocabulary() {
            return Err(Error::new(Code::ModelInvalid, "the model has no vocabulary"));
        }
        let context = LlamaContext::new(Arc::clone(&model), &self.key.context);
        let context = context.map_err(with_reason)?;
        if !context.has_memory() {
            return Err(Error::new(Code::ModelInvalid, ENCODER));
        }
        let context = loader.tried(context).map_err(|error| {
            if error.code() != Code::ModelInvalid || !model.has_encoder() {
                return error;
            }
            Error::new(Code::ModelInvalid, ENCODER_AND_DECODER).caused_by(error)
        })?;
        Ok((model, context))
    }

    /// The drafter for speculative decoding.
    fn speculation(
        &self,
        vocab: &LlamaVocab,
        model: &Arc<Model>,
        context: &mut LlamaContext,
        loader: &Loader,
    ) -> Result<Option<Speculation>> {
        let (drafter, n_max): (Box<dyn Drafter>, u32) = match &self.key.speculative {
            Speculative::Off => return Ok(None),
            Speculative::Auto => return Ok(Some(Speculation::auto())),
            Speculative::Mtp { n_max } => {
                let layers = predicting::load(Arc::clone(model), &self.key.context, loader)?;
                context.keep_hidden(false)?;
                (Box::new(layers), *n_max)
            }
            Speculative::Ngram { n_max, ngram } => {
                (Box::new(NgramDrafter::new(*ngram as usize)), *n_max)
            }
            Speculative::Draft { model, n_max } => {
                let options = self.key.model.for_other(model.clone());
                let needs = self.facts.draft.as_ref();
                let context = self.key.context.of_draft();
                let drafter = draft::load(&options, &context, needs, vocab, loader)?;
                (Box::new(drafter), *n_max)
            }
        };
        Ok(Some(Speculation::new(drafter, n_max as usize)))
    }
}

/// An upper bound for the state of one sequence: twice the cache of a full context, and room for
/// llama.cpp's data about cells and layers. Without a limit if the header lacks the sizes.
fn most_state_bytes(header: &ModelHeader, context: &ContextOptions) -> u64 {
    const NOTES: u64 = 16 << 20;
    const NOTES_PER_TOKEN: u64 = 64;
    let (key, value) = (context.cache_type_k.bytes(), context.cache_type_v.bytes());
    let Some(layers) = header.layers(key, value) else { return u64::MAX };
    let n_ctx = u64::from(context.n_ctx);
    let layer = |layer: &Layer| {
        layer.per_token.saturating_mul(n_ctx).saturating_add(layer.per_sequence).saturating_mul(2)
    };
    layers
        .blocks
        .iter()
        .map(layer)
        .fold(NOTES.saturating_add(n_ctx.saturating_mul(NOTES_PER_TOKEN)), u64::saturating_add)
}
