"""Tests that the server's work grows with the size of each member, not with its square.

The time is the processor time of the server's process. `make harden` sets `LLB_GROWTH=long`. Without
it the tests are skipped, because they take minutes and depend on times.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from typing import Any, Callable, Dict, Iterator, List

import pytest
import test_fields
from conftest import MODELS, Server
from test_fields import CALL, paths, replaced

pytestmark = pytest.mark.skipif(
    os.environ.get("LLB_GROWTH") != "long" or not sys.platform.startswith("linux"),
    reason="a part of `make harden`; reads /proc",
)

# The largest number of elements, and the most time of which only the noise would be compared.
LARGEST, SHORT = 40_000, 0.4
# The time for all elements is about four times that for a quarter of them if it is linear, and
# sixteen times if it is quadratic.
MAX_RATIO = 8
ATTEMPTS = 4

Sized = Callable[[int], Any]


def objects(n: int) -> List[Any]:
    return [{"name": f"n{index}", "type": "text", "text": "x"} for index in range(n)]


# Values of each kind, which most members refuse.
SHAPES: Dict[str, Sized] = {
    "names": lambda n: [f"t{index}" for index in range(n)],
    "objects": objects,
    "members": lambda n: {str(index): 1 for index in range(n)},
    "pairs": lambda n: [[index % 100, 0] for index in range(n)],
    "text": lambda n: "a b" * n,
}

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object"}


def tools(n: int) -> List[Any]:
    return [
        {"type": "function", "function": {"name": f"f{index}", "parameters": SCHEMA}}
        for index in range(n)
    ]


def calls(n: int) -> List[Any]:
    """An exchange of OpenAI's chats whose results come in reverse."""
    call = [
        {"id": f"c{index}", "type": "function", "function": CALL} for index in range(n)
    ]
    results = [
        {"role": "tool", "tool_call_id": f"c{index}", "content": "r"}
        for index in reversed(range(n))
    ]
    return [USER, {"role": "assistant", "content": "", "tool_calls": call}, *results]


def items(n: int) -> List[Any]:
    """The same of OpenAI's responses."""
    call = [
        {"type": "function_call", "call_id": f"c{index}", **CALL} for index in range(n)
    ]
    results = [
        {"type": "function_call_output", "call_id": f"c{index}", "output": "r"}
        for index in reversed(range(n))
    ]
    return [USER, *call, *results]


def blocks(n: int) -> List[Any]:
    """The same of Anthropic's messages."""
    call = [
        {"type": "tool_use", "id": f"c{index}", "name": "f", "input": {}}
        for index in range(n)
    ]
    results = [
        {"type": "tool_result", "tool_use_id": f"c{index}", "content": "r"}
        for index in reversed(range(n))
    ]
    return [
        USER,
        {"role": "assistant", "content": call},
        {"role": "user", "content": results},
    ]


