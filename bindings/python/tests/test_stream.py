"""Streams: chunks, early end, interrupts, callbacks."""

import gc
import os
import signal
import threading

import pytest

import llb
from test_chat import HELLO, WEATHER


def content(chunks):
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def assert_idle(chat):
    """The chat accepts the next call."""
    assert chat.create(messages=HELLO, max_tokens=1)["usage"]["completion_tokens"] == 1


def deltas(chunks):
    return [chunk["choices"][0]["delta"] for chunk in chunks]


def test_the_pieces_concatenate_to_the_text(chat, expected):
    stream = chat("text").create(
        messages=HELLO, stream=True, stream_options={"include_usage": True}, temperature=0
    )
    chunks = list(stream)
    assert content(chunks) == expected["text"] == stream.reply["text"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (
        len(chunks) - 1
    )
    last = chunks[-1]
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert last["usage"] == stream.reply["usage"]


def test_a_tool_call_comes_in_fragments(chat):
    stream = chat("tool_call").create(messages=HELLO, tools=[WEATHER], stream=True)
    chunks = list(stream)
    (call,) = stream.reply["tool_calls"]
    calls = [each for delta in deltas(chunks) for each in delta.get("tool_calls", ())]
    assert calls[0]["id"] == call["id"]
    assert calls[0]["function"]["name"] == "get_weather"
    arguments = [each["function"]["arguments"] for each in calls]
    assert "".join(arguments) == call["arguments"]
    assert len([each for each in arguments if each]) > 1
    assert content(chunks) == stream.reply["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert "usage" not in chunks[-1]


def test_reasoning_comes_as_it_is_generated(chat, blocked):
    """The model is stopped in its first chunk, so the rest of the reply does not exist yet."""
    stream = chat("reasoning").create(messages=HELLO, tools=[WEATHER], stream=True, temperature=0)
    first = next(stream)["choices"][0]["delta"]
    assert first["reasoning_content"] == "One, two,"
    assert stream.reply is None
    blocked.set()
    rest = deltas(stream)
    reasoning = [
        first["reasoning_content"],
        *(delta.get("reasoning_content", "") for delta in rest),
    ]
    assert "".join(reasoning) == stream.reply["reasoning_content"] == "One, two, drei fünf, six."
    assert "".join(delta.get("content", "") for delta in rest) == "The answer."


def test_text_iterates_over_the_visible_text(chat, expected):
    stream = chat("text").create(HELLO, stream=True, temperature=0)
    pieces = list(stream.text)
    assert "".join(pieces) == expected["text"]
    assert len(pieces) > 3 and "" not in pieces
    assert (
        "".join(chat("reasoning").create(HELLO, stream=True, temperature=0).text) == "The answer."
    )


def test_until_done_calls_the_handlers(chat):
    texts, reasoning, calls = [], [], []
    handlers = {
        "on_text": texts.append,
        "on_reasoning": reasoning.append,
        "on_tool_call": calls.append,
    }
    request = {"tools": [WEATHER], "stream": True, "temperature": 0}
    reply = chat("reasoning").create(HELLO, **request).until_done(**handlers)
    assert "".join(texts) == reply["text"] == "The answer."
    assert "".join(reasoning) == reply["reasoning_content"]
    assert len(texts) > 1 and len(reasoning) > 1 and calls == []
    reply = chat("tool_call").create(HELLO, **request).until_done(**handlers)
    assert calls == reply["tool_calls"]
    assert calls[0]["name"] == "get_weather"


def test_a_handler_that_raises_ends_the_stream(chat, blocked, cancels):
    running = chat("long")
    stream = running.create(HELLO, stream=True)
    with pytest.raises(ZeroDivisionError):
        stream.until_done(on_text=lambda text: 1 / 0)
    assert cancels
    assert_idle(running)


def test_until_done_raises_the_failure(chat):
    stream = chat("text").create([{"role": "assistent", "content": "hi"}], stream=True)
    with pytest.raises(llb.LlbError, match="messages\\[0\\].role"):
        stream.until_done()
    assert stream.reply is None


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
