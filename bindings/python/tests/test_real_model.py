"""Chats with a real model."""

import json
import os
import signal
import threading

import pytest

import llb
from test_chat import CITY, WEATHER


@pytest.fixture(scope="module")
def real_chat(real_model):
    with llb.Chat(real_model, n_ctx=2048) as chat:
        yield chat


def ask(text):
    return [{"role": "user", "content": text}]


def test_the_header_tells_that_tools_are_supported(real_model):
    info = llb.model_info(real_model)
    assert info["supports_tools"] is True
    assert info["architecture"] == "qwen2"
    assert info["quantization"] == "Q4_K_M"


def test_pieces_are_the_text(real_chat):
    stream = real_chat.create(
        messages=ask("Count to five."), stream=True, temperature=0, max_tokens=40
    )
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in stream)
    assert text == stream.reply["text"] != ""


def test_a_required_tool_is_called(real_chat):
    reply = real_chat.create(
        messages=ask("What is the weather in Paris?"),
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    )
    assert reply["type"] == "tool_call"
    assert reply["tool_calls"][0]["name"] == "get_weather"
    assert isinstance(json.loads(reply["tool_calls"][0]["arguments"])["city"], str)


def test_json_schema_is_obeyed(real_chat):
    question = ask("Name the capital of France as JSON.")
    reply = real_chat.create(messages=question, response_format=CITY, temperature=0)
    assert list(json.loads(reply["text"])) == ["city"]


def test_a_cancel_ends_a_generation(real_chat):
    stream = real_chat.create(
        messages=ask("Write a very long story."), stream=True, max_tokens=1500
    )
    for _ in range(3):
        next(stream)
    real_chat.cancel()
    list(stream)
    assert stream.reply["finish_reason"] == "cancelled"
    assert stream.reply["usage"]["completion_tokens"] < 1500


def test_an_interrupt_ends_a_generation(real_chat):
    interrupter = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            real_chat.create(messages=ask("Write a very long story."), max_tokens=1500)
    assert real_chat.create(messages=ask("Hi"), max_tokens=1)["usage"]["completion_tokens"] == 1
