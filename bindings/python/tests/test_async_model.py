"""`AsyncModel`: tasks that share the weights and the pool of chats."""

import asyncio
import gc
import inspect
import weakref

import pytest

import llb
from llb._async import chat as async_chat
from test_async import cancel, until
from test_chat import HELLO
from test_pool import conversation


def open_model(models, stem, **options):
    return llb.AsyncModel(models(stem), n_threads=1, **options)


def test_replies_and_streams(run, models, expected):
    async def main():
        async with open_model(models, "text") as model:
            assert (await model.info())["supports_tools"]
            assert await model.info() is await model.info()
            requests = [model.create(HELLO, temperature=0) for _ in range(8)]
            replies = await asyncio.gather(*requests)
            assert [reply["text"] for reply in replies] == [expected["text"]] * 8
            assert len(model._pool) == 4
            stream = await model.create(HELLO, stream=True, temperature=0)
            assert "".join([piece async for piece in stream.text]) == expected["text"]
            assert type(await model.parse(HELLO, bool, temperature=0)) is bool
            assert (await model.run(HELLO, [], temperature=0)).reply["text"] == expected["text"]
            assert (await model.explain(HELLO))["prompt_tokens"] > 0
            assert [each.calls for each in model._pool._chats] == [0] * 4
            sessions = [each.chat._session for each in model._pool._chats]
        assert model.closed and repr(model) == f"<llb.AsyncModel {model.path!r} closed>"
        assert not any(session.thread.is_alive() for session in sessions)
        with pytest.raises(llb.LlbError) as caught:
            await model.create(HELLO)
        assert caught.value.code == "ENGINE_CLOSED"

    run(main)


def test_the_second_turn_finds_its_prefix(run, models):
    async def main():
        async with open_model(models, "text") as model:
            conversations = [conversation(text * 40) for text in ("uno ", "due ", "tre ")]
            replies = [await model.create(each, max_tokens=4) for each in conversations]
            for each, reply in zip(conversations, replies):
                turns = [*each, reply["message"], *conversation("more")]
                again = await model.create(turns, max_tokens=1)
                cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert cached >= reply["usage"]["prompt_tokens"]

    run(main)


def test_the_first_of_many_calls_loads_the_weights(run, models, monkeypatch):
    """The others wait for it, and none of them loads the file a second time."""
    opened = []
    start = async_chat.AsyncChat._start

    def record(chat):
        opened.append(all(each._session.opened.done for each in chats()))
        return start(chat)

    monkeypatch.setattr(async_chat.AsyncChat, "_start", record)
    model = open_model(models, "text")

    def chats():
        return [each.chat for each in model._pool._chats if each.chat._session is not None][:1]

    async def main():
        requests = [model.create(conversation(text), max_tokens=1) for text in "abc"]
        await asyncio.gather(*requests)
        assert len(model._pool) == 3 and opened == [True] * 3
        await model.close()

    run(main)


def test_errors_of_the_creation_are_raised_by_the_await(run, models):
    async def main():
        model = open_model(models, "no_tools")
        for _ in range(2):
            with pytest.raises(llb.ToolsUnsupported):
                await model.create(HELLO)
        with pytest.raises(llb.ToolsUnsupported):
            async with model:
                pass
        await model.close()
        with pytest.raises(ValueError, match="max_chats"):
            open_model(models, "text", max_chats=0)
        with pytest.raises(TypeError, match=r"AsyncModel\.create\(\).*temperature"):
            await model.create(HELLO, temprature=0)

    run(main)


def test_a_chat_that_cannot_be_opened_leaves_the_pool(run, models, blocked):
    async def main():
        async with open_model(models, "long") as model:
            stream = await model.create(HELLO, stream=True, max_tokens=4)
            await stream.__anext__()
            good = model._pool._open_chat
            model._pool._open_chat = lambda: llb.AsyncChat("/absent.gguf")
            with pytest.raises(llb.LlbError) as caught:
                await model.create(HELLO, max_tokens=1)
            assert caught.value.code == "MODEL_NOT_FOUND"
            assert len(model._pool) == 1
            model._pool._open_chat = good
            blocked.set()
            assert (await model.create(HELLO, max_tokens=1))["finish_reason"] == "length"
            await stream.until_done()
            assert [each.calls for each in model._pool._chats] == [0, 0]

    run(main)


def test_a_cancelled_task_frees_its_chat(run, models, blocked, cancels):
    async def main():
        async with open_model(models, "long", max_chats=1) as model:
            stream = await model.create(HELLO, stream=True, max_tokens=5)
            await stream.__anext__()
            waiting = asyncio.ensure_future(model.create(HELLO))
            await until(lambda: model._pool._chats[0].calls == 2)
            await cancel(waiting)
            assert not cancels and model._pool._chats[0].calls == 1
            blocked.set()
            assert (await stream.until_done())["usage"]["completion_tokens"] == 5
            assert model._pool._chats[0].calls == 0

    run(main)


def test_a_chat_of_a_model_outlives_it(run, models, expected):
    async def main():
        async with open_model(models, "text") as model:
            chat = model.chat(n_ctx=1024)
        async with chat:
            assert (await chat.create(HELLO, temperature=0))["text"] == expected["text"]

    run(main)


def test_a_dropped_model_is_freed(models):
    async def main():
        model = open_model(models, "text")
        await model.create(HELLO, max_tokens=1)
        return model._pool._chats[0].chat._session, weakref.ref(model)

    session, gone = asyncio.run(main())
    gc.collect()
    assert gone() is None
    session.thread.join()


def test_both_kinds_of_model_take_the_same_arguments():
    for name in ("__init__", "chat", "create", "explain", "parse", "run"):
        signatures = [
            inspect.signature(getattr(kind, name)).parameters
            for kind in (llb.Model, llb.AsyncModel)
        ]
        assert list(signatures[0]) == list(signatures[1])
