//! `llb_template_info`: what a template can do.

use serde_json::{Value, json};

use super::template::RequestedTemplate;
use super::with_ignored_keys;
use crate::api::{self, Fields};
use crate::error::Result;
use crate::profile::ModelProfile;

/// Runs an `llb_template_info` request.
pub fn info(request: &str) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let mut fields = Fields::new("", &request)?;
    let RequestedTemplate { sources, sampling, .. } = RequestedTemplate::read(&mut fields)?;
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
    }
    Ok(with_ignored_keys(reply, &fields))
}
