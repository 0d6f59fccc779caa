#!/usr/bin/env python3
"""Many clients that ask, read, and leave at random, for minutes. `make soak` runs it.

    soak.py [--seconds 600] [--clients 50]

Every reply that was awaited must be whole, in the end nothing may run or wait, and memory may not
grow. Prints a line of figures, and exits with 1 if something is wrong. Not a pytest file: it takes
as long as it is told.
"""

from __future__ import annotations

import argparse
import bisect
import http.client
import json
import random
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

from conftest import EXPECTED, MODELS, Server

# The most responses that the server keeps. Until then, its memory grows.
STORED = 1000
ROUTES: List[Tuple[str, Dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "secret-prompt"}]}),
    ("/v1/responses", {"input": "secret-prompt", "store": True}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "secret-prompt"}]}),
]


class Totals:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.replies = self.leaves = self.stored = 0
        self.failures: List[str] = []
        # For each model: when a stream was requested, and when its first token arrived, in seconds.
        self.first: Dict[str, List[Tuple[float, float]]] = {"text": [], "long": []}


def text_of(route: str, events: bytes) -> str:
    """The text of a complete stream."""
    text = ""
    for line in events.decode().split("\n"):
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        if route == "/v1/chat/completions":
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
        elif event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "content_block_delta":
            text += event["delta"].get("text", "")
    return text


def ask(server: Server, dice: random.Random, totals: Totals) -> None:
    route, request = dice.choice(ROUTES)
    limit = "max_output_tokens" if route == "/v1/responses" else "max_tokens"
    model = dice.choice(["text", "long"])
    body = {**request, "model": model, limit: 400, "stream": True}
    leaves = dice.random() < 0.3
    connection = http.client.HTTPConnection(*server.address, timeout=300)
    try:
        asked = time.monotonic()
        connection.request("POST", route, json.dumps(body))
        if leaves and dice.random() < 0.5:
            time.sleep(dice.random() * 0.5)
            with totals.lock:
                totals.leaves += 1
            return
        response = connection.getresponse()
        if response.status == 429:
            time.sleep(float(response.headers["retry-after"]))
            return
        assert response.status == 200, (response.status, response.read()[:200])
        # A stream begins with its first token.
        begun = response.read(1)
        came = time.monotonic()
        if leaves:
            response.read(dice.randrange(1, 400))
            with totals.lock:
                totals.leaves += 1
            return
        text = text_of(route, begun + response.read())
        assert text == EXPECTED[model], (route, model, text[:80])
        with totals.lock:
            totals.replies += 1
            totals.stored += route == "/v1/responses"
            totals.first[model].append((asked, came))
    finally:
        connection.close()


def client(server: Server, seed: int, end: float, totals: Totals) -> None:
    dice = random.Random(seed)
    while time.monotonic() < end:
        try:
            ask(server, dice, totals)
        except Exception as error:
            with totals.lock:
                totals.failures.append(repr(error))


def memory(server: Server) -> Dict[str, int]:
    """Kilobytes, threads and open files."""
    folder = Path(f"/proc/{server.process.pid}")
    status = (folder / "status").read_text()
    names = {"rss": "VmRSS", "threads": "Threads"}
    found = {key: int(re.search(rf"{name}:\s+(\d+)", status)[1]) for key, name in names.items()}
    return {**found, "files": len(list((folder / "fd").iterdir()))}


def overtaken(first: List[Tuple[float, float]]) -> int:
    """The most requests that overtook one: sent later, but with an earlier first token."""
    most, came = 0, []
    for _, time_came in sorted(first, reverse=True):
        most = max(most, bisect.bisect_left(came, time_came))
        bisect.insort(came, time_came)
    return most


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=50)
    arguments = parser.parse_args()
    server = Server(str(MODELS / "text.gguf"), str(MODELS / "long.gguf"), "--no-access-log")
    totals = Totals()
    start = time.monotonic()
    end = start + arguments.seconds
    threads = [
        threading.Thread(target=client, args=(server, seed, end, totals))
        for seed in range(arguments.clients)
    ]
    for thread in threads:
        thread.start()
    # By then the store of responses is full, and each client has been served.
    fifth = start + arguments.seconds / 5
    while time.monotonic() < fifth or (totals.stored < STORED and time.monotonic() < end):
        time.sleep(1)
    full = round(time.monotonic() - start)
    early = memory(server)
    for thread in threads:
        thread.join(600)
    stuck = sum(thread.is_alive() for thread in threads)
    server.wait_for("llb_requests_running", 0)
    server.wait_for("llb_requests_waiting", 0)
    late = memory(server)
    waits = sorted(came - asked for each in totals.first.values() for asked, came in each)
    figures = {
        "seconds": round(time.monotonic() - start),
        "replies": totals.replies,
        "leaves": totals.leaves,
        "failures": len(totals.failures),
        "stuck_clients": stuck,
        "seconds_until_full": full,
        "when_full": early,
        "at_the_end": late,
        "first_token_seconds": {
            "median": round(waits[len(waits) // 2], 2),
            "p99": round(waits[len(waits) * 99 // 100], 2),
            "most": round(waits[-1], 2),
        },
        "overtaken_by_at_most": max(map(overtaken, totals.first.values())),
        "exit_status": server.stop(),
    }
    print(json.dumps(figures))
    for failure in totals.failures[:5]:
        print(failure, file=sys.stderr)
    grows = late["rss"] > 1.2 * early["rss"] or late["files"] > early["files"] + 5
    is_bad = totals.failures or stuck or grows or figures["exit_status"] or not totals.replies
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
