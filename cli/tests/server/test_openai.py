"""Tests `/v1/chat/completions` and `/v1/models` with the official client."""

from __future__ import annotations

import json
import re

import pytest
from conftest import EXPECTED, MODELS, TOOLS, Server

openai = pytest.importorskip("openai")

USER = [{"role": "user", "content": "secret-prompt"}]


@pytest.fixture
def client(server: Server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_models(client) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) == {"text", "tool_call", "reasoning", "long", "no_tools"}
    assert models["text"].capabilities["native_tools"] is True
    assert models["no_tools"].capabilities["native_tools"] is False
    assert client.models.retrieve("long").id == "long"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_text(client) -> None:
    reply = client.chat.completions.create(model="text", messages=USER)
    choice = reply.choices[0]
    assert (choice.message.content, choice.finish_reason) == (EXPECTED["text"], "stop")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_stream(client) -> None:
    stream = client.chat.completions.create(
        model="text", messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == EXPECTED["text"]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert {c.model for c in chunks} == {"text"} and len({c.id for c in chunks}) == 1


def test_stream_helper(client) -> None:
    with client.chat.completions.stream(model="tool_call", messages=USER, tools=TOOLS) as stream:
        names = [event.type for event in stream]
    assert "tool_calls.function.arguments.done" in names
    call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_reasoning(client) -> None:
    message = client.chat.completions.create(model="reasoning", messages=USER).choices[0].message
    assert message.reasoning_content == "One, two, drei fünf, six."
    assert message.content == "The answer."


@pytest.mark.parametrize(
    "choice",
    ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}],
)
def test_tools(client, choice) -> None:
    reply = client.chat.completions.create(
        model="tool_call", messages=USER, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False
    )
    assert reply.choices[0].finish_reason == "tool_calls"
    call = reply.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    # The result is sent back together with the unchanged message.
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}
    messages = [*USER, reply.choices[0].message, result]
    client.chat.completions.create(model="tool_call", messages=messages, tools=TOOLS)


@pytest.mark.parametrize("stream", [False, True])
def test_custom_tools(client, stream: bool) -> None:
    grammar = {"syntax": "lark", "definition": 'start: "select " /[0-9]{1,4}/'}
    custom = {"name": "sql", "format": {"type": "grammar", "grammar": grammar}}
    request = {
        "model": "text",
        "messages": USER,
        "tools": [*TOOLS, {"type": "custom", "custom": custom}],
        "tool_choice": {"type": "custom", "custom": {"name": "sql"}},
        "parallel_tool_calls": False,
        "temperature": 0,
    }
    if stream:
        chunks = [chunk.to_dict() for chunk in client.chat.completions.create(**request, stream=True)]
        choices = [chunk["choices"][0] for chunk in chunks]
        parts = [part for choice in choices for part in choice["delta"].get("tool_calls", [])]
        assert [part["type"] for part in parts] == ["custom", "custom"]
        call = {**parts[0], "custom": {**parts[0]["custom"], **parts[1]["custom"]}}
        call.pop("index")
        reason = choices[-1]["finish_reason"]
    else:
        choice = client.chat.completions.create(**request).choices[0]
        [call] = [call.to_dict() for call in choice.message.tool_calls]
        reason = choice.finish_reason
    assert (call["type"], call["custom"]["name"], reason) == ("custom", "sql", "tool_calls")
    assert re.fullmatch("select [0-9]{1,4}", call["custom"]["input"])
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "1 row"}
    request["messages"] = [*USER, said, result]
    # A choice that allows only the other tool.
    names = [{"type": "function", "function": {"name": "get_weather"}}]
    allowed = {"mode": "required", "tools": names}
    request["tool_choice"] = {"type": "allowed_tools", "allowed_tools": allowed}
    follow = client.chat.completions.create(**request, max_tokens=100)
    assert follow.choices[0].message.tool_calls[0].function.name == "get_weather"


def test_calls_without_results(client) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "b"}]}
    results = [{"role": "tool", "tool_call_id": name, "content": "12"} for name in "bab"]
    for messages, param, words in [
        ([said, results[0], *USER], "messages.[3].role", "did not have response messages: a"),
        ([said, *results], "messages.[4].tool_call_id", "in messages[2] and messages[4]."),
        ([results[0]], "messages.[1].role", "must be a response to a preceeding message"),
    ]:
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="text", messages=[*USER, *messages])
        error = raised.value
        assert (error.param, error.type, error.code) == (param, "invalid_request_error", None)
        assert words in error.message
    client.chat.completions.create(model="text", messages=[*USER, said, *results[:2]])


def test_no_tool_is_called_with_none(client) -> None:
    reply = client.chat.completions.create(
        model="tool_call", messages=USER, tools=TOOLS, tool_choice="none"
    )
    assert reply.choices[0].message.tool_calls is None


def test_response_format(client) -> None:
    schema = {"enum": [{"colour": "blue"}]}
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema, "strict": True}}
    reply = client.chat.completions.create(model="text", messages=USER, response_format=form)
    assert json.loads(reply.choices[0].message.content) == {"colour": "blue"}


def test_logprobs(client) -> None:
    reply = client.chat.completions.create(
        model="text", messages=USER, logprobs=True, top_logprobs=2
    )
    entries = reply.choices[0].logprobs.content
    assert len(entries) == reply.usage.completion_tokens
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in entries)


def test_max_tokens(client) -> None:
    reply = client.chat.completions.create(model="long", messages=USER, max_completion_tokens=3)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 3)
    reply = client.chat.completions.create(model="long", messages=USER)
    assert reply.choices[0].message.content == EXPECTED["long"], "it is not cut"


@pytest.mark.parametrize(
    "change, error, param",
    [
        ({"model": "none"}, openai.NotFoundError, "model"),
        ({"n": 0}, openai.BadRequestError, "n"),
        ({"temperature": "hot"}, openai.BadRequestError, "temperature"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, openai.BadRequestError, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, openai.BadRequestError, None),
        ({"extra_body": {"functions": []}}, openai.BadRequestError, "functions"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(client, change, error, param, stream) -> None:
    request = {"model": "text", "messages": USER, "stream": stream, **change}
    with pytest.raises(error) as raised:
        client.chat.completions.create(**request)
    assert raised.value.param == param
    if len(str(change)) > 5000:
        assert raised.value.code == "context_length_exceeded"


def test_key() -> None:
    server = Server(str(MODELS / "text.gguf"), env={"LLB_API_KEY": "right"})
    try:
        for key, is_right in [("right", True), ("wrong", False)]:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
            if is_right:
                assert [model.id for model in client.models.list()] == ["text"]
            else:
                with pytest.raises(openai.AuthenticationError):
                    client.models.list()
        assert "ok" in server.get("/health")
    finally:
        assert server.stop() == 0
    assert "right" not in "".join(server.log)
