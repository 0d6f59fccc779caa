"""Tests what large replies cost: the memory of their text, and the time of their request."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import Any, Dict

import pytest
from conftest import MODELS, Server
from test_http import head

MESSAGES = [{"role": "user", "content": "a"}]
# About 4,000 tokens of log probabilities.
PROBABLE: Dict[str, Any] = {"grammar": "start: /(ab){2000}/", "top_logprobs": 20}


def peak(server: Server) -> int:
    """The most memory that the server has taken so far, in bytes."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    assert found
    return int(found[1]) * 1024


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


def test_requests_with_too_large_replies_are_refused() -> None:
    server = Server("--embedding", str(MODELS / "embedding.gguf"))
    status, reply, _ = server.post("/v1/embeddings", {"input": ["a"] * 65_537})
    assert (status, reply["error"]["param"]) == (400, "input"), reply
    assert server.post("/v1/embeddings", {"input": ["a"] * 10})[0] == 200
    assert server.stop() == 0


def test_the_time_limit_includes_the_client() -> None:
    """A client that reads slowly loses its connection when the time of its request is over."""
    server = Server(str(MODELS / "text.gguf"), "--timeout", "8")
    body = json.dumps({"content": "ab " * 1_300_000}).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(server.address)
        slow.sendall(head("/tokenize", content_length=len(body)) + body)
        answer = slow.recv(512)
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        found = re.search(rb"content-length: (\d+)", answer)
        assert found
        length, read = int(found[1]), len(answer)
        end = time.monotonic() + 11
        with contextlib.suppress(ConnectionResetError):
            while time.monotonic() < end:
                time.sleep(0.1)
                read += len(slow.recv(512))
            # What the systems hold of the reply, which is cut off there.
            while part := slow.recv(1 << 20):
                read += len(part)
    assert read < length, f"{read} of {length} bytes"
    assert server.post("/tokenize", {"content": "a"})[0] == 200
    assert server.stop() == 0


def test_silent_clients_lose_their_replies() -> None:
    """And not those that read, when the memory for replies is in use."""
    server = Server(str(MODELS / "text.gguf"), "--reply-memory", "20")
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
    for client, length, read in silent:
        with client, contextlib.suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                read += len(part)
        assert read < length, f"{read} of {length} bytes"
    assert server.stop() == 0
