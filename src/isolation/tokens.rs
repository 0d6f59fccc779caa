//! Requests about a vocabulary, which a helper process reads.

use std::time::Duration;

use serde_json::Value;

use super::call_watch::{HelperCallLimits, ProgressLimits};
use super::chat::checked_reply;
use super::helper::{Helper, HelperError, Request, StartHelper};
use super::message::Call;
use super::options::HelperKey;
use crate::api::{self, Fields};
use crate::error::Result;
use crate::tokens::TokenCall;

/// The processor time that a call may use for each megabyte of its request, beside what reading the
/// file may take.
const MAX_WORK_PER_MEGABYTE: f64 = 8.0;

/// Runs a request in a helper for its model file: a chat's helper, or a new one that ends with the
/// call. The reply is valid JSON. `version` is the version that the helper must have.
pub(crate) fn run_tokens(
    call: TokenCall,
    mut request: Value,
    version: &str,
    start: StartHelper,
) -> Result<String> {
    let path = api::model_path(&mut Fields::new("", &request)?)?;
    let (key, path) = HelperKey::of_model(path, api::MODEL_PATH)?;
    request[api::MODEL_PATH] = path.into();
    let request = request.to_string();
    let helper = Helper::shared(&key, version, start)?;
    let mut progress = ProgressLimits::of_reading(key.gigabytes());
    let for_text = Duration::from_secs_f64(MAX_WORK_PER_MEGABYTE * request.len() as f64 / 1e6);
    progress.work = progress.work.map(|work| work + for_text);
    let limits = HelperCallLimits { progress, ..HelperCallLimits::default() };
    let call = |_| Call::Tokens { call };
    let request = Request { call: &call, text: Some(&request), descriptor: None };
    match helper.call(&request, &limits, &mut |_, _| {}) {
        Ok(text) => checked_reply(text),
        Err(HelperError::Answered(error, _) | HelperError::Ended(error)) => Err(error),
    }
}
