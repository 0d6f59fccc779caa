"""Odd requests of each protocol: a reply, or a status 4xx in the shape of the protocol. The connection
serves the next request in any case."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any, Dict, List, Tuple

import pytest
from conftest import Server, is_error

USER = {"role": "user", "content": "secret-prompt"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LONG = "a" * 100_000
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
NUMBERS = [0, -1, 1.5, 10**30, -(10**30), 1e300, True, "4", [], {}]
# A good request of each route.
GOOD: Dict[str, Dict[str, Any]] = {
    "/v1/chat/completions": {"model": "text", "messages": [USER], "max_tokens": 2},
    "/v1/completions": {"model": "text", "prompt": "secret-prompt", "max_tokens": 2},
    "/v1/responses": {"model": "text", "input": "secret-prompt", "max_output_tokens": 2},
    "/v1/messages": {"model": "text", "messages": [USER], "max_tokens": 2},
    "/api/chat": {"model": "text", "messages": [USER], "options": {"num_predict": 2}},
    "/api/generate": {"model": "text", "prompt": "secret-prompt", "options": {"num_predict": 2}},
}
CHATS = ["/v1/chat/completions", "/v1/messages", "/api/chat"]


def contents(*values: Any) -> List[Dict[str, Any]]:
    return [{"messages": [{"role": "user", "content": value}]} for value in values]


# Members that take the place of those of the good request.
MESSAGES: List[Dict[str, Any]] = [
    *({"messages": value} for value in (None, [], {}, "x", 1, [None], [[]], ["x"], [{}], [1, 2])),
    *contents(None, "", " ", [], {}, 1, [None], ["x"], [[]], [{}], [{"type": None}], DEEP),
    *contents([{"type": "unknown", "unknown": {"a": [1]}}], [{"type": "text"}], LONG, "\x00\ud800"),
    *contents([{"type": "text", "text": None}], [{"type": "text", "text": ["x"]}]),
    {"messages": [{"role": "root", "content": "x"}]},
    {"messages": [{"role": None, "content": "x"}]},
    {"messages": [{"role": ["user"], "content": "x"}]},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "assistant", "content": "x"}]},
    {"messages": [{"role": "assistant"}, USER]},
    {"messages": [{"role": "system", "content": "x"}]},
    {"messages": [{"role": "tool", "content": "x"}]},
    {"messages": [USER] * 3},
    {"tools": {}},
    {"tools": [None]},
    {"tools": [{}]},
    {"tools": [{"type": "function"}]},
    {"tools": [{"type": "unknown_20990101", "name": "x"}]},
]
ODD: Dict[str, List[Dict[str, Any]]] = {
    "/v1/chat/completions": [
        *MESSAGES,
        *({"max_tokens": value} for value in NUMBERS),
        *({"n": value} for value in NUMBERS),
        {"messages": [USER, {"role": "assistant", "tool_calls": [CALL, CALL]}]},
        {"messages": [USER, {"role": "assistant", "tool_calls": [None]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
        {"tool_choice": {"type": "function"}, "tools": []},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/x"}}}},
        {"stop": ["x"] * 1000},
        {"logit_bias": {"x": 1}},
        {"stream_options": []},
        {"stream": 1},
    ],
    "/v1/completions": [
        *({"prompt": value} for value in (None, "", [], {}, 1, True, [None], [[]], [[[1]]], [{}])),
        *({"prompt": value} for value in ([1.5], [-1], [10**30], ["x", 1], [[1], "x"], DEEP, LONG)),
        *({"max_tokens": value} for value in NUMBERS),
        *({"n": value} for value in NUMBERS),
        *({"logprobs": value} for value in NUMBERS),
        *({"echo": value} for value in NUMBERS),
        *({"suffix": value} for value in (None, "", 1, [], "x")),
        {"best_of": 2},
        {"messages": [USER]},
        {"stream": "true"},
        {"stop": [[]]},
    ],
    "/v1/responses": [
        *(
            {"input": value}
            for value in (None, "", [], {}, 1, [None], ["x"], [[]], [{}], DEEP, LONG)
        ),
        *({"input": [{"role": "user", "content": value}]} for value in (None, [], {}, 1, [{}])),
        *(
            {"input": [{"type": kind}]}
            for kind in ("message", "function_call", "reasoning", "x", 1)
        ),
        *({"input": [{"type": f"{kind}_call_output"}]} for kind in ("function", "custom", "shell")),
        *({"max_output_tokens": value} for value in NUMBERS),
        *({"previous_response_id": value} for value in ("", "x", 1, [])),
        *({"tools": value} for value in ({}, [None], [{}], [{"type": "function"}], [{"type": 1}])),
        *({"text": value} for value in ([], {"format": 1}, {"format": {"type": "json_schema"}})),
        {"reasoning": {"effort": []}},
        {"background": True},
        {"include": "x"},
    ],
    "/v1/messages": [
        *MESSAGES,
        *({"max_tokens": value} for value in NUMBERS),
        *({"system": value} for value in (1, {}, [1], [{}], [{"type": "image"}], DEEP)),
        *({"thinking": value} for value in (1, {}, {"type": "x"}, {"type": "enabled"})),
        *contents([{"type": "tool_result"}], [{"type": "tool_use"}], [{"type": "image"}]),
        *contents([{"type": "document", "source": 1}], [{"type": "search_result", "content": 1}]),
        *contents([{"type": "image", "source": {"type": "base64", "data": "!", "media_type": 1}}]),
        {"tool_choice": {"type": "x"}},
        {"stop_sequences": "x"},
        {"mcp_servers": 1},
    ],
    "/api/chat": [
        *MESSAGES,
        *(
            {"options": value}
            for value in (1, [], {"num_predict": "x"}, {"stop": 1}, {"seed": 1e300})
        ),
        *({"options": {"num_predict": value}} for value in NUMBERS),
        *({"think": value} for value in (1, "x", [], {})),
        *({"format": value} for value in ("", "xml", 1, [], {"type": 1}, {"$ref": "#/x"})),
        *({"messages": [{**USER, "images": value}]} for value in ("x", [1], ["!"], [[]])),
        *({"messages": [{**USER, "tool_calls": value}]} for value in ("x", [1], [{}])),
        {"keep_alive": []},
    ],
    "/api/generate": [
        *({"prompt": value} for value in (None, "", [], {}, 1, DEEP, LONG)),
        *(
            {"options": value}
            for value in (1, [], {"num_predict": "x"}, {"stop": 1}, {"seed": 1e300})
        ),
        *({"options": {"num_predict": value}} for value in NUMBERS),
        *({"suffix": value} for value in (1, [], "x")),
        *({"images": value} for value in ("x", [1], ["!"], {})),
        *({"context": value} for value in ("x", [1.5], [-1])),
        {"system": 1},
        {"template": []},
        {"raw": 1},
        {"format": "xml"},
    ],
}


def bodies(good: Dict[str, Any]) -> List[bytes]:
    """Bodies that are odd in any protocol, as bytes."""
    text = json.dumps(good)
    names = [text[1:-1], text[1:-1].replace("secret", "other")]
    return [
        b"",
        b" \n",
        b"null",
        b"1",
        b'"x"',
        b"[]",
        b"{}",
        b"{",
        b"model=text&prompt=x",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf" + text.encode(),
        text.encode("utf-16"),
        text.encode()[:-1],
        text.encode() + b"}",
        text.encode() + b"\n" + text.encode(),
        text.replace("2", "NaN").encode(),
        text.replace("2", "1e999").encode(),
        text.replace("2", "9" * 400).encode(),
        text.replace("secret", "\\ud800").encode(),
        text.replace('"secret', '"\n').encode(),
        ("{" + ", ".join(names) + "}").encode(),
        ("{" + ", ".join(names * 100) + "}").encode(),
        json.dumps({**good, "model": None}).encode(),
        json.dumps({**good, "model": ["text"]}).encode(),
        json.dumps({**good, "model": "x" * 10_000}).encode(),
        json.dumps({**good, "x" * 10_000: DEEP}).encode(),
        json.dumps({**good, **{f"x{index}": index for index in range(5000)}}).encode(),
        json.dumps({**good, "stream": "x"}).encode(),
        json.dumps({**good, "": None, "__proto__": {}, "constructor": 1}).encode(),
    ]


@pytest.fixture
def connection(server: Server) -> Any:
    return http.client.HTTPConnection(*server.address, timeout=600)


def ask(
    connection: http.client.HTTPConnection, method: str, route: str, body: Any, headers: Any
) -> Tuple[int, str, bytes]:
    connection.request(method, route, body, headers)
    response = connection.getresponse()
    return response.status, response.headers["content-type"] or "", response.read()


def problem(route: str, status: int, media: str, body: bytes) -> bool:
    """Whether this is neither a reply nor an error of the client's in the shape of the protocol."""
    if status == 200 and media == "application/json":
        return "error" in json.loads(body) and json.loads(body)["error"] is not None
    if status == 200:
        # Faults of a request are never reported in the middle of its reply.
        return re.search(rb'"error": ?[^n]|event: error', body) is not None
    return not 400 <= status < 500 or not is_error(route, json.loads(body))


