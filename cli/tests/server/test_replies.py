"""Tests what large replies cost: the memory of their text, and the time of their request."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import Any, Dict, List

import pytest
from conftest import HANGS, MODELS, Server
from test_http import head

MESSAGES = [{"role": "user", "content": "a"}]
# About 4,000 tokens of log probabilities.
PROBABLE: Dict[str, Any] = {"grammar": "start: /(ab){2000}/", "top_logprobs": 20}
PROBABLE_TEXT: Dict[str, Any] = {"grammar": PROBABLE["grammar"], "logprobs": 20}


def peak(server: Server) -> int:
    """The most memory that the server has taken so far, in bytes."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    assert found
    return int(found[1]) * 1024


def are_silent_clients_cut_off(megabytes: int) -> List[bool]:
    """Whether each of two clients that read nothing loses its reply. One that reads does not."""
    server = Server(str(MODELS / "text.gguf"), "--reply-memory", str(megabytes))
    request = {"content": "ab " * 1_300_000}
    body = json.dumps(request).encode()
    silent = []
    for _ in range(2):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(head("/tokenize", content_length=len(body)) + body)
        answer = client.recv(512)
        found = re.search(rb"^HTTP/1.1 200 [^$]*content-length: (\d+)", answer)
        assert found, answer
        silent.append((client, int(found[1]), len(answer)))
    status, reply, _ = server.post("/tokenize", request)
    assert (status, len(reply["tokens"])) == (200, reply["n_tokens"])
    cut_off = []
    for client, length, read in silent:
        with client, contextlib.suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                read += len(part)
        cut_off.append(read < length)
    assert server.stop() == 0
    return cut_off


@pytest.mark.parametrize(
    ("route", "request_", "member", "most"),
    [
        # Vectors of 32 numbers, for each of which 273 bytes were taken.
        (
            "/v1/embeddings",
            {"model": "embedding", "input": ["a"] * 60_000},
            "data",
            60_000 * (32 * 40 + 600),
        ),
        # 880 MB were taken for four million tokens, and 5 kB for each with its text.
        ("/tokenize", {"model": "text", "content": "ab " * 1_300_000}, "tokens", 200_000_000),
        (
            "/tokenize",
            {"model": "text", "content": "ab " * 80_000, "with_pieces": True},
            "tokens",
            240_000 * 300,
        ),
        # 108 MB and 250 MB were taken for 2.6 MB of log probabilities.
        (
            "/v1/chat/completions",
            {"model": "text", "messages": MESSAGES, "logprobs": True, **PROBABLE},
            "choices",
            25_000_000,
        ),
        # As values they took 300 MB.
        (
            "/v1/completions",
            {"model": "text", "prompt": "a", **PROBABLE_TEXT, "n": 8},
            "choices",
            100_000_000,
        ),
        (
            "/v1/responses",
            {
                "model": "text",
                "input": "a",
                "include": ["message.output_text.logprobs"],
                **PROBABLE,
            },
            "output",
            40_000_000,
        ),
    ],
)
def test_large_replies_take_little_more_than_their_text(
    route: str, request_: Dict[str, Any], member: str, most: int
) -> None:
    server = Server(str(MODELS / "text.gguf"), "--embedding", str(MODELS / "embedding.gguf"))
    small = {"input": "a", "content": "a", "tokens": [65], "top_logprobs": 0}
    first = server.post(route, {**request_, **{k: v for k, v in small.items() if k in request_}})
    assert first[0] == 200, first
    before = peak(server)
    status, reply, _ = server.post(route, request_)
    assert status == 200 and reply[member], reply
    taken = peak(server) - before
    assert taken < most, f"{taken / 1e6:.0f} MB"
    assert server.stop() == 0


