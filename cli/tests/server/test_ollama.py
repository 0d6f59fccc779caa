"""Ollama's official client for Python against `llb serve`."""

from __future__ import annotations

import json
from typing import Any, Iterator

import pytest
from conftest import ENDLESS, EXPECTED, MODELS, TOOLS, Server, is_error

ollama = pytest.importorskip("ollama")

USER = [{"role": "user", "content": "secret-prompt"}]
CITY = {"city": "Paris"}


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    return ollama.Client(host=server.url)


@pytest.fixture(scope="module")
def vectors() -> Iterator[Any]:
    running = Server("--embedding", str(MODELS / "embedding.gguf"))
    yield ollama.Client(host=running.url)
    assert running.stop() == 0, running.log


def test_chat(client: Any) -> None:
    reply = client.chat("text", messages=USER)
    assert (reply.message.content, reply.message.role) == (
        EXPECTED["text"],
        "assistant",
    )
    assert (reply.model, reply.done, reply.done_reason) == ("text", True, "stop")
    assert reply.eval_count > 10 and reply.prompt_eval_count > 0
    assert reply.total_duration >= reply.prompt_eval_duration + reply.eval_duration > 0
    # Ollama adds a tag to names without one.
    assert client.chat("text:latest", messages=USER).message.content == EXPECTED["text"]


def test_stream(client: Any) -> None:
    parts = list(client.chat("text", messages=USER, stream=True))
    assert "".join(part.message.content for part in parts) == EXPECTED["text"]
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 5
    assert (parts[-1].done_reason, parts[0].eval_count) == ("stop", None)
    assert parts[-1].eval_count > 10


@pytest.mark.parametrize("stream", [False, True])
def test_options(client: Any, stream: bool) -> None:
    options = {"num_predict": 3, "temperature": 0, "seed": 1, "num_ctx": 4096}
    reply = client.chat("long", messages=USER, options=options, stream=stream, keep_alive="5m")
    last = list(reply)[-1] if stream else reply
    assert (last.done_reason, last.eval_count) == ("length", 3)
    stopped = client.chat("long", messages=USER, options={"stop": ["4"]})
    assert stopped.message.content == EXPECTED["long"].split("4")[0]


@pytest.mark.parametrize("stream", [False, True])
def test_tools(client: Any, stream: bool) -> None:
    reply = client.chat("tool_call", messages=USER, tools=TOOLS, stream=stream)
    messages = [part.message for part in reply] if stream else [reply.message]
    [call] = [call for message in messages for call in message.tool_calls or []]
    assert (call.function.name, call.function.arguments) == ("get_weather", CITY)
    # Its results have no ids.
    history = [
        *USER,
        {"role": "assistant", "content": "", "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_name": "get_weather", "content": "sunny"},
    ]
    again = client.chat("tool_call", messages=history, tools=TOOLS)
    assert again.message.tool_calls[0].function.arguments == CITY


@pytest.mark.parametrize("stream", [False, True])
def test_thinking(client: Any, stream: bool) -> None:
    reply = client.chat("reasoning", messages=USER, think=True, stream=stream)
    messages = [part.message for part in reply] if stream else [reply.message]
    assert "".join(message.thinking or "" for message in messages) == "One, two, drei fünf, six."
    assert "".join(message.content or "" for message in messages) == "The answer."


@pytest.mark.parametrize("stream", [False, True])
def test_generate(client: Any, stream: bool) -> None:
    reply = client.generate("text", prompt="secret-prompt", system="Be brief.", stream=stream)
    parts = list(reply) if stream else [reply]
    assert "".join(part.response for part in parts) == EXPECTED["text"]
    assert parts[-1].done_reason == "stop"
    assert client.generate("text").done_reason == "load"


def test_format(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
    }
    reply = client.chat("text", messages=USER, format=schema)
    assert list(json.loads(reply.message.content)) == ["city"]
    with pytest.raises(ollama.ResponseError, match="format"):
        client._request_raw(
            "POST", "/api/chat", json={"model": "text", "messages": USER, "format": 1}
        )


def test_logprobs(client: Any) -> None:
    reply = client.chat("text", messages=USER, logprobs=True, top_logprobs=2)
    assert len(reply.logprobs) == reply.eval_count
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in reply.logprobs)


def test_models(client: Any, server: Server) -> None:
    models = client.list().models
    assert [model.model for model in models] == [
        "text",
        "tool_call",
        "reasoning",
        "long",
        "no_tools",
    ]
    assert models[0].size > 0 and models[0].details.format == "gguf" and models[0].modified_at
    shown = client.show("reasoning")
    assert shown.capabilities == ["completion", "tools"]
    assert "messages" in shown.template
    family = shown.details.family
    assert shown.modelinfo["general.architecture"] == family
    assert shown.modelinfo[f"{family}.context_length"] > 0
    client.generate("text")
    assert "text" in [model.model for model in client.ps().models]
    assert json.loads(server.get("/api/version"))["version"].count(".") == 2


def test_embed(vectors: Any) -> None:
    reply = vectors.embed("embedding", input=["a", "b"])
    assert [len(vector) for vector in reply.embeddings] == [32, 32]
    assert reply.prompt_eval_count > 0
    one = vectors.embed("embedding", input="a")
    # Another batch rounds differently.
    assert one.embeddings[0] == pytest.approx(reply.embeddings[0], abs=1e-5)
    assert vectors.embeddings("embedding", prompt="a").embedding == pytest.approx(one.embeddings[0])


def test_a_raw_prompt_is_no_message(client: Any, server: Server) -> None:
    turn = "<|im_start|>user\nsecret-prompt<|im_end|>\n<|im_start|>assistant\n"
    raw = client.generate("text", prompt=turn, raw=True)
    assert raw.response == EXPECTED["text"]
    assert raw.prompt_eval_count == client.generate("text", prompt="secret-prompt").prompt_eval_count
    whole = server.post("/tokenize", {"model": "text", "content": turn, "parse_special": True})[1]
    assert raw.prompt_eval_count == len(whole["tokens"])


def test_errors(client: Any, server: Server) -> None:
    for error, request in [
        ("unknown model", {"model": "nothing", "messages": USER}),
        ("model", {"messages": USER}),
        ("role", {"model": "text", "messages": [{"role": "usr", "content": "x"}]}),
        ("messages", {"model": "text", "messages": "x"}),
        (
            "messages[0].images",
            {"model": "text", "messages": [{"role": "user", "images": 1}]},
        ),
        (
            "temperature",
            {"model": "text", "messages": USER, "options": {"temperature": "hot"}},
        ),
        ("raw", {"model": "text", "prompt": "x", "raw": "yes"}),
        ("suffix", {"model": "text", "prompt": "x", "suffix": "y"}),
    ]:
        route = "/api/generate" if "prompt" in request else "/api/chat"
        status, reply, _ = server.post(route, request)
        assert status in (400, 404) and error in reply["error"] and is_error(route, reply), reply
    with pytest.raises(ollama.ResponseError) as failed:
        client.chat("nothing", messages=USER)
    assert failed.value.status_code == 404 and "unknown model" in failed.value.error


def test_a_client_that_leaves(client: Any, server: Server) -> None:
    request = {
        "model": "long",
        "messages": USER,
        "options": {"num_predict": ENDLESS["max_tokens"]},
    }
    stream = client.chat(**request, stream=True)
    next(stream)
    stream.close()
    server.wait_for("llb_requests_running", 0)
