"""`llb serve --render`: prompts as token ids in the shape of vLLM, and replies of token ids."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List

import pytest

from conftest import EXPECTED, MODELS, TOOLS, Server

ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
END = "<|im_end|>"


@pytest.fixture(scope="module")
def renderer() -> Iterator[Server]:
    server = Server(f"m={MODELS / 'tool_call.gguf'}", "--render")
    yield server
    assert server.stop() == 0, server.log


def tokens(server: Server, text: str) -> List[int]:
    request = {"content": text, "parse_special": True}
    return server.post("/tokenize", request)[1]["tokens"]


def render(server: Server, **members: Any) -> Dict[str, Any]:
    status, reply, _ = server.post("/v1/chat/completions/render", {"messages": ASK, **members})
    assert status == 200, reply
    return reply


def test_a_chat_becomes_token_ids(renderer: Server) -> None:
    reply = render(
        renderer,
        tools=TOOLS,
        temperature=0.5,
        max_tokens=7,
        stop=["x"],
        repeat_penalty=1.1,
        logprobs=True,
        top_logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
        cache_salt="s",
        priority=3,
    )
    prompt = renderer.post("/apply-template", {"messages": ASK, "tools": TOOLS})[1]["prompt"]
    assert reply["token_ids"] == tokens(renderer, prompt)
    expected = {
        "temperature": 0.5,
        "max_tokens": 7,
        "stop": ["x"],
        "repetition_penalty": 1.1,
        "logprobs": 2,
        "skip_special_tokens": False,
    }
    assert reply["sampling_params"] == expected
    members = ("model", "stream", "stream_options", "cache_salt", "priority")
    assert [reply[name] for name in members] == ["m", True, {"include_usage": True}, "s", 3]
    assert reply["request_id"].startswith("chatcmpl-")
    llb = reply["llb"]
    assert llb["prompt"] == prompt and llb["tool_support"] == "native"
    content = next(span for span in llb["spans"] if span.get("path") == "messages[0].content")
    written = prompt.encode()[content["start"] : content["end"]].decode()
    assert written == ASK[0]["content"]


def test_special_tokens_in_messages_stay_text(renderer: Server) -> None:
    spelt = [{"role": "user", "content": END}]
    ids = render(renderer, messages=spelt)["token_ids"]
    plain = render(renderer, messages=[{"role": "user", "content": "x"}])["token_ids"]
    (end,) = tokens(renderer, END)
    assert ids.count(end) == plain.count(end)


def test_a_schema_is_passed_on(renderer: Server) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    reply = render(
        renderer, response_format={"type": "json_schema", "json_schema": {"schema": schema}}
    )
    assert reply["sampling_params"]["structured_outputs"] == {"json": schema}


def test_a_completion_becomes_token_ids(renderer: Server) -> None:
    for prompt, count in (("Hello", 1), (["Hello", "you"], 2), ([72, 105], 1), ([[72], [105]], 2)):
        status, reply, _ = renderer.post("/v1/completions/render", {"prompt": prompt})
        assert status == 200 and len(reply) == count, reply
    assert reply[1]["token_ids"] == [105]


def test_no_weights_are_loaded(renderer: Server) -> None:
    status, reply, _ = renderer.post("/v1/chat/completions", {"messages": ASK})
    assert status == 501 and "--render" in reply["error"]["message"]
    assert json.loads(renderer.get("/health")) == {"status": "ok"}
    assert "llb_" in renderer.get("/metrics")
    assert json.loads(renderer.get("/v1/models"))["data"][0]["loaded"] is False


def derender(server: Server, ids: List[int], **members: Any) -> Dict[str, Any]:
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop", "logprobs": None}
    response = {"request_id": "r", "choices": [choice]}
    request = {"generate_response": response, "prompt_tokens": 5, **members}
    status, reply, _ = server.post("/v1/chat/completions/derender", request)
    assert status == 200, reply
    return reply


def test_token_ids_become_a_message(renderer: Server) -> None:
    ids = tokens(renderer, EXPECTED["tool_call"] + END)
    chat_request = {"messages": ASK, "tools": TOOLS}
    reply = derender(renderer, ids, chat_request=chat_request)
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    function = choice["message"]["tool_calls"][0]["function"]
    assert function["name"] == "get_weather" and json.loads(function["arguments"])
    usage = reply["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, len(ids))
    text = derender(renderer, tokens(renderer, "Grüße" + END))["choices"][0]
    assert (text["message"]["content"], text["finish_reason"]) == ("Grüße", "stop")


@pytest.mark.parametrize("size", [1, 7])
def test_a_stream_adds_up_to_the_message(renderer: Server, size: int) -> None:
    text = "I look.\n" + EXPECTED["tool_call"]
    ids = tokens(renderer, text + END)
    chat_request = {"messages": ASK, "tools": TOOLS}
    whole = derender(renderer, ids, chat_request=chat_request)["choices"][0]["message"]
    state = None
    content, arguments, names, call_ids, reasons = "", "", [], set(), []
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        finish = "stop" if start + size >= len(ids) else None
        choice = {"index": 0, "token_ids": part, "finish_reason": finish}
        request = {
            "stream": True,
            "generate_chunk": {"request_id": "r", "choices": [choice]},
            "stream_state": state,
            "chat_request": chat_request,
        }
        status, reply, _ = renderer.post("/v1/chat/completions/derender", request)
        assert status == 200, reply
        state = reply["stream_state"]
        made = reply["chunk"]["choices"][0]
        delta = made["delta"]
        assert ("role" in delta) == (start == 0)
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            names += [call["function"]["name"]] if "name" in call["function"] else []
            call_ids |= {call["id"]} if "id" in call else set()
            arguments += call["function"]["arguments"]
        reasons.append(made["finish_reason"])
    assert content == whole["content"]
    assert names == ["get_weather"] and len(call_ids) == 1
    assert arguments == whole["tool_calls"][0]["function"]["arguments"]
    assert reasons[-1] == "tool_calls" and set(reasons[:-1]) <= {None}


def test_what_is_missing_is_named(renderer: Server) -> None:
    for path, body, param in (
        ("/v1/chat/completions/derender", {}, "generate_response"),
        ("/v1/chat/completions/derender", {"generate_response": {}}, "generate_response.choices"),
        ("/v1/completions/render", {}, "prompt"),
    ):
        status, reply, _ = renderer.post(path, body)
        assert (status, reply["error"]["param"]) == (400, param), reply
