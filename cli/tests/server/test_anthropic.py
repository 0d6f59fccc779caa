"""Tests `/v1/messages` with the official client."""

from __future__ import annotations

import pytest
from conftest import EXPECTED, TOOLS, Server

anthropic = pytest.importorskip("anthropic")

USER = [{"role": "user", "content": "secret-prompt"}]
FUNCTION = TOOLS[0]["function"]
TOOL = {"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}
REASONING, ANSWER = "One, two, drei fünf, six.", "The answer."


@pytest.fixture
def client(server: Server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_text(client) -> None:
    message = client.messages.create(
        model="text", max_tokens=100, system="Be brief.", messages=USER
    )
    assert [(block.type, block.text) for block in message.content] == [("text", EXPECTED["text"])]
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 12)
    message = client.messages.create(model="long", max_tokens=3, messages=USER)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 3)


@pytest.mark.parametrize("stream", [True, False])
def test_stop_sequences(client, stream: bool) -> None:
    request = {
        "model": "reasoning",
        "max_tokens": 2000,
        "messages": USER,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "stop_sequences": ["two", " answer"],
    }
    if stream:
        with client.messages.stream(**request) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**request)
    assert [getattr(block, block.type) for block in message.content] == [REASONING, "The"]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " answer")


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_thinking(client, thinking: bool, stream: bool) -> None:
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinking else {}
    request = {"model": "reasoning", "max_tokens": 2000, "messages": USER, **options}
    if stream:
        with client.messages.stream(**request) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**request)
    blocks = [getattr(block, block.type) for block in message.content]
    assert blocks == ([REASONING, ANSWER] if thinking else [ANSWER])
    # The next request contains the blocks of this reply.
    messages = [*USER, {"role": "assistant", "content": message.content}, *USER]
    client.messages.create(**{**request, "messages": messages})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("choice", ["auto", "any", "tool"])
def test_tools(client, stream: bool, choice: str) -> None:
    tool_choice = {"type": choice, "disable_parallel_tool_use": True}
    if choice == "tool":
        tool_choice["name"] = "get_weather"
    request = {
        "model": "tool_call",
        "max_tokens": 100,
        "messages": USER,
        "tools": [TOOL],
        "tool_choice": tool_choice,
    }
    if stream:
        with client.messages.stream(**request) as events:
            kinds, started = [], 0
            for event in events:
                kinds.append(event.type)
                if event.type == "message_start":
                    started = event.message.usage.input_tokens
            message = events.get_final_message()
        usage = message.usage
        assert started == usage.input_tokens + usage.cache_read_input_tokens > 0
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
        assert message.usage.output_tokens > 0 and message.usage.input_tokens > 0
    else:
        message = client.messages.create(**request)
    [call] = [block for block in message.content if block.type == "tool_use"]
    assert (call.name, call.input, message.stop_reason) == (
        "get_weather",
        {"city": "Paris"},
        "tool_use",
    )
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}
    messages = [
        *USER,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ]
    client.messages.create(**{**request, "messages": messages})


