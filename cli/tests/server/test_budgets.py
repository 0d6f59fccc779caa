"""Tests the rows of the server in the table "Budgets" of docs/security.md.

The rows of the library are tried by bindings/python/tests/test_budgets.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
import test_http
import test_models
import test_replies
from conftest import HANGS, MODELS, PROGRAM, SHIFT, Server
from test_http import COMPLETIONS, endless, open_request

sys.path.append(str(Path(__file__).parents[3] / "bindings/python/tests"))
from budget_table import ROOT, rows  # noqa: E402

MESSAGES = [{"role": "user", "content": "secret-prompt"}]


def at_and_beyond(
    server: Server, path: str, body: Callable[[int], Any], limit: int
) -> List[int]:
    """The statuses of requests with as much as the limit, and with one more."""
    return [server.post(path, body(size))[0] for size in (limit, limit + 1)]


def max_body(error: str) -> None:
    server = Server(str(MODELS / "text.gguf"), "--max-body", "1000")
    try:
        request = json.dumps({"messages": MESSAGES, "max_tokens": 1}).encode()
        statuses = at_and_beyond(
            server, COMPLETIONS, lambda size: request.ljust(size), 1000
        )
        assert statuses == [200, int(error)]
    finally:
        assert server.stop() == 0


def queue(error: str) -> None:
    options = ["--parallel", "1", "--queue", "2", *SHIFT]
    server = Server(str(MODELS / "long.gguf"), *options)
    try:
        open_requests = [open_request(server, endless())]
        server.wait_for("llb_requests_running", 1)
        for waiting in (1, 2):
            open_requests.append(open_request(server, endless()))
            server.wait_for("llb_requests_waiting", waiting)
        assert server.post(COMPLETIONS, endless())[0] == int(error)
        for connection in open_requests:
            connection.close()
    finally:
        assert server.stop() == 0


def parallel(_error: str) -> None:
    server = Server(str(MODELS / "long.gguf"), "--parallel", "2", *SHIFT)
    try:
        open_requests = [open_request(server, endless()) for _ in range(3)]
        server.wait_for("llb_requests_running", 2)
        server.wait_for("llb_requests_waiting", 1)
        for connection in open_requests:
            connection.close()
    finally:
        assert server.stop() == 0


def max_tokens(error: str) -> None:
    server = Server(str(MODELS / "long.gguf"), "--max-tokens", "3")
    try:
        reply = server.post(COMPLETIONS, {"messages": MESSAGES})[1]
        assert reply["usage"]["completion_tokens"] == 3
        assert reply["choices"][0]["finish_reason"] == error
        # An exact fit: the grammar ends there.
        short = {"messages": MESSAGES, "grammar": 'start: "a"', "max_tokens": 3}
        assert (
            server.post(COMPLETIONS, short)[1]["choices"][0]["finish_reason"] == "stop"
        )
    finally:
        assert server.stop() == 0


def timeout(error: str) -> None:
    server = Server(str(MODELS / "long.gguf"), "--timeout", "2", *SHIFT)
    try:
        begin = time.monotonic()
        status, reply, _ = server.post(COMPLETIONS, endless())
        # What is generated until then is a reply.
        assert status in (200, int(error))
        if status == 200:
            assert reply["usage"]["completion_tokens"] < endless()["max_tokens"]
        assert 1.9 < time.monotonic() - begin < 30
        assert (
            server.post(COMPLETIONS, {"messages": MESSAGES, "max_tokens": 1})[0] == 200
        )
    finally:
        assert server.stop() == 0


def read_timeout(error: str) -> None:
    server = Server(str(MODELS / "text.gguf"), "--read-timeout", "1")
    try:
        begin = time.monotonic()
        with socket.create_connection(server.address, timeout=HANGS) as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
            status = connection.recv(100).split()[1]
            assert status == error.encode() and 0.9 < time.monotonic() - begin < 25
    finally:
        assert server.stop() == 0


def unload_after(_error: str) -> None:
    server = Server(str(MODELS / "text.gguf"), "--unload-after", "2")
    try:
        request = {"messages": MESSAGES, "max_tokens": 1}
        loaded = 'llb_model_loaded{model="text"} 1'
        is_loaded = False
        # A busy machine may look too late.
        while not is_loaded:
            begin = time.monotonic()
            assert server.post(COMPLETIONS, request)[0] == 200
            is_loaded = loaded in server.get("/metrics")
        while loaded in server.get("/metrics"):
            assert time.monotonic() - begin < HANGS
            time.sleep(0.1)
        assert time.monotonic() - begin > 1
    finally:
        assert server.stop() == 0


def request_memory(error: str) -> None:
    # One takes up to 81 MB by the server's estimate, the other twice as much.
    for megabytes, expected in [("250", [200, int(error)]), ("500", [200, 200])]:
        server = Server(str(MODELS / "text.gguf"), "--request-memory", megabytes)
        try:
            bodies = [test_http.values(count) for count in (100_000, 200_000)]
            assert [server.post(COMPLETIONS, body)[0] for body in bodies] == expected
        finally:
            assert server.stop() == 0


def reply_memory(_error: str) -> None:
    # Each of the two replies that nobody reads has more than 10 MB.
    assert test_replies.are_silent_clients_cut_off(20) == [True, True]
    assert test_replies.are_silent_clients_cut_off(200) == [False, False]


def max_connections(_error: str) -> None:
    options = ["--max-connections", "4", *SHIFT]
    server = Server(str(MODELS / "long.gguf"), *options)
    try:
        busy = [open_request(server, endless()) for _ in range(3)]
        # The fourth connection is for all of these calls, and then for a request too.
        server.wait_for("llb_requests_running", 3)
        busy.append(open_request(server, endless(stream=True)))
        assert b"200 OK" in busy[-1].recv(20)
        with socket.create_connection(server.address, timeout=1) as fifth:
            fifth.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            with pytest.raises(socket.timeout):
                fifth.recv(100)
            busy.pop().close()
            fifth.settimeout(HANGS)
            assert b" 200 OK" in fifth.recv(100)
        for connection in busy:
            connection.close()
    finally:
        assert server.stop() == 0


def grace(_error: str) -> None:
    cut, whole = endless(stream=True), endless(stream=True, max_tokens=8000)
    for seconds, request, is_whole in [("0", cut, False), ("3000", whole, True)]:
        options = ["--grace", seconds, *SHIFT]
        server = Server(str(MODELS / "long.gguf"), *options)
        stream = b""
        with open_request(server, request) as connection:
            stream = connection.recv(20)
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(1 << 16):
                    stream = (stream + part)[-100:]
        assert (b"[DONE]" in stream) == is_whole, stream
        assert server.process.wait(HANGS) == 0


def max_loaded(_error: str) -> None:
    names = ["text", "long", "reasoning"]
    server = Server(*test_models.paths(*names), "--max-loaded", "2")
    try:
        for name, expected in zip(
            names, [{"text"}, {"text", "long"}, {"long", "reasoning"}]
        ):
            test_models.ask(server, name)
            assert test_models.loaded(server) == expected
    finally:
        assert server.stop() == 0


def max_memory(_error: str) -> None:
    # Two of the models fit into a megabyte, but not with the third.
    names = ["text", "reasoning", "long"]
    for megabytes, expected in [("1", {"long"}), ("100", set(names))]:
        server = Server(*test_models.paths(*names), "--max-memory", megabytes)
        try:
            for name in names:
                test_models.ask(server, name)
            assert test_models.loaded(server) == expected
        finally:
            assert server.stop() == 0


OPTIONS: Dict[str, Callable[[str], None]] = {
    "--parallel": parallel,
    "--queue": queue,
    "--max-tokens": max_tokens,
    "--timeout": timeout,
    "--read-timeout": read_timeout,
    "--max-body": max_body,
    "--request-memory": request_memory,
    "--reply-memory": reply_memory,
    "--max-connections": max_connections,
    "--grace": grace,
    "--max-loaded": max_loaded,
    "--max-memory": max_memory,
    "--unload-after": unload_after,
}


def with_pieces(size: int) -> Dict[str, Any]:
    return {"model": "text", "content": "a" * size, "with_pieces": True}


def with_values(size: int) -> bytes:
    # The object, the names, the two texts and the list are seven of them.
    return b'{"model": "text", "content": "a", "x": [0' + b",0" * (size - 8) + b"]}"


def choices(size: int) -> Dict[str, Any]:
    return {"model": "text", "messages": MESSAGES, "n": size, "max_tokens": 1}


def prompts(size: int) -> Dict[str, Any]:
    return {"model": "text", "prompt": ["a"] * size, "max_tokens": 1}


def replies(size: int) -> Dict[str, Any]:
    # 128 = 2 * 64, 129 = 3 * 43.
    n = {128: 64, 129: 43}[size]
    return {"model": "text", "prompt": ["a"] * (size // n), "n": n, "max_tokens": 1}


CONSTANTS: Dict[str, Tuple[str, Callable[[int], Any]]] = {
    "cli/src/serve/tokens.rs MAX_TEXT_WITH_PIECES": ("/tokenize", with_pieces),
    "cli/src/serve/json_weight.rs MAX_VALUES": ("/tokenize", with_values),
    "cli/src/serve/choices.rs MAX_CHOICES": (COMPLETIONS, choices),
    "cli/src/serve/completions/request.rs MAX_PROMPTS": ("/v1/completions", prompts),
    "cli/src/serve/completions/request.rs MAX_REPLIES": ("/v1/completions", replies),
}


def test_the_table_has_the_options_of_the_server() -> None:
    of_table = {row.option: row.limit for row in rows() if row.option.startswith("--")}
    assert set(of_table) == set(OPTIONS)
    source = (ROOT / "cli" / "src" / "serve" / "limits.rs").read_text("utf-8")
    fields = re.findall(r"#\[arg\(long.*\)\]\n\s+(?:pub\(super\) )?(\w+):", source)
    assert {"--" + field.replace("_", "-") for field in fields} == set(of_table)
    pages = subprocess.run(
        [PROGRAM, "serve", "--help"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    for option, limit in of_table.items():
        described = re.search(rf"^ +{option} <.*?(?=^ +-|\Z)", pages, re.M | re.S)
        assert described, option
        found = re.search(r"\[default: ([^\]]*)\]", described[0])
        assert found, option
        expected = limit.replace(",", "").replace("`", "")
        assert " ".join(found[1].split()).startswith(expected), option


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_is_kept(option: str) -> None:
    OPTIONS[option](next(row.error for row in rows() if row.option == option))


def test_each_constant_is_kept(server: Server) -> None:
    limited = [row for row in rows() if row.constant.startswith("cli/")]
    assert {row.constant for row in limited} == set(CONSTANTS)
    for row in limited:
        limit = int(row.limit.replace(",", ""))
        path, body = CONSTANTS[row.constant]
        statuses = at_and_beyond(server, path, body, limit)
        assert statuses == [200, int(row.error)], row
