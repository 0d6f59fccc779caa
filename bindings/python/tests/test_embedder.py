"""`Embedder` and `AsyncEmbedder`: vectors of texts."""

import asyncio
import base64
import gc
import inspect
import json
import math
import os
import struct
import threading
import weakref
from pathlib import Path

import pytest

import llb
from conftest import skip
from test_async import cancel, until

# In a checkout: the vectors of some texts, computed in NumPy (scripts/embeddings.py).
VECTORS = Path(__file__).resolve().parents[3] / "tests" / "data" / "embeddings.json"
# Takes some time, in which most calls are interrupted.
MANY = ["the cat sits " * 15] * 3000


@pytest.fixture
def embedder(models):
    with llb.Embedder(models("embedding"), n_threads=1) as opened:
        yield opened


def cosine(a, b):
    def dot(a, b):
        return sum(x * y for x, y in zip(a, b))

    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def vectors(reply):
    return [each["embedding"] for each in reply["data"]]


def test_vectors_are_those_of_the_reference(embedder):
    if not VECTORS.is_file():
        skip("no tests/data/embeddings.json of a checkout")
    expected = json.loads(VECTORS.read_text(encoding="utf-8"))["embedding"]
    reply = embedder.embed(list(expected), truncate=True)
    assert [each["index"] for each in reply["data"]] == list(range(len(expected)))
    for found, vector in zip(vectors(reply), expected.values()):
        assert cosine(found, vector) > 0.9999


def test_parameters(embedder):
    whole = vectors(embedder.embed("the cat"))[0]
    assert math.isclose(math.hypot(*whole), 1, abs_tol=1e-5)
    raw = vectors(embedder.embed("the cat", normalize=False))[0]
    assert not math.isclose(math.hypot(*raw), 1, abs_tol=0.01)
    cut = embedder.embed("the cat", dimensions=7)
    assert cut["dimensions"] == 7 and cosine(vectors(cut)[0], whole[:7]) > 0.9999
    assert cosine(vectors(embedder.embed("cat", prefix="the "))[0], whole) > 0.9999
    encoded = vectors(embedder.embed("the cat", encoding_format="base64"))[0]
    assert cosine(struct.unpack("<32f", base64.b64decode(encoded)), whole) > 0.9999
    assert embedder.embed("x", extra_body={"new_member": 1})["ignored_keys"] == ["new_member"]
    long = embedder.embed("a " * 100, truncate=True)
    assert long["truncated"] == [{"index": 0, "tokens": 102}]


def test_options(models):
    with llb.Embedder(models("embedding"), pooling="none", n_threads=1) as embedder:
        reply = embedder.embed("the cat")
        assert reply["pooling"] == "none" and len(vectors(reply)[0]) == 4


def test_errors(models, embedder):
    for wrong, code in [
        ({"input": []}, "INVALID_REQUEST"),
        ({"input": "a " * 100}, "CONTEXT_OVERFLOW"),
        ({"input": "a", "dimensions": 100}, "INVALID_REQUEST"),
    ]:
        with pytest.raises(llb.LlbError) as caught:
            embedder.embed(**wrong)
        assert caught.value.code == code
    with pytest.raises(TypeError):
        embedder.embed("a", dimension=3)
    for path, options, code in [
        ("/absent.gguf", {}, "MODEL_NOT_FOUND"),
        (models("embedding"), {"pooling": "maximum"}, "INVALID_REQUEST"),
        (models("embedding"), {"poling": "mean"}, "INVALID_REQUEST"),
    ]:
        with pytest.raises(llb.LlbError) as caught:
            llb.Embedder(path, **options)
        assert caught.value.code == code


def test_a_closed_embedder(embedder):
    assert repr(embedder) == f"<llb.Embedder {embedder.path!r}>" and not embedder.closed
    embedder.close()
    embedder.close()
    assert embedder.closed and repr(embedder).endswith(" closed>")
    with pytest.raises(llb.LlbError) as caught:
        embedder.embed("a")
    assert caught.value.code == "ENGINE_CLOSED"
    assert not embedder._session.thread.is_alive()


def test_a_dropped_embedder_is_freed(models):
    embedder = llb.Embedder(models("embedding"), n_threads=1)
    session, gone = embedder._session, weakref.ref(embedder)
    del embedder
    gc.collect()
    assert gone() is None
    session.thread.join()


def test_a_cancel_ends_the_running_call_and_the_waiting_ones(embedder):
    codes = []

    def work():
        # A call may end before the cancel.
        try:
            while True:
                embedder.embed(MANY)
        except llb.LlbError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(codes) < 3:
        embedder.cancel()
    for thread in threads:
        thread.join()
    assert codes == ["CANCELLED"] * 3
    assert len(embedder.embed("a")["data"]) == 1


def test_a_timeout(embedder):
    with pytest.raises(llb.LlbError) as caught:
        embedder.embed(MANY, timeout_ms=20)
    assert caught.value.code == "CANCELLED"


def test_an_interrupt_ends_the_call(script, models):
    code = """
import _thread, sys, threading, llb
embedder = llb.Embedder(sys.argv[1], n_threads=1)
try:
    threading.Timer(0.05, _thread.interrupt_main).start()
    while True: embedder.embed(["the cat sits " * 15] * 10000)
except KeyboardInterrupt:
    print("interrupted", len(embedder.embed("a")["data"]))
"""
    assert script(code, models("embedding")) == "interrupted 1\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this platform")
