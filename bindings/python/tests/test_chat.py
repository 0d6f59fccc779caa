"""Chats: creation, the gate, replies, errors, threads."""

import json
import os
import pickle
import signal
import threading
import time

import pytest

import llb

HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather at a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def test_a_chat_says_what_the_model_says(chat, expected):
    reply = chat("text").create(messages=HELLO, temperature=0)
    assert reply["type"] == "assistant_text"
    assert reply["text"] == expected["text"]
    assert reply["message"]["role"] == "assistant"
    assert reply["finish_reason"] == "stop"
    assert reply["tool_calls"] == []
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]


def test_a_tool_call_has_a_name_and_arguments(chat):
    reply = chat("tool_call").create(messages=HELLO, tools=[WEATHER], temperature=0)
    assert reply["type"] == "tool_call"
    assert reply["finish_reason"] == "tool_calls"
    (call,) = reply["tool_calls"]
    assert call["id"]
    assert call["name"] == "get_weather"
    assert "city" in json.loads(call["arguments"])


def test_none_is_not_given(chat, expected):
    reply = chat("text").create(messages=HELLO, tools=None, seed=None, temperature=0)
    assert reply["text"] == expected["text"]


def test_explain_generates_nothing(chat):
    explanation = chat("text").explain(messages=HELLO)
    assert explanation["type"] == "explanation"
    assert explanation["prompt"]
    assert explanation["prompt_tokens"] > 0


def test_events_come_in_order(models):
    events = []
    with llb.Chat(models("text"), on_event=events.append) as chat:
        chat.create(messages=HELLO, max_tokens=1)
    assert events[0] == "create_start"
    assert "create_success" in events
    assert "infer_start" in events
    assert events[-1] == "destroy"


@pytest.mark.parametrize("stem", ["no_tools", "no_template"])
def test_the_gate_refuses_with_its_reasons(models, stem):
    events = []
    with pytest.raises(llb.ToolsUnsupported) as caught:
        llb.Chat(models(stem), on_event=events.append)
    error = caught.value
    assert error.code == "MODEL_NOT_TOOL_CAPABLE"
    assert error.message
    assert error.details
    assert error.events[-1] == "create_failure:tools_unsupported"
    assert list(error.events) == events
    # Decided from the header: no weight was read.
    assert not any(event.startswith("load_progress") for event in events)


def test_the_gate_opens_for_any(chat):
    assert chat("no_tools", tool_policy="any").create(messages=HELLO, max_tokens=1)["type"] == "assistant_text"


@pytest.mark.parametrize(
    "stem, code, event",
    [
        ("truncated", "MODEL_INVALID", "create_failure:load_model"),
        ("bad_template", "TEMPLATE_ERROR", "create_failure:chat_template"),
    ],
)
def test_a_bad_model_does_not_open(models, stem, code, event):
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(models(stem))
    assert caught.value.code == code
    assert caught.value.events[-1] == event


def test_an_absent_model_does_not_open(library, tmp_path):
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(tmp_path / "absent.gguf")
    assert caught.value.code == "MODEL_NOT_FOUND"
    assert caught.value.events[-1] == "create_failure:model_not_found"


def test_an_unknown_option_is_an_error(models):
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(models("text"), bogus=1)
    assert caught.value.code == "INVALID_REQUEST"
    assert "bogus" in caught.value.message


