//! Traces: a span for each request that a model answers, and its wait in the queue as a child, by
//! OpenTelemetry's conventions for generative AI.
//!
//! In: the log of a completed request, and the client's trace. Out: spans, which a separate thread
//! sends in batches. Spans never contain prompts, replies or any text of a client.
//!
//! Source: <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/>, 1.42, and
//! <https://opentelemetry.io/docs/specs/semconv/http/http-spans/>.

mod collector;
mod message;

use std::env;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    Event, Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider,
};
use opentelemetry::{Array, Context, InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use self::collector::{Collector, Exporter};
use super::log::{Facts, RequestLog};
use crate::failure::Result;

const SCHEMA: &str = "https://opentelemetry.io/schemas/1.42.0";
/// How long the server waits for the last spans when it stops.
const LAST_FLUSH: Duration = Duration::from_secs(5);
/// Numeric members of a request and their attributes. The convention requires integers for some.
const SETTINGS: [(&str, &str, Number); 9] = [
    ("max_tokens", "gen_ai.request.max_tokens", Number::Whole),
    ("max_completion_tokens", "gen_ai.request.max_tokens", Number::Whole),
    ("temperature", "gen_ai.request.temperature", Number::Real),
    ("top_p", "gen_ai.request.top_p", Number::Real),
    ("top_k", "gen_ai.request.top_k", Number::Real),
    ("frequency_penalty", "gen_ai.request.frequency_penalty", Number::Real),
    ("presence_penalty", "gen_ai.request.presence_penalty", Number::Real),
    ("seed", "gen_ai.request.seed", Number::Whole),
    ("dimensions", "gen_ai.embeddings.dimension.count", Number::Whole),
];

enum Number {
    Whole,
    Real,
}

pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// Starts traces according to the argument and the environment. `None` without a collector.
    pub(super) fn start(endpoint: Option<&str>) -> Result<Option<Traces>> {
        let collector = Collector::read(endpoint, |name| env::var(name).ok())?;
        let Some(collector) = collector else { return Ok(None) };
        say!("llb: traces go to {}", collector.host);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(Exporter::new(collector))
            .build();
        let scope = InstrumentationScope::builder("llb")
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(SCHEMA)
            .build();
        let tracer = provider.tracer_with_scope(scope);
        Ok(Some(Traces { provider, tracer }))
    }

    /// Sends the remaining spans. Blocks for some seconds if the collector does not answer.
    pub(super) fn finish(&self) {
        // The exporter reports failures.
        let _ = self.provider.shutdown_with_timeout(LAST_FLUSH);
    }

    /// Creates the spans of a completed request. `parent` comes from [`parent`].
    pub(super) fn record(&self, log: &RequestLog, parent: &Context) {
        let Some(operation) = operation(log) else { return };
        let facts = log.facts();
        let end = log.time_of(Instant::now());
        let name = match &facts.model {
            Some(model) => format!("{operation} {model}"),
            None => operation.to_owned(),
        };
        let first_token = facts.first_token_at.map(|moment| log.time_of(moment));
        let events = first_token.map(|time| Event::new("first_token", time, Vec::new(), 0));
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Server)
            .with_start_time(log.time_of(log.started))
            .with_attributes(attributes(operation, log, &facts))
            .with_events(events.into_iter().collect());
        let mut span = self.tracer.build_with_context(builder, parent);
        if is_server_fault(&facts) {
            // An error's description may quote the request, so it is left empty.
            span.set_status(Status::error(""));
        }
        if let Some(wait) = &facts.wait {
            let parent = parent.with_remote_span_context(span.span_context().clone());
            let queue = SpanBuilder::from_name("queue")
                .with_kind(SpanKind::Internal)
                .with_start_time(log.time_of(wait.begin))
                .with_attributes([KeyValue::new("llb.model.loaded", wait.was_loaded)]);
            let mut queue = self.tracer.build_with_context(queue, &parent);
            queue.end_with_timestamp(wait.end.map_or(end, |moment| log.time_of(moment)));
        }
        span.end_with_timestamp(end);
    }
}

