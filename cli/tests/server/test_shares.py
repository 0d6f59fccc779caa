"""Tests that clients share the server: none waits for all that another one has sent.

Clients are told apart by their addresses; the system gives all of 127.0.0.0/8 to this machine.
"""

from __future__ import annotations

import http.server
import socket
import sys
import threading
from typing import Any

import pytest
from conftest import HANGS, MODELS, SHIFT, Server
from picture_files import png
from test_http import COMPLETIONS, check, endless, head, open_request

OTHER = "127.0.0.2"
CHAT = {"messages": [{"role": "user", "content": "secret-prompt"}], "max_tokens": 4}

others = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="needs several addresses of this machine",
)


class HeldPictures:
    """A server of pictures that answers when `released` is set."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Semaphore(0), threading.Event()
        file, held = png(255, 20, 20), self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                held.asked.release()
                held.released.wait()
                self.send_response(200)
                self.send_header("Content-Length", str(len(file)))
                self.end_headers()
                self.wfile.write(file)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def count_tokens(self) -> Any:
        """A request that lasts until its picture arrives."""
        url = f"http://127.0.0.1:{self.server.server_port}/a.png"
        image = {"type": "image", "source": {"type": "url", "url": url}}
        return {"messages": [{"role": "user", "content": [image]}]}

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("address", ["127.0.0.1", pytest.param(OTHER, marks=others)])
def test_slow_calls_do_not_hold_up_other_calls(address: str) -> None:
    pictures = HeldPictures()
    model = str(MODELS / "pictures" / "mlp" / "model.gguf")
    server = Server(model, "--projector", "auto", "--media-urls", "all")
    path = "/v1/messages/count_tokens"
    attacks = [open_request(server, pictures.count_tokens(), address, path) for _ in range(8)]
    assert pictures.asked.acquire(timeout=HANGS)
    for _ in range(5):
        assert server.post("/tokenize", {"content": "a"})[0] == 200
    assert not pictures.asked.acquire(blocking=False), "one of them runs at a time"
    pictures.released.set()
    for attack in attacks:
        assert attack.recv(1000).startswith(b"HTTP/1.1 200 ")
        attack.close()
    pictures.close()
    assert server.stop() == 0


@others
def test_one_client_does_not_fill_the_queue() -> None:
    options = ["--parallel", "1", "--queue", "3", *SHIFT]
    server = Server(str(MODELS / "long.gguf"), *options)
    attacks = [open_request(server, endless(), OTHER)]
    server.wait_for("llb_requests_running", 1)
    for waiting in (1, 2, 3):
        attacks.append(open_request(server, endless(), OTHER))
        server.wait_for("llb_requests_waiting", waiting)
    check(open_request(server, endless(), OTHER).recv(1000), 429)
    # The newest of the other client's requests makes room, and this one is next.
    chat = open_request(server, CHAT)
    check(attacks[3].recv(1000), 429)
    attacks[0].close()
    assert chat.recv(1000).startswith(b"HTTP/1.1 200 ")
    for connection in [*attacks, chat]:
        connection.close()
    assert server.stop() == 0


@others
def test_a_client_gets_its_share_of_the_chats() -> None:
    """Once there are several, one client does not hold all chats."""
    server = Server(str(MODELS / "long.gguf"), "--parallel", "2", *SHIFT)
    assert server.post(COMPLETIONS, CHAT)[0] == 200
    attacks = [open_request(server, endless(), OTHER) for _ in range(4)]
    server.wait_for("llb_requests_waiting", 3)
    assert server.post(COMPLETIONS, CHAT)[0] == 200
    # It did not wait for the end of an attack.
    assert server.metric("llb_requests_waiting") == 3
    for attack in attacks:
        attack.close()
    assert server.stop() == 0


LONG_CALLS = {
    "embeddings": {"input": ["a"] * 60_000, "prefix": "the " * 60},
    "rerank": {"query": "the " * 20, "documents": ["a"] * 60_000},
}
SHORT_CALLS = {
    "embeddings": {"input": "a"},
    "rerank": {"query": "the", "documents": ["a", "b"]},
}


@others
@pytest.mark.parametrize("route", ["embeddings", "rerank"])
def test_long_lists_of_texts_do_not_hold_up_other_clients(route: str) -> None:
    path = f"/v1/{route}"
    model = {"embeddings": "embedding", "rerank": "reranker"}[route]
    server = Server("--embedding", str(MODELS / f"{model}.gguf"))
    long = LONG_CALLS[route]
    attacks = [open_request(server, long, OTHER, path) for _ in range(4)]
    # Half of the four places are for requests of another size.
    server.wait_for("llb_requests_waiting", 2)
    for _ in range(3):
        status, reply, _ = server.post(path, SHORT_CALLS[route])
        assert status == 200, reply
    counts = [server.metric(f"llb_requests_{state}") for state in ("running", "waiting")]
    assert counts == [2, 2], "the attacks ran first"
    # A client that leaves ends its requests, those that run and those that wait.
    for attack in attacks:
        attack.close()
    server.wait_for("llb_requests_waiting", 0)
    server.wait_for("llb_requests_running", 0)
    assert server.post(path, SHORT_CALLS[route])[0] == 200
    assert server.stop() == 0


def test_slow_bodies_make_room() -> None:
    """A body that takes long is not received to its end if others wait for the connection."""
    options = ["--max-connections", "8", "--read-timeout", "3600"]
    server = Server(str(MODELS / "text.gguf"), *options)
    slow = [socket.create_connection(server.address, timeout=HANGS) for _ in range(12)]
    for connection in slow:
        connection.sendall(head(content_length=100) + b"{")
    assert server.post(COMPLETIONS, CHAT)[0] == 200
    assert slow[0].recv(1000).startswith(b"HTTP/1.1 408 ")
    for connection in slow:
        connection.close()
    assert server.stop() == 0
