"""`AsyncChat`: replies, streams, cancellation, threads, event loops."""

import asyncio
import gc
import inspect
import threading

import pytest

import llb
from test_chat import HELLO, WEATHER


def open_chat(models, stem, **options):
    return llb.AsyncChat(models(stem), n_threads=1, **options)


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_a_reply_and_a_stream(run, models, expected):
    async def main():
        async with open_chat(models, "text") as chat:
            reply = await chat.create(HELLO, temperature=0)
            stream = await chat.create(HELLO, stream=True, temperature=0)
            chunks = [chunk async for chunk in stream]
            again = await chat.create(HELLO, stream=True, temperature=0)
            pieces = [piece async for piece in again.text]
            explanation = await chat.explain(HELLO)
        assert chat.closed
        assert not chat._session.thread.is_alive()
        assert reply["text"] == expected["text"] == stream.reply["text"] == "".join(pieces)
        assert len(pieces) > 3
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert explanation["prompt_tokens"] > 0

    run(main)


def test_the_first_call_opens_the_chat(run, models):
    async def main():
        chat = open_chat(models, "text")
        replies = await asyncio.gather(*(chat.create(HELLO, max_tokens=1) for _ in range(3)))
        await chat.close()
        await chat.close()
        assert [reply["usage"]["completion_tokens"] for reply in replies] == [1, 1, 1]
        with pytest.raises(llb.LlbError) as caught:
            await chat.create(HELLO)
        assert caught.value.code == "ENGINE_CLOSED"

    run(main)


def test_errors_are_raised_by_the_await(run, models):
    async def main():
        with pytest.raises(llb.ToolsUnsupported):
            await open_chat(models, "no_tools").create(HELLO)
        async with open_chat(models, "text") as chat:
            with pytest.raises(llb.LlbError, match=r"messages\[0\].role"):
                await chat.create([{"role": "assistent", "content": "hi"}])
            with pytest.raises(llb.LlbError, match=r"messages\[0\].role"):
                stream = await chat.create([{"role": "assistent", "content": "hi"}], stream=True)
                await stream.until_done()
            with pytest.raises(TypeError, match="did you mean 'temperature'"):
                await chat.create(HELLO, temprature=1)

    run(main)


def test_waiting_calls_have_no_threads(run, models, blocked):
    async def main():
        async with open_chat(models, "long") as chat:
            stream = await chat.create(HELLO, stream=True, max_tokens=4)
            await stream.__anext__()
            threads = set(threading.enumerate())
            waiting = [asyncio.ensure_future(chat.create(HELLO, max_tokens=1)) for _ in range(50)]
            await asyncio.sleep(0)
            assert set(threading.enumerate()) <= threads
            blocked.set()
            replies = await asyncio.gather(*waiting)
            assert len(replies) == 50

    run(main)


def test_a_cancelled_task_cancels_its_call(run, models, cancels):
    started = threading.Event()

    def on_event(event):
        if event == "infer_start" and not started.is_set():
            started.set()
            # The call cannot end before the cancel.
            while not cancels:
                pass

    async def main():
        async with open_chat(models, "long", on_event=on_event) as chat:
            task = asyncio.ensure_future(chat.create(HELLO))
            await until(started.is_set)
            await cancel(task)
            assert cancels
            assert (await chat.create(HELLO, max_tokens=1))["finish_reason"] == "length"

    run(main)


def test_a_cancelled_task_cancels_its_stream(run, models, blocked, cancels):
    async def main():
        async with open_chat(models, "long") as chat:
            stream = await chat.create(HELLO, stream=True)

            async def read():
                async for _ in stream:
                    pass

            task = asyncio.ensure_future(read())
            await until(lambda: chat._session.running is not None)
            await cancel(task)
            assert cancels
            assert (await chat.create(HELLO, max_tokens=1))["finish_reason"] == "length"

    run(main)


