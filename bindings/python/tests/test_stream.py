"""Streams: chunks, early end, interrupts, callbacks."""

import gc
import json
import os
import signal
import threading

import pytest

import llb
from test_chat import HELLO, WEATHER


def content(chunks):
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def assert_idle(chat):
    """The chat accepts the next call, and no stream thread is left."""
    assert chat.create(messages=HELLO, max_tokens=1)["usage"]["completion_tokens"] == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "llb-stream"]


def test_the_pieces_concatenate_to_the_text(chat, expected):
    stream = chat("text").create(messages=HELLO, stream=True, temperature=0)
    chunks = list(stream)
    assert content(chunks) == expected["text"] == stream.reply["text"]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (
        len(chunks) - 1
    )
    last = chunks[-1]
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert last["usage"] == stream.reply["usage"]
    assert last["llb"] == stream.reply


def test_a_tool_call_is_a_chunk(chat):
    stream = chat("tool_call").create(messages=HELLO, tools=[WEATHER], stream=True, temperature=0)
    chunks = list(stream)
    (call,) = stream.reply["tool_calls"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    function = {"name": "get_weather", "arguments": call["arguments"]}
    calls = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert calls == [[{"index": 0, "id": call["id"], "type": "function", "function": function}]]
    assert content(chunks) == stream.reply["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(call["arguments"])


def test_chunks_of_the_library_pass_through(chat):
    stream = chat("tool_call").create(
        messages=HELLO,
        tools=[WEATHER],
        stream=True,
        stream_format="chunks",
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    (call,) = stream.reply["tool_calls"]
    deltas = [
        delta for chunk in chunks for delta in chunk["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert deltas[0]["id"] == call["id"]
    assert deltas[0]["function"]["name"] == "get_weather"
    assert "".join(delta["function"]["arguments"] for delta in deltas) == call["arguments"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"] == stream.reply["usage"]


def leave_by_close(stream):
    next(stream)
    stream.close()
    assert list(stream) == []


def leave_by_context(stream):
    with stream:
        next(stream)


def leave_by_exception(stream):
    with pytest.raises(ZeroDivisionError):
        with stream:
            for _ in stream:
                raise ZeroDivisionError


def leave_by_break(stream):
    for _ in stream:
        break
    stream.close()


def leave_untouched(stream):
    stream.close()


@pytest.mark.parametrize(
    "leave", [leave_by_close, leave_by_context, leave_by_exception, leave_by_break, leave_untouched]
)
def test_a_stream_left_early_ends(chat, leave, blocked):
    running = chat("long")
    leave(running.create(messages=HELLO, stream=True))
    assert_idle(running)


def test_a_dropped_stream_ends(chat, blocked):
    running = chat("long")
    for _ in running.create(messages=HELLO, stream=True):
        break
    gc.collect()
    assert running.create(messages=HELLO, max_tokens=1)["usage"]["completion_tokens"] == 1


def test_closing_a_waiting_stream_does_not_affect_the_running_one(chat, blocked, cancels):
    shared = chat("long")
    first = shared.create(messages=HELLO, stream=True, max_tokens=50, temperature=0)
    second = shared.create(messages=HELLO, stream=True, temperature=0)
    second.close()
    assert not cancels
    blocked.set()
    list(first)
    assert first.reply["finish_reason"] == "length"
    assert first.reply["usage"]["completion_tokens"] == 50


def test_a_closed_chat_ends_its_stream(chat, blocked):
    closing = chat("long")
    stream = closing.create(messages=HELLO, stream=True)
    next(stream)
    closing.close()
    try:
        last = list(stream)[-1]
    except llb.LlbError as error:
        assert error.code in ("CANCELLED", "ENGINE_CLOSED")
    else:
        assert last["choices"][0]["finish_reason"] in ("cancelled", "length", "stop")


def test_an_interrupt_ends_a_stream(models, blocked):
    with llb.Chat(models("long")) as chat:
        stream = chat.create(messages=HELLO, stream=True)
        interrupter = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            for chunk in stream:
                if interrupter.ident is None and chunk["choices"][0]["delta"].get("content"):
                    interrupter.start()
            interrupter.join()
        interrupter.join()
        stream.close()
        assert_idle(chat)


def test_an_exception_of_a_callback_is_raised_by_the_iteration(models):
    class Custom(Exception):
        pass

    def on_event(event):
        if event == "infer_start":
            raise Custom

    with llb.Chat(models("long"), on_event=on_event) as chat:
        with pytest.raises(Custom):
            list(chat.create(messages=HELLO, stream=True))


def test_a_chat_without_a_model_file_can_stream(library):
    """The request fails, because no server listens on the port."""
    engine = {"type": "openai_completions", "base_url": "http://127.0.0.1:9"}
    with llb.Chat(engine=engine, chat_template="{{ messages }}", tool_policy="any") as chat:
        with pytest.raises(llb.LlbError) as caught:
            list(chat.create(messages=HELLO, stream=True))
    assert caught.value.code == "INFERENCE_FAILED"


def test_streams_of_several_chats_run_together(chat, expected):
    streams = [chat("text").create(messages=HELLO, stream=True, temperature=0) for _ in range(3)]
    assert [content(stream) for stream in streams] == [expected["text"]] * 3
