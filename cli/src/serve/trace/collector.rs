//! The trace collector: its address and settings, from the argument and the standard environment
//! variables, and the batches of spans that are sent to it on the batch thread. If a collector does
//! not answer, the only effects are lost spans and two lines on stderr, because the queue is
//! bounded.
//!
//! Source: <https://opentelemetry.io/docs/specs/otel/protocol/exporter/> and
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, thread};

use axum::http::{HeaderName, HeaderValue, Uri};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use percent_encoding::percent_decode_str;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::message;
use crate::failure::{Failure, Result};

/// The only protocol that this program supports.
const PROTOCOL: &str = "http/protobuf";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The delays before further attempts.
const WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Statuses after which the request may be retried. Source:
/// <https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes>.
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];

pub(super) struct Collector {
    url: String,
    /// The host and port, for messages. The URL and headers may contain secrets.
    pub(super) host: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    agent: ureq::Agent,
}

impl Collector {
    /// Reads the settings. `endpoint` is the argument. `None` if no collector is named, or if a
    /// variable disables traces.
    pub(super) fn read(
        endpoint: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Collector>> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is_disabled =
            variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let is_other = variable("OTEL_TRACES_EXPORTER")
            .is_some_and(|names| names.split(',').all(|name| name.trim() != "otlp"));
        if is_disabled || is_other {
            return Ok(None);
        }
        let Some((source, url)) = url(endpoint, &variable) else { return Ok(None) };
        let host = host(&url).ok_or_else(|| {
            Failure::new(format!("{source}: expected the http or https URL of a collector"))
                .next("such as http://localhost:4318")
        })?;
        // A variable for traces takes precedence over the variable for all signals.
        let option = |name: &str| {
            let names = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"];
            names.into_iter().find_map(|start| {
                let name = format!("{start}{name}");
                variable(&name).map(|value| (name, value))
            })
        };
        if let Some((name, protocol)) = option("PROTOCOL").filter(|(_, value)| value != PROTOCOL) {
            say!("llb: {name} is {protocol}, but traces go by {PROTOCOL}");
        }
        let headers = option("HEADERS").map_or(Ok(Vec::new()), |(name, text)| {
            headers(&text).ok_or_else(|| {
                Failure::new(format!("{name}: expected NAME=VALUE, separated by commas"))
            })
        })?;
        let timeout = match option("TIMEOUT") {
            None => DEFAULT_TIMEOUT,
            Some((name, text)) => text.trim().parse().map(Duration::from_millis).map_err(|_| {
                Failure::new(format!("{name}: expected a whole number of milliseconds"))
            })?,
        };
        let roots = match option("CERTIFICATE") {
            Some((name, path)) => Some(certificates(&name, &path)?),
            None if url.starts_with("https:") => Some(system_certificates()),
            None => None,
        };
        let tls = roots.map(|roots| TlsConfig::builder().root_certs(roots).build());
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            // The headers must not be sent to any other host.
            .max_redirects(0)
            .user_agent(concat!("llb/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.unwrap_or_default())
            .build()
            .new_agent();
        Ok(Some(Collector { url, host, headers, agent }))
    }

    /// Sends a message and returns the status. Blocks for at most the time-out.
    fn send(&self, body: &[u8]) -> std::result::Result<u16, ureq::Error> {
        let mut request =
            self.agent.post(&self.url).header("content-type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = request.send(body)?;
        // The body is read so that the connection can be reused.
        let _ = response.body_mut().with_config().limit(1 << 20).read_to_vec();
        Ok(response.status().as_u16())
    }
}

/// Sends batches of spans to the collector.
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

    fn send(&self, body: &[u8]) -> std::result::Result<(), String> {
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
    fn report(&self, result: &std::result::Result<(), String>) {
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

/// The URL, and the variable or argument that it comes from.
fn url(
    endpoint: Option<&str>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let of_base = |base: &str| {
        let base = base.trim().trim_end_matches('/');
        if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
    };
    if let Some(base) = endpoint {
        return Some(("--otlp-endpoint", of_base(base)));
    }
    // The endpoint for traces is used unchanged.
    let traces = variable(TRACES).map(|url| (TRACES, url.trim().to_owned()));
    traces.or_else(|| variable(ALL).map(|base| (ALL, of_base(&base))))
}

fn host(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let authority = url.authority()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let port = authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    (is_http && !authority.host().is_empty()).then(|| authority.host().to_owned() + &port)
}

/// Parses `NAME=VALUE,NAME=VALUE`. Values are percent-encoded as in URLs.
fn headers(text: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let header = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        Some((name.trim().parse().ok()?, HeaderValue::from_str(&value).ok()?))
    };
    entries.map(header).collect()
}

/// The certificate authorities in a file (PEM).
fn certificates(variable: &str, path: &str) -> Result<RootCerts> {
    let found = rustls_native_certs::load_certs_from_paths(Some(Path::new(path)), None);
    if found.certs.is_empty() {
        let problem = found.errors.first().map(ToString::to_string);
        let problem = problem.unwrap_or_else(|| "it has no certificate (PEM)".to_owned());
        return Err(Failure::new(format!("{variable}: {path}: {problem}")));
    }
    Ok(roots(found))
}

/// The authorities of the system or of `SSL_CERT_FILE`, else Mozilla's.
fn system_certificates() -> RootCerts {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() { RootCerts::WebPki } else { roots(found) }
}

fn roots(found: rustls_native_certs::CertificateResult) -> RootCerts {
    let certificates = found.certs.iter().map(|it| Certificate::from_der(it).to_owned());
    RootCerts::Specific(Arc::new(certificates.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Collector>> {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
        Collector::read(endpoint, |name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    #[track_caller]
    fn check(endpoint: Option<&str>, variables: &[(&str, &str)], url: Option<&str>) {
        let collector = read(endpoint, variables).unwrap();
        assert_eq!(collector.map(|collector| collector.url).as_deref(), url);
    }

    #[test]
    fn the_argument_comes_before_the_variables() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/path");
        check(None, &[], None);
        check(None, &[(all.0, "")], None);
        check(None, &[all], Some("http://all:4318/v1/traces"));
        check(None, &[all, traces], Some("http://traces/path"));
        let given = Some("https://given/");
        check(given, &[all, traces], Some("https://given/v1/traces"));
        check(Some("http://h/v1/traces"), &[], Some("http://h/v1/traces"));
        check(given, &[("OTEL_SDK_DISABLED", "true")], None);
        check(None, &[all, ("OTEL_TRACES_EXPORTER", "none")], None);
        check(
            None,
            &[all, ("OTEL_TRACES_EXPORTER", "console, otlp")],
            Some("http://all:4318/v1/traces"),
        );
    }

    #[test]
    fn a_wrong_setting_is_named_without_its_value() {
        let given = Some("http://user:secret@h:1");
        assert_eq!(read(given, &[]).unwrap().unwrap().host, "h:1");
        for (endpoint, name, value) in [
            (Some("localhost:4318"), "", ""),
            (Some("ftp://secret"), "", ""),
            (given, "OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            (given, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a b=secret"),
            (given, "OTEL_EXPORTER_OTLP_TIMEOUT", "secret"),
        ] {
            let message = read(endpoint, &[(name, value)]).err().unwrap().to_string();
            let name = if name.is_empty() { "--otlp-endpoint" } else { name };
            assert!(message.starts_with(name) && !message.contains("secret"), "{message}");
        }
        let missing = read(given, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nothing.pem")]);
        assert!(missing.err().unwrap().to_string().contains("/nothing.pem: "));
    }

    #[test]
    fn headers_are_decoded() {
        let expected = [("a", "b c"), ("authorization", "Bearer x=y")];
        let expected = expected.map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value))
        });
        assert_eq!(headers("a=b%20c , Authorization=Bearer x=y,").unwrap(), expected);
    }
}
