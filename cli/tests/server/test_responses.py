"""Tests `/v1/responses` with the official client."""

from __future__ import annotations

import json
import re

import pytest
from conftest import EXPECTED, TOOLS, Server

openai = pytest.importorskip("openai")

TOOL = {"type": "function", **TOOLS[0]["function"], "strict": False}
REASONING, ANSWER = "One, two, drei fünf, six.", "The answer."


@pytest.fixture
def client(server: Server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_text(client) -> None:
    response = client.responses.create(model="text", input="secret-prompt", instructions="Be brief.")
    assert (response.output_text, response.status) == (EXPECTED["text"], "completed")
    assert response.usage.output_tokens == 12
    response = client.responses.create(model="long", input="x", max_output_tokens=3)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"


def test_stream(client) -> None:
    with client.responses.stream(model="text", input="secret-prompt") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text == EXPECTED["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning(client, stream: bool) -> None:
    if stream:
        with client.responses.stream(model="reasoning", input="x") as events:
            response = events.get_final_response()
    else:
        response = client.responses.create(model="reasoning", input="x")
    reasoning, message = response.output
    assert (reasoning.type, reasoning.content[0].text) == ("reasoning", REASONING)
    assert (message.type, message.content[0].text) == ("message", ANSWER)
    # The items are part of the next request's input.
    items = [{"role": "user", "content": "x"}, *[item.to_dict() for item in response.output]]
    client.responses.create(model="reasoning", input=[*items, {"role": "user", "content": "y"}])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "name": "get_weather"}])