def test_a_forked_child_gets_an_error(script, models):
    code = """
import os, sys, llb
embedder = llb.Embedder(sys.argv[1], n_threads=1)
child = os.fork()
if not child:
    try:
        embedder.embed("a")
    except llb.LlbError as error:
        own = llb.Embedder(sys.argv[1], n_threads=1)
        print(error.code, len(own.embed("a")["data"]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(len(embedder.embed("a")["data"]))
"""
    assert script(code, models("embedding")) == "ENGINE_CLOSED 1\n1\n"


def test_asyncio(run, models):
    async def main():
        async with llb.AsyncEmbedder(models("embedding"), n_threads=1) as embedder:
            threads = set(threading.enumerate())
            calls = [asyncio.ensure_future(embedder.embed(["the cat"])) for _ in range(20)]
            await asyncio.sleep(0)
            assert set(threading.enumerate()) <= threads
            replies = await asyncio.gather(*calls)
            assert len({tuple(vectors(reply)[0]) for reply in replies}) == 1
            running = asyncio.ensure_future(embedder.embed(MANY))
            await until(lambda: embedder._session.running is not None)
            await cancel(running)
            assert len((await embedder.embed("a", dimensions=3))["data"][0]["embedding"]) == 3
        assert embedder.closed
        with pytest.raises(llb.LlbError) as caught:
            await llb.AsyncEmbedder("/absent.gguf").embed("a")
        assert caught.value.code == "MODEL_NOT_FOUND"

    run(main)


def test_scores_are_those_of_the_reference(models, embedder):
    if not VECTORS.is_file():
        skip("no tests/data/embeddings.json of a checkout")
    with llb.Embedder(models("reranker"), n_threads=1) as reranker:
        for query, document, score in json.loads(VECTORS.read_text(encoding="utf-8"))["scores"]:
            (result,) = reranker.rank(query, [document])["results"]
            assert result["relevance_score"] == pytest.approx(score, abs=1e-3)
        documents = ["a", {"text": "the cat"}, "dog sits"]
        ranking = reranker.rank("query", documents, return_documents=True)
        scores = [each["relevance_score"] for each in ranking["results"]]
        assert scores == sorted(scores, reverse=True) and len(scores) == 3
        for each in ranking["results"]:
            document = documents[each["index"]]
            text = document if isinstance(document, str) else document["text"]
            assert each["document"]["text"] == text
        best = reranker.rank("query", documents, top_n=1)["results"]
        assert [each["index"] for each in best] == [ranking["results"][0]["index"]]
        with pytest.raises(llb.LlbError) as caught:
            reranker.rank("query", ["a " * 100])
        assert caught.value.code == "CONTEXT_OVERFLOW"
        assert reranker.rank("query", ["a " * 100], truncate=True)["truncated"]
        for wrong in (lambda: reranker.embed("a"), lambda: embedder.rank("a", ["b"])):
            with pytest.raises(llb.LlbError) as caught:
                wrong()
            assert caught.value.code == "INVALID_REQUEST"


def test_scores_with_asyncio(run, models):
    async def main():
        async with llb.AsyncEmbedder(models("reranker"), n_threads=1) as reranker:
            ranking = await reranker.rank("query", ["document", "a"], top_n=1)
            assert len(ranking["results"]) == 1 and ranking["type"] == "ranking"

    run(main)


def test_both_kinds_take_the_same_arguments():
    for name in ("__init__", "embed", "rank"):
        one, other = (
            inspect.signature(getattr(kind, name)) for kind in (llb.Embedder, llb.AsyncEmbedder)
        )
        assert one.parameters == other.parameters


def test_backends_and_the_option(script, models):
    found = llb.backends()
    assert found["type"] == "backends" and found["processor"]["architecture"]
    assert any(each["usable"] for each in found["backends"])
    code = """
import sys, llb
name = llb.backends()["backend"]["name"]
with llb.Chat(sys.argv[1], backend=name, n_threads=1):
    print(llb.backends()["backend"]["in_use"], llb.backends()["backend"]["name"] == name)
"""
    assert script(code, models("text")) == "True True\n"
    with pytest.raises(llb.LlbError) as caught:
        llb.Chat(models("text"), backend="abacus")
    assert caught.value.code == "INVALID_REQUEST"


def test_a_chat_model_says_that_its_vectors_are_poor(models):
    with llb.Embedder(models("text")) as embedder:
        with pytest.warns(UserWarning, match="is a chat model") as caught:
            reply = embedder.embed("a")
        assert [each["code"] for each in reply["diagnostics"]] == ["chat_model_embeds"]
        assert caught[0].filename == __file__

    async def ask():
        async with llb.AsyncEmbedder(models("text")) as embedder:
            with pytest.warns(UserWarning, match="is a chat model") as caught:
                await embedder.embed("a")
        assert caught[0].filename == __file__

    asyncio.run(ask())
    # The caller has chosen how to use it.
    with llb.Embedder(models("text"), pooling="last") as embedder:
        assert "diagnostics" not in embedder.embed("a")
