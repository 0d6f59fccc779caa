//! `llb_template_compose`: composes a chat template from components, or derives components from a
//! template.

use serde_json::{Value, json};

use crate::api::Fields;
use crate::compose::derive::derive;
use crate::compose::{self, Composed};
use crate::error::{Code, Error, Result};
use crate::profile::ModelProfile;
use crate::template::{EvidenceStatus, Sources};

/// The reply to a request.
pub(super) fn compose(fields: &mut Fields<'_>) -> Result<Value> {
    let (components, derive_from, list) =
        (fields.get("components"), fields.get("derive_from"), fields.boolean("list")?);
    match (components, derive_from, list) {
        (Some(components), None, None | Some(false)) => {
            let composed = Composed::parse(components, "components")?;
            fields.ignore(composed.ignored().to_vec());
            let strict = fields.boolean("strict")?.unwrap_or(false);
            let (register, replace) = (
                fields.boolean("register")?.unwrap_or(false),
                fields.boolean("override")?.unwrap_or(false),
            );
            if strict {
                composed.check_strictly()?;
            }
            let reply = describe(&composed)?;
            if register {
                composed.register(replace)?;
            }
            Ok(reply)
        }
        (None, Some(derive_from), None | Some(false)) => derived(fields, derive_from),
        (None, None, Some(true)) => registered(),
        (None, None, _) => {
            Err(fields.invalid("components", "missing; pass this, `derive_from`, or `list`: true"))
        }
        _ => {
            Err(fields
                .invalid("components", "cannot be used together with `derive_from` or `list`"))
        }
    }
}

/// The reply to `derive_from`.
fn derived(fields: &mut Fields, derive_from: &Value) -> Result<Value> {
    let mut source_fields = Fields::new("derive_from", derive_from)?;
    let source = source_fields.required_string("chat_template")?;
    let mut token =
        |key| -> Result<String> { Ok(source_fields.string(key)?.unwrap_or_default().to_owned()) };
    let (bos_token, eos_token) = (token("bos_token")?, token("eos_token")?);
    let derivation = derive(&Sources {
        default: Some(source.to_owned()),
        bos_token,
        eos_token,
        ..Sources::default()
    })?;
    fields.ignore(source_fields.ignored());
    let mut reply = match &derivation.spec {
        Some(spec) => describe(&Composed::parse(spec, "components")?)?,
        None => json!({ "type": "template", "chat_template": null }),
    };
    if let (Value::Object(reply), Value::Object(found)) = (&mut reply, derivation.to_json()) {
        reply.extend(found);
    }
    Ok(reply)
}

/// The reply for a spec.
fn describe(composed: &Composed) -> Result<Value> {
    let profile = ModelProfile::of(&composed.sources())?;
    check_caps(composed, &profile)?;
    let shared = profile.to_json();
    let host_vars = composed.host_vars();
    Ok(json!({
        "type": "template",
        "chat_template": composed.chat_template(),
        "source": source(composed),
        "spec": composed.spec(),
        "caps": shared["caps"],
        "template_caps": shared["template_caps"],
        "tool_support": shared["tool_support"],
        "generation_prompt": composed.generation_prompt(),
        "stop_words": composed.stop_words(),
        "assistant_end": composed.assistant_end(),
        "portable": host_vars.is_empty(),
        "host_vars": host_vars,
        "findings": composed.warnings(),
    }))
}

fn source(composed: &Composed) -> &'static str {
    if composed.is_generated() { "generated" } else { "handwritten" }
}

/// Checks that probing finds the capabilities that the spec declares. A capability that probing
/// cannot decide, because the template exceeds a limit, is not checked.
fn check_caps(composed: &Composed, profile: &ModelProfile) -> Result<()> {
    let report = profile.templates.traits_report();
    let measured = report.traits.caps.to_json();
    let is_known = |flag: &str| {
        report
            .evidence
            .iter()
            .any(|(name, evidence)| *name == flag && evidence.status != EvidenceStatus::Unknown)
    };
    let mut declared = composed.declared().into_iter();
    let differs = declared.find(|(flag, set)| is_known(flag) && measured[flag] != *set);
    let Some((flag, set)) = differs else { return Ok(()) };
    let message = format!("the components declare {flag} {set}, but the template differs");
    Err(Error::new(Code::InternalBridgeError, message)
        .with("reason", "caps_mismatch")
        .with("flag", flag))
}

/// The reply to `list`.
fn registered() -> Result<Value> {
    let templates = compose::registered().into_iter().map(|(name, spec, exact)| {
        let composed = Composed::parse(&spec, "components")?;
        let profile = ModelProfile::of(&composed.sources())?;
        let caps = profile.templates.llama_cpp_caps().caps.to_json();
        Ok(json!({ "name": name, "exact": exact, "source": source(&composed), "caps": caps }))
    });
    Ok(json!({ "type": "templates", "templates": templates.collect::<Result<Vec<_>>>()? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template_requests;

    /// A probe has lower limits than a request. A capability that it cannot decide is not an error
    /// of the components.
    #[test]
    fn long_texts_are_composed() {
        for system in ["x".repeat(300_000), "{tools}".repeat(20_000)] {
            let components = json!({
                "system_template": format!("{system}{{system_message}}"),
                "user_template": "[{content}]",
                "assistant_template": "<{content}{tool_calls}>",
            });
            let reply =
                template_requests::compose(&json!({ "components": components }).to_string());
            assert_eq!(
                reply.map(|reply| reply["type"].clone()).map_err(|error| error.to_string()),
                Ok(json!("template"))
            );
        }
    }
}
