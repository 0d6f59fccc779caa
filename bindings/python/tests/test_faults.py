"""Faults of the host: forks, sub-interpreters, exits and signals while the library works."""

import os
import re
import threading

import pytest

import llb
from llb import _session
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
except ImportError as error:
    print("no", error, flush=True)
except RuntimeError as error:
    print("no", error, flush=True)
''' % (sys.path, path)
interpreter = interpreters.create()
interpreters.run_string(interpreter, inner)
interpreters.destroy(interpreter)
with llb.Chat(path) as chat:
    print(chat.create(messages, max_tokens=1)["usage"]["completion_tokens"])
"""
    out = script(START + code, models("text")).splitlines()
    # Threads are refused in most versions, ctypes in 3.12.
    refused = re.compile("True|no .*(_ctypes|thread).*")
    assert out == ["none"] or (refused.fullmatch(out[0]) and out[1:] == ["1"])


def test_signals_interrupt_no_call(script, models, expected):
    """Handlers run while a model is loaded, and while a reply is generated and read."""
    code = """
ticks = []
signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
chat = llb.Chat(path)
loaded = len(ticks)
while len(ticks) <= loaded + 20:
    whole = chat.create(messages, temperature=0, max_tokens=2000)["text"]
    pieces = list(chat.create(messages, temperature=0, max_tokens=2000, stream=True).text)
    assert whole == "".join(pieces)
chat.close()
signal.setitimer(signal.ITIMER_REAL, 0)
print(whole)
"""
    assert script(START + code, models("long")) == f"{expected['long']}\n"


def test_a_signal_handler_may_use_the_chat_that_is_waited_for(script, models):
    """Its call waits for the one that it interrupted, which goes on."""
    code = """
replies = []
def handle(*_):
    replies.append(chat.create(messages, max_tokens=3)["usage"]["completion_tokens"])
signal.signal(signal.SIGUSR1, handle)
def on_event(event):
    if event == "infer_start" and not replies and not sent:
        sent.append(1)
        os.kill(os.getpid(), signal.SIGUSR1)
sent = []
chat = llb.Chat(path, on_event=on_event)
print(chat.create(messages, max_tokens=2)["usage"]["completion_tokens"])
while not replies: pass
chat.close()
print(replies)
"""
    assert script(START + code, models("long")) == "2\n[3]\n"


@pytest.mark.parametrize("kind", ["Chat", "Model"])
def test_an_open_stream_in_a_cycle_is_collected_by_another_thread(script, models, kind):
    """The generation ends, and so does the thread of the chat. Finalizers take no lock."""
    code = f"""
block_streams()
def use():
    holder = [llb.{kind}(path)]
    stream = holder[0].create(messages, stream=True)
    next(stream)
    holder += [holder, stream]
    return stream._session, stream._call
session, call = use()
gc.disable()
assert not call.outcome.done
thread = threading.Thread(target=gc.collect)
thread.start()
thread.join()
session.thread.join()
print(call.outcome.done, call.cancelled)
"""
    assert script(START + code, models("long")) == "True True\n"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="no /proc")
def test_no_thread_of_the_library_is_left_after_close(script, models):
    code = """
import time
def threads(): return len(os.listdir("/proc/self/task"))
def use():
    with llb.Model(path, n_threads=2) as model, model.chat() as chat:
        for each in (model, chat):
            list(each.create(messages, stream=True, max_tokens=8))
use()
after = threads()
for _ in range(4): use()
# A thread that has ended is listed for a moment.
for _ in range(500):
    if threads() <= after: break
    time.sleep(0.01)
print(threads() <= after, threading.active_count())
"""
    assert script(START + code, models("text")) == "True 1\n"


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise SystemExit(0)", "os._exit(0)"])
def test_an_exit_while_other_threads_read_streams(script, models, end):
    code = f"""
block_streams()
model = llb.Model(path, max_chats=3)
started = [threading.Event() for _ in range(3)]
def read(event):
    try:
        for _ in model.create(messages, stream=True): event.set()
    except llb.LlbError: pass
for event in started: threading.Thread(target=read, args=(event,), daemon=True).start()
for event in started: event.wait()
print("end", flush=True)
{end}
"""
    assert script(START + code, models("long")) == "end\n"


def test_a_callback_that_raises_at_the_end_of_a_dropped_chat(script, models):
    """An exception without a waiting caller is neither printed nor fatal."""
    code = """
def on_event(event): raise RuntimeError(event)
try: llb.Chat(path, on_event=on_event)
except RuntimeError as error: print(error)
seen = []
def later(event):
    seen.append(event)
    if event.startswith("destroy"): raise RuntimeError(event)
chat = llb.Chat(path, on_event=later)
thread = chat._session.thread
del chat
gc.collect()
thread.join()
print("end")
"""
    assert script(START + code, models("text")) == "create_start\nend\n"


def test_an_unexpected_failure_of_the_creation_is_raised(models, monkeypatch):
    def fail(session):
        raise MemoryError("in _create")

    monkeypatch.setattr(_session.Session, "_create", fail)
    with pytest.raises(MemoryError, match="in _create"):
        llb.Chat(models("text"))
