#!/usr/bin/env python3
"""How many prompts `llb serve --render` makes, and how many replies it reads, with many clients.

    benches/render.py MODEL [--program target/release/llb] [--clients 200] [--seconds 5]

Each client sends the same conversation with two tools over its own connection, one request after
another; then, in the same way, the token ids of a whole reply to it. Printed are requests a second,
requests a second of the server's processor time (that is, per core), and the times of requests. If the package transformers is installed, its apply_chat_template
renders the same conversation in this process, without tokens and without HTTP, for comparison.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["query"],
            },
        },
    }
    for name, description in (
        ("search", "Search the documents of the user"),
        ("weather", "Get the weather of a city"),
    )
]
QUESTION = "What do my notes say about the second meeting in March? "
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant. " * 8},
    {"role": "user", "content": QUESTION * 4},
    {"role": "assistant", "content": "They say that it was moved to April. " * 4},
    {"role": "user", "content": QUESTION * 2},
]
REPLY = "The notes say that the meeting was moved to the fifth of April, at noon. " * 12


def processor_seconds(process):
    """The processor time that a process has used."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def client(address, request, until, times):
    reader, writer = await asyncio.open_connection(*address)
    while time.monotonic() < until:
        began = time.monotonic()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode())
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        await reader.readexactly(int(length[1]))
        times.append(time.monotonic() - began)
    writer.close()


async def load(address, clients, seconds, path, body):
    body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address[0]}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    times = []
    until = time.monotonic() + seconds
    await asyncio.gather(*(client(address, request, until, times) for _ in range(clients)))
    return sorted(times)


def post(address, path, body):
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}{path}", body)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def measure(server, address, options, name, path, body):
    """Loads a route and prints its speed."""
    asyncio.run(load(address, 1, 0.5, path, body))
    began, used = time.monotonic(), processor_seconds(server)
    times = asyncio.run(load(address, options.clients, options.seconds, path, body))
    elapsed = time.monotonic() - began
    used = processor_seconds(server) - used
    p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
    print(f"{options.clients} clients: {len(times) / elapsed:.0f} {name} a second,")
    print(f"  {len(times) / used:.0f} per core; p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def with_transformers(address, seconds):
    """Renders a second of transformers, on one core; None if it is not installed."""
    try:
        import tokenizers
        import transformers
    except ImportError:
        return None
    template = post(address, "/v1/template", b"{}")
    model = tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(model),
        bos_token=template["bos_token"] or None,
        eos_token=template["eos_token"] or None,
    )
    tokenizer.chat_template = template["chat_template"]
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        tokenizer.apply_chat_template(
            MESSAGES, tools=TOOLS, tokenize=False, add_generation_prompt=True
        )
        count += 1
    return count / (time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("--program", default="target/release/llb")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    command = [arguments.program, "serve", f"m={arguments.model}", "--render", "--port", "0"]
    command += ["--no-access-log", "--queue", "1000"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        found = None
        for line in server.stderr:
            found = re.search(r"listening on http://([\d.]+):(\d+)", line)
            if found:
                break
        if not found:
            raise SystemExit("the server did not start")
        address = (found[1], int(found[2]))
        chat = {"messages": MESSAGES, "tools": TOOLS}
        measure(server, address, arguments, "renders", "/v1/chat/completions/render", chat)
        prompt = post(address, "/v1/chat/completions/render", json.dumps(chat).encode())
        ids = post(address, "/tokenize", json.dumps({"content": REPLY}).encode())["tokens"]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": None}
        reply = {"request_id": "r", "choices": [choice]}
        count = len(prompt["token_ids"])
        body = {"generate_response": reply, "prompt_tokens": count, "chat_request": chat}
        measure(server, address, arguments, "replies", "/v1/chat/completions/derender", body)
        print(f"  prompts of {count} tokens, replies of {len(ids)}")
        peer = with_transformers(address, arguments.seconds)
        if peer is None:
            print("transformers: skipped, it is not installed")
        else:
            print(f"transformers: {peer:.0f} renders a second on one core, without tokens or HTTP")
    finally:
        server.terminate()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
