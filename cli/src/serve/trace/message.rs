//! Encodes spans as OTLP's protobuf message `ExportTraceServiceRequest`.
//!
//! Source: `opentelemetry/proto/trace/v1/trace.proto` and those that it imports, version 1.9; the
//! encoding of <https://protobuf.dev/programming-guides/encoding/>.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, SpanId, SpanKind, Status};
use opentelemetry::{Array, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;
/// Bits of `SpanFlags`: whether it is known that the parent is in another process, and whether it
/// is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The message for spans of one tracer.
pub(super) fn export_request(spans: &[SpanData], resource: &Resource) -> Vec<u8> {
    let mut scope_spans = Message::default();
    if let Some(span) = spans.first() {
        let scope = &span.instrumentation_scope;
        let mut message = Message::default();
        message.text(1, scope.name());
        message.text(2, scope.version().unwrap_or_default());
        scope_spans.message(1, &message);
        scope_spans.text(3, scope.schema_url().unwrap_or_default());
    }
    for span in spans {
        scope_spans.message(2, &span_message(span));
    }
    let mut attributes = Message::default();
    for (key, value) in resource.iter() {
        attributes.message(1, &key_value(key.as_str(), value));
    }
    let mut resource_spans = Message::default();
    resource_spans.message(1, &attributes);
    resource_spans.message(2, &scope_spans);
    let mut request = Message::default();
    request.message(1, &resource_spans);
    request.0
}

fn span_message(span: &SpanData) -> Message {
    let context = &span.span_context;
    let mut message = Message::default();
    message.bytes(1, &context.trace_id().to_bytes());
    message.bytes(2, &context.span_id().to_bytes());
    message.text(3, &context.trace_state().header());
    if span.parent_span_id != SpanId::INVALID {
        message.bytes(4, &span.parent_span_id.to_bytes());
    }
    message.text(5, &span.name);
    message.varint(6, kind(&span.span_kind));
    message.fixed64(7, nanoseconds(span.start_time));
    message.fixed64(8, nanoseconds(span.end_time));
    message.attributes(9, &span.attributes);
    message.varint(10, span.dropped_attributes_count.into());
    for event in &span.events.events {
        message.message(11, &event_message(event));
    }
    message.varint(12, span.events.dropped_count.into());
    message.message(15, &status(&span.status));
    let remote = if span.parent_span_is_remote { IS_REMOTE } else { 0 };
    message.fixed32(16, u32::from(context.trace_flags().to_u8()) | HAS_IS_REMOTE | remote);
    message
}

fn event_message(event: &Event) -> Message {
    let mut message = Message::default();
    message.fixed64(1, nanoseconds(event.timestamp));
    message.text(2, &event.name);
    message.attributes(3, &event.attributes);
    message
}

fn kind(kind: &SpanKind) -> u64 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

fn status(status: &Status) -> Message {
    let mut message = Message::default();
    let code = match status {
        Status::Unset => 0,
        Status::Ok => 1,
        Status::Error { description } => {
            message.text(2, description);
            2
        }
    };
    message.varint(3, code);
    message
}

fn key_value(key: &str, value: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, key);
    message.message(2, &any_value(value));
    message
}

fn any_value(value: &Value) -> Message {
    let mut message = Message::default();
    match value {
        Value::String(text) => message.text(1, text.as_str()),
        Value::Bool(value) => message.varint(2, (*value).into()),
        // A negative number takes ten bytes.
        Value::I64(number) => message.varint(3, number.cast_unsigned()),
        Value::F64(number) => message.fixed64(4, number.to_bits()),
        Value::Array(array) => message.message(5, &array_value(array)),
        // The enum has further variants, which this program never creates.
        other => message.text(1, &other.as_str()),
    }
    message
}

fn array_value(array: &Array) -> Message {
    let values: Vec<Value> = match array {
        Array::Bool(values) => values.iter().copied().map(Value::Bool).collect(),
        Array::I64(values) => values.iter().copied().map(Value::I64).collect(),
        Array::F64(values) => values.iter().copied().map(Value::F64).collect(),
        Array::String(values) => values.iter().cloned().map(Value::String).collect(),
        _ => Vec::new(),
    };
    let mut message = Message::default();
    for value in &values {
        message.message(1, &any_value(value));
    }
    message
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A message, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn tag(&mut self, field: u64, wire_type: u64) {
        self.number(field << 3 | wire_type);
    }

    /// Encodes a varint: seven bits per byte, lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn varint(&mut self, field: u64, number: u64) {
        self.tag(field, VARINT);
        self.number(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.tag(field, FIXED64);
        self.0.extend(number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.tag(field, FIXED32);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn attributes(&mut self, field: u64, attributes: &[KeyValue]) {
        for attribute in attributes {
            self.message(field, &key_value(attribute.key.as_str(), &attribute.value));
        }
    }
}
