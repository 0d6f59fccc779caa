//! The files beside a tokenizer.json: templates, and which tokens begin and end a text.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use super::document::invalid;
use crate::error::Result;
use crate::json;
use crate::regular_file;

/// The maximum number of bytes of a file.
const MAX_BYTES: u64 = 16 << 20;

/// What tokenizer_config.json, chat_template.jinja and generation_config.json say. All may be
/// missing.
#[derive(Debug, Default)]
pub(super) struct TokenizerConfiguration {
    pub(super) template: Option<String>,
    pub(super) tool_use_template: Option<String>,
    pub(super) bos_token: Option<String>,
    pub(super) eos_token: Option<String>,
    /// Other tokens that have a role.
    pub(super) other_tokens: Vec<String>,
    /// Whether a text begins with the BOS token.
    pub(super) adds_bos: bool,
    /// The tokens that end a reply.
    pub(super) end_tokens: Vec<u64>,
}

impl TokenizerConfiguration {
    /// Reads the files of a folder.
    pub(super) fn read(folder: &Path) -> Result<TokenizerConfiguration> {
        let config = object(&folder.join("tokenizer_config.json"))?;
        let generation = object(&folder.join("generation_config.json"))?;
        let named = |name: &str| {
            let templates = config["chat_template"].as_array().into_iter().flatten();
            let found = templates.filter(|template| template["name"] == name);
            found.map(|template| template["template"].as_str()).next().flatten()
        };
        let template = match text(&folder.join("chat_template.jinja"))? {
            Some(template) => Some(template),
            None => config["chat_template"].as_str().or(named("default")).map(str::to_owned),
        };
        let token = |name: &str| {
            let token = &config[name];
            token.as_str().or(token["content"].as_str()).map(str::to_owned)
        };
        let end_tokens = match &generation["eos_token_id"] {
            Value::Array(ids) => ids.iter().filter_map(Value::as_u64).collect(),
            id => id.as_u64().into_iter().collect(),
        };
        Ok(TokenizerConfiguration {
            template,
            tool_use_template: named("tool_use").map(str::to_owned),
            bos_token: token("bos_token"),
            eos_token: token("eos_token"),
            other_tokens: ["pad_token", "unk_token"].into_iter().filter_map(token).collect(),
            adds_bos: config["add_bos_token"] == true,
            end_tokens,
        })
    }
}

/// The object in a file; `null` if the file is missing.
fn object(path: &Path) -> Result<Value> {
    let Some(text) = text(path)? else { return Ok(Value::Null) };
    json::value(text).map_err(|error| about(path, error))
}

fn text(path: &Path) -> Result<Option<String>> {
    let bytes = match regular_file::read(path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(about(path, error)),
    };
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| about(path, "is not UTF-8"))
}

fn about(path: &Path, problem: impl std::fmt::Display) -> crate::error::Error {
    invalid(format_args!("{}: {problem}", path.display()))
}
