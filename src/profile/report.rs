//! The JSON of a model profile: `llb_model_info`, and the members that `llb_template_info` shares
//! with it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{ModelProfile, RecommendedSampling, modalities, provenance};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::output::chat_format;
use crate::output::format::FormatSource;
use crate::template::{Evidence, Lint, LlamaCppCapsReport, Sources, TraitsReport};

impl ModelProfile {
    /// The members that `llb_model_info` and `llb_template_info` share.
    pub fn to_json(&self) -> Map<String, Value> {
        let caps = self.templates.llama_cpp_caps();
        let traits = self.templates.traits();
        let (tool_support, reasons) = traits.tool_support();
        let format = self.output_format();
        let lints = self.templates.lints().iter().map(Lint::to_json);
        let findings: Vec<Value> =
            lints.chain(self.evident_lint().iter().map(Lint::to_json)).collect();
        let mut members = Map::new();
        members.insert("caps".into(), caps.caps.to_json());
        members.insert("template_caps".into(), traits.caps.to_json());
        members.insert("tool_support".into(), tool_support.as_str().into());
        members.insert("tool_support_reasons".into(), reasons.into());
        members.insert("details".into(), traits.details_json());
        let mut evidence = evidence(caps, self.templates.traits_report());
        if let Some(calls) = &self.output().call_evidence {
            evidence.insert("tool_call_format".into(), calls.evidence.to_json());
        }
        members.insert("evidence".into(), evidence.into());
        members.insert("output_format".into(), format);
        members.insert("findings".into(), findings.into());
        if self.templates.has_tool_use() {
            members.insert("by_template".into(), self.by_template().clone());
        }
        members
    }

    /// The member `output_format`.
    pub fn output_format(&self) -> Value {
        let Some(format) = self.format() else {
            return json!({ "family": null, "source": null, "tool_calls": "none", "reasoning": "none" });
        };
        let channel =
            format.channels.as_ref().is_some_and(|channels| !channels.reasoning.is_empty());
        json!({
            "family": format.family,
            "source": format.source,
            "tool_calls": match format.source {
                FormatSource::Evident => "evident",
                _ if format.verified => "verified",
                _ => "unverified",
            },
            "parallel": format.calls.as_ref().is_some_and(|calls| calls.parallel),
            "reasoning": match (channel, self.output().shows_reasoning) {
                (true, _) => "channel",
                (false, true) => "tags",
                (false, false) => "none",
            },
            "reasoning_tags": format.reasoning.as_ref().map(|tags| json!([tags.open, tags.close])),
        })
    }

    /// The member `by_template`: the capabilities of each of two templates.
    fn by_template(&self) -> &Value {
        self.by_template.get_or_init(|| {
            let views = self.templates.by_template().map(|(name, caps, report)| {
                let view = json!({
                    "caps": caps.caps.to_json(),
                    "template_caps": report.traits.caps.to_json(),
                    "details": report.traits.details_json(),
                    "evidence": evidence(caps, report),
                });
                (name.to_owned(), view)
            });
            Value::Object(views.collect())
        })
    }

    /// For each flag on which minja's own algorithm differs, adds its result to the evidence as
    /// `compat`; null if it cannot be computed.
    pub fn add_compat(&self, members: &mut Map<String, Value>) {
        let Some(Value::Object(evidence)) = members.get_mut("evidence") else { return };
        let ours = self.templates.traits().caps.to_json();
        for (flag, theirs) in self.templates.minja_caps() {
            if let Some(Value::Object(entry)) = evidence.get_mut(&flag)
                && ours[&flag] != theirs
            {
                entry.insert("compat".to_owned(), theirs);
            }
        }
    }
}