/// The trace that a client passes in the headers `traceparent` and `tracestate`. Source:
/// <https://www.w3.org/TR/trace-context/>.
pub(super) fn parent(headers: &HeaderMap) -> Context {
    struct Headers<'a>(&'a HeaderMap);
    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key).and_then(|value| value.to_str().ok())
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(|name| name.as_str()).collect()
        }
    }
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers))
}

/// The service is named `llb` unless the environment sets a name.
fn resource() -> Resource {
    let resource = Resource::builder().build();
    let name = resource.get(&Key::from_static_str("service.name"));
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    if is_named { builder.build() } else { builder.with_service_name("llb").build() }
}

/// The kind of operation that a model performs for a request. `None` if the request needs no model.
fn operation(log: &RequestLog) -> Option<&'static str> {
    match (&*log.method, log.route) {
        (
            "POST",
            "/v1/chat/completions"
            | "/v1/completions"
            | "/infill"
            | "/completion"
            | "/v1/messages"
            | "/v1/responses"
            | "/api/chat"
            | "/api/generate",
        ) => Some("chat"),
        ("POST", "/v1/embeddings" | "/api/embed" | "/api/embeddings") => Some("embeddings"),
        // The convention has no name for this operation.
        ("POST", "/v1/rerank") => Some("rerank"),
        _ => None,
    }
}

fn attributes(operation: &'static str, log: &RequestLog, facts: &Facts) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", operation),
        KeyValue::new("gen_ai.provider.name", "llb"),
        KeyValue::new("http.request.method", log.method.clone()),
        KeyValue::new("http.route", log.route),
    ];
    let mut add = |name: &'static str, value: Option<Value>| {
        attributes.extend(value.map(|value| KeyValue::new(name, value)));
    };
    add("http.response.status_code", facts.status.map(|status| i64::from(status).into()));
    add("gen_ai.request.model", facts.model.clone().map(Value::from));
    for (member, name, number) in SETTINGS {
        let value = &facts.settings[member];
        add(
            name,
            match number {
                Number::Whole => value.as_i64().map(Value::from),
                Number::Real => value.as_f64().map(Value::from),
            },
        );
    }
    let is_streamed = facts.settings["stream"] == true;
    add("gen_ai.request.stream", is_streamed.then_some(true.into()));
    add("gen_ai.output.type", facts.settings["is_json"].as_bool().map(|_| "json".into()));
    if !facts.usage.is_null() {
        add("gen_ai.response.model", facts.model.clone().map(Value::from));
    }
    let reasons = facts.finish_reason.clone().map(|reason| Array::String(vec![reason.into()]));
    add("gen_ai.response.finish_reasons", reasons.map(Value::Array));
    let first_chunk = facts.first_token_at.filter(|_| is_streamed);
    let seconds = first_chunk.map(|moment| (moment - log.started).as_secs_f64());
    add("gen_ai.response.time_to_first_chunk", seconds.map(Value::from));
    for (path, name) in [
        ("/prompt_tokens", "gen_ai.usage.input_tokens"),
        ("/completion_tokens", "gen_ai.usage.output_tokens"),
        ("/prompt_tokens_details/cached_tokens", "gen_ai.usage.cache_read.input_tokens"),
        ("/completion_tokens_details/reasoning_tokens", "gen_ai.usage.reasoning.output_tokens"),
    ] {
        let count = facts.usage.pointer(path).and_then(serde_json::Value::as_i64);
        add(name, count.map(Value::from));
    }
    add("error.type", error_type(facts).map(Value::from));
    attributes
}

/// The error code that clients see, or else the status of the response.
fn error_type(facts: &Facts) -> Option<String> {
    let is_unfinished = facts.usage.is_null() && facts.error.is_none();
    // Neither a reply nor an error means that the client has left.
    if is_unfinished { Some("cancelled".to_owned()) } else { facts.error.clone() }
}

/// Whether the server is at fault. An invalid request is not the server's fault. An error after the
/// first token has the status 200.
fn is_server_fault(facts: &Facts) -> bool {
    facts.error.is_some() && facts.status.is_some_and(|status| !(400..500).contains(&status))
}
