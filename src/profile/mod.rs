//! From a header to what the model can do: the one path for `llb_model_info`, the create gate and
//! template requests.
//!
//! No weight is read to answer a question about a template.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::api::Polyfills;
use crate::error::{Code, Error, Result};
use crate::gguf::{self, ModelHeader};
use crate::output::format::FormatSource;
use crate::output::{Detected, Format, PreparedFormat};
use crate::template::{
    CapsReport, Evidence, Finding, Known, LocalTime, RenderInput, Sources, Templates, polyfill,
};

/// The instant probes render with, so that a template's date never changes a profile.
const PROBE_TIME: &str = "2024-07-26T00:00:00";

/// How many templates are remembered; each takes some hundred kilobytes.
const REMEMBERED: usize = 32;

/// A template with what was found out about it.
pub struct ModelProfile {
    /// The compiled template or templates.
    pub templates: Templates,
    output: OnceLock<Output>,
    /// Of a file with a tool_use template.
    by_template: OnceLock<Value>,
}

/// What a model with this template writes.
struct Output {
    detected: Detected,
    /// For readers of its replies.
    prepared: PreparedFormat,
    /// Whether the template writes a turn's reasoning between the format's tags.
    shows_reasoning: bool,
    /// Whether it spells one of them.
    mentions_reasoning: bool,
}

type Key = [u8; 32];

fn key(sources: &Sources) -> Key {
    let mut hash = Sha256::new();
    let optional = [sources.default.as_deref(), sources.tool_use.as_deref()];
    for part in optional.into_iter().chain([Some(&*sources.bos_token), Some(&*sources.eos_token)]) {
        // Lengths keep the parts apart.
        hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.update(sources.host.key());
    hash.finalize().into()
}

/// The templates of this process, the latest used last.
static KNOWN: Mutex<Vec<(Key, Arc<ModelProfile>)>> = Mutex::new(Vec::new());

fn remembered(key: &Key) -> Option<Arc<ModelProfile>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = known.iter().rposition(|(known, _)| known == key)?;
    let found = known.remove(place);
    let profile = Arc::clone(&found.1);
    known.push(found);
    Some(profile)
}

fn remember(key: Key, profile: &Arc<ModelProfile>) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= REMEMBERED {
        known.remove(0);
    }
    known.push((key, Arc::clone(profile)));
}

impl ModelProfile {
    /// The template sources of a model file; `chat_template` takes the place of the file's default.
    pub fn sources(header: &ModelHeader, chat_template: Option<&str>) -> Sources {
        let own = |text: &str| text.to_owned();
        Sources {
            default: chat_template.or(header.chat_template()).map(own),
            tool_use: if chat_template.is_some() {
                None
            } else {
                header.tool_use_template().map(own)
            },
            bos_token: header.bos_token().unwrap_or_default().to_owned(),
            eos_token: header.eos_token().unwrap_or_default().to_owned(),
            ..Sources::default()
        }
    }

    /// Compiles, or finds what was compiled before: a second chat on the same template compiles and
    /// probes nothing.
    pub fn of(sources: &Sources) -> Result<Arc<ModelProfile>> {
        let key = key(sources);
        if let Some(known) = remembered(&key) {
            return Ok(known);
        }
        let profile = Arc::new(ModelProfile {
            templates: Templates::compile(sources)?,
            output: OnceLock::new(),
            by_template: OnceLock::new(),
        });
        remember(key, &profile);
        Ok(profile)
    }

    /// How the template writes tool calls, when that is known and a round trip has proved it.
    pub fn format(&self) -> Option<&Format> {
        self.output().detected.format.as_ref()
    }

    /// The format, prepared for readers of replies.
    pub fn prepared(&self) -> &PreparedFormat {
        &self.output().prepared
    }

    /// Whether a template spells a tag of the format's reasoning. Many formats have tags that this
    /// very model never writes.
    pub fn mentions_reasoning(&self) -> bool {
        self.output().mentions_reasoning
    }

