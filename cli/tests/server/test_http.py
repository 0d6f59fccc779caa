"""What the server does with hostile requests, clients that leave, and too many of them."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading


import pytest
from conftest import ENDLESS, EXPECTED, MODELS, Server

COMPLETIONS = "/v1/chat/completions"
GOOD = {"model": "text", "messages": [{"role": "user", "content": "secret-prompt"}]}
WRONG = [None, True, -1, 1e300, "x", "\x00", [], [1], {}, {"a": 1}]


def head(path: str = COMPLETIONS, **headers: object) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def check(answer: bytes, status: int) -> None:
    """An answer with this status and an error in OpenAI's shape."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    error = json.loads(body)["error"]
    assert error["message"] and error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{} {}",
        b'{"model": "text", "messages": "\xff"}',
        b'{"model": "text", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"a":' * 50_000,
        b"[" * 1_000_000,
        b'{"a": [' + b"0," * 1_500_000 + b"0]}",
    ],
)
def test_wrong_bodies(server: Server, body: bytes) -> None:
    check(server.raw(head(content_length=len(body)) + body), 400)


def test_wrong_types_in_every_field(server: Server) -> None:
    fields = (
        "model messages tools tool_choice parallel_tool_calls response_format max_tokens stream n "
        "max_completion_tokens temperature top_k top_p min_p stop seed logit_bias logprobs "
        "top_logprobs stream_options presence_penalty frequency_penalty enable_thinking functions "
        "reasoning_effort chat_template_kwargs modalities timeout_ms grammar polyfills now samplers"
    ).split()
    for field in fields:
        for value in WRONG:
            request = {**GOOD, "max_tokens": 1, field: value}
            if request.get("stream") is True:
                continue
            status, reply, _ = server.post(COMPLETIONS, request)
            if status == 200:
                assert reply["object"] == "chat.completion"
            else:
                assert status in (400, 404), (field, value, reply)
                assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert server.post(COMPLETIONS, GOOD)[0] == 200


