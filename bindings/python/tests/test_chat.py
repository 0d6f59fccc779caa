"""Chats: creation, the tool-capability check, replies, errors, threads."""

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
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CITY = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def test_a_reply_has_the_text_of_the_model(chat, expected):
    reply = chat("text").create(messages=HELLO, temperature=0)
    assert reply["type"] == "assistant_text"
    assert reply["text"] == expected["text"]
    assert reply["message"]["role"] == "assistant"
    assert reply["finish_reason"] == "stop"
    assert reply["tool_calls"] == []
    assert (
        reply["usage"]["total_tokens"]
        == reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
    )


def test_a_tool_call_has_a_name_and_arguments(chat):
    reply = chat("tool_call").create(messages=HELLO, tools=[WEATHER], temperature=0)
    assert reply["type"] == "tool_call"
    assert reply["finish_reason"] == "tool_calls"
    (call,) = reply["tool_calls"]
    assert call["id"]
    assert call["name"] == "get_weather"
    assert "city" in json.loads(call["arguments"])


def test_none_counts_as_absent(chat, expected):
    reply = chat("text").create(messages=HELLO, tools=None, seed=None, temperature=0)
    assert reply["text"] == expected["text"]


def test_defaults_apply_where_a_request_is_silent(chat):
    lukewarm = chat("text", defaults={"temperature": 0.25, "max_tokens": 2})
    assert lukewarm.explain(messages=HELLO)["sampling"]["temperature"] == 0.25
    assert lukewarm.create(messages=HELLO)["usage"]["completion_tokens"] == 2
    with pytest.raises(llb.LlbError, match="defaults.temprature: unknown option"):
        chat("text", defaults={"temprature": 1})


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
def test_a_model_without_tools_is_refused_with_reasons(models, stem):
    events = []
    with pytest.raises(llb.ToolsUnsupported) as caught:
        llb.Chat(models(stem), on_event=events.append)
    error = caught.value
    assert error.code == "MODEL_NOT_TOOL_CAPABLE"
    assert error.message
    assert error.details
    assert error.events[-1] == "create_failure:tools_unsupported"
    assert list(error.events) == events
    # The check reads only the header.
    assert not any(event.startswith("load_progress") for event in events)
    assert "tool_policy" in str(error) and str(error).endswith(error.details["next"])
    assert repr(error) == f"ToolsUnsupported('MODEL_NOT_TOOL_CAPABLE', {error.message!r})"


def test_tool_policy_any_accepts_every_model(chat):
    reply = chat("no_tools", tool_policy="any").create(messages=HELLO, max_tokens=1)
    assert reply["type"] == "assistant_text"


@pytest.mark.parametrize(
    "stem, code, event",
    [
        ("truncated", "MODEL_INVALID", "create_failure:load_model"),
        ("bad_template", "TEMPLATE_ERROR", "create_failure:chat_template"),
    ],
)
def test_an_invalid_model_is_refused(models, stem, code, event):
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(models(stem))
    assert caught.value.code == code
    assert caught.value.events[-1] == event


def test_a_missing_model_is_refused(library, tmp_path):
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(tmp_path / "absent.gguf")
    assert caught.value.code == "MODEL_NOT_FOUND"
    assert caught.value.events[-1] == "create_failure:model_not_found"


@pytest.mark.parametrize("path", ["hf:org/name", "org/name", "org/name:Q8_0"])
@pytest.mark.parametrize("kind", [llb.Chat, llb.Model, llb.Embedder])
def test_the_id_of_a_model_of_the_hub_is_no_path(library, path, kind):
    with pytest.raises(llb.LlbError, match="no such file; for a model of the H") as caught:
        kind(path)
    assert caught.value.code == "MODEL_NOT_FOUND"
    id = path.replace("hf:", "")
    assert f'from_pretrained("{id}")' in str(caught.value)


def test_a_path_that_looks_like_an_id_is_opened(models, tmp_path, monkeypatch):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name").symlink_to(models("text"))
    monkeypatch.chdir(tmp_path)
    llb.Chat("org/name").close()
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat("org/absent.gguf")
    assert "from_pretrained" not in str(caught.value)


@pytest.mark.parametrize(
    "name, near",
    [("n_ctxx", "n_ctx"), ("model_path", "model"), ("n_thread", "n_threads"), ("bogus", None)],
)
def test_an_unknown_option_is_an_error(models, name, near):
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(models("text"), **{name: 1})
    assert caught.value.code == "INVALID_REQUEST"
    hint = f"; did you mean `{near}`?" if near else ""
    assert caught.value.message == f"{name}: unknown option{hint}"