/// The evidence of all flags. Four names occur in both views. Their entry describes
/// `template_caps`. If the evidence of llama.cpp's flag differs, the entry has it as the member
/// `caps`.
fn evidence(llama_cpp: &LlamaCppCapsReport, template: &TraitsReport) -> Map<String, Value> {
    let flags = template.traits.caps.to_json();
    let mut members: Map<String, Value> = template
        .evidence
        .iter()
        .map(|(flag, evidence)| ((*flag).to_owned(), evidence.to_json()))
        .collect();
    for (flag, set, evidence) in llama_cpp.flags() {
        match template.evidence.iter().find(|(name, _)| *name == flag) {
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

impl RecommendedSampling {
    /// Adds the member `sampling` and the findings to the members of a profile.
    pub fn add_to(&self, members: &mut Map<String, Value>) {
        members.insert("sampling".to_owned(), self.to_json());
        add_findings(members, &self.findings);
    }
}

/// Puts findings about the file before those about its template.
fn add_findings(members: &mut Map<String, Value>, of_file: &[Diagnostic]) {
    let Some(Value::Array(findings)) = members.get_mut("findings") else { return };
    let warning =
        |it: &Diagnostic| json!({ "code": it.code, "severity": "warning", "message": it.message });
    findings.splice(0..0, of_file.iter().map(warning));
}

/// The reply of `llb_model_info` for a file that cannot be read.
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

/// The reply of `llb_model_info`. On failure, the kind (`model_not_found`, `load_model`,
/// `chat_template`) and the error.
pub fn model_info(path: &str) -> Result<Value, (&'static str, Error)> {
    let header = ModelHeader::read_file(Path::new(path)).map_err(|error| match error.code() {
        Code::ModelNotFound => ("model_not_found", error),
        _ => ("load_model", error),
    })?;
    let sources = ModelProfile::sources(&header, None);
    let sources = Sources { model_file: Some(path.into()), ..sources };
    let profile = ModelProfile::of(&sources).map_err(|error| ("chat_template", error))?;
    let mut info = profile.info(&header);
    add_modalities(&mut info, Path::new(path), &header);
    Ok(info)
}

/// Adds what a model takes by the projector beside its file, or a finding about that projector.
pub fn add_modalities(info: &mut Value, path: &Path, header: &ModelHeader) {
    let finding = modalities::add_to(info, path, header);
    if let (Some(finding), Value::Object(members)) = (finding, info) {
        add_findings(members, &[finding]);
    }
}

impl ModelProfile {
    /// The reply of `llb_model_info` for the header that contains this profile's templates.
    pub fn info(&self, header: &ModelHeader) -> Value {
        let mut info = json!({
            "type": "model_info",
            "error": null,
            "message": null,
            "supports_tools": self.is_tool_capable(),
            "supports_tool_calls": self.templates.llama_cpp_caps().caps.supports_tool_calls,
            "has_tool_use_template": self.templates.has_tool_use(),
            "chat_format": chat_format(&|text| self.templates.source_contains(text)),
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
            "input_modalities": ["text"],
            "projector": null,
        });
        let sampling = RecommendedSampling::of(header);
        let mut shared = self.to_json();
        sampling.add_to(&mut shared);
        add_findings(&mut shared, header.diagnostics());
        if let Value::Object(info) = &mut info {
            info.extend(provenance::members(header));
            info.extend(shared);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::template::Sources;
    use crate::test_support::conformance;

    fn info(template: &str) -> Map<String, Value> {
        ModelProfile::of(&Sources { default: Some(template.to_owned()), ..Sources::default() })
            .unwrap()
            .to_json()
    }

    /// Compares names with llama.cpp's `common_chat_format_name` for the shared templates.
    #[test]
    fn chat_formats_have_the_names_of_llama_cpp() {
        let Some(root) = conformance::folder("names of chat formats") else { return };
        let templates = conformance::templates(&root);
        let rows = std::fs::read_to_string(root.join("caps.llamacpp.jsonl")).unwrap();
        let mut names = BTreeSet::new();
        for row in rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()) {
            // The name is missing where llama.cpp cannot use the template.
            let Some(expected) = row["chat_format"].as_str() else { continue };
            let sources = &templates[row["template"].as_str().unwrap()];
            let source = sources.default.as_deref().unwrap();
            assert_eq!(chat_format(&|text| source.contains(text)), expected, "{row}");
            names.insert(expected.to_owned());
        }
        assert!(names.iter().eq(["peg-gemma4", "peg-minimax-m3", "peg-native"]), "{names:?}");
    }

    #[test]
    fn members_have_both_views_of_a_template() {
        let members = info("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
        assert_eq!(members["template_caps"].as_object().unwrap().len(), 16);
        assert_eq!(members["template_caps"]["supports_system_role"], true);
        assert_eq!(members["tool_support"], "polyfilled");
        assert_eq!(members["tool_support_reasons"].as_array().unwrap().len(), 2);
        assert_eq!(members["details"]["content"]["none"], "absent");
        // 16 and 9 flags, 4 of them in both views.
        assert_eq!(members["evidence"].as_object().unwrap().len(), 21);
        assert_eq!(members["evidence"]["supports_system_role"].get("caps"), None);
        assert_eq!(members["evidence"]["supports_string_content"]["status"], "yes");
    }

    #[test]
    fn compat_is_the_result_of_minja_where_it_differs() {
        // The template prints parts of any type, which minja mistakes for a reasoning format.
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
    fn evidence_has_both_views_where_they_differ() {
        // The template reads the calls but does not print them.
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
    fn by_template_is_there_with_two_templates() {
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
