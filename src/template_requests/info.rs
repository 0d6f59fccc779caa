//! `llb_template_info`: what a template can do.

use serde_json::{Map, Value, json};

use super::template::RequestedTemplate;
use crate::api::Fields;
use crate::error::Result;
use crate::profile::ModelProfile;
use crate::template::Sources;

/// The reply to a request.
pub(super) fn info(fields: &mut Fields<'_>) -> Result<Value> {
    let RequestedTemplate { sources, sampling, .. } = RequestedTemplate::read(fields)?;
    let profile = ModelProfile::of(&sources)?;
    let mut reply = json!({ "type": "template_info" });
    if let Value::Object(reply) = &mut reply {
        reply.extend(profile.to_json());
        if let Some(sampling) = sampling {
            sampling.add_to(reply);
        }
        if fields.boolean("compat")? == Some(true) {
            profile.add_compat(reply);
        }
        if fields.boolean("source")? == Some(true) {
            add_source(reply, &sources);
        }
    }
    Ok(reply)
}

/// Adds the members that identify the template of a request.
fn add_source(reply: &mut Map<String, Value>, sources: &Sources) {
    let named = |name: &str, text: &str| json!({ "name": name, "template": text });
    let template = match (&sources.default, &sources.tool_use) {
        (Some(text), None) => text.clone().into(),
        (None, None) => Value::Null,
        (default, tool_use) => {
            let default = default.iter().map(|text| named("default", text));
            default.chain(tool_use.iter().map(|text| named("tool_use", text))).collect()
        }
    };
    reply.insert("chat_template".to_owned(), template);
    reply.insert("bos_token".to_owned(), sources.bos_token.clone().into());
    reply.insert("eos_token".to_owned(), sources.eos_token.clone().into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template_requests;

    #[test]
    fn the_source_is_in_the_form_of_a_request() {
        let text = "{% for m in messages %}{{ m.content }}{% endfor %}";
        let reply =
            |request: Value| template_requests::info(&request.to_string()).expect("a template");
        let whole = reply(json!({ "chat_template": text, "eos_token": "<e>", "source": true }));
        assert_eq!((&whole["chat_template"], &whole["bos_token"]), (&json!(text), &json!("")));
        assert_eq!(whole["eos_token"], "<e>");
        let named = json!([
            { "name": "default", "template": text }, { "name": "tool_use", "template": text },
        ]);
        let both = reply(json!({ "chat_template": named, "source": true }));
        assert_eq!(both["chat_template"], named);
        assert!(reply(json!({ "chat_template": text })).get("chat_template").is_none());
    }
}
