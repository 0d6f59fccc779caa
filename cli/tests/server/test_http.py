"""Tests hostile requests, clients that leave, and too many clients."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import signal
import socket
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ENDLESS, EXPECTED, HANGS, MODELS, SHIFT, TOOLS, Server, is_error

COMPLETIONS = "/v1/chat/completions"
GOOD = {"model": "text", "messages": [{"role": "user", "content": "secret-prompt"}]}
WRONG = [None, True, -1, 1e300, "x", "\x00", [], [1], {}, {"a": 1}]


POSTS = """/v1/chat/completions /v1/embeddings /v1/rerank /tokenize /detokenize /v1/explain
    /v1/messages /v1/messages/count_tokens /v1/responses /v1/template""".split()


def head(path: str = COMPLETIONS, method: str = "POST", **headers: object) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def check(answer: bytes, status: int, route: str = COMPLETIONS) -> None:
    """Checks that an answer has this status and an error in the shape of the route's protocol."""
    top, _, body = answer.partition(b"\r\n\r\n")
    assert top.startswith(f"HTTP/1.1 {status} ".encode()), (route, answer[:300])
    reply = json.loads(body)
    assert is_error(route, reply) and reply["error"]["message"], (route, reply)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{} {}",
        b'\xef\xbb\xbf{"model": "text"}',
        b'{"model": "text", "messages": "\xff"}',
        b'{"model": "text", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "text", "messages": NaN}',
        b'{"a":' * 50_000,
        b"[" * 1_000_000,
        b'{"a": [' + b"0," * 1_500_000 + b"0]}",
    ],
)
def test_wrong_bodies(server: Server, body: bytes) -> None:
    for route in POSTS:
        check(server.raw(head(route, content_length=len(body)) + body), 400, route)


def test_wrong_requests_of_every_route(server: Server) -> None:
    """Requests with a fault in the head, or in the way that the body is sent."""
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    for route in POSTS:
        for status, data in [
            (400, head(route, transfer_encoding="chunked") + b"nonsense\r\n"),
            (413, head(route, transfer_encoding="chunked") + chunk * 5 + b"0\r\n\r\n"),
            (413, head(route, content_length=10**9)),
            (400, head(route, content_length=10**30)),
            (400, head(route, content_length=2, **{"Content-Length": 3}) + b"{}"),
            (415, head(route, content_length=2, content_encoding="gzip") + b"{}"),
            (403, head(route, content_length=2, origin="https://example.org") + b"{}"),
            (431, head(route, padding="b" * 200_000)),
        ]:
            check(server.raw(data), status, route)
        for method in ["GET", "PUT", "OPTIONS", "OTHER"]:
            answer = server.raw(head(route, method))
            check(answer, 405, route)
            assert b"\r\nallow: POST\r\n" in answer


def test_a_refused_body_may_be_sent_to_its_end(server: Server) -> None:
    """Clients that send all of a body before they read find the response, and no reset connection."""
    size = 64 << 20
    for status, data in [
        (413, head(content_length=size)),
        (403, head(content_length=size, origin="https://example.org")),
        (405, head(method="PUT", content_length=size)),
    ]:
        with socket.create_connection(server.address, timeout=HANGS) as connection:
            connection.sendall(data)
            for _ in range(size >> 20):
                connection.sendall(b" " * (1 << 20))
            check(b"".join(iter(lambda: connection.recv(65536), b"")), status)


def test_wrong_request_lines(server: Server) -> None:
    """Requests that never reach a handler."""
    end = b"\r\nhost: localhost\r\n\r\n"
    for route in POSTS:
        path = route.encode()
        for line in [
            b"POST " + path,
            b"POST  " + path + b" HTTP/1.1",
            b"POST\t" + path + b"\tHTTP/1.1",
            b"POST " + path + b" HTTP/9.9",
            b"POST " + path + b" HTTP/1.1 x",
            b"POST " + path + b"/\0 HTTP/1.1",
            b"POST " + path + b"/\xff HTTP/1.1",
            b"POST " + path + b" HTTP/1.1\r\nno header",
            b"\r\nPOST http://localhost" + path + b" HTTP/1.1\r\n: x",
            b"P(ST " + path + b" HTTP/1.1",
            b"M" * 200 + b" " + path + b" HTTP/9.9",
            path + b" HTTP/1.1",
        ]:
            check(server.raw(line + end), 400, route)
        # The client sends no more, but reads.
        with socket.create_connection(server.address, timeout=HANGS) as connection:
            connection.sendall(head(route)[:-10])
            connection.shutdown(socket.SHUT_WR)
            check(b"".join(iter(lambda: connection.recv(65536), b"")), 400, route)
        # The URL of a request through a proxy.
        answer = server.raw(head("http://localhost" + route, content_length=2) + b"[]")
        check(answer, 400, route)


