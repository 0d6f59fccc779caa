//! `llb_count`: a chat request -> the number of tokens of its prompt.

use serde::Serialize;
use serde_json::{Map, Value};

use super::ISOLATION;
use crate::api::{ChatRequest, CreateOptions, Fields, MODEL_PATH, model_path};
use crate::chat::{self, PromptCount};
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::llama::FileVocabulary;

/// Options of a chat that change its prompts. They stand beside the members of the request.
const CHAT_OPTIONS: [&str; 3] = ["chat_template", "components", "template_limits"];

/// `{"type":"count","prompt_tokens","context_length","polyfills_applied","diagnostics"?}`.
#[derive(Serialize)]
pub struct CountReply {
    r#type: &'static str,
    prompt_tokens: usize,
    context_length: Option<u64>,
    polyfills_applied: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diagnostics: Vec<Diagnostic>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_keys: Vec<String>,
}

pub(super) fn run(mut request: Value) -> Result<CountReply> {
    let path = model_path(&mut Fields::new("", &request)?)?.to_owned();
    let mut options = Map::new();
    if let Value::Object(members) = &mut request {
        members.retain(|name, _| name != MODEL_PATH && name != ISOLATION);
        options.extend(CHAT_OPTIONS.iter().filter_map(|name| members.remove_entry(*name)));
    }
    options.insert("model".to_owned(), path.as_str().into());
    let options = CreateOptions::read(&Value::Object(options))?;
    let request = ChatRequest::read(request)?;
    let vocabulary = FileVocabulary::of_file(&path)?;
    let PromptCount { prompt_tokens, polyfills_applied, diagnostics } =
        chat::count(&vocabulary, &options, &request)?;
    Ok(CountReply {
        r#type: "count",
        prompt_tokens,
        context_length: vocabulary.header().context_length(),
        polyfills_applied,
        diagnostics,
        ignored_keys: request.ignored_keys,
    })
}
