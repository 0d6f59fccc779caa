"""Tests that clients share the server: none waits for all that another one has sent.

Clients are told apart by their addresses; the system gives all of 127.0.0.0/8 to this machine.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, List, Tuple

import pytest
from conftest import MODELS, Server
from test_http import COMPLETIONS, endless, head, open_request

OTHER = "127.0.0.2"
# Takes about a second, most of it for probes.
LOOP = "{% for i in range(9999) %}{% endfor %}"
SLOW = "{% for m in messages %}" + LOOP + "{{ m.content }}{% endfor %}"
CHAT = {"messages": [{"role": "user", "content": "secret-prompt"}], "max_tokens": 4}

others = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="needs several addresses of this machine",
)


def post(server: Server, address: str, path: str, body: Any) -> Tuple[int, Any]:
    """Sends a request from an address."""
    connection = http.client.HTTPConnection(
        *server.address, timeout=120, source_address=(address, 0)
    )
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("address", ["127.0.0.1", pytest.param(OTHER, marks=others)])
def test_slow_templates_do_not_hold_up_other_calls(address: str) -> None:
    server = Server(str(MODELS / "text.gguf"))
    ended: List[int] = []

    def attack(number: int) -> None:
        body = {"chat_template": SLOW + str(number)}
        ended.append(post(server, address, "/v1/template", body)[0])

    attackers = [threading.Thread(target=attack, args=(number,)) for number in range(8)]
    for attacker in attackers:
        attacker.start()
    # All of them have arrived.
    time.sleep(0.5)
    for _ in range(5):
        assert server.post("/tokenize", {"content": "a"})[0] == 200
    assert len(ended) < 4, "the attackers' calls ran first"
    for attacker in attackers:
        attacker.join()
    assert set(ended) == {200}
    assert server.stop() == 0


@others
def test_one_client_does_not_fill_the_queue() -> None:
    options = ["--parallel", "1", "--queue", "3", "--n-ctx", "32768"]
    server = Server(str(MODELS / "long.gguf"), *options)
    with ThreadPoolExecutor(5) as threads:
        slow = endless(timeout_ms=4000)
        attacks = [threads.submit(post, server, OTHER, COMPLETIONS, slow)]
        server.wait_for("llb_requests_running", 1)
        for waiting in (1, 2, 3):
            attacks.append(threads.submit(post, server, OTHER, COMPLETIONS, slow))
            server.wait_for("llb_requests_waiting", waiting)
        assert post(server, OTHER, COMPLETIONS, slow)[0] == 429
        # The newest of the other client's requests makes room, and this one is next.
        assert server.post(COMPLETIONS, CHAT)[0] == 200
        statuses = [attack.result()[0] for attack in attacks]
        assert statuses[0] == 200 and statuses[3] == 429, statuses
    assert server.stop() == 0


@others
def test_a_client_gets_its_share_of_the_chats() -> None:
    """Once there are several, one client does not hold all chats."""
    server = Server(str(MODELS / "long.gguf"), "--parallel", "2", "--n-ctx", "65536")
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
    server = Server(str(MODELS / "text.gguf"), "--max-connections", "8")
    slow = [socket.create_connection(server.address, timeout=30) for _ in range(12)]
    for connection in slow:
        connection.sendall(head(content_length=100) + b"{")
    begin = time.monotonic()
    assert server.post(COMPLETIONS, CHAT)[0] == 200
    assert time.monotonic() - begin < 25
    assert slow[0].recv(1000).startswith(b"HTTP/1.1 408 ")
    for connection in slow:
        connection.close()
    assert server.stop() == 0