def test_a_cancelled_waiting_task_leaves_the_running_one(run, models, blocked, cancels):
    async def main():
        async with open_chat(models, "long") as chat:
            stream = await chat.create(HELLO, stream=True, max_tokens=5)
            await stream.__anext__()
            waiting = asyncio.ensure_future(chat.create(HELLO))
            await asyncio.sleep(0)
            await cancel(waiting)
            assert not cancels
            blocked.set()
            assert (await stream.until_done())["usage"]["completion_tokens"] == 5

    run(main)


def test_a_timeout_includes_the_wait(run, models, blocked):
    async def main():
        async with open_chat(models, "long") as chat:
            async with await chat.create(HELLO, stream=True) as stream:
                await stream.__anext__()
                with pytest.raises(llb.LlbError) as caught:
                    await chat.create(HELLO, timeout_ms=1)
                assert caught.value.code == "CANCELLED"
                late = await chat.create(HELLO, stream=True, timeout_ms=1)
                with pytest.raises(llb.LlbError) as caught:
                    await late.until_done()
                assert caught.value.code == "CANCELLED"

    run(main)


def test_a_dropped_stream_ends(run, models, blocked):
    async def main():
        async with open_chat(models, "long") as chat:
            await (await chat.create(HELLO, stream=True)).__anext__()
            gc.collect()
            assert (await chat.create(HELLO, max_tokens=1))["usage"]["completion_tokens"] == 1

    run(main)


def test_a_second_reader_is_refused(run, models, blocked):
    async def main():
        async with open_chat(models, "long") as chat:
            stream = await chat.create(HELLO, stream=True, max_tokens=4)
            await stream.__anext__()
            first = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await stream.__anext__()
            blocked.set()
            # The first reader is not disturbed.
            assert (await first)["choices"]
            assert (await stream.until_done())["usage"]["completion_tokens"] == 4

    run(main)


def test_end_reasoning_without_reasoning_changes_nothing(run, models):
    async def main():
        chat = open_chat(models, "reasoning")
        # Not open yet.
        chat.end_reasoning()
        async with chat:
            stream = await chat.create(HELLO, stream=True, temperature=0)
            reply = await stream.until_done(on_text=lambda _: chat.end_reasoning())
            assert reply["text"] == "The answer."
            assert reply["reasoning_content"].startswith("One, two")

    run(main)


def test_handlers_may_be_coroutine_functions(run, models):
    texts, calls = [], []

    async def on_text(text):
        await asyncio.sleep(0)
        texts.append(text)

    async def main():
        async with open_chat(models, "reasoning") as chat:
            stream = await chat.create(HELLO, stream=True, temperature=0)
            reasoning = []
            reply = await stream.until_done(on_text=on_text, on_reasoning=reasoning.append)
            assert "".join(texts) == reply["text"]
            assert "".join(reasoning) == reply["reasoning_content"]
        async with open_chat(models, "tool_call") as chat:
            stream = await chat.create(HELLO, [WEATHER], stream=True, temperature=0)
            reply = await stream.until_done(on_tool_call=calls.append)
            assert calls == reply["tool_calls"] != []

    run(main)


def test_a_loop_may_end_in_the_middle_of_a_stream(models, blocked):
    async def begin():
        chat = open_chat(models, "long")
        stream = await chat.create(HELLO, stream=True)
        await stream.__anext__()
        return chat, stream

    async def use(chat):
        reply = await chat.create(HELLO, max_tokens=1)
        await chat.close()
        return reply

    chat, stream = asyncio.run(begin())
    blocked.set()
    assert asyncio.run(use(chat))["usage"]["completion_tokens"] == 1
    assert stream.reply is not None


def test_importing_the_package_imports_no_asyncio(script):
    assert script("import llb, sys; print('asyncio' in sys.modules)") == "False\n"


def test_both_kinds_of_chat_take_the_same_arguments():
    for name in ("create", "explain"):
        signatures = [
            inspect.signature(getattr(kind, name)).parameters for kind in (llb.Chat, llb.AsyncChat)
        ]
        assert list(signatures[0]) == list(signatures[1])