@pytest.mark.parametrize(
    "request_, field",
    [
        ({"messages": [{"role": "assistent", "content": "hi"}]}, "messages[0].role"),
        ({"messages": "hi"}, "messages"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_invalid_request_error_names_the_field(chat, request_, field, stream):
    with pytest.raises(llb.LlbError) as caught:
        reply = chat("text").create(stream=stream, **request_)
        list(reply)
    assert caught.value.code == "INVALID_REQUEST"
    assert field in caught.value.message
    assert str(caught.value).startswith("INVALID_REQUEST: ")


@pytest.mark.parametrize("value, error", [(float("nan"), ValueError), (object(), TypeError)])
def test_a_value_that_json_cannot_represent_is_refused(chat, value, error):
    with pytest.raises(error):
        chat("text").create(messages=HELLO, temperature=value)


@pytest.mark.parametrize("use", ["create", "explain"])
def test_a_closed_chat_raises_engine_closed(chat, use):
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


def test_a_thread_cancels_anothers_call(chat, blocked, cancels):
    running = chat("long")
    stream = running.create(messages=HELLO, stream=True)
    next(stream)
    thread = threading.Thread(target=running.cancel)
    thread.start()
    thread.join()
    assert cancels
    # A scripted model may have finished before the cancel.
    assert list(stream)[-1]["choices"][0]["finish_reason"] in ("cancelled", "length", "stop")


def test_a_cancel_ends_waiting_calls(chat, blocked):
    running = chat("long")
    stream = running.create(messages=HELLO, stream=True)
    waiting = running.create(messages=HELLO, stream=True)
    next(stream)
    running.cancel()
    with pytest.raises(llb.LlbError) as caught:
        list(waiting)
    assert caught.value.code == "CANCELLED"
    list(stream)


def test_a_timeout_includes_the_wait(chat, blocked):
    running = chat("long")
    with running.create(messages=HELLO, stream=True) as stream:
        next(stream)
        with pytest.raises(llb.LlbError) as caught:
            running.create(messages=HELLO, timeout_ms=1)
    assert caught.value.code == "CANCELLED"


@pytest.mark.parametrize("when", ["create_start", "infer_start", "destroy"])
def test_an_exception_of_a_callback_is_raised_by_the_call(models, when):
    class Custom(Exception):
        pass

    def on_event(event):
        if event == when:
            raise Custom(event)

    with pytest.raises(Custom, match=when):
        with llb.Chat(models("long"), on_event=on_event) as chat:
            chat.create(messages=HELLO)


def test_a_chat_is_usable_after_an_exception_of_a_callback(models, expected):
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
            uses = (
                chat.close,
                lambda: chat.explain(HELLO),
                lambda: chat.create(HELLO, stream=True),
                lambda: llb.memory(models("text")),
                lambda: llb.unload(models("text")),
            )
            for use in uses:
                with pytest.raises(llb.LlbError) as caught:
                    use()
                codes.append(caught.value.code)

    with llb.Chat(models("text"), on_event=on_event) as chat:
        chat.create(messages=HELLO)
    assert codes == ["BUSY"] * 5


def test_an_interrupt_ends_a_generation(models, cancels):
    def on_event(event):
        if event == "infer_start" and not cancels:
            os.kill(os.getpid(), signal.SIGINT)
            # Ends only after the main thread received the interrupt and cancelled.
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
    # The interrupt was raised while the creation still ran.
    interrupted.set()


def test_every_string_is_freed(models, library, monkeypatch):
    counts = {"returned": 0, "freed": 0}

    def counted(function, key):
        def call(*arguments):
            result = function(*arguments)
            counts[key] += 1
            return result

        return call

    names = (
        "llb_model_info",
        "llb_chat_infer",
        "llb_chat_infer_stream",
        "llb_chat_explain",
        "llb_last_error",
    )
    for name in names:
        monkeypatch.setattr(library.c, name, counted(getattr(library.c, name), "returned"))
    monkeypatch.setattr(library, "free", counted(library.free, "freed"))

    llb.model_info(models("text"))
    with pytest.raises(llb.LlbError):
        llb.Chat(models("no_tools"))
    with llb.Chat(models("text")) as chat:
        chat.create(messages=HELLO)
        chat.explain(messages=HELLO)
        list(chat.create(messages=HELLO, stream=True))
        with pytest.raises(llb.LlbError):
            chat.create(messages="hi")
    assert counts == {"returned": 6, "freed": 6}


def test_an_error_can_be_pickled():
    error = llb.ToolsUnsupported(
        "MODEL_NOT_TOOL_CAPABLE", "no tools", {"caps": {}}, events=["create_start"]
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is llb.ToolsUnsupported
    assert vars(copy) == vars(error)


def test_end_reasoning_reaches_the_running_call(library, chat, blocked, monkeypatch):
    handles = []
    end = library.c.llb_chat_end_reasoning
    monkeypatch.setattr(
        library.c, "llb_chat_end_reasoning", lambda handle: (handles.append(handle), end(handle))
    )
    running = chat("reasoning")
    # Without a call there is nothing to end.
    running.end_reasoning()
    assert not handles
    stream = running.create(messages=HELLO, stream=True)
    next(stream)
    running.end_reasoning()
    assert handles
    blocked.set()
    assert list(stream)[-1]["choices"][0]["finish_reason"] == "stop"
    reply = running.create(messages=HELLO, reasoning_budget=1, reasoning_budget_message=" Stop.\n")
    assert reply["reasoning_content"] == "One, two, Stop."
