#!/usr/bin/env python3
"""Honest clients beside hostile ones, for minutes. `make soak` runs it after soak.py.

    soak_hostile.py [--seconds 600] [--honest 4] [--hostile 3]

Honest clients ask alone for a quarter of the time, and beside the hostile ones for the rest. None
of their requests may be refused, their median time to the first token may double, memory must stay
within its budgets, and in the end nothing may run or wait. Each client has an address of its own.
Prints a line of figures, and exits with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import socket
import statistics
import sys
import threading
import time
from typing import Any, Callable, Dict, List

from conftest import ENDLESS, EXPECTED, MODELS, Server

# Megabytes for requests and for replies.
REQUESTS, REPLIES = 250, 160
# What else may take memory: parsers, stacks, what the system has not taken back.
OTHER = 250
# A first token that comes within this many seconds is early enough, whatever it takes alone.
EARLY = 0.25
MESSAGES = [{"role": "user", "content": "secret-prompt"}]
# Takes about a second, most of it for probes.
LOOP = "{% for i in range(9999) %}{% endfor %}"
SLOW_TEMPLATE = "{% for m in messages %}" + LOOP + "{{ m.content }}{% endfor %}"


def request(path: str, body: Any, declared: int = 0) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        f"content-length: {declared or len(data)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


def long_chat(dice: random.Random) -> bytes:
    # Fewer tokens than a fourth of the context, which requests reserve.
    body = {
        "messages": MESSAGES,
        "model": "text",
        "stream": True,
        **ENDLESS,
        "max_tokens": 12_000,
    }
    return request(
        "/v1/chat/completions", {**body, "timeout_ms": dice.randrange(1000, 60_000)}
    )


def slow_body(_: random.Random) -> bytes:
    return request("/v1/chat/completions", b"{", declared=60_000)


def many_values(_: random.Random) -> bytes:
    values = [{"a": 0}] * 200_000
    return request(
        "/v1/chat/completions", {"messages": MESSAGES, "model": "text", "x": values}
    )


def slow_template(_: random.Random) -> bytes:
    body = {"model": "text", "chat_template": SLOW_TEMPLATE, "messages": MESSAGES}
    return request("/v1/template", body)


def large_text(_: random.Random) -> bytes:
    return request("/tokenize", {"model": "text", "content": "ab " * 1_300_000})


def large_grammar(dice: random.Random) -> bytes:
    grammar = "start: /" + "[ab]?" * dice.randrange(1000, 20_000) + "/"
    body = {
        "messages": MESSAGES,
        "model": "text",
        "grammar": grammar,
        "timeout_ms": 5000,
    }
    return request("/v1/explain", body)


ATTACKS: List[Callable[[random.Random], bytes]] = [
    long_chat,
    slow_template,
    slow_body,
    many_values,
    large_text,
    large_grammar,
]


class Honest:
    """Clients that send short requests, one after another."""

    def __init__(self) -> None:
        self.first: List[float] = []
        self.calls: List[float] = []
        self.failures: List[str] = []

    def ask(self, server: Server, address: str) -> None:
        connection = http.client.HTTPConnection(
            *server.address, timeout=120, source_address=(address, 0)
        )
        try:
            begin = time.monotonic()
            chat = {
                "messages": MESSAGES,
                "model": "text",
                "max_tokens": 400,
                "stream": True,
            }
            connection.request("POST", "/v1/chat/completions", json.dumps(chat))
            response = connection.getresponse()
            assert response.status == 200, (response.status, response.read()[:200])
            # A stream begins with its first token.
            text = response.read(1)
            self.first.append(time.monotonic() - begin)
            text += response.read()
            assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
            begin = time.monotonic()
            call = {"model": "text", "content": EXPECTED["text"]}
            connection.request("POST", "/tokenize", json.dumps(call))
            response = connection.getresponse()
            reply = json.loads(response.read())
            assert response.status == 200 and reply["n_tokens"] > 0, reply
            self.calls.append(time.monotonic() - begin)
        finally:
            connection.close()

    def run(self, server: Server, count: int, seconds: float) -> None:
        end = time.monotonic() + seconds

        def client(address: str) -> None:
            while time.monotonic() < end:
                try:
                    self.ask(server, address)
                except Exception as error:
                    self.failures.append(repr(error))
                time.sleep(0.2)

        threads = [
            threading.Thread(target=client, args=(f"127.0.1.{number + 1}",))
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def figures(self) -> Dict[str, Any]:
        def times(seconds: List[float]) -> Dict[str, float]:
            seconds = sorted(seconds)
            return {
                "median": round(statistics.median(seconds), 3),
                "p99": round(seconds[len(seconds) * 99 // 100], 3),
                "most": round(seconds[-1], 3),
            }

        return {
            "requests": len(self.first) + len(self.calls),
            "failures": len(self.failures),
            "first_token_seconds": times(self.first),
            "tokenize_seconds": times(self.calls),
        }


def attack(
    server: Server, address: str, seed: int, end: float, counts: Dict[str, int]
) -> None:
    """Opens connections that send one of the attacks, and read nothing, until the end."""
    dice = random.Random(seed)
    open_connections: List[socket.socket] = []
    while time.monotonic() < end:
        kind = dice.choice(ATTACKS)
        connection = socket.socket()
        open_connections.append(connection)
        # The server may close it at any time.
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(5)
            connection.bind((address, 0))
            connection.connect(server.address)
            connection.sendall(kind(dice))
            counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
        while len(open_connections) > 40:
            open_connections.pop(dice.randrange(40)).close()
        time.sleep(0.05)
    for connection in open_connections:
        connection.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--honest", type=int, default=4)
    parser.add_argument("--hostile", type=int, default=3)
    arguments = parser.parse_args()
    budgets = ["--request-memory", str(REQUESTS), "--reply-memory", str(REPLIES)]
    model = str(MODELS / "text.gguf")
    server = Server(model, "--no-access-log", "--n-ctx", "65536", *budgets)
    alone, beside = Honest(), Honest()
    alone.run(server, arguments.honest, arguments.seconds / 4)
    # Both models are in memory.
    server.post(
        "/v1/chat/completions", {"messages": MESSAGES, "model": "long", "max_tokens": 1}
    )
    before = server.peak_megabytes()
    counts: Dict[str, int] = {}
    end = time.monotonic() + arguments.seconds * 3 / 4
    attackers = [
        threading.Thread(
            target=attack, args=(server, f"127.0.2.{seed + 1}", seed, end, counts)
        )
        for seed in range(arguments.hostile)
    ]
    for attacker in attackers:
        attacker.start()
    beside.run(server, arguments.honest, arguments.seconds * 3 / 4)
    for attacker in attackers:
        attacker.join()
    server.wait_for("llb_requests_running", 0)
    server.wait_for("llb_requests_waiting", 0)
    grown = server.peak_megabytes() - before
    figures = {
        "attacks": counts,
        "alone": alone.figures(),
        "beside": beside.figures(),
        "megabytes": {"before": before, "grown": grown, "budget": REQUESTS + REPLIES},
        "exit_status": server.stop(),
    }
    print(json.dumps(figures))
    for failure in (alone.failures + beside.failures)[:5]:
        print(failure, file=sys.stderr)
    medians = [statistics.median(each.first) for each in (alone, beside)]
    is_late = medians[1] > max(2 * medians[0], EARLY)
    is_large = grown > REQUESTS + REPLIES + OTHER
    is_bad = (
        alone.failures
        or beside.failures
        or is_late
        or is_large
        or figures["exit_status"]
    )
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
