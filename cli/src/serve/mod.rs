//! `llb serve`: models behind the HTTP protocols of OpenAI and Anthropic.
//!
//! A request goes from `listener` (connections) through `app` (routes, key, log) to the module of
//! its protocol, which converts it to a chat request of the library. `model_pool` loads its model,
//! `generation` runs it on a chat of the model, and `event_stream` sends the output. docs/server.md
//! describes what clients see.

mod access;
mod app;
mod chat_completions;
mod cors;
mod embeddings;
mod error;
mod event_stream;
mod explain;
mod fields;
mod generation;
mod json_body;
mod listener;
mod loaded_model;
mod log;
mod messages;
mod metrics;
mod model;
mod model_pool;
mod page;
mod request_start;
mod responses;
mod shape;
mod status;
mod template;
mod tokens;
mod trace;
mod weightless;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use self::access::Access;
use self::app::App;
use self::cors::Cors;
use self::loaded_model::Purpose;
use self::model::ServedModel;
use self::model_pool::{ModelPool, PoolLimits};
use self::trace::Traces;
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::memory::MachineMemory;
use crate::{input, interrupt};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Models: GGUF files or hf:ORG/NAME[:QUANT]; NAME=MODEL sets the name that clients use
    #[arg(required_unless_present = "embedding", value_name = "MODEL")]
    models: Vec<String>,
    /// An embedding model or reranker, given like MODEL; may be given more than once
    #[arg(long, value_name = "MODEL")]
    embedding: Vec<String>,
    /// Address to listen on. The default accepts connections from this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port; 0 chooses a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// File with the key that clients must send
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// The key itself; other users of the machine can read arguments, but not the environment
    #[arg(long, env = "LLB_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Origin of web pages that may use the server, such as https://example.org, or * for all; may
    /// be given more than once [default: none]
    #[arg(long, value_name = "ORIGIN", value_parser = cors::origin)]
    cors_origin: Vec<String>,
    /// Maximum number of models in memory; others are loaded when a request needs them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    max_loaded: u32,
    /// Maximum megabytes of all loaded models; a single model may exceed it [default: 3/4 of the
    /// memory]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    max_memory: Option<u64>,
    /// Idle seconds after which a model is unloaded; 0 keeps it loaded
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    unload_after: u64,
    /// Number of requests that each model processes at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: u32,
    /// Maximum number of requests waiting for each model; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 128)]
    queue: usize,
    /// max_tokens of requests that do not set it [default: half of --n-ctx / --parallel]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Maximum seconds that a request may wait for the model, and then run
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    /// Maximum seconds for receiving the headers of a request, and then its body; also the time
    /// after which a client that stops reading is disconnected
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    read_timeout: u64,
    /// Maximum size of the body of a request
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    max_body: usize,
    /// Maximum number of concurrent connections
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_connections: u32,
    /// Seconds that running requests may continue after a signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Do not log a line for each request
    #[arg(long)]
    no_access_log: bool,
    /// Send traces of requests to an OpenTelemetry collector (OTLP over HTTP), such as
    /// http://localhost:4318 [default: OTEL_EXPORTER_OTLP_ENDPOINT, else none]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    #[command(flatten)]
    loading: Loading,
}

/// The limits for requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServeLimits {
    parallel: usize,
    queue: usize,
    max_tokens: Option<u64>,
    timeout: Duration,
    read_timeout: Duration,
    max_body: usize,
    max_connections: usize,
    grace: Duration,
}

impl Arguments {
    fn limits(&self) -> ServeLimits {
        ServeLimits {
            parallel: self.parallel as usize,
            queue: self.queue,
            max_tokens: self.max_tokens,
            timeout: Duration::from_secs(self.timeout),
            read_timeout: Duration::from_secs(self.read_timeout),
            max_body: self.max_body,
            max_connections: self.max_connections as usize,
            grace: Duration::from_secs(self.grace),
        }
    }

    fn pool_limits(&self) -> PoolLimits {
        let given = self.max_memory.map(|megabytes| megabytes.saturating_mul(1_000_000));
        let total = MachineMemory::read().total;
        PoolLimits {
            max_loaded: self.max_loaded as usize,
            max_bytes: given.or(total.map(|total| total / 4 * 3)).unwrap_or(u64::MAX),
            idle: (self.unload_after > 0).then(|| Duration::from_secs(self.unload_after)),
        }
    }

    fn key(&self) -> Result<Option<String>> {
        let key = match &self.api_key_file {
            Some(path) => Some(input::text(path)?.trim().to_owned()),
            None => self.api_key.clone(),
        };
        if key.as_ref().is_some_and(String::is_empty) {
            return Err(Failure::new("the API key is empty"));
        }
        Ok(key)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let limits = arguments.limits();
    let key = arguments.key()?;
    let address = SocketAddr::new(arguments.host, arguments.port);
    listener::check(address)?;
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
    if key.is_none() {
        let is_for_all = arguments.cors_origin.iter().any(|origin| origin == "*");
        if !arguments.host.is_loopback() {
            say!("llb: any program that reaches {} can use the models", arguments.host);
        }
        if is_for_all {
            say!("llb: any web page in a browser on this machine can use the models");
        }
        if is_for_all || !arguments.host.is_loopback() {
            say!("next: set a key with --api-key-file or LLB_API_KEY");
        }
    }
    let is_logged = !arguments.no_access_log;
    let traces = Traces::start(arguments.otlp_endpoint.as_deref())?.map(Arc::new);
    let pool = ModelPool::new(models, arguments.pool_limits(), limits.timeout, is_logged);
    pool.load_first()?;
    let access = Access::new(key, Cors::new(&arguments.cors_origin), address);
    let app = Arc::new(App::new(pool, limits, access, is_logged, traces.clone()));
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
