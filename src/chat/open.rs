//! Opens a chat: from its options to a source, a profile and components.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::MediaFiles;
use super::native::{NativeSource, check_state_file};
#[cfg(feature = "remote")]
use super::remote::{RemoteSource, TokenSource};
use super::source::ReplySource;
use super::tokenizer_model::TokenizerModel;
use crate::api::{CreateOptions, RemoteOptions, RequestDefaults};
use crate::compose::Composed;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
#[cfg(feature = "remote")]
use crate::llama::FileVocabulary;
use crate::llama::{
    KeptModel, ModelFiles, PrefixStore, StateStore, files_of, with_projector_beside,
};
use crate::profile::{ModelProfile, RecommendedSampling};
use crate::template::Sources;

/// Why a chat was not created.
#[derive(Debug)]
pub struct CreateFailure {
    /// The name of the event, without the prefix `create_failure:`.
    pub event: &'static str,
    /// The cause.
    pub error: Error,
}

impl CreateFailure {
    /// A failure with its event.
    pub fn new(event: &'static str, error: Error) -> Self {
        CreateFailure { event, error }
    }
}

/// The parts of an open chat.
pub(super) struct OpenedChat {
    pub(super) source: Box<dyn ReplySource>,
    pub(super) profile: Arc<ModelProfile>,
    pub(super) composed: Option<Composed>,
    pub(super) defaults: RequestDefaults,
}

/// Reads the header, runs the tool-capability check, and then loads the weights.
pub(super) fn open(
    options: &CreateOptions,
    state: Option<Arc<dyn StateStore>>,
    events: &dyn Fn(&str),
) -> Result<OpenedChat, CreateFailure> {
    let resolved = with_projector_beside(options, options.model.as_deref())
        .map_err(|error| CreateFailure::new("invalid_options", error))?;
    let options = resolved.as_ref().unwrap_or(options);
    let invalid = |error| CreateFailure::new("invalid_options", error);
    let null_path = || {
        CreateFailure::new("null_path", Error::new(Code::InvalidRequest, "model: the path is NULL"))
    };
    let files = options.model.as_deref().map(|path| files_of(options, path));
    let tokenizer = TokenizerModel::of(options).map_err(|error| match error.code() {
        Code::ModelNotFound => CreateFailure::new("model_not_found", error.about("model")),
        Code::InvalidRequest => invalid(error),
        _ => CreateFailure::new("load_model", error),
    })?;
    let header = match &options.model {
        Some(_) if tokenizer.is_some() => None,
        Some(path) => Some(read_header(path)?),
        None if options.engine.is_none() => return Err(null_path()),
        None if options.template.chat_template.is_none()
            && options.template.components.is_none() =>
        {
            let problem = "needs `chat_template`, `components`, or a GGUF file as `model` that \
                           contains a template";
            return Err(invalid(Error::invalid("engine", problem)));
        }
        None => None,
    };
    if let (Some(header), Some(path), None) = (&header, &options.model, &options.engine) {
        let generates = header.check_generates().map_err(|error| error.about(path));
        generates.map_err(|error| CreateFailure::new("load_model", error))?;
    }
    let components = options.template.components.as_ref();
    let components = components.map(|components| Composed::parse(components, "components"));
    let composed = components.transpose().map_err(invalid)?;
    options.storage.state_file.as_deref().map_or(Ok(()), check_state_file).map_err(invalid)?;
    let sources = sources(options, header.as_ref(), tokenizer.as_ref(), composed.as_ref());
    let profile =
        ModelProfile::of(&sources).map_err(|error| CreateFailure::new("chat_template", error))?;
    let has_template = options.template.chat_template.is_some()
        || composed.is_some()
        || header.as_ref().is_some_and(|header| {
            header.chat_template().is_some() || header.tool_use_template().is_some()
        })
        || tokenizer.as_ref().is_some_and(|tokenizer| {
            tokenizer.template.is_some() || tokenizer.tool_use_template.is_some()
        });
    profile
        .check_tools(options.template.tool_policy, &options.template.polyfills, has_template)
        .map_err(|error| CreateFailure::new("tools_unsupported", error))?;
    let defaults = defaults(options, header.as_ref()).map_err(invalid)?;
    if let Some(engine) = &options.engine {
        let source =
            remote_source(options, engine, &sources, &profile, tokenizer).map_err(|error| {
                match error.code() {
                    Code::ModelInvalid => CreateFailure::new("load_model", error),
                    _ => invalid(error),
                }
            })?;
        return Ok(OpenedChat { source, profile, composed, defaults });
    }
    let (Some(header), Some(files)) = (header, files) else {
        return Err(null_path());
    };
    // Folders are opened before the weights are read.
    let storage = &options.storage;
    let prefixes =
        storage.cache_dir.as_deref().map(|path| PrefixStore::open(path, storage.cache_bytes));
    let prefixes = prefixes.transpose().map_err(invalid)?;
    let media_files = MediaFiles::open(&options.media).map_err(invalid)?;
    let model = load(options, files, &header, events)?;
    let source = NativeSource::new(options, model, profile.format(), state, prefixes, media_files);
    let source = source.map_err(|error| match error.code() {
        Code::InvalidRequest => invalid(error),
        _ => CreateFailure::new("init_context", error),
    });
    let source = Box::new(source?);
    Ok(OpenedChat { source, profile, composed, defaults })
}

