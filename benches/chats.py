#!/usr/bin/env python3
"""Compares concurrent chats on one model in llb and in llama.cpp's own server.

    benches/chats.py MODEL.gguf [--chats 1,2,4,8] [--rounds 5] [--tokens 64] [--threads N]
    benches/chats.py MODEL.gguf --calls [PART] [--rounds 5] [--threads N]
    benches/chats.py MODEL.gguf --beside [LINES] [--rounds 5] [--tokens 64] [--threads N]

Needs libllb.so (`LLB_LIBRARY`) and the package xllamacpp, which includes the server. For every
number of chats both have that many sequences (`n_parallel`, `-np`), the same threads, context, batch
and model, and the same concurrent conversations. Each conversation starts with new text, so nothing
is cached. Both stream, and this process takes the times, so the server's time includes its HTTP.
Rounds alternate. Prints medians and the ratio of each round. Targets are printed, not asserted.

`--calls` asks the requests of `calls.rs` instead, one at a time, with prompts that are cached: calls,
JSON and text, whose tokens llb drafts. PART selects cases by a part of their names. The replies of
the two differ in length, so the ratio of their times has no target of its own.

`--beside` asks for two replies, and when both have begun for one token after a prompt of so many
lines. It prints the longest time between two texts of a reply during that prompt, and the prompt's
time.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bindings" / "python" / "src"))

import llb  # noqa: E402

MIN_TOKENS, MAX_WAIT = 1.0, 1 / 0.95
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.cpuparams_batch.n_threads = map(int, sys.argv[2:5] + sys.argv[4:5])
params.n_batch = params.n_ubatch = 512
params.kv_unified = True
params.use_jinja = True
params.port = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def conversation(round_number, chat):
    lines = "".join(f"Shelf {n}, row {chat}, visit {round_number}: {n * 7 % 41} boxes.\n" for n in range(1, 13))
    return [{"role": "user", "content": f"Visit {round_number} to row {chat}.\n{lines}Copy the list, line by line, three times."}]


class Llb:
    name = "llb"

    def __init__(self, model, n_ctx, chats, threads):
        options = {"n_ctx": n_ctx, "n_parallel": chats, "n_threads": threads, "n_batch": 512}
        self.chats = [llb.Chat(model, tool_policy="any", **options) for _ in range(chats)]

    def ask(self, index, messages, tokens, on_text):
        stream = self.chats[index].create(
            messages, stream=True, stream_options={"include_usage": True}, max_tokens=tokens, temperature=0
        )
        generated = 0
        for chunk in stream:
            if chunk["choices"][0]["delta"].get("content"):
                on_text()
            generated = (chunk.get("usage") or {}).get("completion_tokens", generated)
        return generated

    def answer(self, request):
        """The reply to a request that is not streamed."""
        return self.chats[0].create(**request)

    def close(self):
        for chat in self.chats:
            chat.close()


class Server:
    name = "llama-server"

    def __init__(self, model, n_ctx, chats, threads):
        command = [sys.executable, "-c", SERVER, model, str(n_ctx), str(chats), str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        url = self.process.stdout.readline().strip()
        if not url.startswith("http://"):
            sys.exit("the server did not start")
        self.host = url.removeprefix("http://")

    def post(self, body):
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def answer(self, request):
        connection, answer = self.post({**request, "cache_prompt": True})
        reply = json.load(answer)
        connection.close()
        if "error" in reply:
            sys.exit(f"the server refused a request: {reply['error']}")
        return reply

    def ask(self, index, messages, tokens, on_text):
        body = {
            "messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True, "cache_prompt": True,
            "stream_options": {"include_usage": True},
        }
        connection, answer = self.post(body)
        generated = 0
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if any(choice["delta"].get("content") for choice in event["choices"]):
                on_text()
            if event.get("usage"):
                generated = event["usage"]["completion_tokens"]
        connection.close()
        return generated

    def close(self):
        self.process.kill()
        self.process.wait()


def run(contestant, chats, round_number, tokens):
    """Runs all chats concurrently. Returns the total tokens/s and the waits for the first text."""
    waits, generated = [0.0] * chats, [0] * chats
    barrier = threading.Barrier(chats + 1)

    def one(index):
        messages = conversation(round_number, index)
        barrier.wait()
        started = time.monotonic()

        def on_text():
            waits[index] = waits[index] or time.monotonic() - started

        generated[index] = contestant.ask(index, messages, tokens, on_text)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(chats)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.monotonic()
    for thread in threads:
        thread.join()
    if not all(generated):
        sys.exit(f"{contestant.name} counted no tokens of a reply")
    return sum(generated) / (time.monotonic() - started), waits


def late(waits):
    """The 95th percentile."""
    return sorted(waits)[max(0, -(-len(waits) * 95 // 100) - 1)]


def parameters(properties):
    """The schema of an object with these pairs of a name and a schema, all required."""
    return {
        "type": "object", "properties": dict(properties), "required": [name for name, _ in properties],
        "additionalProperties": False,
    }


def request(case, properties):
    """The request of a case, as `calls.rs` writes it."""
    wanted = {
        "messages": [{"role": "user", "content": case["content"]}],
        "temperature": 0, "max_tokens": case.get("max_tokens", 160),
    }
    if case.get("tools"):
        schema = parameters(properties[: case["parameters"]])
        tool = {"description": "Books a trip.", "parameters": schema}
        wanted["tools"] = [
            {"type": "function", "function": {"name": f"book_trip_{at}", **tool}} for at in range(case["tools"])
        ]
        wanted["tool_choice"] = case.get("tool_choice", "auto")
    if case.get("json"):
        schema = {"name": "trip", "schema": parameters(properties[: case["json"]])}
        wanted["response_format"] = {"type": "json_schema", "json_schema": schema}
    return wanted


def compare_calls(arguments):
    """Asks both the requests of `calls.rs`, and prints tokens and times."""
    file = json.loads((ROOT / "benches/calls/cases.json").read_text(encoding="utf-8"))
    both = [kind(arguments.model, 4096, 1, arguments.threads) for kind in (Llb, Server)]
    print(f"{'':<28}{'tokens':>8}{'server':>8}{'ms':>10}{'server':>10}{'ratio':>8}{'min':>8}{'max':>8}")
    for case in file["cases"]:
        if arguments.calls not in case["name"]:
            continue
        wanted = request(case, file["parameters"])
        times, tokens = [[], []], [0, 0]
        # The round before the first computes the prompts.
        for round_number in range(arguments.rounds + 1):
            for who in (0, 1) if round_number % 2 else (1, 0):
                started = time.monotonic()
                reply = both[who].answer(wanted)
                if round_number:
                    times[who].append((time.monotonic() - started) * 1000)
                tokens[who] = reply["usage"]["completion_tokens"]
        ratios = [one / other for one, other in zip(*times)]
        medians = [statistics.median(each) for each in times]
        print(
            f"{case['name']:<28}{tokens[0]:>8}{tokens[1]:>8}{medians[0]:>10.1f}{medians[1]:>10.1f}"
            f"{statistics.median(ratios):>8.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}", flush=True,
        )
    for contestant in both:
        contestant.close()


def long_prompt(round_number, lines):
    numbers = "".join(f"Box {n}: {n * 7919 % 9973}, {n * 104729 % 9967}.\n" for n in range(lines))
    return [{"role": "user", "content": f"Delivery {round_number}.\n{numbers}How many boxes?"}]


def run_beside(contestant, round_number, tokens, lines):
    """Runs two replies and a long prompt. Returns the longest pause of a reply and the prompt's time."""
    times = [[], []]
    begun = [threading.Event(), threading.Event()]

    def reply(index):
        def on_text():
            times[index].append(time.monotonic())
            begun[index].set()

        contestant.ask(index, conversation(round_number, index), tokens, on_text)
        begun[index].set()

    threads = [threading.Thread(target=reply, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for event in begun:
        event.wait()
    started = time.monotonic()
    contestant.ask(2, long_prompt(round_number, lines), 1, lambda: None)
    ended = time.monotonic()
    for thread in threads:
        thread.join()
    pauses = [to - begin for one in times for begin, to in zip(one, one[1:]) if to > started and begin < ended]
    if not pauses:
        sys.exit(f"the replies of {contestant.name} ended before the prompt began")
    return max(pauses), ended - started


def compare_beside(arguments):
    """Runs both with a long prompt beside two replies, and prints their times."""
    both = [kind(arguments.model, 16_384, 3, arguments.threads) for kind in (Llb, Server)]
    results = [[], []]
    # The round before the first is a warm-up.
    for round_number in range(arguments.rounds + 1):
        for who in (0, 1) if round_number % 2 else (1, 0):
            result = run_beside(both[who], round_number, arguments.tokens, arguments.beside)
            if round_number:
                results[who].append(result)
    print(f"{'':<14}{'longest pause, s':>18}{'min':>8}{'max':>8}{'prompt, s':>18}{'min':>8}{'max':>8}")
    for contestant, result in zip(both, results):
        figures = [(statistics.median(each), min(each), max(each)) for each in zip(*result)]
        columns = [f"{value:>{width}.2f}" for each in figures for value, width in zip(each, (18, 8, 8))]
        print(f"{contestant.name:<14}{''.join(columns)}", flush=True)
        contestant.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--chats", default="1,2,4,8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--calls", nargs="?", const="", metavar="PART")
    parser.add_argument("--beside", nargs="?", type=int, const=150, metavar="LINES")
    arguments = parser.parse_args()
    if arguments.calls is not None:
        return compare_calls(arguments)
    if arguments.beside is not None:
        return compare_beside(arguments)
    print(f"{'chats':>5} {'':<14}{'tokens/s':>10}{'first text, s (95 %)':>24}")
    for chats in map(int, arguments.chats.split(",")):
        both = [kind(arguments.model, 8192, chats, arguments.threads) for kind in (Llb, Server)]
        speeds, waits, ratios = [[], []], [[], []], []
        # The round before the first is a warm-up.
        for round_number in range(arguments.rounds + 1):
            order = (0, 1) if round_number % 2 else (1, 0)
            pair = [0.0, 0.0]
            for who in order:
                pair[who], first = run(both[who], chats, round_number, arguments.tokens)
                if round_number:
                    speeds[who].append(pair[who])
                    waits[who].extend(first)
            if round_number:
                ratios.append(pair[0] / pair[1])
        for who, contestant in enumerate(both):
            print(f"{chats:>5} {contestant.name:<14}{statistics.median(speeds[who]):>10.1f}{late(waits[who]):>24.2f}")
            contestant.close()
        speed, wait = statistics.median(ratios), late(waits[0]) / late(waits[1])
        print(f"      {'pass' if speed >= MIN_TOKENS else 'MISS'} tokens/s, llb / server by round: {speed:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        print(f"      {'pass' if wait <= MAX_WAIT else 'MISS'} first text, llb / server: {wait:.3f}", flush=True)


if __name__ == "__main__":
    main()
