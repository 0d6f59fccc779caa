//! Requests about a vocabulary, which a helper process reads.

use serde_json::Value;

use super::chat::checked_reply;
use super::helper::{Helper, HelperCallLimits, HelperError, Request, StartHelper};
use super::message::Call;
use super::options::HelperKey;
use crate::api::{self, Fields};
use crate::error::Result;
use crate::tokens::TokenCall;

/// The processor seconds that a call may use: a base, and an allowance for each megabyte of its
/// request.
const MOST_WORK: f64 = 8.0;
const MOST_WORK_PER_MEGABYTE: f64 = 8.0;

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
    let most_work = MOST_WORK + MOST_WORK_PER_MEGABYTE * request.len() as f64 / 1e6;
    let limits = HelperCallLimits { most_work: Some(most_work), ..HelperCallLimits::default() };
    let call = |_| Call::Tokens { call };
    let request = Request { call: &call, text: Some(&request), descriptor: None };
    match helper.call(&request, &limits, &mut |_, _| {}) {
        Ok(text) => checked_reply(text),
        Err(HelperError::Answered(error, _) | HelperError::Ended(error)) => Err(error),
    }
}