def test_wrong_paths(server: Server) -> None:
    for status, path in [
        (400, "/v1/models/%ff"),
        (404, "/v1/models/a%00b"),
        (400, "/v1/responses/%ff"),
        (404, "/v1/responses/none"),
        (404, "/v1/messages/none"),
        (404, "/v1/messages/"),
        (404, "/v1/messages/%ff"),
        (404, "/v1/messages/count_tokens/x?y=z"),
        (404, "/v1/messagess"),
        (404, "/v1/" + "a" * 30_000),
        (404, "//"),
        (404, "*"),
    ]:
        check(server.raw(head(path, "GET")), status, path)


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


def test_http_2(server: Server) -> None:
    """A client that expects HTTP/2 without negotiation gets an answer that it can show."""
    settings = b"\0\0\0\4\0\0\0\0\0"
    answer = server.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
    check(answer, 400)
    assert b"HTTP/1.1" in answer.partition(b"\r\n\r\n")[2]


def test_a_wrong_key_of_every_route() -> None:
    server = Server(str(MODELS / "text.gguf"), env={"LLB_API_KEY": "k"})
    for route in [*POSTS, "/v1/messages/none", "/none"]:
        for headers in [{}, {"authorization": "Bearer x"}, {"x_api_key": "x"}]:
            answer = server.raw(head(route, content_length=2, **headers) + b"{}")
            check(answer, 401, route)
    assert server.stop() == 0


def test_other_sites_are_refused(server: Server) -> None:
    for headers in [{"Origin": "https://example.org"}, {"Host": "example.org"}]:
        for route in POSTS:
            status, reply, _ = server.post(route, GOOD, headers)
            assert (status, reply["error"]["type"]) == (403, "permission_error")
            assert is_error(route, reply), (route, reply)
    assert server.post(COMPLETIONS, GOOD, {"Origin": server.url})[0] == 200