    /// What a prompt holds of the reply it asks for.
    pub fn turn<'a>(&self, prompt: &'a str) -> &'a str {
        self.output().detected.opener.turn(prompt, self.format())
    }

    /// What the template adds for a reply when nothing else is asked.
    pub fn generation_prompt(&self) -> &str {
        &self.output().detected.generation_prompt
    }

    fn output(&self) -> &Output {
        self.output.get_or_init(|| {
            let render = |messages: &[Value], tools: &[Value], add_generation_prompt: bool| {
                let tools = Some(tools).filter(|tools| !tools.is_empty());
                let now = LocalTime::parse(PROBE_TIME)?;
                let input = RenderInput { tools, add_generation_prompt, ..RenderInput::new(messages, now) };
                self.templates.probe(&input).map(|prompt| prompt.text)
            };
            let traits = &self.templates.traits().0;
            let shows_calls = self.templates.caps().caps.supports_tool_calls || traits.caps.supports_tool_calls;
            let detected = if shows_calls {
                Detected::native(&render)
            } else {
                // The polyfill writes the calls of the history, and the model is taken to answer in
                // kind.
                Detected::polyfilled(&|messages: &[Value], tools: &[Value], add_generation_prompt: bool| {
                    let options = Polyfills::default();
                    let polyfilled = polyfill::apply(messages, Some(tools), traits, &options)?;
                    render(&polyfilled.messages, &[], add_generation_prompt)
                })
            };
            let detected = detected.with_evidence(&|tag| self.templates.source_holds(tag));
            let reasoning = detected.format.as_ref().and_then(|format| format.reasoning.as_ref());
            let shows_reasoning = reasoning.is_some_and(|tags| {
                let needle = "the needle of the reasoning probe";
                let user = json!({ "role": "user", "content": "question" });
                let assistant = json!({ "role": "assistant", "content": "answer", "reasoning_content": needle });
                let rendered = render(&[user, assistant], &[], false).unwrap_or_default();
                let before = rendered.split_once(needle).is_some_and(|(before, _)| before.trim_end().ends_with(&*tags.open));
                let after = rendered.split_once(needle).is_some_and(|(_, after)| after.trim_start().starts_with(&*tags.close));
                let opened = !tags.open.is_empty() && detected.generation_prompt.contains(&*tags.open);
                opened || (after && (before || tags.open.is_empty()))
            });
            let mentions_reasoning = reasoning.is_some_and(|tags| {
                let tags = [tags.open.trim(), tags.close.trim()];
                tags.into_iter().any(|tag| !tag.is_empty() && self.templates.mention(tag))
            });
            let prepared = detected.format.as_ref().map(PreparedFormat::new).unwrap_or_default();
            Output { detected, prepared, shows_reasoning, mentions_reasoning }
        })
    }

    /// `native`, `polyfilled` or `none`: how tools get to the model, if at all.
    pub fn tool_support(&self) -> &'static str {
        self.templates.traits().0.tool_support().0
    }

    /// Whether the gate lets the model through.
    pub fn is_tool_capable(&self) -> bool {
        self.templates.caps().caps.tool_capable()
    }

    /// The members that `llb_model_info` and `llb_template_info` share.
    pub fn to_json(&self) -> Map<String, Value> {
        let caps = self.templates.caps();
        let (traits, _) = self.templates.traits();
        let (tool_support, reasons) = traits.tool_support();
        let format = self.output_format();
        let findings: Vec<Value> = self.templates.findings().iter().map(Finding::to_json).collect();
        let mut members = Map::new();
        members.insert("caps".into(), caps.caps.to_json());
        members.insert("template_caps".into(), traits.caps.to_json());
        members.insert("tool_support".into(), tool_support.into());
        members.insert("tool_support_reasons".into(), reasons.into());
        members.insert("details".into(), traits.details_json());
        members.insert("evidence".into(), evidence(caps, self.templates.traits()).into());
        members.insert("output_format".into(), format);
        members.insert("findings".into(), findings.into());
        if self.templates.has_tool_use() {
            members.insert("by_template".into(), self.by_template().clone());
        }
        members
    }

    /// `output_format`.
    pub fn output_format(&self) -> Value {
        let Some(format) = self.format() else {
            return json!({ "family": null, "source": null, "tool_calls": "none", "reasoning": "none" });
        };
        let channel =
            format.channels.as_ref().is_some_and(|channels| !channels.reasoning.is_empty());
        json!({
            "family": format.family,
            "source": match format.source {
                FormatSource::Family => "family",
                FormatSource::Inferred => "inferred",
                FormatSource::Polyfill => "polyfill",
            },
            "tool_calls": if format.verified { "verified" } else { "unverified" },
            "parallel": format.calls.as_ref().is_some_and(|calls| calls.parallel),
            "reasoning": match (channel, self.output().shows_reasoning) {
                (true, _) => "channel",
                (false, true) => "tags",
                (false, false) => "none",
            },
            "reasoning_tags": format.reasoning.as_ref().map(|tags| json!([tags.open, tags.close])),
        })
    }

    /// What each of two templates can carry.
    fn by_template(&self) -> &Value {
        self.by_template.get_or_init(|| {
            let views = self.templates.by_template().map(|(name, caps, known)| {
                let view = json!({
                    "caps": caps.caps.to_json(),
                    "template_caps": known.0.caps.to_json(),
                    "details": known.0.details_json(),
                    "evidence": evidence(caps, known),
                });
                (name.to_owned(), view)
            });
            Value::Object(views.collect())
        })
    }

    /// Adds what minja's own algorithm says to the evidence of flags on which it differs; null
    /// where it cannot be computed.
    pub fn add_compat(&self, members: &mut Map<String, Value>) {
        let Some(Value::Object(evidence)) = members.get_mut("evidence") else { return };
        let ours = self.templates.traits().0.caps.to_json();
        for (flag, theirs) in self.templates.minja_caps() {
            if let Some(Value::Object(entry)) = evidence.get_mut(&flag)
                && ours[&flag] != theirs
            {
                entry.insert("compat".to_owned(), theirs);
            }
        }
    }

    /// The refusal of the gate, with what was tried, what was seen, and what to do next.
    /// `has_template` is whether the model file brings one.
    pub fn refusal(&self, has_template: bool) -> Error {
        let variant = self.templates.variant(true);
        let caps = &self.templates.caps().caps;
        let lacking = match (has_template, caps.supports_tools) {
            (false, _) => {
                "the model file has no chat template, and ChatML, which stands in for it, carries no tools".to_owned()
            }
            (true, false) => format!("the {variant} chat template does not show tools to the model"),
            (true, true) => format!("the {variant} chat template does not show tool calls of earlier turns"),
        };
        let shared = self.to_json();
        Error::new(Code::ModelNotToolCapable, format!("{lacking}; the model was refused before its weights were read"))
            .with("caps", shared["caps"].clone())
            .with("evidence", shared["evidence"].clone())
            .with("template_variant", variant)
            .with("next", "use a model whose chat template supports tools, pass one as `chat_template`, or open it without tools by `tool_policy`: \"any\"")
    }
}

