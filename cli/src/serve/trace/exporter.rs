//! Sends batches of spans to the collector, on the batch thread. If a collector does not answer,
//! the only effects are lost spans and two lines on stderr, because the queue is bounded.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::collector::Collector;
use super::message;

/// The delays before further attempts.
const WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Statuses after which the request may be retried. Source:
/// <https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes>.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];

pub(super) struct Exporter {
    collector: Collector,
    resource: Resource,
    /// Whether the last batch was lost.
    is_failing: AtomicBool,
}

impl Exporter {
    pub(super) fn new(collector: Collector) -> Exporter {
        let resource = Resource::builder_empty().build();
        Exporter { collector, resource, is_failing: AtomicBool::new(false) }
    }

    fn send(&self, body: &[u8]) -> Result<(), String> {
        let mut waits = WAITS.into_iter();
        loop {
            let problem = match self.collector.send(body) {
                Ok(200..300) => return Ok(()),
                Ok(status) if !RETRYABLE.contains(&status) => {
                    return Err(format!("status {status}"));
                }
                Ok(status) => format!("status {status}"),
                Err(error) => error.to_string(),
            };
            thread::sleep(waits.next().ok_or(problem)?);
        }
    }

    /// Reports on stderr when spans begin to be lost, and when they arrive again.
    fn report(&self, result: &Result<(), String>) {
        let host = &self.collector.host;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Err(problem) if !was_failing => say!("llb: traces do not reach {host}: {problem}"),
            Ok(()) if was_failing => say!("llb: traces reach {host} again"),
            _ => {}
        }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.send(&message::export_request(&batch, &self.resource));
        self.report(&result);
        result.map_err(OTelSdkError::InternalFailure)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.clone();
    }
}

/// Omits the headers, which may contain a key.
impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exporter({})", self.collector.host)
    }
}