@pytest.mark.parametrize("route", GOOD)
def test_a_reply_or_an_error_of_the_client(connection: Any, route: str) -> None:
    good = GOOD[route]
    changed = [json.dumps({**good, **change}).encode() for change in ODD[route]]
    requests = [*bodies(good), *changed]
    assert len(requests) >= 60
    json_type = {"content-type": "application/json"}
    problems = []
    for stream in (b"false", b"true"):
        for body in requests:
            sent = body.replace(b'{"model"', b'{"stream": ' + stream + b', "model"', 1)
            answer = ask(connection, "POST", route, sent, json_type)
            if problem(route, *answer):
                problems.append((sent[:200], *answer))
    assert not problems, (len(problems), problems[:8])
    status, media, _ = ask(connection, "POST", route, json.dumps(good), json_type)
    assert status == 200 and media


@pytest.mark.parametrize("route", GOOD)
def test_methods_and_headers(connection: Any, route: str) -> None:
    good = json.dumps(GOOD[route])
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY"):
        status, _, body = ask(connection, method, route, good, {})
        assert status == 405 and is_error(route, json.loads(body)), (method, status, body)
    assert ask(connection, "HEAD", route, None, {})[0] == 405
    # No other type than JSON is meant by any client, so the type is not asked for.
    for media in (
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "é",
    ):
        answer = ask(connection, "POST", route, good, {"content-type": media})
        assert answer[0] == 200 and not problem(route, *answer), (media, answer)
    for name, value in (
        ("accept", "image/png"),
        ("accept-encoding", "identity;q=0"),
        ("expect", "200-ok"),
        ("range", "bytes=0-1"),
        ("if-none-match", "*"),
        ("anthropic-version", "x"),
        ("anthropic-beta", "x," * 1000),
        ("openai-organization", "é"),
        ("x-stainless-retry-count", "-1"),
    ):
        answer = ask(connection, "POST", route, good, {name: value})
        assert not problem(route, *answer), (name, answer)
    answer = ask(connection, "POST", route, good, {"content-encoding": "gzip"})
    assert answer[0] == 415 and not problem(route, *answer)