def test_choices_share_their_request() -> None:
    """A long member that the library ignores, once for each of 128 choices, took 380 MB."""
    server = Server(str(MODELS / "text.gguf"))
    chat = {"messages": MESSAGES}
    for route, member in [("/v1/chat/completions", chat), ("/v1/completions", {"prompt": "a"})]:
        request = {**member, "max_tokens": 1, "other": "a" * 3_000_000}
        assert server.post(route, request)[0] == 200
        before = peak(server)
        status, reply, _ = server.post(route, {**request, "n": 128})
        assert status == 200 and len(reply["choices"]) == 128, reply
        taken = peak(server) - before
        assert taken < 150_000_000, f"{taken / 1e6:.0f} MB"
    assert server.stop() == 0


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
def test_log_probabilities_that_wait_for_other_choices_are_counted(route: str) -> None:
    server = Server(str(MODELS / "text.gguf"), "--reply-memory", "5")
    probable = PROBABLE_TEXT if route == "/v1/completions" else {**PROBABLE, "logprobs": True}
    request = {"messages": MESSAGES, "prompt": "a", **probable}
    del request["messages" if route == "/v1/completions" else "prompt"]
    status, reply, _ = server.post(route, {**request, "n": 8})
    assert status == 503 and "--reply-memory" in reply["error"]["message"], reply
    # The other choices are told to end, and do so soon.
    server.wait_for("llb_requests_running", 0)
    assert server.post(route, request)[0] == 200
    assert server.stop() == 0


def test_requests_with_too_large_replies_are_refused() -> None:
    server = Server("--embedding", str(MODELS / "embedding.gguf"))
    status, reply, _ = server.post("/v1/embeddings", {"input": ["a"] * 65_537})
    assert (status, reply["error"]["param"]) == (400, "input"), reply
    assert server.post("/v1/embeddings", {"input": ["a"] * 10})[0] == 200
    assert server.stop() == 0


def test_the_time_limit_includes_the_client() -> None:
    """A client that reads slowly loses its connection when the time of its request is over."""
    # A slow machine may need more than the first of these times until the reply begins.
    if not is_slow_client_cut_off("8"):
        assert is_slow_client_cut_off("80")


def is_slow_client_cut_off(timeout: str) -> bool:
    """False if there is no reply within this time."""
    server = Server(str(MODELS / "text.gguf"), "--timeout", timeout)
    body = json.dumps({"content": "ab " * 1_300_000}).encode()
    with socket.socket() as slow:
        slow.settimeout(HANGS)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(server.address)
        slow.sendall(head("/tokenize", content_length=len(body)) + body)
        answer = slow.recv(512)
        if answer.startswith(b"HTTP/1.1 503 "):
            assert server.stop() == 0
            return False
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        found = re.search(rb"content-length: (\d+)", answer)
        assert found
        length, read = int(found[1]), len(answer)
        end = time.monotonic() + HANGS
        with contextlib.suppress(ConnectionResetError):
            # The server writes the line when it has sent the reply, or cut it off.
            while not any("POST /tokenize 200" in line for line in server.log):
                assert time.monotonic() < end, server.log
                time.sleep(0.1)
                read += len(slow.recv(512))
            # What the systems hold of the reply, which is cut off there.
            while part := slow.recv(1 << 20):
                read += len(part)
    assert read < length, f"{read} of {length} bytes"
    assert server.post("/tokenize", {"content": "a"})[0] == 200
    assert server.stop() == 0
    return True


@pytest.mark.parametrize(
    ("route", "prompt"),
    [("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/completions", {"prompt": "a"})],
)
def test_a_grammar_that_fails_within_a_reply_is_the_request_s_fault(
    server: Server, route: str, prompt: Dict[str, Any]
) -> None:
    """Clients repeat a request whose status is 500 or more, and this one fails each time."""
    rules = "\n".join(f'r{rule}: "{rule}" "x" start?' for rule in range(2100))
    rest = " | ".join(f"r{rule}" for rule in range(2100))
    grammar = f'start: "a" rest\nrest: {rest}\n{rules}'
    status, reply, _ = server.post(route, {"model": "text", "grammar": grammar, **prompt})
    error = reply["error"]
    assert (status, error["code"]) == (400, "grammar_failed"), reply
    assert error["type"] == "invalid_request_error"
