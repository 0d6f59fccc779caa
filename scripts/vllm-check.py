#!/usr/bin/env python3
"""Checks a running vLLM with llb: what the tests of this repository check with a stand-in.

    make vllm-check URL=http://gpu:8000 MODEL=file.gguf
    scripts/vllm-check.py URL MODEL [--constraints auto]

MODEL is a GGUF file of the model that vLLM serves, of which only the vocabulary and the chat
template are read. Prints a line for each check, and ends with 1 if one fails. Takes about a
minute. LLB_KEY is sent as the API key, if it is set.
"""

import argparse
import json
import os
import sys
import time

import llb

CITY = {
    "type": "json_schema",
    "json_schema": {
        "name": "city",
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 40}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Failed(Exception):
    """A check failed."""


def require(condition, what):
    if not condition:
        raise Failed(what)


def ask(text):
    return [{"role": "user", "content": text}]


def codes(reply):
    return [each["code"] for each in reply.get("diagnostics", [])]


def text(chat):
    """a reply and its usage"""
    reply = chat.create(messages=ask("Say hello."), temperature=0, max_tokens=16)
    require(reply["text"], f"no text: {reply}")
    counted = chat.explain(messages=ask("Say hello."))["prompt_tokens"]
    require(reply["usage"]["prompt_tokens"] == counted, "prompt_tokens differ")
    return repr(reply["text"])


def deterministic(chat):
    """a seed repeats a reply"""
    request = {"messages": ask("Invent a name."), "seed": 7, "temperature": 1, "max_tokens": 12}
    first, second = (chat.create(**request)["text"] for _ in range(2))
    require(first == second, f"{first!r} and {second!r}")
    return repr(first)


def special_tokens(chat):
    """special tokens in a message stay text"""
    bos = chat.explain(messages=ask("x"))["special_tokens"]
    require(bos, "the template writes no special tokens")
    spelt = ask(f"Repeat: {bos[-1]}")
    explained = chat.explain(messages=spelt)
    require(len(explained["special_tokens"]) == len(bos), "a message became a special token")
    reply = chat.create(messages=spelt, temperature=0, max_tokens=8)
    require(reply["usage"]["prompt_tokens"] == explained["prompt_tokens"], "other tokens arrived")
    return bos[-1]


def stop(chat):
    """a stop string ends a reply and keeps its usage"""
    request = {"messages": ask("Count: 1, 2, 3, 4, 5, 6"), "temperature": 0, "max_tokens": 64}
    reply = chat.create(stop=["3"], **request)
    require(reply["finish_reason"] == "stop", reply["finish_reason"])
    require("3" not in reply["text"], f"the text has the stop string: {reply['text']!r}")
    require(reply["usage"]["prompt_tokens"] > 0, "no usage")
    return f"stop_sequence {reply.get('stop_sequence')!r}"


def log_probabilities(chat):
    """log probabilities have the bytes of their tokens"""
    reply = chat.create(
        messages=ask("Say hello."), temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    entries = reply["logprobs"]["content"]
    spelt = bytes(byte for entry in entries for byte in entry["bytes"])
    require(spelt.decode(errors="replace").strip().startswith(reply["text"].strip()[:4]), spelt)
    require(all(len(entry["top_logprobs"]) == 3 for entry in entries), "not 3 alternatives")
    require(all(entry["logprob"] <= 0 for entry in entries), "a positive logarithm")
    return f"{len(entries)} tokens"


def forced_call(chat):
    """a forced call obeys its schema"""
    reply = chat.create(
        messages=ask("What is the weather in Paris?"),
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
        max_tokens=128,
    )
    require(reply["tool_calls"], f"no call: {reply['text']!r} {codes(reply)}")
    require(reply["tool_calls"][0]["name"] == "get_weather", reply["tool_calls"])
    json.loads(reply["tool_calls"][0]["arguments"])
    return f"{reply['tool_calls'][0]['arguments']} {codes(reply)}"


def json_reply(chat):
    """response_format is obeyed"""
    reply = chat.create(
        messages=ask("Name the capital of France as JSON."),
        response_format=CITY,
        temperature=0,
        max_tokens=128,
    )
    require(list(json.loads(reply["text"])) == ["city"], reply["text"])
    return f"{reply['text']} {codes(reply)}"


def budget(chat):
    """a reasoning budget ends the reasoning"""
    reply = chat.create(
        messages=ask("Is 91 prime?"), temperature=0, max_tokens=96, reasoning_budget=8
    )
    if "reasoning_budget_ignored" in codes(reply):
        return "this model does not reason"
    details = reply["usage"]["completion_tokens_details"]
    require(details["reasoning_tokens"] <= 16, details)
    return f"{details['reasoning_tokens']} tokens of reasoning"


def cache(chat):
    """the next request of a conversation finds its prefix"""
    messages = [
        {"role": "system", "content": "Answer in one word. " + "Be brief. " * 60},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    first = chat.create(messages=messages, temperature=0, max_tokens=8)
    messages += [first["message"], {"role": "user", "content": "And of Spain?"}]
    second = chat.create(messages=messages, temperature=0, max_tokens=8)
    details = second["usage"].get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens", 0)
    if not cached:
        return "not reported (vllm serve --enable-prompt-tokens-details)"
    return f"{cached} of {second['usage']['prompt_tokens']} tokens"


def cancelled(chat):
    """a cancel ends a reply at once"""
    stream = chat.create(messages=ask("Count to 10000."), stream=True, max_tokens=2000)
    next(iter(stream))
    began = time.monotonic()
    chat.cancel()
    list(stream)
    seconds = time.monotonic() - began
    require(seconds < 5, f"it took {seconds:.1f} s")
    return f"{seconds * 1000:.0f} ms"


def overflow(chat):
    """a prompt that does not fit is CONTEXT_OVERFLOW"""
    try:
        chat.create(messages=ask("word " * 2_000_000), max_tokens=1)
    except llb.LlbError as error:
        require(error.code == "CONTEXT_OVERFLOW", str(error))
        return error.code
    raise Failed("it was accepted")


CHECKS = [
    text,
    deterministic,
    special_tokens,
    stop,
    log_probabilities,
    forced_call,
    json_reply,
    budget,
    cache,
    cancelled,
    overflow,
]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--constraints", default="auto")
    arguments = parser.parse_args()
    engine = {"type": "vllm", "base_url": arguments.url, "constraints": arguments.constraints}
    if os.environ.get("LLB_KEY"):
        engine["api_key_env"] = "LLB_KEY"
    failures = 0
    with llb.Chat(arguments.model, engine=engine, tool_policy="any") as chat:
        print("ok      the vocabulary of the file is that of the server")
        for check in CHECKS:
            try:
                print(f"ok      {check.__doc__}: {check(chat)}")
            except (Failed, llb.LlbError, ValueError, KeyError) as error:
                failures += 1
                print(f"FAILED  {check.__doc__}: {error}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
