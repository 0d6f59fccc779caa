//! `llb serve`: models behind the HTTP protocols of OpenAI and Anthropic.
//!
//! A request goes from `listener` (connections) through `routes` (key, log) to the module of its
//! protocol, which converts it to a chat request of the library. `model_pool` loads its model,
//! `generation` runs it on a chat of the model, and `event_stream` sends the output. docs/server.md
//! describes what clients see.

mod access;
mod app;
mod blocking;
mod call;
mod chat_completions;
mod chat_parts;
mod descriptors;
mod embeddings;
mod error;
mod event_stream;
mod exchanges;
mod fields;
mod generation;
mod held_replies;
mod json_weight;
mod left_out;
mod library_request;
mod limits;
mod listener;
mod log;
mod memory_budget;
mod messages;
mod metrics;
mod model;
mod model_pool;
mod open_connections;
mod page;
mod parts;
mod request_body;
mod request_end;
mod request_start;
mod responses;
mod routes;
mod slot;
mod stamp;
mod status;
mod template;
mod tokens;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use self::access::AccessArguments;
use self::app::App;
use self::held_replies::HeldReplies;
use self::limits::{PoolArguments, ServeLimits};
use self::memory_budget::MemoryBudget;
use self::model::{Purpose, ServedModel};
use self::model_pool::ModelPool;
use self::trace::Traces;
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::{interrupt, memory};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Models: GGUF files or hf:ORG/NAME[:QUANT]; NAME=MODEL sets the name that clients use
    #[arg(required_unless_present = "embedding", value_name = "MODEL")]
    models: Vec<String>,
    /// An embedding model or reranker, given like MODEL; may be given more than once
    #[arg(long, value_name = "MODEL")]
    embedding: Vec<String>,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    limits: ServeLimits,
    /// Do not log a line for each request
    #[arg(long)]
    no_access_log: bool,
    /// Keep system blocks that clients write about themselves, such as x-anthropic-billing-header,
    /// in the prompt; they change with each request, so prompts are not found in the cache
    #[arg(long)]
    keep_client_metadata: bool,
    /// Send traces of requests to an OpenTelemetry collector (OTLP over HTTP), such as
    /// http://localhost:4318 [default: OTEL_EXPORTER_OTLP_ENDPOINT, else none]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let limits = arguments.limits;
    let access = arguments.access.access()?;
    let address = arguments.access.address();
    listener::check(address)?;
    memory::share_arenas();
    let mut models: Vec<Arc<ServedModel>> = Vec::new();
    let chats = arguments.models.iter().map(|model| (model, Purpose::Chat));
    let embeddings = arguments.embedding.iter().map(|model| (model, Purpose::Embedding));
    for (model, purpose) in chats.chain(embeddings) {
        let model = ServedModel::describe(model, purpose, &arguments.loading, limits)?;
        if models.iter().any(|other| other.name == model.name) {
            let failure = Failure::new(format!("{}: two models have this name", model.name));
            return Err(failure.next("name them: llb serve NAME=MODEL OTHER=MODEL"));
        }
        models.push(Arc::new(model));
    }
    access.warn();
    let has_access_log = !arguments.no_access_log;
    let traces = Traces::start(arguments.otlp_endpoint.as_deref())?.map(Arc::new);
    let pool = ModelPool::new(models, arguments.pool.limits(), has_access_log);
    pool.load_first()?;
    let request_bytes = limits.request_bytes();
    let app = Arc::new(App {
        pool,
        limits,
        bodies: MemoryBudget::new(request_bytes / 4),
        requests: MemoryBudget::new(request_bytes / 4 * 3),
        metrics: Arc::default(),
        responses: Default::default(),
        replies: HeldReplies::new(limits.reply_bytes()),
        weightless: Default::default(),
        access,
        has_access_log,
        keeps_client_metadata: arguments.keep_client_metadata,
        traces: traces.clone(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1024)
        .enable_all()
        .build()?;
    let (stop, stopping) = watch::channel(false);
    let result = interrupt::cancellable(
        move || {
            say!("llb: stopping; running requests may finish, a second signal ends them");
            let _ = stop.send(true);
        },
        || runtime.block_on(listener::serve(address, Arc::clone(&app), stopping)),
    );
    runtime.shutdown_timeout(Duration::from_secs(5));
    if let Some(traces) = traces {
        traces.finish();
    }
    result
}
