//! `llb serve`: models over the HTTP protocols of OpenAI, Anthropic and Ollama.
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
mod choices;
mod client;
mod completions;
mod content_routes;
mod custom_calls;
mod custom_tool;
mod embeddings;
mod error;
mod event_stream;
mod exchanges;
mod fair_queue;
mod fields;
mod generation;
mod held_replies;
mod json_weight;
mod lark;
mod left_out;
mod library_request;
mod limits;
mod listener;
mod llama_members;
mod load_history;
mod log;
mod lora_adapters;
mod lora_routes;
mod media_arguments;
mod memory_budget;
mod messages;
mod metrics;
mod model;
mod model_pool;
mod ollama;
mod open_connections;
mod page;
mod parts;
mod pictures;
mod render;
mod request_body;
mod request_end;
mod request_start;
mod responses;
mod routes;
mod running_call;
mod slot;
mod stamp;
mod status;
mod template;
mod tokens;
mod trace;
mod transcriptions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::sync::watch;

use self::access::AccessArguments;
pub(crate) use self::access::PORT;
use self::app::App;
use self::held_replies::HeldReplies;
use self::limits::{PoolArguments, ServeLimits};
use self::lora_adapters::LoraAdapters;
use self::media_arguments::MediaArguments;
use self::memory_budget::MemoryBudget;
use self::model::{Purpose, ServedModel};
use self::model_pool::ModelPool;
use self::trace::Traces;
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::template_warning::warn_of_findings;
use crate::{allocator, interrupt};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Models: GGUF files or hf:ORG/NAME[:QUANT]; NAME=MODEL sets the name that clients use, and
    /// NAME,NAME=MODEL several
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
    /// Load no weights, and only make prompts of token ids and read replies of token ids, for vLLM:
    /// /v1/chat/completions/render and /derender, /v1/completions/render
    #[arg(long)]
    render: bool,
    #[command(flatten)]
    media: MediaArguments,
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

impl Arguments {
    /// The name that clients use for the first model, and the model.
    pub(crate) fn first_model(&self) -> Option<(String, &str)> {
        let (names, model) = model::names_and_model(self.models.first()?);
        Some((names.into_iter().next()?, model))
    }

    /// The address to listen on. Port 0 stands for a free one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.access.address()
    }

    /// The key that clients must send.
    pub(crate) fn key(&self) -> Result<Option<String>> {
        self.access.key()
    }

    /// A projector belongs to one model, and encodes pictures only where tokens are computed.
    fn check_projector(&self) -> Result<()> {
        let problem = match self.loading.projector.as_deref() {
            None => return Ok(()),
            Some(_) if self.render => "--projector cannot be used with --render",
            Some("auto") => return Ok(()),
            Some(_) if self.models.len() > 1 => "--projector FILE is for one model",
            Some(_) => return Ok(()),
        };
        Err(Failure::new(problem).next(
            "leave it out, or put each projector beside its model and start with --projector auto",
        ))
    }

    /// For the program's own client: a context of at least `n_ctx` tokens if none was asked for, and
    /// no log.
    pub(crate) fn for_client(mut self, n_ctx: u32) -> Arguments {
        self.loading.n_ctx.get_or_insert(n_ctx);
        self.no_access_log = true;
        self
    }
}

/// Serves until Ctrl-C.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let server = Server::load(arguments)?;
    let (stop, stopping) = watch::channel(false);
    interrupt::cancellable(
        move || {
            say!("llb: stopping; running requests may finish, a second signal ends them");
            let _ = stop.send(true);
        },
        || server.serve(stopping, |_| ()),
    )
}

/// A server whose first model is loaded, and which does not listen yet.
pub(crate) struct Server {
    address: SocketAddr,
    app: Arc<App>,
    traces: Option<Arc<Traces>>,
}

impl Server {
    pub(crate) fn load(arguments: &Arguments) -> Result<Server> {
        let limits = match arguments.loading.projector {
            Some(_) => arguments.limits.with_pictures(),
            None => arguments.limits,
        };
        let access = arguments.access.access()?;
        let address = arguments.access.address();
        listener::check(address)?;
        allocator::share_arenas();
        arguments.check_projector()?;
        let mut models: Vec<Arc<ServedModel>> = Vec::new();
        let chats = arguments.models.iter().map(|model| (model, Purpose::Chat));
        let embeddings = arguments.embedding.iter().map(|model| (model, Purpose::Embedding));
        for (model, purpose) in chats.chain(embeddings) {
            let mut model = ServedModel::describe(model, purpose, &arguments.loading, limits)?;
            if purpose == Purpose::Chat {
                arguments.media.set(&mut model.options);
            }
            let taken: Vec<&str> = models.iter().flat_map(|other| other.names()).collect();
            if let Some(name) = model.names().find(|name| taken.contains(name)) {
                let failure = Failure::new(format!("{name}: two models have this name"));
                return Err(failure.next("name them: llb serve NAME=MODEL OTHER=MODEL"));
            }
            if purpose == Purpose::Chat && arguments.loading.chat_template.is_none() {
                warn_of_findings(&model.info);
            }
            models.push(Arc::new(model));
        }
        let chat = models.iter().find(|model| model.purpose == Purpose::Chat);
        let adapters = LoraAdapters::new(chat.map_or(&Value::Null, |chat| &chat.options["lora"]));
        access.warn();
        let has_access_log = !arguments.no_access_log;
        let traces = Traces::start(arguments.otlp_endpoint.as_deref())?.map(Arc::new);
        let (pool_limits, renders) = (arguments.pool.limits(), arguments.render);
        let pool = ModelPool::new(models, pool_limits, renders, has_access_log);
        pool.load_first()?;
        let request_bytes = limits.request_bytes();
        let app = Arc::new(App {
            pool,
            limits,
            bodies: MemoryBudget::new(request_bytes / 4),
            requests: MemoryBudget::new(request_bytes / 4 * 3),
            metrics: Arc::default(),
            load_history: Arc::default(),
            responses: Default::default(),
            replies: HeldReplies::new(limits.reply_bytes()),
            weightless: Default::default(),
            access,
            has_access_log,
            adapters,
            keeps_client_metadata: arguments.keep_client_metadata,
            traces: traces.clone(),
        });
        Ok(Server { address, app, traces })
    }

    /// Listens, calls `ready` with the address, and serves until `stopping` is true.
    pub(crate) fn serve(
        self,
        stopping: watch::Receiver<bool>,
        ready: impl FnOnce(SocketAddr),
    ) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(1024)
            .enable_all()
            .build()?;
        let result = runtime.block_on(listener::serve(self.address, self.app, stopping, ready));
        runtime.shutdown_timeout(Duration::from_secs(5));
        if let Some(traces) = self.traces {
            traces.finish();
        }
        result
    }
}
