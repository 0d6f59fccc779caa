"""Behaviour that needs a separate process: exit, fork, silence, a missing library."""

import os
from pathlib import Path

import pytest

import llb
from llb import _library

START = """
import gc, os, sys, threading
import llb
from blocking import block_streams
messages = [{"role": "user", "content": "hi"}]
path = sys.argv[1] if len(sys.argv) > 1 else None
"""


def test_importing_loads_nothing(script):
    out = script(
        START + "from llb import _library; print(_library._loaded)", LLB_LIBRARY="/absent/libllb.so"
    )
    assert out.strip() == "None"


def test_a_missing_library_error_says_what_to_do(script):
    code = START + "\ntry: llb.version()\nexcept llb.LlbError as e: print(e)"
    out = script(code, LLB_LIBRARY="/absent/libllb.so")
    assert out.startswith("LIBRARY_NOT_FOUND: LLB_LIBRARY names /absent/libllb.so")
    assert "make lib" in out


def test_a_file_that_is_not_a_library_is_refused(script, tmp_path):
    file = tmp_path / "libllb.so"
    file.write_text("not a library")
    code = START + "\ntry: llb.version()\nexcept llb.LlbError as e: print(e)"
    assert script(code, LLB_LIBRARY=str(file)).startswith(
        f"LIBRARY_NOT_FOUND: cannot load {file}: "
    )


def test_an_old_library_is_refused(library, monkeypatch):
    monkeypatch.setattr(_library, "_ABI_VERSION", 1_000_000)
    with pytest.raises(llb.LlbError) as caught:
        _library.Library(library.path)
    assert caught.value.code == "LIBRARY_INCOMPATIBLE"


def test_nothing_is_printed(script, models):
    code = (
        START
        + """
class Custom(Exception): pass
def on_event(event):
    if event == "infer_start": raise Custom
chat = llb.Chat(path, on_event=on_event)
for stream in (False, True):
    try: list(chat.create(messages=messages, stream=stream))
    except Custom: print("raised")
    else: print("not raised")
del chat
gc.collect()
"""
    )
    assert script(code, models("long")) == "raised\nraised\n"


def test_a_process_exits_while_a_stream_runs(script, models):
    code = (
        START
        + """
block_streams()
chat = llb.Chat(path, on_event=lambda event: None)
stream = chat.create(messages=messages, stream=True)
next(stream)
print("end")
"""
    )
    assert script(code, models("long")) == "end\n"


@pytest.mark.parametrize("on_event", ["None", "lambda event: holder"])
def test_a_dropped_chat_is_destroyed(script, models, on_event):
    code = (
        START
        + f"""
from llb import _session, _waiting
def use():
    holder = []
    chat = llb.Chat(path, on_event={on_event})
    holder.append(chat)
    chat.create(messages=messages, max_tokens=1)
    return chat._session.destroyed
gone = use()
gc.collect()
_waiting.wait(gone)
print(len(_session._sessions))
"""
    )
    assert script(code, models("text")) == "0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this platform")
def test_a_forked_child_cannot_use_the_chat(script, models):
    code = (
        START
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
released = block_streams()
chat = llb.Chat(path)
stream = chat.create(messages=messages, stream=True)
next(stream)
child = os.fork()
if child == 0:
    for use in (lambda: chat.create(messages=messages), lambda: list(stream)):
        try: use()
        except llb.LlbError as e: print(e.code, flush=True)
    stream.close()
    chat.close()
    released.set()
    with llb.Chat(path) as own:
        print(own.create(messages=messages, max_tokens=2)["usage"]["completion_tokens"], flush=True)
    sys.exit(3)
released.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
list(stream)
print(chat.create(messages=messages, max_tokens=1)["usage"]["completion_tokens"])
"""
    )
    assert script(code, models("long")) == "ENGINE_CLOSED\n" * 2 + "2\n3\n1\n"


@pytest.mark.parametrize("stem", ["text", "tool_call"])
def test_the_example_runs(models, script, stem):
    example = Path(__file__).parents[1] / "examples" / "tools.py"
    code = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    out = script(code, example, models(stem))
    assert ("[get_weather " in out) is (stem == "tool_call")


ISOLATED = """
import os, signal
events, pieces = [], []
chat = llb.Chat(path, n_ctx=512, isolation="process", log="info", on_event=events.append)
told = "log:info:isolation: the model runs in process "
worker = next(int(event[len(told):]) for event in events if event.startswith(told))
for chunk in chat.create(messages=messages, temperature=0, stream=True):
    pieces.append(chunk["choices"][0]["delta"].get("content", ""))
print(chat.create(messages=messages, temperature=0)["text"] == "".join(pieces))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
os.kill(worker, signal.SIGSEGV)
try:
    # A thread of the process may still answer before the signal ends them all.
    while True: chat.create(messages=messages)
except llb.LlbError as error:
    print(error.code, error)
chat.close()
with llb.Chat(path, n_ctx=512, isolation="process") as chat:
    print(len(chat.create(messages=messages)["text"]) > 0)
"""


def test_a_model_in_a_process_of_its_own(script, models):
    out = script(START + ISOLATED, models("text")).splitlines()
    assert out[:2] == ["True", "no child"]
    assert "INFERENCE_FAILED" in out[2] and "signal 11 (SIGSEGV)" in out[2]
    assert out[3:] == ["True"]