@pytest.mark.parametrize(
    "request_, field",
    [
        ({"messages": [{"role": "assistent", "content": "hi"}]}, "messages[0].role"),
        ({"messages": "hi"}, "messages"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_named_by_its_field(chat, request_, field, stream):
    with pytest.raises(llb.LlbError) as caught:
        reply = chat("text").create(stream=stream, **request_)
        list(reply)
    assert caught.value.code == "INVALID_REQUEST"
    assert field in caught.value.message
    assert str(caught.value).startswith("INVALID_REQUEST: ")


@pytest.mark.parametrize("value, error", [(float("nan"), ValueError), (object(), TypeError)])
def test_what_json_cannot_hold_is_refused_here(chat, value, error):
    with pytest.raises(error):
        chat("text").create(messages=HELLO, temperature=value)


@pytest.mark.parametrize("use", ["create", "explain"])
def test_a_closed_chat_answers_engine_closed(chat, use):
    closed = chat("text")
    closed.close()
    closed.close()
    closed.cancel()
    assert closed.closed
    with pytest.raises(llb.LlbError) as caught:
        getattr(closed, use)(messages=HELLO)
    assert caught.value.code == "ENGINE_CLOSED"


def test_two_threads_share_a_chat(chat, expected):
    shared = chat("text")
    replies = []

    def ask():
        for _ in range(5):
            replies.append(shared.create(messages=HELLO, temperature=0)["text"])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [expected["text"]] * 10


def test_a_thread_cancels_anothers_call(chat, held, cancels):
    running = chat("long")
    stream = running.create(messages=HELLO, stream=True)
    for _ in range(2):
        next(stream)
    thread = threading.Thread(target=running.cancel)
    thread.start()
    thread.join()
    assert cancels
    # The model may have been done before; a real one is not.
    assert list(stream)[-1]["choices"][0]["finish_reason"] in ("cancelled", "length", "stop")


def test_a_cancel_ends_what_waits(chat, held):
    running = chat("long")
    stream = running.create(messages=HELLO, stream=True)
    waiting = running.create(messages=HELLO, stream=True)
    next(stream)
    running.cancel()
    with pytest.raises(llb.LlbError) as caught:
        list(waiting)
    assert caught.value.code == "CANCELLED"
    list(stream)


def test_a_timeout_counts_the_wait(chat, held):
    running = chat("long")
    with running.create(messages=HELLO, stream=True) as stream:
        next(stream)
        with pytest.raises(llb.LlbError) as caught:
            running.create(messages=HELLO, timeout_ms=1)
    assert caught.value.code == "CANCELLED"


@pytest.mark.parametrize("when", ["create_start", "infer_start", "destroy"])
def test_what_a_callback_raises_comes_back_from_the_call(models, when):
    class Mine(Exception):
        pass

    def on_event(event):
        if event == when:
            raise Mine(event)

    with pytest.raises(Mine, match=when):
        with llb.Chat(models("long"), on_event=on_event) as chat:
            chat.create(messages=HELLO)


def test_a_chat_survives_what_a_callback_raised(models, expected):
    raised = []

    def on_event(event):
        if event == "infer_start" and not raised:
            raised.append(ZeroDivisionError())
            raise raised[0]

    with llb.Chat(models("text"), on_event=on_event) as chat:
        with pytest.raises(ZeroDivisionError) as caught:
            chat.create(messages=HELLO)
        assert caught.value is raised[0]
        assert chat.create(messages=HELLO, temperature=0)["text"] == expected["text"]


def test_a_call_in_a_callback_is_busy(models):
    codes = []

    def on_event(event):
        if event == "infer_start":
            for use in (chat.close, lambda: chat.explain(HELLO), lambda: chat.create(HELLO, stream=True)):
                with pytest.raises(llb.LlbError) as caught:
                    use()
                codes.append(caught.value.code)

    with llb.Chat(models("text"), on_event=on_event) as chat:
        chat.create(messages=HELLO)
    assert codes == ["BUSY"] * 3


def test_an_interrupt_ends_a_generation(models, cancels):
    def on_event(event):
        if event == "infer_start" and not cancels:
            os.kill(os.getpid(), signal.SIGINT)
            # The interrupt must reach the main thread, and that must cancel, for this to end.
            while not cancels:
                time.sleep(0.001)

    with llb.Chat(models("long"), on_event=on_event) as chat:
        with pytest.raises(KeyboardInterrupt):
            chat.create(messages=HELLO)
        assert set(cancels) == {chat._session.handle}
        assert chat.create(messages=HELLO, max_tokens=1)["usage"]["completion_tokens"] == 1


def test_an_interrupt_ends_a_creation(models):
    interrupted = threading.Event()

    def on_event(event):
        if event == "create_start":
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.wait()

    with pytest.raises(KeyboardInterrupt):
        llb.Chat(models("text"), on_event=on_event)
    # Raised while the creation still goes on.
    interrupted.set()


def test_every_string_is_freed(models, library, monkeypatch):
    counts = {"given": 0, "freed": 0}

    def counted(function, key):
        def call(*arguments):
            result = function(*arguments)
            counts[key] += 1
            return result

        return call

    for name in ("llb_model_info", "llb_chat_infer", "llb_chat_infer_stream", "llb_chat_explain", "llb_last_error"):
        monkeypatch.setattr(library.c, name, counted(getattr(library.c, name), "given"))
    monkeypatch.setattr(library.c, "llb_string_free", counted(library.c.llb_string_free, "freed"))

    llb.model_info(models("text"))
    with pytest.raises(llb.LlbError):
        llb.Chat(models("no_tools"))
    with llb.Chat(models("text")) as chat:
        chat.create(messages=HELLO)
        chat.explain(messages=HELLO)
        list(chat.create(messages=HELLO, stream=True))
        with pytest.raises(llb.LlbError):
            chat.create(messages="hi")
    assert counts == {"given": 6, "freed": 6}


def test_an_error_travels_between_processes():
    error = llb.ToolsUnsupported("MODEL_NOT_TOOL_CAPABLE", "no tools", {"caps": {}}, events=["create_start"])
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is llb.ToolsUnsupported
    assert vars(copy) == vars(error)