/// The grounds of all flags. Four names are in both views: their entry is about `template_caps`,
/// and has that of `caps` as a member where it differs.
fn evidence(nine: &CapsReport, (traits, grounds): &Known) -> Map<String, Value> {
    let flags = traits.caps.to_json();
    let mut members: Map<String, Value> =
        grounds.iter().map(|(flag, evidence)| ((*flag).to_owned(), evidence.to_json())).collect();
    for ((flag, set), (_, evidence)) in nine.caps.flags().into_iter().zip(&nine.evidence) {
        match grounds.iter().find(|(name, _)| *name == flag) {
            Some((_, own)) if flags[flag] != set || own.status != evidence.status => {
                let both = Evidence { caps: Some(Box::new(evidence.clone())), ..own.clone() };
                members.insert(flag.to_owned(), both.to_json());
            }
            Some(_) => {}
            None => {
                members.insert(flag.to_owned(), evidence.to_json());
            }
        }
    }
    members
}

/// `llb_model_info` when the file could not be judged.
pub fn failed_info(kind: &str, message: &str) -> Value {
    json!({
        "type": "model_info",
        "error": kind,
        "message": message,
        "supports_tools": false,
        "supports_tool_calls": false,
        "has_tool_use_template": false,
    })
}

/// The reply of `llb_model_info`, or the kind of failure (`model_not_found`, `load_model`,
/// `chat_template`) with its error.
pub fn model_info(path: &str) -> Result<Value, (&'static str, Error)> {
    let header = ModelHeader::read_file(Path::new(path)).map_err(|error| match error.code() {
        Code::ModelNotFound => ("model_not_found", error),
        _ => ("load_model", error),
    })?;
    let profile = ModelProfile::of(&ModelProfile::sources(&header, None))
        .map_err(|error| ("chat_template", error))?;
    Ok(profile.info(&header))
}

