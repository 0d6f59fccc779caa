//! Counters and histograms in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::model::ServedModel;

/// The upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Returns a number of a model.
type CountOf = fn(&ServedModel) -> u64;

#[derive(Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// Keyed by route and status. Status 499 is a client that left.
    requests: BTreeMap<(&'static str, u16), u64>,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    first_token: Histogram,
    generation: Histogram,
    request: Histogram,
}

#[derive(Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        for (bucket, end) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= end);
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn write(&self, text: &mut String, name: &str, help: &str) {
        heading(text, name, "histogram", help);
        for (bucket, end) in self.buckets.iter().zip(BUCKETS) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{end}\"}} {bucket}");
        }
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", self.sum, self.count);
    }
}

impl Metrics {
    /// Counts a reply of the library.
    pub(crate) fn add_reply(&self, reply: &Value, time: Duration) {
        let usage = &reply["usage"];
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.prompt_tokens += count(&usage["prompt_tokens"]);
        counts.cached_tokens += count(&usage["prompt_tokens_details"]["cached_tokens"]);
        counts.completion_tokens += count(&usage["completion_tokens"]);
        counts.generation.add(time);
    }

    /// Counts a request that has ended.
    pub(crate) fn add_request(
        &self,
        route: &'static str,
        status: u16,
        time: Duration,
        first_token: Option<Duration>,
    ) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.requests.entry((route, status)).or_default() += 1;
        counts.request.add(time);
        if let Some(first) = first_token {
            counts.first_token.add(first);
        }
    }

    /// The counts so far that the page plots.
    pub(crate) fn sample(&self) -> Value {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "prompt_tokens": counts.prompt_tokens, "cached_tokens": counts.cached_tokens,
            "completion_tokens": counts.completion_tokens,
            "first_tokens": counts.first_token.count,
            "first_token_seconds": counts.first_token.sum,
        })
    }

    /// The page of `/metrics`.
    pub(crate) fn page<'a>(&self, models: impl Iterator<Item = &'a ServedModel> + Clone) -> String {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        heading(&mut text, "llb_http_requests_total", "counter", "Requests that are over.");
        for ((route, status), count) in &counts.requests {
            let labels = format!("route=\"{route}\",status=\"{status}\"");
            let _ = writeln!(text, "llb_http_requests_total{{{labels}}} {count}");
        }
        for (name, help, count) in [
            ("llb_prompt_tokens_total", "Tokens of prompts.", counts.prompt_tokens),
            (
                "llb_cached_tokens_total",
                "Tokens of prompts found in the cache.",
                counts.cached_tokens,
            ),
            ("llb_completion_tokens_total", "Generated tokens.", counts.completion_tokens),
        ] {
            heading(&mut text, name, "counter", help);
            let _ = writeln!(text, "{name} {count}");
        }
        let of_models: [(&str, &str, &str, CountOf); 4] = [
            ("llb_requests_running", "gauge", "Requests that run.", |it| it.running() as u64),
            ("llb_requests_waiting", "gauge", "Requests in the queue.", |it| it.waiting() as u64),
            ("llb_model_loaded", "gauge", "Whether the model is in memory.", |it| {
                it.is_loaded().into()
            }),
            ("llb_model_loads_total", "counter", "Loads of the model.", ServedModel::loads),
        ];
        for (name, kind, help, value) in of_models {
            heading(&mut text, name, kind, help);
            for model in models.clone() {
                let _ = writeln!(text, "{name}{{{}}} {}", label(model), value(model));
            }
        }
        let first = "Seconds from the start of a generation to its first token.";
        counts.first_token.write(&mut text, "llb_time_to_first_token_seconds", first);
        let generation = "Seconds of generations, without the queue.";
        counts.generation.write(&mut text, "llb_generation_seconds", generation);
        counts.request.write(&mut text, "llb_http_request_seconds", "Seconds of requests.");
        text
    }
}

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn label(model: &ServedModel) -> String {
    let name = model.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("model=\"{name}\"")
}
