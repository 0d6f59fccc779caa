//! The JSON of the ABI as types: requests, options and replies. Every error names a JSON path.
//!
//! Shapes and ranges are checked here. Everything that depends on a model, such as its template or
//! its output format, is checked in `chat`.

mod defaults;
mod devices;
mod embed_options;
mod embed_request;
mod engine;
mod fields;
mod id;
mod limits;
pub mod logprobs;
mod lora;
mod media_limits;
mod member;
mod message;
mod modality;
mod near_name;
#[cfg(test)]
mod one_source_tests;
mod options;
mod output_control;
mod placement;
mod plain_prompt;
mod polyfills;
mod projector;
mod prompt_control;
mod rank_request;
mod reply_shape;
mod request;
pub mod response;
mod sampler_names;
mod sampling;
mod speculative;
mod tool;

pub use defaults::RequestDefaults;
pub use devices::DeviceChoice;
pub use embed_options::{EmbedOptions, Pooling};
pub use embed_request::{EmbedRequest, VectorEncoding};
pub use engine::{BaseUrl, Constraints, RemoteOptions, ServerKind, TokenOptions, TokenProtocol};
pub use id::{call_ids, new_completion_id, used_call_ids};
pub use limits::TemplateLimits;
pub use lora::{AdapterScales, Lora, LoraSwitch};
pub use media_limits::MediaLimits;
pub use modality::Modality;
pub use options::{
    CacheType, ContextChoice, ContextOverflow, CreateOptions, DEFAULT_N_CTX, FlashAttention,
    Isolation, LoadingChoice, LogLevel, MediaChoice, MediaUrls, StorageChoice, TemplateChoice,
    ToolPolicy,
};
pub(crate) use output_control::read_response_format;
pub use output_control::{Guessing, OutputControl, ResponseFormat, StopScope, StreamFormat};
pub use placement::{PlacementChoice, SplitMode, TensorOverride};
pub use plain_prompt::PlainPrompt;
pub use polyfills::{InvalidArguments, Polyfills, ReasoningConflict, SystemPosition};
pub use projector::ProjectorChoice;
pub use prompt_control::{PromptControl, RESERVED_VARIABLES, Thinking};
pub use rank_request::RankRequest;
pub use reply_shape::ReplyShape;
pub use request::ChatRequest;
pub use sampler_names::SamplerName;
pub use sampling::{Sampling, SamplingSource};
pub use speculative::Speculative;
pub use tool::{ToolChoice, function_name, function_parameters, is_strict};

#[cfg(feature = "engine")]
pub(crate) use fields::expected;
pub use fields::shortest;
pub(crate) use fields::{Fields, member};
pub(crate) use message::{ROLES, check_messages};
#[cfg(feature = "engine")]
pub(crate) use options::{MODEL_PATH, model_path};
pub(crate) use prompt_control::read_ending;
pub(crate) use tool::{check_tools, read_tool_choice};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::json;

/// Builds an object of these members. The values are moved, while `json!` would copy them.
pub(crate) fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Parses the JSON text of an argument. `name` is the argument's name in the C header, for errors.
pub fn parse(text: &str, name: &str) -> Result<Value> {
    if json::exceeds_limit(text.as_bytes()) {
        return Err(Error::invalid(name, json::too_many()));
    }
    json::value(text)
        .map_err(|error| Error::invalid(name, format!("not valid JSON: {error}")).caused_by(error))
}
