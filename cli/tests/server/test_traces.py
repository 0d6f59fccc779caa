"""Tests traces of `llb serve` as a collector receives them."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import threading
import time
import urllib.request
from typing import Any, Dict, Iterator, List

import pytest
from conftest import EXPECTED, HANGS, MODELS, SHIFT, TOOLS, Server
from test_http import COMPLETIONS, endless, open_request

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
Status = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2").Status

SECRET = "secret-prompt"
MESSAGES = [{"role": "user", "content": SECRET}]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}


class Collector:
    """Keeps what is posted to it. `statuses` are those of the next responses, then 200."""

    def __init__(self, listens: bool = True) -> None:
        """Connections to its port are refused until it listens."""
        self.bodies: List[bytes] = []
        self.headers: List[Dict[str, str]] = []
        self.paths: List[str] = []
        self.statuses: List[int] = []
        self._came = threading.Condition()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = collector.statuses.pop(0) if collector.statuses else 200
                with collector._came:
                    collector.headers.append(dict(self.headers))
                    collector.paths.append(self.path)
                    if status == 200:
                        collector.bodies.append(body)
                    collector._came.notify_all()
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, False)
        self._server.daemon_threads = True
        self._server.server_bind()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if listens:
            self.listen()

    def listen(self) -> None:
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def requests(self) -> List[Any]:
        return [trace_service.ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    def spans(self) -> List[Any]:
        return [
            span
            for request in self.requests()
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait_for(self, count: int, name: str = "chat") -> List[Any]:
        """Waits for `count` spans whose names begin with an operation."""
        with self._came:
            found = lambda: [span for span in self.spans() if span.name.startswith(name)]
            assert self._came.wait_for(lambda: len(found()) >= count, HANGS), self.spans()
            return found()


def value(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(each) for each in any_value.array_value.values]
    return getattr(any_value, kind)


def attributes(message: Any) -> Dict[str, Any]:
    found = {each.key: value(each.value) for each in message.attributes}
    assert len(found) == len(message.attributes)
    return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


@pytest.fixture
def server(collector: Collector) -> Iterator[Server]:
    models = [str(MODELS / f"{name}.gguf") for name in ["text", "tool_call", "reasoning"]]
    embedding = ["--embedding", str(MODELS / "embedding.gguf")]
    more = [*SHIFT, "--otlp-endpoint", collector.url]
    running = Server(*models, *embedding, *more, env=SOON)
    yield running
    running.stop(signal.SIGKILL)


def test_a_chat_is_a_span(server: Server, collector: Collector) -> None:
    request = {
        "model": "text",
        "messages": MESSAGES,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "seed": 11,
        "max_tokens": 50,
        "frequency_penalty": 0.25,
        "presence_penalty": -1,
    }
    usage = server.post(COMPLETIONS, request)[1]["usage"]
    [span] = collector.wait_for(1)
    assert span.name == "chat text" and span.kind == span.SPAN_KIND_SERVER
    assert len(span.trace_id) == 16 and len(span.span_id) == 8 and span.parent_span_id == b""
    assert 0 < span.start_time_unix_nano < span.end_time_unix_nano
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes(span) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llb",
        "gen_ai.request.model": "text",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 7.0,
        "gen_ai.request.seed": 11,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.frequency_penalty": 0.25,
        "gen_ai.request.presence_penalty": -1.0,
        "gen_ai.response.model": "text",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
    }
    [event] = span.events
    assert event.name == "first_token"
    assert span.start_time_unix_nano < event.time_unix_nano < span.end_time_unix_nano
    [queue] = collector.wait_for(1, "queue")
    assert (queue.trace_id, queue.parent_span_id) == (span.trace_id, span.span_id)
    assert queue.kind == queue.SPAN_KIND_INTERNAL
    assert attributes(queue) == {"llb.model.loaded": True}
    times = [span.start_time_unix_nano, queue.start_time_unix_nano, queue.end_time_unix_nano]
    assert times == sorted(times) and times[2] < event.time_unix_nano
    [resource] = {
        json.dumps(attributes(each.resource), sort_keys=True)
        for request in collector.requests()
        for each in request.resource_spans
    }
    assert json.loads(resource)["service.name"] == "llb"
    scope = collector.requests()[0].resource_spans[0].scope_spans[0]
    assert scope.scope.name == "llb" and scope.scope.version
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.headers[0]["content-type"] == "application/x-protobuf"


def test_all_protocols_and_streams(server: Server, collector: Collector) -> None:
    reasoning = {"model": "reasoning", "max_tokens": 90, "stream": True}
    requests = [
        (COMPLETIONS, {**reasoning, "messages": MESSAGES}),
        ("/v1/messages", {**reasoning, "messages": MESSAGES}),
        (
            "/v1/responses",
            {"model": "reasoning", "input": SECRET, "max_output_tokens": 90, "stream": True},
        ),
    ]
    for count, (route, request) in enumerate(requests, 1):
        with urllib.request.urlopen(
            urllib.request.Request(server.url + route, json.dumps(request).encode()), timeout=HANGS
        ) as stream:
            stream.read()
        found = attributes(collector.wait_for(count)[-1])
        assert found["http.route"] == route
        assert found["gen_ai.request.stream"] is True
        assert 0 < found["gen_ai.response.time_to_first_chunk"] < 60
        assert found["gen_ai.request.max_tokens"] == 90
        assert found["gen_ai.usage.reasoning.output_tokens"] > 0
        assert found["gen_ai.response.finish_reasons"] == ["stop"]
    # The first request has loaded the model.
    queues = collector.wait_for(3, "queue")
    assert [attributes(queue)["llb.model.loaded"] for queue in queues] == [False, True, True]
    tools = {"model": "tool_call", "messages": MESSAGES, "tools": TOOLS, "tool_choice": "required"}
    server.post(COMPLETIONS, tools)
    found = attributes(collector.wait_for(4)[-1])
    assert found["gen_ai.response.finish_reasons"] == ["tool_calls"]
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": {"const": 1}}}
    server.post(COMPLETIONS, {"model": "text", "messages": MESSAGES, "response_format": form})
    assert attributes(collector.wait_for(5)[-1])["gen_ai.output.type"] == "json"


def test_embeddings(collector: Collector) -> None:
    model = str(MODELS / "embedding.gguf")
    server = Server("--embedding", model, "--otlp-endpoint", collector.url, env=SOON)
    request = {"model": "embedding", "input": [SECRET], "encoding_format": "base64"}
    reply = server.post("/v1/embeddings", request)[1]
    [span] = collector.wait_for(1, "embeddings")
    found = attributes(span)
    assert span.name == "embeddings embedding" and "error.type" not in found
    assert found["gen_ai.operation.name"] == "embeddings"
    assert found["gen_ai.usage.input_tokens"] == reply["usage"]["prompt_tokens"]
    assert server.stop() == 0


def test_a_span_belongs_to_the_trace_of_its_client(server: Server, collector: Collector) -> None:
    request = {"model": "text", "messages": MESSAGES}
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    # The client does not sample this trace.
    server.post(COMPLETIONS, request, {"traceparent": f"00-{TRACE[::-1]}-{PARENT}-00"})
    for count, changed in enumerate([{}, {"traceparent": "nonsense"}], 1):
        server.post(COMPLETIONS, request, {**headers, **changed})
        span = collector.wait_for(count)[-1]
        belongs = span.trace_id.hex() == TRACE
        assert belongs == (not changed) == (span.parent_span_id.hex() == PARENT)
        assert belongs == (span.trace_state == "vendor=1")
        # Sampled, and the parent is known to be in another process.
        assert span.flags & 0x301 == (0x301 if belongs else 0x101)
    assert len(collector.wait_for(2)) == 2


def test_errors_have_their_type(server: Server, collector: Collector) -> None:
    long = [{"role": "user", "content": "x " * 100_000}]
    cases = [
        ({"model": "none", "messages": MESSAGES}, "chat", "model_not_found", 404),
        ({"model": "text", "messages": MESSAGES, "n": 0}, "chat", "400", 400),
        ({"model": "text", "messages": long}, "chat text", "context_length_exceeded", 400),
    ]
    for count, (request, name, error, status) in enumerate(cases, 1):
        assert server.post(COMPLETIONS, request)[0] == status
        span = collector.wait_for(count)[-1]
        found = attributes(span)
        assert (span.name, found["error.type"]) == (name, error)
        assert found["http.response.status_code"] == status
        # As required by the convention for servers.
        assert span.status.code == Status.STATUS_CODE_UNSET
    # These requests need no model.
    server.get("/health")
    server.get("/metrics")
    server.post("/tokenize", {"model": "text", "content": SECRET})
    with open_request(server, endless(model="text", stream=True)) as connection:
        assert b"200 OK" in connection.recv(20)
    span = collector.wait_for(4)[-1]
    assert attributes(span)["error.type"] == "cancelled"
    assert len(collector.wait_for(4)) == 4


def test_texts_are_in_no_span(server: Server, collector: Collector) -> None:
    request = {
        "model": "tool_call",
        "messages": MESSAGES,
        "tools": TOOLS,
        "stop": ["secret-stop"],
        "user": "secret-user",
        "metadata": {"secret-key": "secret-value"},
        "seed": "secret-seed",
    }
    headers = {"baggage": "secret-baggage=1"}
    server.post(COMPLETIONS, request, headers)
    del request["seed"]
    server.post(COMPLETIONS, request, headers)
    server.post(COMPLETIONS, {**request, "model": "secret-model"})
    server.post(COMPLETIONS, {"model": "text", "messages": MESSAGES})
    collector.wait_for(4)
    sent = b"".join(collector.bodies)
    for text in ["secret", "get_weather", "Paris", EXPECTED["text"][:8]]:
        assert text.encode() not in sent


def test_a_collector_that_is_down_disturbs_nothing() -> None:
    collector = Collector(listens=False)
    env = {**SOON, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    server = Server(str(MODELS / "text.gguf"), env=env)
    request = {"model": "text", "messages": MESSAGES}

    def until(text: str) -> None:
        """Sends requests until a line appears."""
        end = time.monotonic() + HANGS
        while not any(text in line for line in server.log):
            assert time.monotonic() < end, server.log
            status, reply, _ = server.post(COMPLETIONS, request)
            assert status == 200
            assert reply["choices"][0]["message"]["content"] == EXPECTED["text"]
            time.sleep(0.05)

    until("traces do not reach")
    # The first status is retried, the second is not.
    collector.statuses = [503, 400]
    collector.listen()
    until("traces reach")
    collector.wait_for(1)
    assert server.stop() == 0
    lines = [line for line in server.log if " traces " in line and "go to" not in line]
    assert len(lines) == 2, lines
    collector.close()


def test_the_last_spans_are_sent_before_the_end(collector: Collector) -> None:
    env = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.url + "/other",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20key",
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    server = Server(str(MODELS / "text.gguf"), env=env)
    assert server.post(COMPLETIONS, {"messages": MESSAGES})[0] == 200
    assert collector.bodies == []
    assert server.stop() == 0
    [span] = collector.wait_for(1)
    assert collector.paths == ["/other"]
    assert collector.headers[0]["authorization"] == "Bearer key"
    resource = attributes(collector.requests()[0].resource_spans[0].resource)
    assert resource["service.name"] == "mine"
    assert resource["deployment.environment.name"] == "test"
    assert "Bearer" not in "".join(server.log)


def test_a_collector_that_hangs_does_not_keep_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        server = Server(str(MODELS / "text.gguf"), "--otlp-endpoint", url, env=SOON)
        for _ in range(3):
            assert server.post(COMPLETIONS, {"messages": MESSAGES})[0] == 200
        assert server.stop() == 0
