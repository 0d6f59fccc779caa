//! The template that a request names: its sources, and its components if it was composed.

use std::path::Path;

use serde_json::Value;

use crate::api::Fields;
use crate::compose::Composed;
use crate::error::Result;
use crate::gguf::TemplateHeader;
use crate::profile::{ModelProfile, RecommendedSampling};
use crate::template::Sources;

pub(super) struct RequestedTemplate {
    pub(super) sources: Sources,
    /// The components, for a template from `components`.
    pub(super) composed: Option<Composed>,
    /// The sampling parameters that the file of a template from `gguf` recommends.
    pub(super) sampling: Option<RecommendedSampling>,
}

impl RequestedTemplate {
    /// Reads `chat_template`, `gguf` or `components`, and the tokens.
    pub(super) fn read(fields: &mut Fields) -> Result<RequestedTemplate> {
        let (components, gguf, chat_template) =
            (fields.get("components"), fields.string("gguf")?, fields.get("chat_template"));
        let composed =
            components.map(|components| Composed::parse(components, "components")).transpose()?;
        composed.iter().for_each(|composed| fields.ignore(composed.ignored().to_vec()));
        let mut sampling = None;
        let mut sources = match (&composed, gguf, chat_template) {
            (None, None, None) => {
                return Err(
                    fields.invalid("chat_template", "missing; pass this, `components` or `gguf`")
                );
            }
            (Some(composed), None, None) => composed.sources(),
            (None, Some(path), None) => {
                let path = Path::new(path);
                let file = TemplateHeader::of_file(path)?;
                sampling = Some(RecommendedSampling::of(&file.header));
                ModelProfile::sources_of_file(path, &file.header)
            }
            (None, None, Some(Value::String(text))) => {
                Sources { default: Some(text.clone()), ..Sources::default() }
            }
            (None, None, Some(Value::Array(named))) => read_named(fields, named)?,
            (None, None, Some(_)) => {
                return Err(fields.invalid(
                    "chat_template",
                    "expected a string or an array of {name, template}",
                ));
            }
            (None, Some(_), Some(_)) => {
                return Err(fields.invalid("gguf", "cannot be used together with `chat_template`"));
            }
            (Some(_), ..) => {
                return Err(fields.invalid(
                    "components",
                    "cannot be used together with `chat_template` or `gguf`",
                ));
            }
        };
        if let Some(token) = fields.string("bos_token")? {
            token.clone_into(&mut sources.bos_token);
        }
        if let Some(token) = fields.string("eos_token")? {
            token.clone_into(&mut sources.eos_token);
        }
        Ok(RequestedTemplate { sources, composed, sampling })
    }
}

fn read_named(fields: &Fields, named: &[Value]) -> Result<Sources> {
    let mut sources = Sources::default();
    for (index, entry) in named.iter().enumerate() {
        let mut entry = Fields::new(fields.path(&format!("chat_template[{index}]")), entry)?;
        let name = entry.required_string("name")?;
        let template = entry.required_string("template")?;
        match name {
            "default" => sources.default = Some(template.to_owned()),
            "tool_use" => sources.tool_use = Some(template.to_owned()),
            // Requests never use other variants (rag, …).
            _ => {}
        }
    }
    Ok(sources)
}