def parts(n: int) -> List[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": "x"}] * n}]


# For each route a request, and valid members that may be long.
ROUTES: Dict[str, Any] = {
    "/v1/chat/completions": (
        test_fields.CHAT,
        {"messages": [parts, calls, lambda n: [USER] * n], "tools": [tools]},
    ),
    "/v1/responses": (
        test_fields.RESPONSES,
        {
            "input": [items, parts, lambda n: [USER] * n],
            "tools": [
                lambda n: [
                    {"type": "function", "name": f"f{index}", "parameters": SCHEMA}
                    for index in range(n)
                ]
            ],
        },
    ),
    "/v1/messages": (
        test_fields.MESSAGES,
        {
            "messages": [blocks, parts, lambda n: [USER] * n],
            "system": [lambda n: [{"type": "text", "text": "x"}] * n],
            "tools": [
                lambda n: [
                    {"name": f"f{index}", "input_schema": SCHEMA} for index in range(n)
                ]
            ],
        },
    ),
    "/v1/messages/count_tokens": (
        {"model": "text", "messages": [USER], "tools": []},
        {"messages": [blocks]},
    ),
    "/v1/explain": (
        {"model": "text", "messages": [USER]},
        {"messages": [calls], "tools": [tools]},
    ),
    "/v1/chat/completions/render": (
        {"model": "text", "messages": [USER]},
        {"messages": [calls], "tools": [tools]},
    ),
    "/v1/completions": (
        {
            "model": "text",
            "prompt": "a",
            "suffix": None,
            "max_tokens": 1,
            "stop": ["x"],
            "n": 1,
        },
        {"prompt": [lambda n: [1] * n]},
    ),
    "/infill": (
        {"model": "text", "input_prefix": "a", "input_suffix": "b", "input_extra": []},
        {"input_extra": [lambda n: [{"filename": "f", "text": "x"}] * n]},
    ),
    "/v1/embeddings": (
        {
            "model": "embedding",
            "input": "a",
            "dimensions": 4,
            "encoding_format": "float",
        },
        {},
    ),
    "/v1/rerank": (
        {"model": "reranker", "query": "a", "documents": ["a"], "top_n": 1},
        {},
    ),
    "/tokenize": ({"model": "text", "content": "a", "with_pieces": True}, {}),
    "/detokenize": (
        {"model": "text", "tokens": [1]},
        {"tokens": [lambda n: [65] * n]},
    ),
    "/v1/template": (
        {"model": "text", "messages": [USER], "tools": []},
        {"messages": [calls], "tools": [tools]},
    ),
    "/apply-template": (
        {"model": "text", "messages": [USER], "chat_template_kwargs": {}},
        {},
    ),
    "/api/chat": (
        {
            "model": "text",
            "messages": [USER],
            "tools": [],
            "options": {},
            "stream": False,
        },
        {"messages": [lambda n: [USER] * n], "tools": [tools]},
    ),
    "/api/generate": (
        {
            "model": "text",
            "prompt": "a",
            "options": {"num_predict": 1},
            "stream": False,
        },
        {"context": [lambda n: [1] * n]},
    ),
    "/api/embed": ({"model": "embedding", "input": "a", "options": {}}, {}),
    "/lora-adapters": ({}, {}),
}


@pytest.fixture(scope="module")
def all_models() -> Iterator[Server]:
    server = Server(
        str(MODELS / "text.gguf"),
        *("--embedding", str(MODELS / "embedding.gguf")),
        *("--embedding", str(MODELS / "reranker.gguf")),
    )
    yield server
    assert server.stop() == 0, server.log


def processor_time(server: Server) -> float:
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cases(request: Dict[str, Any], valid: Dict[str, List[Sized]]) -> Iterator[Any]:
    """Names, and requests of each size."""
    for name, values in valid.items():
        for number, value in enumerate(values):
            yield (
                f"{name}: valid {number}",
                lambda n, name=name, value=value: {**request, name: value(n)},
            )
    for place in [*paths(request), ("other",)]:
        for shape, value in SHAPES.items():
            yield (
                f"{place}: {shape}",
                lambda n, place=place, value=value: replaced(request, place, value(n)),
            )


@pytest.mark.parametrize("route", ROUTES)
def test_members_of_a_route(all_models: Server, route: str) -> None:
    connection = http.client.HTTPConnection(*all_models.address, timeout=300)

    def seconds(body: str) -> float:
        begin = processor_time(all_models)
        connection.request("POST", route, body)
        response = connection.getresponse()
        reply = response.read()
        assert response.status < 500, reply[:300]
        return processor_time(all_models) - begin

    failures = []
    for name, request in cases(*ROUTES[route]):
        if seconds(json.dumps(request(LARGEST))) < SHORT:
            continue
        bodies = [json.dumps(request(LARGEST // part)) for part in (4, 2, 1)]
        seen: List[List[float]] = []
        while len(seen) < ATTEMPTS:
            seen.append([seconds(body) for body in bodies])
            if seen[-1][2] < SHORT or seen[-1][2] < MAX_RATIO * seen[-1][0]:
                break
        else:
            failures.append(f"{name}: {seen}")
    connection.close()
    assert not failures, "\n".join(failures)