def test_wrong_hosts_are_refused(server: Server) -> None:
    """A request has one host, and at most one origin. Bytes beyond ASCII are not an absent header."""
    start = b"GET /health HTTP/1.1\r\nconnection: close\r\n"
    local, other = b"host: localhost\r\n", b"host: example.org\r\n"
    for status, lines in [
        (400, b""),
        (400, local + local),
        (400, local + other),
        (400, b"host: \xe9\r\n"),
        (400, b"host: localhost\xff\r\n"),
        (400, b"host: \r\n"),
        (403, other),
        (403, local + b"origin: \xe9\r\n"),
        (403, local + b"origin: http://\xe9.org\r\n"),
        (403, local + b"origin: http://localhost\r\norigin: http://example.org\r\n"),
    ]:
        check(server.raw(start + lines + b"\r\n"), status)
    assert server.raw(start + local + b"\r\n").startswith(b"HTTP/1.1 200 ")
    # HTTP/1.0 needs no host.
    assert b" 200 " in server.raw(b"GET /health HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    absolute = start.replace(b"/health", b"http://example.org/health")
    check(server.raw(absolute + local + b"\r\n"), 403)


def test_named_sites_are_permitted() -> None:
    site, key = "https://example.org", {"Authorization": "Bearer k"}
    options = ["--allow-origin", site, "--cors-origin", "http://localhost:3000"]
    server = Server(str(MODELS / "text.gguf"), *options, env={"LLB_API_KEY": "k"})

    def permitted(headers: dict) -> object:
        names = {name.lower(): value for name, value in headers.items()}
        return names.get("access-control-allow-origin")

    # The question of a browser has no key.
    wanted = {"access_control_request_method": "POST", "access_control_request_headers": "x-a, b"}
    answer = server.raw(head(COMPLETIONS, "OPTIONS", origin=site, **wanted)).decode()
    assert answer.startswith("HTTP/1.1 204 ")
    for line in [f"allow-origin: {site}", "allow-headers: x-a, b", "allow-methods: GET, POST"]:
        assert f"\r\naccess-control-{line}" in answer
    other = server.raw(head(COMPLETIONS, "OPTIONS", origin="https://other.org", **wanted))
    assert other.startswith(b"HTTP/1.1 403 ") and b"access-control" not in other
    for request, headers, status in [
        (GOOD, key, 200),
        ({**GOOD, "messages": []}, key, 400),
        (GOOD, {}, 401),
    ]:
        got, _, answer = server.post(COMPLETIONS, request, {"Origin": site, **headers})
        assert (got, permitted(answer)) == (status, site)
    got, _, answer = server.post(COMPLETIONS, GOOD, {"Origin": "https://other.org", **key})
    assert (got, permitted(answer)) == (403, None)
    got, _, answer = server.post(COMPLETIONS, GOOD, key)
    assert (got, permitted(answer)) == (200, None)
    # Another name for this machine is no origin.
    assert server.post(COMPLETIONS, GOOD, {"Origin": site, "Host": "example.org", **key})[0] == 403
    assert server.stop() == 0


def test_what_is_refused_names_the_option() -> None:
    app, web = "app://obsidian.md", "https://example.org"
    options = ["--allow-origin", "local", "--allow-host", "llb.example.org"]
    server = Server(f"one,two={MODELS / 'text.gguf'}", *options)
    for origin in [app, "vscode-webview://1abc", "http://localhost:5173", "http://127.0.0.1:1"]:
        assert server.post(COMPLETIONS, GOOD, {"Origin": origin})[0] == 200, origin
    status, reply, _ = server.post(COMPLETIONS, GOOD, {"Origin": web})
    assert (status, f"--allow-origin {web}" in reply["error"]["message"]) == (403, True)
    assert server.post(COMPLETIONS, GOOD, {"Host": "llb.example.org:80"})[0] == 200
    status, reply, _ = server.post(COMPLETIONS, GOOD, {"Host": "a.example.org:80"})
    assert (status, "--allow-host a.example.org" in reply["error"]["message"]) == (403, True)
    # A model has all its names, and replies have the first.
    for name in ("one", "two"):
        assert server.post(COMPLETIONS, {**GOOD, "model": name})[1]["model"] == "one"
        assert json.loads(server.get(f"/models/{name}"))["aliases"] == ["two"]
    assert server.stop() == 0


def test_paths_without_a_version(server: Server) -> None:
    for route in POSTS:
        short = route.removeprefix("/v1")
        good, bad = server.post(route, {})[:2], server.post(short, {})[:2]
        assert good == bad and is_error(route, bad[1]), route
    assert server.post("/chat/completions", GOOD)[0] == 200
    assert server.get("/models") == server.get("/v1/models")
    assert server.get("/metrics").count("route=\"/chat") == 0, "the route has one name"


def test_ignored_members_are_named(server: Server) -> None:
    reply = server.post(COMPLETIONS, {**GOOD, "colour": 1, "store": False})[1]
    assert reply["ignored_keys"] == ["colour", "store"]
    assert "ignored_keys" not in server.post(COMPLETIONS, GOOD)[1]
    body = json.dumps({**GOOD, "colour": 1, "stream": True}).encode()
    events = server.raw(head(COMPLETIONS, content_length=len(body)) + body)
    last = [line for line in events.split(b"\n") if b'"finish_reason":"' in line]
    assert [json.loads(line[6:])["ignored_keys"] for line in last] == [["colour"]]


def test_members_of_no_protocol_are_the_librarys(server: Server) -> None:
    question = {"model": "text", "input": "hi"}
    for route, request in (("/v1/responses", question), ("/v1/messages", GOOD)):
        status, reply = server.post(route, {**request, "max_tokens": 2, "colour": 1})[:2]
        assert (status, reply["ignored_keys"]) == (200, ["colour"])
        assert reply["usage"]["output_tokens"] == 2, "max_tokens is known"
        status, reply = server.post(route, {**request, "max_tokens": 2, "min_p": "x"})[:2]
        assert status == 400 and "min_p" in json.dumps(reply)
    for name, value in (("tool_choice", "any tool"), ("top_logprobs", -1)):
        status, reply = server.post("/v1/responses", {**question, name: value})[:2]
        assert (status, reply["error"]["param"]) == (400, name)


def test_replies_name_the_polyfills_that_ran(server: Server) -> None:
    request = {**GOOD, "model": "no_tools", "tools": TOOLS}
    assert server.post(COMPLETIONS, request)[1]["polyfills_applied"] == ["tools"]
    assert "polyfills_applied" not in server.post(COMPLETIONS, GOOD)[1]
    body = json.dumps({**request, "stream": True, "stream_options": {"include_usage": True}})
    lines = urllib.request.urlopen(server.url + COMPLETIONS, body.encode()).read().splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    named = [chunk["polyfills_applied"] for chunk in chunks if "polyfills_applied" in chunk]
    assert named == [["tools"]]


def test_slow_headers() -> None:
    server = Server(str(MODELS / "text.gguf"), "--read-timeout", "3")
    answers = []
    try:
        # All at the same time, because each waits for three seconds.
        with ThreadPoolExecutor(2 * len(POSTS)) as threads:
            for route in POSTS:
                start = f"POST {route} HTTP/1.1\r\nhost: local".encode()
                body = head(route, content_length=10) + b"{"
                for data in (start, body):
                    answers.append((route, threads.submit(server.raw, data)))
        for route, answer in answers:
            check(answer.result(), 408, route)
    finally:
        assert server.stop() == 0


def test_an_idle_connection_is_closed_without_a_response() -> None:
    server = Server(str(MODELS / "text.gguf"), "--read-timeout", "3")
    connect = lambda: socket.create_connection(server.address, timeout=HANGS)  # noqa: E731
    with connect() as used, connect() as unused:
        used.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: used.recv(1000), b""))
        assert unused.recv(1000) == b""
        assert answer.count(b"HTTP/1.1") == 1 and b" 200 OK\r\n" in answer
    assert server.stop() == 0


