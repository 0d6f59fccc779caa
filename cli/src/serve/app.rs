//! The state that all handlers share, and how a request finds its model.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::Value;

use super::access::Access;
use super::blocking::WeightlessCalls;
use super::error::ApiError;
use super::fields;
use super::held_replies::HeldReplies;
use super::limits::ServeLimits;
use super::load_history::LoadHistory;
use super::lora_adapters::LoraAdapters;
use super::memory_budget::MemoryBudget;
use super::metrics::Metrics;
use super::model::{Purpose, ServedModel};
use super::model_pool::ModelPool;
use super::responses::ResponseStore;
use super::trace::Traces;

pub(crate) struct App {
    pub(super) pool: Arc<ModelPool>,
    pub(super) limits: ServeLimits,
    /// The memory of bodies, from their first byte on.
    pub(super) bodies: MemoryBudget,
    /// The memory of requests that are parsed, or wait and run after that.
    pub(super) requests: MemoryBudget,
    pub(super) metrics: Arc<Metrics>,
    pub(super) load_history: Arc<LoadHistory>,
    pub(super) responses: ResponseStore,
    /// The memory of replies that clients have not read yet.
    pub(super) replies: HeldReplies,
    pub(super) weightless: WeightlessCalls,
    pub(super) access: Access,
    pub(super) adapters: LoraAdapters,
    pub(super) has_access_log: bool,
    /// Whether system prompts keep what clients write about themselves.
    pub(super) keeps_client_metadata: bool,
    pub(super) traces: Option<Arc<Traces>>,
}

impl App {
    /// The model for a request. The only model for a purpose answers to any name and to none, because
    /// many clients send the name of another service's model.
    pub(crate) fn model_for(
        &self,
        purpose: Purpose,
        request: &Value,
    ) -> Result<&Arc<ServedModel>, ApiError> {
        let name = fields::string(request, "model")?;
        let mut models = self.pool.models().iter().filter(|model| model.purpose == purpose);
        let only = models.next().filter(|_| models.next().is_none());
        let Some(name) = name else {
            let is_fit = self.pool.models().iter().any(|model| model.purpose == purpose);
            let missing = "is missing, and there are several models";
            let reason = if is_fit { missing } else { unfit(purpose) };
            return only.ok_or_else(|| ApiError::invalid("model", reason));
        };
        let model = match (self.named_model(name), only) {
            (Err(_), Some(only)) => only,
            (named, _) => named?,
        };
        if model.purpose != purpose {
            return Err(ApiError::invalid("model", unfit(purpose)));
        }
        Ok(model)
    }

    /// The model with this name.
    pub(crate) fn named_model(&self, name: &str) -> Result<&Arc<ServedModel>, ApiError> {
        let models = self.pool.models();
        models.iter().find(|model| model.names().any(|each| each == name)).ok_or_else(|| {
            let names: Vec<&str> = models.iter().map(|model| &*model.name).collect();
            let message = format!("model: unknown model; expected one of {}", names.join(", "));
            let mut error = ApiError::new(StatusCode::NOT_FOUND, message);
            error.param = Some("model".to_owned());
            error.with_code("model_not_found")
        })
    }
}

fn unfit(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Chat => "the model makes vectors, not replies; use /v1/embeddings",
        Purpose::Embedding => {
            "the model makes replies, not vectors; serve one with --embedding MODEL"
        }
    }
}
