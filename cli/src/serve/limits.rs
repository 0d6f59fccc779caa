//! The limits of the server, which are arguments of `llb serve`: for requests, and for models in
//! memory.

use std::time::Duration;

use clap::Args;
use clap::builder::TypedValueParser;
use llb::llama::MachineMemory;

/// The least default for replies: room for the largest one of the library.
const MIN_REPLY_BYTES: u64 = 160_000_000;
/// The memory for requests, and that for replies, if the memory of the machine is unknown.
const DEFAULT_BYTES: u64 = 1 << 30;

/// The default of `--max-body`, without and with pictures.
const MAX_BODY: usize = 4 << 20;
const MAX_BODY_WITH_PICTURES: usize = 32 << 20;

/// The limits for requests.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ServeLimits {
    /// Number of requests that each model processes at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(256))]
    pub(super) parallel: usize,
    /// Maximum number of requests waiting for each model; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) queue: usize,
    /// max_tokens of requests that do not set it [default: what fits the context]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) max_tokens: Option<u64>,
    /// Maximum seconds that a request may wait for the model, and then run until its reply is sent
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds(86400))]
    pub(super) timeout: Duration,
    /// Maximum seconds for receiving the headers of a request, and then its body; also the time
    /// after which a client that stops reading is disconnected
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds(3600))]
    pub(super) read_timeout: Duration,
    /// Maximum size of the body of a request [default: 4194304; with --projector 33554432]
    #[arg(long, value_name = "BYTES")]
    max_body: Option<usize>,
    /// Maximum megabytes that all requests take before and while they run, without their replies;
    /// more wait, or are refused with status 429 [default: 1/8 of the memory, or 1/4 of what is
    /// available after the first model is loaded]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) request_memory: Option<u64>,
    /// Maximum megabytes of replies that clients have not read yet; beyond it, the client that
    /// reads most slowly loses its reply [default: 1/8 of the memory, at least 160]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) reply_memory: Option<u64>,
    /// Maximum number of concurrent connections
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count(65536))]
    pub(super) max_connections: usize,
    /// Seconds that running requests may continue after a signal to stop
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).map(Duration::from_secs))]
    pub(super) grace: Duration,
}

impl ServeLimits {
    /// The same limits for models that take pictures, which are larger than text.
    pub(super) fn with_pictures(mut self) -> ServeLimits {
        self.max_body.get_or_insert(MAX_BODY_WITH_PICTURES);
        self
    }

    /// The maximum number of bytes of a body.
    pub(super) fn body_bytes(&self) -> usize {
        self.max_body.unwrap_or(MAX_BODY)
    }

    /// The bytes for all requests. Depends on the memory that is available now.
    pub(super) fn request_bytes(&self) -> u64 {
        let available = MachineMemory::read().available.map_or(u64::MAX, |most| most / 4);
        self.request_memory.map_or_else(|| an_eighth().min(available), bytes)
    }

    /// The bytes for all replies that clients have not read yet.
    pub(super) fn reply_bytes(&self) -> u64 {
        self.reply_memory.map_or_else(|| an_eighth().max(MIN_REPLY_BYTES), bytes)
    }
}

fn bytes(megabytes: u64) -> u64 {
    megabytes.saturating_mul(1_000_000)
}

/// An eighth of the machine's memory.
fn an_eighth() -> u64 {
    MachineMemory::read().total.map_or(DEFAULT_BYTES, |total| total / 8)
}

fn count(most: i64) -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u32).range(1..=most).map(|count| count as usize)
}

fn seconds(most: u64) -> impl TypedValueParser<Value = Duration> {
    clap::value_parser!(u64).range(1..=most).map(Duration::from_secs)
}

/// The arguments for models in memory.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct PoolArguments {
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
}

/// The limits for models in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    /// The maximum number of models in memory at the same time.
    pub(super) max_loaded: usize,
    /// The maximum number of bytes of all models in memory. A single model may take more.
    pub(super) max_bytes: u64,
    /// How long a model may be unused before it is unloaded.
    pub(super) idle: Option<Duration>,
}

impl PoolArguments {
    pub(super) fn limits(&self) -> PoolLimits {
        let given = self.max_memory.map(|megabytes| megabytes.saturating_mul(1_000_000));
        let total = MachineMemory::read().total;
        PoolLimits {
            max_loaded: self.max_loaded as usize,
            max_bytes: given.or(total.map(|total| total / 4 * 3)).unwrap_or(u64::MAX),
            idle: (self.unload_after > 0).then(|| Duration::from_secs(self.unload_after)),
        }
    }
}