def get_health(connection: socket.socket) -> None:
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_few_file_descriptors() -> None:
    """Connections for which there is no descriptor wait; an idle one is closed for them."""
    limits = {resource.RLIMIT_NOFILE: 160}
    server = Server(str(MODELS / "text.gguf"), limits=limits)
    connections = []
    for _ in range(120):
        connections.append(socket.create_connection(server.address, timeout=HANGS))
        get_health(connections[-1])
    # The last ones are still open.
    for connection in connections[-10:]:
        get_health(connection)
        connection.close()
    assert server.stop() == 0
    assert any("connections, because the process may not open more" in line for line in server.log)


def test_idle_connections_make_room() -> None:
    server = Server(str(MODELS / "text.gguf"), "--max-connections", "4")
    idle = [socket.create_connection(server.address, timeout=HANGS) for _ in range(20)]
    assert server.post(COMPLETIONS, GOOD)[0] == 200
    assert server.stop() == 0
    assert idle


def values(count: int, **more: object) -> bytes:
    """A request with this many values that are ignored."""
    body = json.dumps({**GOOD, "max_tokens": 4, **more, "x": 0}).encode()
    return body.replace(b'"x": 0', b'"x": [' + b'{"a":0},' * (count // 3) + b"0]")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_memory_of_requests_is_limited() -> None:
    server = Server(str(MODELS / "text.gguf"), "--request-memory", "250", *SHIFT)
    before = server.peak_megabytes()
    # Each takes up to 81 MB by the server's estimate.
    with ThreadPoolExecutor(60) as threads:
        body = values(100_000)
        # It keeps its memory, so that the others wait.
        running = open_request(server, values(100_000, **endless()))
        server.wait_for("llb_requests_running", 1)
        statuses = [threads.submit(server.post, COMPLETIONS, body) for _ in range(60)]
        # Small requests are not held up.
        assert server.post(COMPLETIONS, GOOD)[0] == 200
        assert not any(status.done() for status in statuses)
        running.close()
        assert {status.result()[0] for status in statuses} == {200}
    assert server.peak_megabytes() - before < 250
    for route in POSTS:
        status, reply, _ = server.post(route, values(200_000))
        assert status == 413 and "--request-memory" in reply["error"]["message"]
        assert is_error(route, reply)
    assert server.stop() == 0


def test_bodies_beyond_the_memory_are_429() -> None:
    """The bodies of the server have 250 KB, of which large ones have 125."""
    options = ["--request-memory", "1", "--read-timeout", "6"]
    server = Server(str(MODELS / "text.gguf"), *options)
    # On a busy machine it takes longer until the first one holds the memory and the second one
    # waits for it.
    for pause in (0.3, 2.5):
        slow = []
        for _ in range(2):
            slow.append(socket.create_connection(server.address, timeout=HANGS))
            slow[-1].sendall(head(content_length=100_000) + b"{" * 10_000)
            time.sleep(pause)
        status, reply, headers = server.post(COMPLETIONS, b" " * 100_000)
        if status == 429:
            break
    assert (status, reply["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int({name.lower(): value for name, value in headers.items()}["retry-after"]) >= 1
    # Small requests need none of it.
    assert server.post(COMPLETIONS, GOOD)[0] == 200
    for connection in slow:
        check(connection.recv(10_000), 408)
    assert server.stop() == 0


def test_a_client_that_reads_nothing() -> None:
    """The connection is kept for a while, but not forever."""
    options = ["--read-timeout", "4", "--parallel", "1", *SHIFT]
    server = Server(str(MODELS / "long.gguf"), *options)
    # Soon it has more than the buffers of two sockets hold.
    request = endless(stream=True, logprobs=True, top_logprobs=20)
    connection = open_request(server, request)
    server.wait_for_line(f"POST {COMPLETIONS} 200")
    end_of_stream = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 20):
            end_of_stream = (end_of_stream + part)[-100:]
    assert b"[DONE]" not in end_of_stream
    assert server.stop() == 0


@pytest.fixture(scope="module")
def narrow():
    """A server with one request at a time, one in the queue, and endless replies."""
    model = str(MODELS / "long.gguf")
    server = Server(model, "--parallel", "1", "--queue", "1", *SHIFT)
    yield server
    server.stop(signal.SIGKILL)


def endless(**more: object) -> dict:
    return {"messages": GOOD["messages"], **ENDLESS, **more}


def open_request(
    server: Server,
    request: dict | bytes,
    source: str = "127.0.0.1",
    path: str = COMPLETIONS,
) -> socket.socket:
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    connection = socket.create_connection(server.address, HANGS, source_address=(source, 0))
    connection.sendall(head(path, content_length=len(body)) + body)
    return connection


@pytest.mark.parametrize("after", [b"", b"\r\n", head("/health", "GET")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_cancels_its_request(
    narrow: Server, stream: bool, after: bytes
) -> None:
    """Also if it has sent more than its request."""
    connection = open_request(narrow, endless(stream=stream))
    connection.sendall(after)
    if stream:
        assert b"200 OK" in connection.recv(20)
    else:
        narrow.wait_for("llb_requests_running", 1)
    connection.close()
    narrow.wait_for("llb_requests_running", 0)


def test_a_full_queue_is_429(narrow: Server) -> None:
    running = open_request(narrow, endless())
    narrow.wait_for("llb_requests_running", 1)
    waiting = open_request(narrow, endless())
    narrow.wait_for("llb_requests_waiting", 1)
    for route in [COMPLETIONS, "/v1/messages"]:
        status, reply, headers = narrow.post(route, {**GOOD, "model": "long", "max_tokens": 9})
        assert (status, reply["error"]["type"]) == (429, "rate_limit_error")
        assert is_error(route, reply), reply
        assert int({name.lower(): value for name, value in headers.items()}["retry-after"]) >= 1
    # A request whose client leaves while it waits never runs.
    waiting.close()
    narrow.wait_for("llb_requests_waiting", 0)
    running.close()
    narrow.wait_for("llb_requests_running", 0)
    assert narrow.post(COMPLETIONS, {"messages": GOOD["messages"]})[0] == 200


def test_a_timeout_ends_the_wait(narrow: Server) -> None:
    running = open_request(narrow, endless())
    narrow.wait_for("llb_requests_running", 1)
    status, reply, headers = narrow.post(COMPLETIONS, endless(timeout_ms=300))
    assert (status, reply["error"]["code"]) == (429, "rate_limit_exceeded")
    assert narrow.metric("llb_requests_running") == 1, "it waited for the end of the other one"
    running.close()
    narrow.wait_for("llb_requests_running", 0)


def test_a_timeout_ends_a_request(narrow: Server) -> None:
    # A busy machine may need longer for the first token, without which there is no reply.
    for timeout in (300, 3000, 30_000):
        status, reply, _ = narrow.post(COMPLETIONS, endless(timeout_ms=timeout))
        if status == 200:
            break
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "length")


def test_choices_wait_one_after_another(narrow: Server) -> None:
    """A request with many choices does not fill the queue."""
    running = open_request(narrow, endless(n=128))
    narrow.wait_for("llb_requests_running", 1)
    assert narrow.metric("llb_requests_waiting") == 0
    running.close()
    narrow.wait_for("llb_requests_running", 0)


def test_no_choice_begins_after_the_deadline(narrow: Server) -> None:
    before = narrow.metric("llb_generation_seconds_count")
    status, reply, _ = narrow.post(COMPLETIONS, endless(n=128, timeout_ms=300))
    assert (status, reply["error"]["code"]) == (429, "rate_limit_exceeded")
    # The first one ends less than a millisecond early, so another one may begin.
    assert narrow.metric("llb_generation_seconds_count") - before <= 2


def test_requests_run_at_the_same_time() -> None:
    """A reply without end leaves room for others."""
    server = Server(str(MODELS / "long.gguf"), "--parallel", "2", *SHIFT)
    body = {"messages": GOOD["messages"]}
    endless_one = open_request(server, endless(stream=True))
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
    server = Server(str(MODELS / "long.gguf"), "--grace", "1", *SHIFT)
    connection = open_request(server, endless(stream=True))
    assert b"200 OK" in connection.recv(20)
    assert server.stop() == 0
    connection.close()


def test_many_clients_with_disconnects(server: Server) -> None:
    """Every reply is complete, and at the end nothing is running."""
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
