"""Faults of the host: forks, sub-interpreters, exits and signals while the library works."""

import os
import threading

import pytest

import llb
from test_chat import HELLO

START = """
import gc, os, signal, sys, threading
import llb
from blocking import block_streams
messages = [{"role": "user", "content": "hi"}]
path = sys.argv[1]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this platform")
def test_a_process_of_multiprocessing_that_forks_gets_an_error(script, models):
    """Not a hang: the chat of the parent is closed in the child, also in the middle of a stream."""
    code = """
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
released = block_streams()
chat = llb.Chat(path)
stream = chat.create(messages, stream=True)
next(stream)

def use(results):
    for work in (lambda: chat.create(messages), lambda: stream.until_done(), chat.close):
        try: results.put(str(work()))
        except llb.LlbError as error: results.put(error.code)

context = multiprocessing.get_context("fork")
results = context.SimpleQueue()
process = context.Process(target=use, args=(results,))
process.start()
print([results.get() for _ in range(3)])
process.join()
released.set()
print(process.exitcode, stream.until_done()["finish_reason"])
"""
    expected = "['ENGINE_CLOSED', 'ENGINE_CLOSED', 'None']\n0 stop\n"
    assert script(START + code, models("text")) == expected


@pytest.mark.parametrize("kind", ["Chat", "AsyncChat"])
def test_an_exit_in_the_middle_of_a_stream(script, models, kind):
    code = f"""
import asyncio
block_streams()
async def main():
    chat = llb.AsyncChat(path)
    stream = await chat.create(messages, stream=True)
    print((await stream.__anext__())["choices"][0]["index"], flush=True)
    sys.exit(0)
if {kind!r} == "Chat":
    stream = llb.Chat(path).create(messages, stream=True)
    print(next(stream)["choices"][0]["index"], flush=True)
    sys.exit(0)
asyncio.run(main())
"""
    assert script(START + code, models("long")) == "0\n"


def test_a_daemon_thread_that_waits_at_exit(script, models):
    code = """
released = block_streams()
chat = llb.Chat(path)
stream = chat.create(messages, stream=True)
next(stream)
def wait():
    try: chat.create(messages)
    except llb.LlbError: pass
threading.Thread(target=wait, daemon=True).start()
while not chat._session.waiting: pass
print("end", flush=True)
"""
    assert script(START + code, models("long")) == "end\n"


def test_a_terminated_process_ends(script, models):
    """A handler that raises SystemExit runs in the main thread while it waits for a reply."""
    code = """
def end(signum, frame): raise SystemExit(0)
signal.signal(signal.SIGTERM, end)
def on_event(event):
    if event == "infer_start": os.kill(os.getpid(), signal.SIGTERM)
chat = llb.Chat(path, on_event=on_event)
chat.create(messages)
while True: chat.create(messages)
"""
    assert script(START + code, models("long")) == ""


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, MemoryError])
def test_a_callback_may_raise_anything(models, error):
    def on_event(event):
        if event == "infer_start":
            raise error

    with llb.Chat(models("text"), on_event=on_event) as chat:
        with pytest.raises(error):
            chat.create(HELLO)
        with pytest.raises(error):
            chat.create(HELLO, stream=True).until_done()


def test_no_thread_is_left_after_close(models):
    chats = [llb.Chat(models("text")) for _ in range(3)]
    for chat in chats:
        list(chat.create(HELLO, stream=True))
    threads = [each for each in threading.enumerate() if each.name.startswith("llb-chat")]
    assert {chat._session.thread for chat in chats} <= set(threads)
    for chat in chats:
        chat.close()
        assert not chat._session.thread.is_alive()


def test_an_exception_keeps_no_chat_alive(models):
    """The chat of a failed call is freed with its last reference, without a garbage collection."""
    import gc
    import weakref

    gc.disable()
    try:
        chat = llb.Chat(models("text"))
        gone = weakref.ref(chat)
        # Not `pytest.raises`, which keeps the traceback.
        try:
            chat.create([{"role": "nobody", "content": ""}])
        except llb.LlbError as error:
            assert error.code == "INVALID_REQUEST"
        session = chat._session
        del chat
        assert gone() is None
        session.thread.join()
    finally:
        gc.enable()


def test_a_sub_interpreter_can_use_the_library_or_says_why_not(script, models):
    """ctypes and daemon threads work in some versions' sub-interpreters only."""
    code = """
try:
    import _interpreters as interpreters
except ImportError:
    try: import _xxsubinterpreters as interpreters
    except ImportError:
        print("none")
        sys.exit(0)
inner = '''
import sys
sys.path[:] = %r
try:
    import llb
    with llb.Chat(%r) as chat:
        reply = chat.create([{"role": "user", "content": "hi"}], max_tokens=2)
        print(len(reply["text"]) > 0, flush=True)
except (ImportError, RuntimeError, llb.LlbError) as error:
    print("refused", flush=True)
''' % (sys.path, path)
interpreter = interpreters.create()
interpreters.run_string(interpreter, inner)
interpreters.destroy(interpreter)
with llb.Chat(path) as chat:
    print(chat.create(messages, max_tokens=1)["usage"]["completion_tokens"])
"""
    out = script(START + code, models("text")).split()
    assert out == ["none"] or (out[0] in ("True", "refused") and out[1:] == ["1"])