impl ModelProfile {
    /// The reply of `llb_model_info` for a header, whose templates this profile describes.
    pub fn info(&self, header: &ModelHeader) -> Value {
        let mut info = json!({
            "type": "model_info",
            "error": null,
            "message": null,
            "supports_tools": self.is_tool_capable(),
            "supports_tool_calls": self.templates.caps().caps.supports_tool_calls,
            "has_tool_use_template": self.templates.has_tool_use(),
            // llama.cpp's name for its generic template parser; a diagnostic, never the gate.
            "chat_format": "peg-native",
            "architecture": header.architecture(),
            "n_params": header.n_params(),
            "context_length": header.context_length(),
            "embedding_length": header.embedding_length(),
            "block_count": header.block_count(),
            "quantization": header.quantization(),
            "file_size": header.file_size(),
            "name": header.name(),
            "license": header.license(),
            "bos_token": header.bos_token(),
            "eos_token": header.eos_token(),
            "templates": header.template_names(),
            "template_sha256": self.templates.sha256(),
        });
        let mut shared = self.to_json();
        if let Some(Value::Array(findings)) = shared.get_mut("findings") {
            // What is wrong with the file comes first.
            let warning = |f: &gguf::Finding| json!({ "code": f.code, "severity": "warning", "message": f.message });
            findings.splice(0..0, header.findings().iter().map(warning));
        }
        if let Value::Object(info) = &mut info {
            info.extend(shared);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn info(template: &str) -> Map<String, Value> {
        ModelProfile::of(&Sources { default: Some(template.to_owned()), ..Sources::default() })
            .unwrap()
            .to_json()
    }

    #[test]
    fn both_views_of_a_template() {
        let members = info("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
        assert_eq!(members["template_caps"].as_object().unwrap().len(), 16);
        assert_eq!(members["template_caps"]["supports_system_role"], true);
        assert_eq!(members["tool_support"], "polyfilled");
        assert_eq!(members["tool_support_reasons"].as_array().unwrap().len(), 2);
        assert_eq!(members["details"]["content"]["none"], "absent");
        // Sixteen and nine, four of them the same.
        assert_eq!(members["evidence"].as_object().unwrap().len(), 21);
        assert_eq!(members["evidence"]["supports_system_role"].get("caps"), None);
        assert_eq!(members["evidence"]["supports_string_content"]["status"], "yes");
    }

    #[test]
    fn what_minja_says_where_it_differs() {
        // Part of any type: for minja a format of reasoning.
        let source = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content|join('', attribute='text') }}{% endif %}{% endfor %}";
        let profile =
            ModelProfile::of(&Sources { default: Some(source.to_owned()), ..Sources::default() })
                .unwrap();
        let mut members = profile.to_json();
        assert_eq!(members["evidence"]["reasoning_format"].get("compat"), None);
        profile.add_compat(&mut members);
        let evidence = &members["evidence"];
        assert_eq!(evidence["reasoning_format"]["compat"], "THOUGHTS_CONTENT_BLOCK");
        assert_eq!(evidence["requires_non_null_content"].get("compat"), Some(&Value::Null));
        assert_eq!(evidence["supports_system_role"].get("compat"), None);
    }

    #[test]
    fn a_flag_on_which_the_views_differ_has_both() {
        // The calls are read, but nothing of them is shown.
        let members = info(
            "{% for m in messages %}{% if m.tool_calls %}call{% endif %}{{ m.content }}{% endfor %}",
        );
        assert_eq!(
            (
                &members["caps"]["supports_tool_calls"],
                &members["template_caps"]["supports_tool_calls"]
            ),
            (&json!(true), &json!(false))
        );
        let evidence = &members["evidence"]["supports_tool_calls"];
        assert_eq!(
            (&evidence["status"], &evidence["control"]),
            (&json!("no"), &json!("no_tool_call"))
        );
        assert_eq!(evidence["caps"]["status"], "yes");
    }

    #[test]
    fn two_templates() {
        let text = |source: &str| Some(source.to_owned());
        let both = "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";
        let sources = |default, tool_use| Sources { default, tool_use, ..Sources::default() };
        let profile = ModelProfile::of(&sources(
            text("{% for m in messages %}{{ m.content }}{% endfor %}"),
            text(both),
        ))
        .unwrap();
        let members = profile.to_json();
        let views = &members["by_template"];
        let names: Vec<_> = views.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["default", "tool_use"]);
        assert_eq!(
            (
                &views["default"]["caps"]["supports_tools"],
                &views["tool_use"]["caps"]["supports_tools"]
            ),
            (&json!(false), &json!(true))
        );
        for view in ["caps", "template_caps", "details", "evidence"] {
            assert_eq!(views["tool_use"][view], members[view]);
            assert_ne!(views["default"][view], members[view]);
        }
        assert!(
            members["findings"]
                .as_array()
                .unwrap()
                .iter()
                .all(|finding| finding["severity"].is_string())
        );
        let alone = ModelProfile::of(&sources(None, text(both))).unwrap().to_json();
        assert_eq!(
            alone["by_template"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["tool_use"]
        );
        assert_eq!(info(both).get("by_template"), None);
    }
}
