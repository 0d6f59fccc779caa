"""Tests completions of plain prompts, several choices, and the routes for editors."""

from __future__ import annotations

import json
from typing import Any, Iterator

import openai
import pytest
from conftest import EXPECTED, MODELS, Server, is_error

COMPLETIONS = "/v1/completions"
TEXT = EXPECTED["text"]
USER = [{"role": "user", "content": "secret-prompt"}]


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def real() -> Iterator[Server]:
    import os
    import pathlib

    folder = pathlib.Path(os.environ.get("LLB_MODELS", pathlib.Path.home() / ".cache/llb/models"))
    model = folder / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    if not model.exists():
        pytest.skip("no real model")
    running = Server(f"coder={model}", "--n-ctx", "2048")
    yield running
    assert running.stop() == 0, running.log


def test_a_prompt_is_continued(client: Any) -> None:
    reply = client.completions.create(model="text", prompt="Once", temperature=0)
    [choice] = reply.choices
    assert (choice.text, choice.finish_reason, choice.index) == (TEXT, "stop", 0)
    assert (reply.object, reply.model, choice.logprobs) == ("text_completion", "text", None)
    assert reply.usage.completion_tokens > 5 and reply.usage.prompt_tokens > 0
    stream = client.completions.create(
        model="text", prompt="Once", stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == TEXT
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == reply.usage.total_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_end_of_a_text(client: Any) -> None:
    cut = client.completions.create(model="text", prompt="Once", max_tokens=3)
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == ("Grüße aus", "length")
    stopped = client.completions.create(model="text", prompt="Once", stop=[" aus"])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("Grüße", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_with_several_choices(client: Any, stream: bool) -> None:
    request = {"model": "text", "prompt": ["One", "Two"], "n": 2, "echo": True, "seed": 5}
    reply = client.completions.create(**request, stream=stream)
    if stream:
        texts = ["", "", "", ""]
        for chunk in reply:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    else:
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        texts = [choice.text for choice in reply.choices]
        alone = client.completions.create(model="text", prompt="One")
        assert reply.usage.completion_tokens == 4 * alone.usage.completion_tokens
        assert reply.usage.prompt_tokens == 2 * alone.usage.prompt_tokens
    assert texts == [f"One{TEXT}"] * 2 + [f"Two{TEXT}"] * 2


def test_token_ids(client: Any, server: Server) -> None:
    tokens = server.post("/tokenize", {"model": "text", "content": "Once"})[1]["tokens"]
    reply = client.completions.create(model="text", prompt=tokens, echo=True)
    assert reply.choices[0].text == f"Once{TEXT}"
    assert reply.usage.prompt_tokens == len(tokens)
    two = client.completions.create(model="text", prompt=[tokens, tokens])
    assert [choice.text for choice in two.choices] == [TEXT, TEXT]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(client: Any, stream: bool) -> None:
    reply = client.completions.create(
        model="text", prompt="Once", logprobs=2, max_tokens=4, stream=stream, echo=True
    )
    parts = [chunk.choices[0] for chunk in reply] if stream else reply.choices
    lists = [part.logprobs for part in parts if part.logprobs]
    tokens = [token for each in lists for token in each.tokens]
    values = [value for each in lists for value in each.token_logprobs]
    offsets = [offset for each in lists for offset in each.text_offset]
    tops = [top for each in lists for top in each.top_logprobs]
    assert len(tokens) == len(values) == len(offsets) == len(tops) == 4
    assert offsets[0] == len("Once") and offsets == sorted(offsets)
    assert all(value <= 0 for value in values) and all(len(top) == 2 for top in tops)


def test_choices_of_a_chat(client: Any) -> None:
    reply = client.chat.completions.create(model="text", messages=USER, n=3, seed=1, logprobs=True)
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert {choice.message.content for choice in reply.choices} == {TEXT}
    one = client.chat.completions.create(model="text", messages=USER)
    assert reply.usage.prompt_tokens == one.usage.prompt_tokens
    assert reply.usage.completion_tokens == 3 * one.usage.completion_tokens
    assert all(
        len(choice.logprobs.content) == one.usage.completion_tokens for choice in reply.choices
    )
    stream = client.chat.completions.create(
        model="text", messages=USER, n=3, stream=True, stream_options={"include_usage": True}
    )
    texts, ends, chunks = ["", "", ""], [], list(stream)
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends += [choice.index] if choice.finish_reason == "stop" else []
    assert (texts, sorted(ends)) == ([TEXT] * 3, [0, 1, 2])
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [
        reply.usage.total_tokens
    ]


def test_more_choices_than_places(server: Server) -> None:
    body = {"model": "text", "messages": USER, "n": 9}
    reply = server.post("/v1/chat/completions", body)[1]
    assert [choice["message"]["content"] for choice in reply["choices"]] == [TEXT] * 9


def test_calls_of_each_choice(server: Server) -> None:
    from conftest import TOOLS

    body = {"model": "tool_call", "messages": USER, "n": 2, "tools": TOOLS}
    reply = server.post("/v1/chat/completions", body)[1]
    names = [choice["message"]["tool_calls"][0]["function"]["name"] for choice in reply["choices"]]
    assert names == ["get_weather"] * 2


def test_errors(server: Server) -> None:
    for member, change in [
        ("prompt", {}),
        ("prompt[1]", {"prompt": ["a", 1]}),
        ("prompt", {"prompt": {"a": 1}}),
        ("prompt[0]", {"prompt": [-1]}),
        ("prompt", {"prompt": [99_999_999], "echo": True}),
        ("n", {"prompt": "a", "n": 200}),
        ("n", {"prompt": "a", "n": "x"}),
        ("best_of", {"prompt": "a", "best_of": 3}),
        ("logprobs", {"prompt": "a", "logprobs": "x"}),
        ("suffix", {"prompt": "a", "suffix": "b"}),
        ("temperature", {"prompt": "a", "temperature": "hot"}),
    ]:
        for stream in (False, True):
            status, reply, _ = server.post(
                COMPLETIONS, {"model": "text", "stream": stream, **change}
            )
            assert status == 400 and is_error(COMPLETIONS, reply), (change, reply)
            assert reply["error"]["message"].startswith(member), (change, reply)


def test_apply_template(server: Server) -> None:
    request = {"model": "text", "messages": USER}
    prompt = server.post("/apply-template", request)[1]["prompt"]
    assert prompt == server.post("/v1/explain", request)[1]["prompt"]


def test_slots_and_properties_are_those_of_llama_server(server: Server) -> None:
    slots = json.loads(server.get("/slots"))
    assert [slot["id"] for slot in slots] == list(range(4 * 5))
    assert [slot["model"] for slot in slots[::4]] == ["text", "tool_call", "reasoning", "long", "no_tools"]
    assert all(slot["n_ctx"] == 2048 and slot["is_processing"] is False for slot in slots)
    status, reply, _ = server.post("/slots/0?action=save", {"filename": "a.bin"})
    assert status == 501 and is_error("/slots", reply) and "--prefix-cache" in reply["error"]["message"]
    props = json.loads(server.get("/props"))
    assert (props["total_slots"], props["model_alias"]) == (4, "text")
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert json.loads(server.get("/lora-adapters")) == []


def test_adapters_have_a_scale_for_all_requests() -> None:
    path = str(MODELS / "adapter.gguf")
    server = Server(str(MODELS / "text.gguf"), "--lora", f"{path}=0")

    def reply(**members: Any) -> str:
        body = {"messages": USER, "temperature": 0, **members}
        return server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]

    def scale() -> float:
        [adapter] = json.loads(server.get("/lora-adapters"))
        assert (adapter["id"], adapter["path"]) == (0, path)
        return adapter["scale"]

    other = "Grüße aus Köln: and an emoji 😀 cut in two."
    assert (scale(), reply()) == (0.0, TEXT)
    assert server.post("/lora-adapters", [{"id": 0, "scale": 1.0}])[:2] == (200, {"success": True})
    assert (scale(), reply()) == (1.0, other)
    assert reply(lora=[]) == TEXT, "a request's own scales rule"
    for wrong in [{}, [{"id": 1, "scale": 1}], [{"id": 0, "scale": "x"}], b"[", b"\xff"]:
        status, error, _ = server.post("/lora-adapters", wrong)
        assert status == 400 and is_error("/lora-adapters", error), error
    assert server.post("/lora-adapters", [])[0] == 200
    assert (scale(), reply()) == (0.0, TEXT)
    assert server.stop() == 0


def test_a_gap_is_filled(real: Server) -> None:
    before, after = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"
    limits = {"temperature": 0, "stop": ["\n"]}
    request = {"prompt": before, "suffix": after, "max_tokens": 12, **limits}
    text = real.post(COMPLETIONS, request)[1]["choices"][0]["text"]
    assert "a + b" in text
    request = {"input_prefix": before, "input_suffix": after, "n_predict": 12, **limits}
    reply = real.post("/infill", request)[1]
    assert (reply["content"], reply["stop"], reply["stop_type"]) == (text, True, "word")
    events = (
        real.raw(event_request("/infill", {**request, "stream": True})).decode().split("data: ")
    )
    parts = [json.loads(event.splitlines()[0]) for event in events[1:]]
    assert "".join(part["content"] for part in parts) == text
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    # As llama.vim sends it: with a sampler of its own, and first only to compute the prompt.
    editor = {**request, "samplers": ["top_k", "top_p", "infill"], "t_max_predict_ms": 1}
    warm = real.post("/infill", {**editor, "n_predict": 0, "samplers": []})[1]
    assert (warm["tokens_predicted"], warm["stop_type"]) == (1, "limit")
    assert real.post("/infill", editor)[1]["content"] == text
    status, refused, _ = real.post("/infill", {"input_prefix": before})
    assert status == 400 and is_error("/infill", refused)


def event_request(path: str, body: Any) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text
