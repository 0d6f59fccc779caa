"""A wrong value in every member of a request, at every depth, in each protocol. The answer is a reply,
or an error of the client's in the shape of the protocol that names the member."""

from __future__ import annotations

import copy
import http.client
import json
from typing import Any, Dict, Iterator, List, Tuple, Union

import pytest
from conftest import Server, is_error

Path = Tuple[Union[str, int], ...]
WRONG = [True, -1, 1e300, 10**30, "x", "\x00", "", [], [1], [[]], {}, {"a": 1}, {"type": "x"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = {"name": "get_weather", "arguments": '{"city": "Paris"}'}

CHAT = {
    "model": "text",
    "messages": [
        {"role": "system", "content": "secret-prompt"},
        {"role": "user", "content": [{"type": "text", "text": "secret-prompt"}], "name": "n"},
        {
            "role": "assistant",
            "content": "text",
            "reasoning_content": "r",
            "tool_calls": [{"id": "a", "type": "function", "function": CALL}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "12"},
        {"role": "user", "content": "secret-prompt"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "d",
                "parameters": SCHEMA,
                "strict": False,
            },
        }
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "max_tokens": 1,
    "stream": False,
    "n": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.1,
    "typical_p": 1.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "seed": 1,
    "stop": ["x"],
    "logit_bias": {"1": 1},
    "logprobs": True,
    "top_logprobs": 1,
    "user": "u",
    "metadata": {"a": "b"},
    "modalities": ["text"],
    "enable_thinking": False,
    "reasoning_effort": "low",
    "reasoning_budget": 10,
    "chat_template_kwargs": {"a": 1},
    "polyfills": {"polyfill_tools": True},
    "timeout_ms": 60000,
    "cache_prompt": True,
    "speculative": "off",
    "continue_final_message": False,
    "parse_special_in_messages": False,
    "service_tier": "auto",
    "store": False,
    "verbosity": "low",
}
# Members that cannot be combined with others in CHAT.
CHAT_FORMAT = {
    "model": "text",
    "messages": [{"role": "user", "content": "secret-prompt"}],
    "max_completion_tokens": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
    },
}
CHAT_NAMED = {
    **{name: CHAT[name] for name in ["model", "messages", "tools", "max_tokens"]},
    "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
}
RESPONSES = {
    "model": "text",
    "instructions": "secret-prompt",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "r"}],
        },
        {"type": "function_call", "call_id": "a", **CALL},
        {"type": "function_call_output", "call_id": "a", "output": "12"},
        {"role": "user", "content": "secret-prompt"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "get_weather",
            "description": "d",
            "parameters": SCHEMA,
            "strict": False,
        }
    ],
    "tool_choice": {"type": "function", "name": "get_weather"},
    "parallel_tool_calls": True,
    "max_output_tokens": 1,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 1,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 10,
    "seed": 1,
    "stop": ["x"],
    "store": False,
    "stream": False,
    "truncation": "disabled",
    "background": False,
    "metadata": {"a": "b"},
    "user": "u",
    "max_tool_calls": 1,
    "service_tier": "auto",
}
RESPONSES_FORMAT = {
    "model": "text",
    "input": "secret-prompt",
    "max_output_tokens": 1,
    "store": False,
    "stream": True,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
}
MESSAGES = {
    "model": "text",
    "max_tokens": 1,
    "system": [{"type": "text", "text": "secret-prompt", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "secret-prompt"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "12"}],
                    "is_error": False,
                }
            ],
        },
    ],
    "tools": [
        {
            "type": "custom",
            "name": "get_weather",
            "description": "d",
            "input_schema": SCHEMA,
            "strict": False,
        }
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "top_k": 40,
    "top_p": 0.9,
    "thinking": {"type": "enabled", "budget_tokens": 10},
    "metadata": {"user_id": "u"},
    "stream": False,
    "service_tier": "auto",
}
COUNT = {name: MESSAGES[name] for name in MESSAGES if name not in ["max_tokens", "stream"]}
MESSAGES_FORMAT = {
    "model": "text",
    "max_tokens": 1,
    "messages": [{"role": "user", "content": "secret-prompt"}],
    "stream": True,
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}


# Members that accept other types too.
FREE = {
    "messages.*.content",  # text or parts; results of tools are any JSON
    "messages.*.content.*.content",
    "messages.*.content.*.input.city",  # arguments are any JSON
    "messages.*.tool_calls.*.function.arguments",  # text or an object
    "chat_template_kwargs.a",
    "input",
    "input.*.content",
    "input.*.output",
    "metadata.a",
    "stop",
    "system",
    "response_format.json_schema.schema",  # true is a schema
    "text.format.schema",
    "output_config.format.schema",
}


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def member(value: Any, path: Path) -> Any:
    for name in path:
        value = value[name]
    return value


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all members. Members of a schema belong to the library."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for name, child in items:
        yield (*path, name)
        if isinstance(child, (dict, list)) and child is not SCHEMA:
            yield from paths(child, (*path, name))


def replaced(request: Dict[str, Any], path: Path, value: Any) -> Dict[str, Any]:
    changed = copy.deepcopy(request)
    parent: Any = changed
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    "route, request_",
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT_FORMAT),
        ("/v1/chat/completions", CHAT_NAMED),
        ("/v1/explain", CHAT_FORMAT),
        ("/v1/responses", RESPONSES),
        ("/v1/responses", RESPONSES_FORMAT),
        ("/v1/messages", MESSAGES),
        ("/v1/messages", MESSAGES_FORMAT),
        ("/v1/messages/count_tokens", COUNT),
    ],
)
def test_a_wrong_value_in_every_member(server: Server, route: str, request_: Any) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=60)

    def post(request: Any) -> Tuple[int, str, bytes]:
        connection.request("POST", route, json.dumps(request))
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read()

    assert post(request_)[0] == 200, post(request_)
    problems: List[Any] = []
    for path in paths(request_):
        for value in WRONG:
            status, media, body = post(replaced(request_, path, value))
            if status == 200 and kind(value) != kind(member(request_, path)):
                pattern = ".".join("*" if isinstance(name, int) else name for name in path)
                is_good = pattern in FREE
            elif status == 200 and media == "text/event-stream":
                # Faults of a request are never reported in the middle of its reply.
                is_good = b'"error":{' not in body and b"event: error" not in body
            elif status == 200:
                is_good = "error" not in json.loads(body) or json.loads(body)["error"] is None
            else:
                is_good = status in (400, 404) and is_error(route, json.loads(body))
            if not is_good:
                problems.append((path, value, status, body[:200]))
    assert not problems, (len(problems), problems[:8])