/// The option `defaults`, on top of the sampling parameters that the model file recommends.
fn defaults(options: &CreateOptions, header: Option<&ModelHeader>) -> Result<RequestDefaults> {
    let Some(header) = header else { return Ok(options.defaults.clone()) };
    let recommended = RecommendedSampling::of(header);
    let sampling = options.defaults.sampling.over_recommended(&recommended.applied)?;
    Ok(RequestDefaults { sampling, ..options.defaults.clone() })
}

/// Loads the weights. Emits `load_progress` for each percent of the file.
fn load(
    options: &CreateOptions,
    files: ModelFiles,
    header: &ModelHeader,
    events: &dyn Fn(&str),
) -> Result<Arc<KeptModel>, CreateFailure> {
    let checked = header.check_before_load(Path::new(files.path()));
    checked.map_err(|error| CreateFailure::new("load_model", error))?;
    let mut last = -1;
    let mut on_progress = |done: f32| {
        let hundredth = (done.clamp(0.0, 1.0) * 100.0) as i32;
        if hundredth > last {
            last = hundredth;
            events(&format!("load_progress:{:.2}", f64::from(hundredth) / 100.0));
        }
        true
    };
    let opened = KeptModel::open(options, files, header, &mut on_progress);
    opened.map_err(|error| match error.code() {
        Code::OutOfMemory => CreateFailure::new("oom", error),
        Code::ModelNotFound => CreateFailure::new("model_not_found", error),
        Code::ModelInvalid => CreateFailure::new("load_model", error),
        // The error comes from an option that names a file.
        Code::InvalidRequest => CreateFailure::new("invalid_options", error),
        _ => CreateFailure::new("init_context", error),
    })
}

fn read_header(path: &str) -> Result<ModelHeader, CreateFailure> {
    ModelHeader::read_file(Path::new(path)).map_err(|error| match error.code() {
        Code::ModelNotFound => CreateFailure::new("model_not_found", error.about("model")),
        _ => CreateFailure::new("load_model", error),
    })
}

/// Reads everything that is needed to render prompts for these options, without opening the chat.
pub(super) fn prompt_source(
    options: &CreateOptions,
    header: Option<&ModelHeader>,
) -> Result<(Arc<ModelProfile>, Option<Composed>)> {
    let components = options.template.components.as_ref();
    let composed = components.map(|spec| Composed::parse(spec, "components")).transpose()?;
    let profile = ModelProfile::of(&sources(options, header, None, composed.as_ref()))?;
    Ok((profile, composed))
}

/// The templates of a chat. BOS and EOS of the option `engine` take precedence over those of the
/// file.
fn sources(
    options: &CreateOptions,
    header: Option<&ModelHeader>,
    tokenizer: Option<&TokenizerModel>,
    composed: Option<&Composed>,
) -> Sources {
    let chat_template = options.template.chat_template.as_deref();
    let mut sources = match (header, tokenizer) {
        (Some(header), _) => Sources {
            model_file: options.model.as_ref().map(PathBuf::from),
            ..ModelProfile::sources(header, chat_template)
        },
        (None, Some(tokenizer)) => Sources {
            default: chat_template.or(tokenizer.template.as_deref()).map(str::to_owned),
            tool_use: tokenizer.tool_use_template.clone().filter(|_| chat_template.is_none()),
            bos_token: tokenizer.bos_token.clone().unwrap_or_default(),
            eos_token: tokenizer.eos_token.clone().unwrap_or_default(),
            ..Sources::default()
        },
        (None, None) => Sources { default: chat_template.map(str::to_owned), ..Sources::default() },
    };
    if let Some(engine) = &options.engine {
        engine.bos_token.iter().for_each(|token| sources.bos_token.clone_from(token));
        engine.eos_token.iter().for_each(|token| sources.eos_token.clone_from(token));
    }
    if let Some(composed) = composed {
        let Sources { bos_token, eos_token, .. } = sources;
        return Sources { bos_token, eos_token, ..composed.sources() };
    }
    sources
}

#[cfg(feature = "remote")]
fn remote_source(
    options: &CreateOptions,
    engine: &RemoteOptions,
    sources: &Sources,
    profile: &ModelProfile,
    tokenizer: Option<TokenizerModel>,
) -> Result<Box<dyn ReplySource>> {
    let controls = match (&tokenizer, &options.model) {
        (Some(tokenizer), _) => tokenizer.control_tokens.clone(),
        (None, Some(path)) => ModelHeader::control_tokens(Path::new(path))?,
        (None, None) => Vec::new(),
    };
    let text = RemoteSource::new(options, engine, sources, controls)?;
    let Some(tokens) = &engine.tokens else { return Ok(Box::new(text)) };
    let vocab = match (tokenizer, &options.model) {
        (Some(tokenizer), _) => tokenizer.vocab,
        (None, Some(path)) => FileVocabulary::of_file(path)?.shared_vocab(),
        (None, None) => return Ok(Box::new(text)),
    };
    Ok(Box::new(TokenSource::new(text, tokens, vocab, profile.format())?))
}

#[cfg(not(feature = "remote"))]
fn remote_source(
    _: &CreateOptions,
    _: &RemoteOptions,
    _: &Sources,
    _: &ModelProfile,
    _: Option<TokenizerModel>,
) -> Result<Box<dyn ReplySource>> {
    Err(Error::invalid("engine", "this library was built without the feature `remote`"))
}
