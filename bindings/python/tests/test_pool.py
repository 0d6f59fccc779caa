"""`Model`: chats on one copy of the weights, and the pool that chooses one for each request."""

import gc
import os
import threading
import weakref

import pytest

import llb
from llb._pool import ChatPool, common
from test_chat import HELLO
from test_faults import START


class FakeChat:
    def __init__(self, name):
        self.name = name


def conversation(*texts):
    return [{"role": "user", "content": text} for text in texts]


@pytest.fixture
def pool():
    """A pool of up to three chats with the names 0, 1 and 2."""
    made = [FakeChat(0)]

    def open_chat():
        made.append(FakeChat(len(made)))
        return made[-1]

    return ChatPool(made[0], open_chat, 3)


def use(pool, *texts, reply=None):
    taken = pool.take(conversation(*texts))
    pool.give_back(taken, reply)
    return taken.chat.name


def test_the_common_prefix_is_counted_in_messages():
    for a, b, length in [("", "", 0), ("ab", "abc", 2), ("abc", "abd", 2), ("a", "b", 0)]:
        assert common(conversation(*a), conversation(*b)) == length


def test_a_conversation_stays_on_its_chat(pool):
    assert use(pool, "a", reply={"role": "assistant", "content": "A"}) == 0
    assert use(pool, "b") == 1
    assert use(pool, "c") == 2
    answer = {"role": "assistant", "content": "A"}
    taken = pool.take([*conversation("a"), answer, *conversation("more")])
    assert taken.chat.name == 0
    pool.give_back(taken)
    assert use(pool, "b", "more") == 1
    assert len(pool) == 3


def test_the_least_recently_used_chat_goes(pool):
    for text in "abc":
        use(pool, text)
    use(pool, "a", "more")
    assert use(pool, "d") == 1
    assert use(pool, "e") == 2
    assert use(pool, "a", "more", "and more") == 0


def test_a_branch_takes_the_longest_prefix(pool):
    assert use(pool, "system", "a", "b") == 0
    assert use(pool, "system", "x") == 1
    assert use(pool, "y") == 2
    assert use(pool, "system", "a", "c") == 0


def test_equal_questions_with_different_replies_are_told_apart(pool):
    one, other = ({"role": "assistant", "content": text} for text in ("A", "B"))
    assert use(pool, "a", reply=one) == 0
    assert use(pool, "a", reply=other) == 1
    for reply, name in ((other, 1), (one, 0)):
        taken = pool.take([*conversation("a"), reply, *conversation("more")])
        assert taken.chat.name == name
        pool.give_back(taken)


def test_a_busy_chat_is_not_waited_for_if_another_one_is_free(pool):
    first = pool.take(conversation("a"))
    second = pool.take(conversation("a", "b"))
    assert [first.chat.name, second.chat.name] == [0, 1]
    pool.give_back(first)
    pool.give_back(second)


def test_the_fewest_calls_get_the_next_one_if_all_are_busy(pool):
    taken = [pool.take(conversation(text)) for text in "abcdef"]
    assert [each.chat.name for each in taken] == [0, 1, 2] * 2
    for each in taken:
        pool.give_back(each)
    assert len(pool) == 3


def test_a_closed_pool(pool):
    chats = [pool.take(conversation(text)).chat for text in "ab"]
    assert pool.close() == chats
    assert pool.close() == []
    with pytest.raises(llb.LlbError) as caught:
        pool.take([])
    assert caught.value.code == "ENGINE_CLOSED"


def test_the_second_turn_finds_its_prefix(models):
    with llb.Model(models("text"), n_threads=1) as model:
        conversations = [conversation(text * 40) for text in ("uno ", "due ", "tre ")]
        replies = [model.create(each, max_tokens=4) for each in conversations]
        for each, reply in zip(conversations, replies):
            turns = [*each, reply["message"], *conversation("more")]
            explained = model.explain(turns)
            again = model.create(turns, max_tokens=1)
            cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached >= reply["usage"]["prompt_tokens"]
            assert cached == explained["cached_tokens"]


def test_streams_types_and_functions(models, expected):
    with llb.Model(models("text"), n_threads=1, max_chats=2) as model:
        streams = [model.create(HELLO, temperature=0, stream=True) for _ in range(5)]
        assert ["".join(each.text) for each in streams] == [expected["text"]] * 5
        assert len(model._pool) == 2
        assert [each.calls for each in model._pool._chats] == [0, 0]
        assert type(model.parse(HELLO, bool, temperature=0)) is bool
        assert model.run(HELLO, [], temperature=0).reply["text"] == expected["text"]
        with pytest.raises(TypeError, match=r"Model\.create\(\).*temperature"):
            model.create(HELLO, temprature=0)
        with pytest.raises(llb.LlbError) as caught:
            model.create("hi")
        assert caught.value.code == "INVALID_REQUEST"
        assert [each.calls for each in model._pool._chats] == [0, 0]


def test_many_threads(models, expected):
    texts = []
    with llb.Model(models("text"), n_threads=1) as model:

        def work(at):
            turns = conversation(f"thread {at}")
            for _ in range(3):
                reply = model.create(turns, temperature=0)
                texts.append(reply["text"])
                turns = [*turns, reply["message"], *conversation("go on")]

        threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(model._pool) <= 4
    assert texts == [expected["text"]] * 24


def test_a_chat_of_a_model_outlives_it(models, expected):
    with llb.Model(models("text"), n_threads=1) as model:
        assert model.info["supports_tools"] and model.info is model.info
        assert model.path == str(models("text"))
        chat = model.chat(n_ctx=1024)
    assert model.closed and repr(model) == f"<llb.Model {model.path!r} closed>"
    assert "<table>" in model._repr_html_()
    with pytest.raises(llb.LlbError) as caught:
        model.create(HELLO)
    assert caught.value.code == "ENGINE_CLOSED"
    with chat:
        assert chat.create(HELLO, temperature=0)["text"] == expected["text"]


def test_all_chats_are_closed_although_a_callback_raises(models):
    def on_event(event):
        if event == "destroy":
            raise RuntimeError("from on_event")

    model = llb.Model(models("text"), n_threads=1, on_event=on_event)
    for text in "ab":
        model.create(conversation(text), max_tokens=1)
    chats = [each.chat for each in model._pool._chats]
    with pytest.raises(RuntimeError, match="from on_event"):
        model.close()
    assert [chat.closed for chat in chats] == [True, True]
    assert not any(chat._session.thread.is_alive() for chat in chats)


def test_a_dropped_model_is_freed(models):
    model = llb.Model(models("text"))
    model.create(HELLO, max_tokens=1)
    session = model._pool._chats[0].chat._session
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    session.thread.join()


def test_wrong_options(models):
    with pytest.raises(ValueError, match="max_chats"):
        llb.Model(models("text"), max_chats=0)
    with pytest.raises(llb.LlbError) as caught:
        llb.Model("/absent.gguf")
    assert caught.value.code == "MODEL_NOT_FOUND"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this platform")
def test_a_forked_child_gets_an_error(script, models):
    """Also if another thread of the parent was just choosing a chat."""
    code = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
model = llb.Model(path)
model.create(messages, max_tokens=1)
held, forked = threading.Event(), threading.Event()
def hold():
    with model._pool._lock:
        held.set()
        forked.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    try: model.create(messages)
    except llb.LlbError as error: print(error.code, flush=True)
    os._exit(0)
forked.set()
thread.join()
os.waitpid(child, 0)
print(model.create(messages, max_tokens=1)["usage"]["completion_tokens"])
"""
    assert script(START + code, models("text")) == "ENGINE_CLOSED\n1\n"
