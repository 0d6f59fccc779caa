#!/usr/bin/env python3
"""What `create` and a streamed chunk cost in addition to the library's own calls.

    LLB_LIBRARY=... python bindings/python/bench.py target/scripted-models

Each round calls the library through ctypes and through the package, in alternating order. A model
with short replies measures `create`, one with a long reply measures chunks. The calls through
ctypes have no events, and their streams call a function of C, which runs no Python. Prints medians,
the tenth percentile, and the processor time of the whole process.
"""

import ctypes
import os
import statistics
import sys
import time
from pathlib import Path

import llb
from llb import _library

MESSAGES = [{"role": "user", "content": "hi"}]
ROUNDS = int(os.environ.get("LLB_ROUNDS", "500"))


class Peer:
    """A chat that is called through ctypes alone."""

    def __init__(self, path, request):
        self.c = _library.load().c
        options = _library.encode({"model": path, "n_threads": 1})
        no_events = ctypes.cast(None, _library.EVENT_CALLBACK)
        self.handle = self.c.llb_chat_create_with(options, no_events, None)
        self.request = _library.encode({"messages": MESSAGES, **request})
        # A function of C with a string as its first argument. What it returns is ignored.
        self.receive = ctypes.cast(ctypes.CDLL(None).strlen, _library.TOKEN_CALLBACK)

    def create(self):
        self.c.llb_string_free(self.c.llb_chat_infer(self.handle, self.request))

    def stream(self):
        reply = self.c.llb_chat_infer_stream(self.handle, self.request, self.receive, None)
        self.c.llb_string_free(reply)

    def close(self):
        self.c.llb_chat_destroy(self.handle)


def compare(title, calls, rounds, unit):
    """Prints the times of two calls and their difference, for each of `unit` parts."""
    print(f"{title}, microseconds, {rounds} rounds")
    for name, clock in (("wall", time.perf_counter_ns), ("processor", time.process_time_ns)):
        times = {call: [] for call in calls}
        for at in range(-20, rounds):
            for call in calls if at % 2 else reversed(calls):
                begin = clock()
                call()
                spent = clock() - begin
                if at >= 0:
                    times[call].append(spent / 1000 / unit)
        through_c, package = (times[call] for call in calls)
        more = sorted(b - a for a, b in zip(through_c, package))
        print(
            f"  {name:9}  library {statistics.median(through_c):6.1f}"
            f"  package {statistics.median(package):6.1f}"
            f"  difference {statistics.median(more):6.1f} (10 %: {more[len(more) // 10]:.1f})"
        )


def main():
    folder = Path(sys.argv[1])
    request = {"max_tokens": 1, "temperature": 0}
    path = folder / "text.gguf"
    peer = Peer(path, request)
    with llb.Chat(path, n_threads=1) as chat:
        compare("create", (peer.create, lambda: chat.create(MESSAGES, **request)), ROUNDS, 1)
    peer.close()

    request = {"max_tokens": 400, "temperature": 0}
    path = folder / "long.gguf"
    peer = Peer(path, {**request, "stream_format": "chunks"})
    with llb.Chat(path, n_threads=1) as chat:

        def stream():
            for _ in chat.create(MESSAGES, stream=True, **request):
                pass

        chunks = len(list(chat.create(MESSAGES, stream=True, **request)))
        compare("a streamed chunk", (peer.stream, stream), max(5, ROUNDS // 20), chunks)
    peer.close()


main()