def test_bad_http(server: Server) -> None:
    check(server.raw(b"GARBAGE\r\n\r\n"), 400)
    check(server.raw(b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 200_000 + b"\r\n\r\n"), 431)
    check(server.raw(b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n"), 431)
    check(server.raw(head(transfer_encoding="chunked") + b"nonsense\r\n"), 400)
    check(server.raw(head(content_length=10**9)), 413)
    check(server.raw(head(content_length=10**30)), 400)


def test_other_sites_are_refused(server: Server) -> None:
    for headers in [{"Origin": "https://example.org"}, {"Host": "example.org"}]:
        status, reply, _ = server.post(COMPLETIONS, GOOD, headers)
        assert (status, reply["error"]["type"]) == (403, "permission_error")
    assert server.post(COMPLETIONS, GOOD, {"Origin": server.url})[0] == 200


def test_slow_headers() -> None:
    server = Server(str(MODELS / "text.gguf"), "--read-timeout", "1")
    try:
        check(server.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local"), 408)
        check(server.raw(head(content_length=10) + b"{"), 408)
    finally:
        assert server.stop() == 0


@pytest.fixture(scope="module")
def narrow():
    """One request at a time, one in the queue, and room for endless replies."""
    model = str(MODELS / "long.gguf")
    server = Server(model, "--parallel", "1", "--queue", "1", "--n-ctx", "32768")
    yield server
    server.stop(signal.SIGKILL)


def endless(**more: object) -> dict:
    return {"messages": GOOD["messages"], **ENDLESS, **more}


def open_request(server: Server, request: dict) -> socket.socket:
    body = json.dumps(request).encode()
    connection = socket.create_connection(server.address, timeout=60)
    connection.sendall(head(content_length=len(body)) + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_request(narrow: Server, stream: bool) -> None:
    before = narrow.metric("llb_completion_tokens_total")
    connection = open_request(narrow, endless(stream=stream))
    if stream:
        assert b"200 OK" in connection.recv(20)
    else:
        narrow.wait_for("llb_requests_running", 1)
    connection.close()
    narrow.wait_for("llb_requests_running", 0)
    generated = narrow.metric("llb_completion_tokens_total") - before
    assert generated < ENDLESS["max_tokens"] / 2


def test_a_full_queue_is_429(narrow: Server) -> None:
    running = open_request(narrow, endless())
    narrow.wait_for("llb_requests_running", 1)
    waiting = open_request(narrow, endless())
    narrow.wait_for("llb_requests_waiting", 1)
    status, reply, headers = narrow.post(COMPLETIONS, endless())
    assert (status, reply["error"]["type"]) == (429, "rate_limit_error")
    assert int({name.lower(): value for name, value in headers.items()}["retry-after"]) >= 1
    # One that waits and leaves runs never.
    waiting.close()
    narrow.wait_for("llb_requests_waiting", 0)
    running.close()
    narrow.wait_for("llb_requests_running", 0)
    assert narrow.post(COMPLETIONS, {"messages": GOOD["messages"]})[0] == 200


def test_a_timeout_ends_a_request(narrow: Server) -> None:
    status, reply, _ = narrow.post(COMPLETIONS, endless(timeout_ms=300))
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "length")


def test_requests_run_at_the_same_time() -> None:
    """One without max_tokens leaves room for others."""
    server = Server(str(MODELS / "long.gguf"), "--parallel", "2", "--n-ctx", "32768")
    body = {"messages": GOOD["messages"]}
    endless_one = open_request(server, {**body, "grammar": ENDLESS["grammar"], "stream": True})
    assert b"200 OK" in endless_one.recv(20)
    reply = server.post(COMPLETIONS, {**body, "max_tokens": 8000})[1]
    assert reply["choices"][0]["message"]["content"] == EXPECTED["long"]
    assert server.metric("llb_requests_running") == 1
    endless_one.close()
    assert server.stop() == 0


def test_stopping_lets_requests_finish() -> None:
    server = Server(str(MODELS / "long.gguf"))
    replies = []
    body = {**GOOD, "model": "long", "max_tokens": 400}
    thread = threading.Thread(target=lambda: replies.append(server.post(COMPLETIONS, body)))
    thread.start()
    while server.metric("llb_requests_running") == 0 and not replies:
        pass
    assert server.stop() == 0
    thread.join()
    assert replies[0][1]["choices"][0]["message"]["content"] == EXPECTED["long"]


def test_stopping_cuts_off_endless_requests() -> None:
    server = Server(str(MODELS / "long.gguf"), "--grace", "1", "--n-ctx", "32768")
    connection = open_request(server, endless(stream=True))
    assert b"200 OK" in connection.recv(20)
    assert server.stop() == 0
    connection.close()


def test_many_clients_with_disconnects(server: Server) -> None:
    """Every reply is whole, and in the end nothing runs."""
    failures = []
    random.seed(1)
    plans = [[random.random() < 0.3 for _ in range(4)] for _ in range(50)]

    def client(leaves: list) -> None:
        for leave in leaves:
            request = {**GOOD, "model": "long", "max_tokens": 400, "stream": leave}
            try:
                if leave:
                    connection = open_request(server, request)
                    connection.recv(random.randrange(1, 400))
                    connection.close()
                    continue
                status, reply, _ = server.post(COMPLETIONS, request)
                if reply["choices"][0]["message"]["content"] != EXPECTED["long"]:
                    failures.append(reply)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=client, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    server.wait_for("llb_requests_running", 0)
    server.wait_for("llb_requests_waiting", 0)


def test_status_pages(server: Server) -> None:
    props = json.loads(server.get("/props"))
    assert {model["id"] for model in props["models"]} >= {"text", "long"}
    assert props["models"][0]["evidence"]["supports_tools"]["status"] == "yes"
    metrics = server.get("/metrics")
    for line in metrics.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
    assert 'llb_http_request_seconds_bucket{le="+Inf"}' in metrics