def test_uses_without_results(client) -> None:
    use = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "12"}
    text = {"type": "text", "text": "So?"}
    for content, words in [
        ([text, result], "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        ([result, result], "messages.2.content.1: each tool_use must have a single result."),
        (
            [result, {**result, "tool_use_id": "b"}],
            "messages.2.content.1: unexpected `tool_use_id`",
        ),
    ]:
        said = [{"role": "assistant", "content": [use]}, {"role": "user", "content": content}]
        for send in [client.messages.create, client.messages.count_tokens]:
            limit = {"max_tokens": 10} if send == client.messages.create else {}
            with pytest.raises(anthropic.BadRequestError) as raised:
                send(model="text", messages=[*USER, *said], **limit)
            error = raised.value.body["error"]
            assert error["type"] == "invalid_request_error"
            assert error["message"].startswith(words), error


def test_streamed_text(client) -> None:
    with client.messages.stream(model="text", max_tokens=100, messages=USER) as events:
        assert "".join(events.text_stream) == EXPECTED["text"]


def test_a_last_message_of_the_assistant_is_continued(server: Server, client) -> None:
    messages = [*USER, {"role": "assistant", "content": "Once"}]
    message = client.messages.create(model="text", max_tokens=100, messages=messages)
    # Only the new part, without the given beginning.
    assert message.content[0].text == EXPECTED["text"]


def test_tokens_are_counted(client) -> None:
    count = client.messages.count_tokens(model="text", messages=USER).input_tokens
    message = client.messages.create(model="text", max_tokens=1, messages=USER)
    usage = message.usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens
    tools = client.messages.count_tokens(model="text", messages=USER, tools=[TOOL])
    assert tools.input_tokens > count


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"model": "none"}, anthropic.NotFoundError, "not_found_error"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, anthropic.BadRequestError, "role"),
        (
            {"tool_choice": {"type": "all"}, "tools": [TOOL]},
            anthropic.BadRequestError,
            "tool_choice",
        ),
        ({"extra_body": {"temperature": "hot"}}, anthropic.BadRequestError, "temperature"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "max_tokens"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(client, change, error, text: str, stream: bool) -> None:
    request = {"model": "text", "max_tokens": 10, "messages": USER, "stream": stream, **change}
    with pytest.raises(error) as raised:
        client.messages.create(**request)
    assert raised.value.body["type"] == "error"
    assert text in str(raised.value.body)


def test_wrong_types_in_every_field(server: Server) -> None:
    good = {"model": "text", "max_tokens": 1, "messages": USER}
    fields = (
        "model messages max_tokens system tools tool_choice thinking stop_sequences temperature "
        "top_p top_k metadata output_config mcp_servers"
    ).split()
    for field in fields:
        for value in [True, -1, "x", [], [1], {}, {"a": 1}, [{"type": 1}], [{"type": "text"}]]:
            status, reply, _ = server.post("/v1/messages", {**good, field: value})
            assert status in (200, 400, 404), (field, value, reply)
            assert (reply["type"] == "error") == (status != 200)


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_used_is_left_out(client, stream: bool) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    content = [IMAGE, {"type": "text", "text": "x"}]
    request = {
        "model": "tool_call",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": content}],
        "tools": [search, TOOL],
    }
    header = "part_replaced=messages[0].content[0], tool_left_out=tools[0]"
    if stream:
        with client.messages.stream(**request) as events:
            assert events.response.headers["x-llb-diagnostics"] == header
            message = events.get_final_message()
    else:
        raw = client.messages.with_raw_response.create(**request)
        assert raw.headers["x-llb-diagnostics"] == header
        message = raw.parse()
        codes = [note["code"] for note in message.llb_diagnostics]
        assert codes[:2] == ["part_replaced", "tool_left_out"]
    assert message.stop_reason == "tool_use"


def test_only_what_was_asked_for_is_said_to_be_ignored(client) -> None:
    request = {"model": "no_tools", "max_tokens": 2, "messages": USER}
    silent = client.messages.create(**request)
    assert not hasattr(silent, "llb_diagnostics")
    asked = client.messages.create(**request, thinking={"type": "disabled"})
    assert [note["code"] for note in asked.llb_diagnostics] == ["enable_thinking_ignored"]


def test_metadata_of_the_client_does_not_change_the_prompt(client) -> None:
    rules = {"type": "text", "text": "Rules. " * 100}
    for number in range(2):
        header = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={number}a;"}
        message = client.messages.create(
            model="text", max_tokens=2, system=[header, rules], messages=USER
        )
    usage = message.usage
    assert usage.cache_read_input_tokens > 0.9 * (usage.input_tokens + usage.cache_read_input_tokens)


def test_deferred_tools_are_loaded_by_references(client) -> None:
    deferred = {**TOOL, "name": "late", "defer_loading": True}
    request = {"model": "text", "tools": [TOOL, deferred]}
    before = client.messages.count_tokens(messages=USER, **request).input_tokens
    only = client.messages.count_tokens(messages=USER, model="text", tools=[TOOL]).input_tokens
    assert before == only
    reference = {"type": "tool_reference", "tool_name": "late"}
    messages = [
        *USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [reference]}]},
    ]
    with_late = client.messages.count_tokens(messages=messages, **request).input_tokens
    without = client.messages.count_tokens(messages=messages, model="text", tools=[TOOL]).input_tokens
    assert with_late > without