def test_tools(client, stream: bool, choice) -> None:
    request = {
        "model": "tool_call",
        "input": "x",
        "tools": [TOOL],
        "tool_choice": choice,
        "parallel_tool_calls": False,
    }
    if stream:
        with client.responses.stream(**request) as events:
            kinds = [event.type for event in events]
            response = events.get_final_response()
        assert "response.function_call_arguments.done" in kinds
    else:
        response = client.responses.create(**request)
    [call] = [item for item in response.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    # Once with the whole input, once with the id of the response.
    items = [{"role": "user", "content": "x"}, *[item.to_dict() for item in response.output]]
    whole = client.responses.create(model="tool_call", input=[*items, output], tools=[TOOL])
    follow = client.responses.create(
        model="tool_call", input=[output], tools=[TOOL], previous_response_id=response.id
    )
    assert whole.usage.input_tokens == follow.usage.input_tokens > response.usage.input_tokens


def test_outputs_belong_to_calls(client) -> None:
    user = {"role": "user", "content": "x"}
    call = {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "12"}
    for items, message in [
        ([user, call], "No tool output found for function call a."),
        ([user, output], "No tool call found for function call output with call_id a."),
    ]:
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(model="text", input=items)
        error = raised.value
        assert (error.param, error.type, error.code) == ("input", "invalid_request_error", None)
        assert error.body["message"] == message
    # The output may come later.
    client.responses.create(model="text", input=[user, call, user, output])


def test_responses_are_stored_and_deleted(client) -> None:
    response = client.responses.create(model="text", input="secret-prompt")
    assert client.responses.retrieve(response.id).output_text == EXPECTED["text"]
    client.responses.delete(response.id)
    for call in [
        lambda: client.responses.retrieve(response.id),
        lambda: client.responses.create(model="text", input="x", previous_response_id=response.id),
    ]:
        with pytest.raises(openai.NotFoundError):
            call()
    kept = client.responses.create(model="text", input="x", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(kept.id)


def test_formats(client) -> None:
    schema = {"enum": [{"colour": "blue"}]}
    text = {"format": {"type": "json_schema", "name": "c", "schema": schema, "strict": True}}
    response = client.responses.create(model="text", input="x", text=text)
    assert json.loads(response.output_text) == {"colour": "blue"}


def test_logprobs(client) -> None:
    response = client.responses.create(
        model="text", input="x", include=["message.output_text.logprobs"], top_logprobs=2
    )
    entries = response.output[0].content[0].logprobs
    assert len(entries) == 12 and all(len(entry.top_logprobs) == 2 for entry in entries)


@pytest.mark.parametrize(
    "change, param",
    [
        ({"background": True}, "background"),
        ({"truncation": "some"}, "truncation"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"temperature": -1}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(client, change, param: str, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(**{"model": "text", "input": "x", "stream": stream, **change})
    assert raised.value.param == param


def test_wrong_types_in_every_field(server: Server) -> None:
    fields = (
        "model input instructions tools tool_choice max_output_tokens text reasoning include "
        "previous_response_id store temperature top_p parallel_tool_calls metadata top_logprobs "
        "truncation background seed stop"
    ).split()
    for field in fields:
        for value in [True, -1, "x", [], [1], {}, {"a": 1}, [{"type": 1}], [{"role": "user"}]]:
            request = {"model": "text", "input": "x", "max_output_tokens": 1, field: value}
            status, reply, _ = server.post("/v1/responses", request)
            assert status in (200, 400, 404), (field, value, reply)
            assert ("error" in reply and reply["error"] is not None) == (status != 200)


def test_what_cannot_be_used_is_left_out(client) -> None:
    request = {
        "model": "tool_call",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image"}]},
            {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "q"}},
        ],
        "tools": [{"type": "web_search"}, TOOL],
    }
    whole = client.responses.with_raw_response.create(**request)
    expected = [("tool_left_out", "tools[0]"), ("part_replaced", "input[0].content[1]")]
    header = ", ".join(f"{code}={param}" for code, param in [*expected, ("part_replaced", "input[1]")])
    assert whole.headers["x-llb-diagnostics"] == header
    response = whole.parse()
    notes = [(note["code"], note["param"]) for note in response.diagnostics if "param" in note]
    assert notes[:2] == expected
    assert "function_call" in [item.type for item in response.output]
    with client.responses.stream(**request) as stream:
        assert stream.get_final_response().diagnostics == response.diagnostics


@pytest.mark.parametrize("stream", [False, True])
def test_tools_of_every_kind_are_called_as_their_kind(client, stream: bool) -> None:
    namespace = {"type": "namespace", "name": "crm", "description": "", "tools": [TOOL]}
    custom = {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "regex", "definition": "select [0-9]"}}
    kinds = [
        (namespace, "function_call", "arguments"),
        (custom, "custom_tool_call", "input"),
        ({"type": "local_shell"}, "local_shell_call", "action"),
        ({"type": "shell"}, "shell_call", "action"),
        ({"type": "apply_patch"}, "apply_patch_call", "operation"),
    ]
    for tool, kind, member in kinds:
        request = {
            "model": "text",
            "input": "x",
            "tools": [tool],
            "tool_choice": "required",
            "temperature": 0,
            "parallel_tool_calls": False,
            "max_output_tokens": 200,
        }
        if stream:
            events = list(client.responses.create(**request, stream=True))
            names = [event.type for event in events]
            assert ("response.custom_tool_call_input.done" in names) == (kind == "custom_tool_call")
            response = events[-1].response
        else:
            response = client.responses.create(**request)
        call = response.output[-1]
        assert call.type == kind, response.output
        value = getattr(call, member)
        if kind == "custom_tool_call" and call.status == "completed":
            assert value.startswith("select ")
        if kind == "function_call":
            assert (call.name, call.namespace) == ("get_weather", "crm")
        output = {"type": f"{kind}_output", "call_id": call.call_id, "output": "done"}
        if kind == "shell_call":
            output["output"] = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
        if kind == "apply_patch_call":
            output["status"] = "completed"
        if kind == "local_shell_call":
            output = {"type": f"{kind}_output", "id": call.id, "output": "done"}
        follow = [{"role": "user", "content": "x"}, call.to_dict(), output]
        client.responses.create(model="text", input=follow, tools=[tool], max_output_tokens=1)


PATCH = """
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: "*** Delete File: " filename LF
    | "*** Add File: " filename LF add_line+
filename: /[a-z]{1,8}/
add_line: "+" /[a-z ]{0,9}/ LF
%import common.LF
"""


def test_the_grammar_of_a_custom_tool_is_enforced(client) -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": PATCH}
    tool = {"type": "custom", "name": "apply_patch", "format": grammar}
    for seed in range(4):
        response = client.responses.create(
            model="text",
            input="x",
            tools=[tool],
            tool_choice={"type": "custom", "name": "apply_patch"},
            temperature=1.5,
            max_output_tokens=900,
            extra_body={"seed": seed},
        )
        [call] = [item for item in response.output if item.type == "custom_tool_call"]
        lines = "(\\*\\*\\* Delete File: [a-z]{1,8}\n|\\*\\*\\* Add File: [a-z]{1,8}\n(\\+[a-z ]{0,9}\n)+)+"
        whole = f"\\*\\*\\* Begin Patch\n{lines}\\*\\*\\* End Patch\n?"
        assert response.status == "incomplete" or re.fullmatch(whole, call.input), call.input
        assert call.input.startswith("*** Begin Patch\n")


def test_tokens_are_counted(client) -> None:
    counted = client.responses.input_tokens.count(model="text", input="x", instructions="Be brief.")
    response = client.responses.create(model="text", input="x", instructions="Be brief.")
    assert counted.input_tokens == response.usage.input_tokens


def test_allowed_tools(client) -> None:
    other = {**TOOL, "name": "other"}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}
    response = client.responses.create(
        model="tool_call", input="x", tools=[TOOL, other], tool_choice=choice, parallel_tool_calls=False
    )
    assert [item.name for item in response.output if item.type == "function_call"] == ["other"]


def test_truncation(client) -> None:
    turn = [{"role": "user", "content": "x" * 500}, {"role": "assistant", "content": "y" * 500}]
    request = {"model": "text", "input": [*turn * 4, {"role": "user", "content": "last"}]}
    response = client.responses.create(**request, truncation="auto", max_output_tokens=20)
    assert response.output_text == EXPECTED["text"] and response.truncation == "auto"
    assert response.usage.input_tokens < 2048
    assert "context_truncated" in [note["code"] for note in response.diagnostics]
    for truncation in [{}, {"truncation": "disabled"}]:
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(**request, **truncation)
        assert raised.value.code == "context_length_exceeded"
