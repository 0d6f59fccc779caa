"""Tests `/tokenize`, `/detokenize`, `/v1/embeddings` and `/v1/rerank`."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any, Iterator

import pytest
from conftest import MODELS, Server
from test_http import COMPLETIONS, GOOD, WRONG

TEXT = "Grüße, <|im_end|> 日本\n"


def test_tokens_are_those_of_the_text(server: Server) -> None:
    status, reply, _ = server.post("/tokenize", {"model": "text", "content": TEXT})
    assert status == 200 and reply["n_tokens"] == len(reply["tokens"]) > 0
    # Once as data, once as markup.
    parsed = server.post("/tokenize", {"model": "text", "content": TEXT, "parse_special": True})[1]
    assert len(parsed["tokens"]) < len(reply["tokens"])
    for tokens in [reply["tokens"], parsed["tokens"]]:
        back = server.post("/detokenize", {"model": "text", "tokens": tokens})
        assert back[:2] == (200, {"content": TEXT})
    pieces = server.post("/tokenize", {"model": "text", "content": TEXT, "with_pieces": True})[1]
    assert [piece["id"] for piece in pieces["tokens"]] == reply["tokens"]
    text = b"".join(
        bytes(piece["piece"]) if isinstance(piece["piece"], list) else piece["piece"].encode()
        for piece in pieces["tokens"]
    )
    assert text.decode() == TEXT


def test_wrong_requests_for_tokens(server: Server) -> None:
    good = {"model": "text", "content": "a", "add_special": True, "with_pieces": False}
    for route, request in [
        ("/tokenize", good),
        ("/detokenize", {"model": "text", "tokens": [1]}),
    ]:
        assert server.post(route, request)[0] == 200
        for field in request:
            for value in WRONG:
                status, reply, _ = server.post(route, {**request, field: value})
                if status != 200:
                    assert status in (400, 404), (field, value, reply)
                    assert set(reply["error"]) == {"message", "type", "param", "code"}
    long = {"model": "text", "content": "a" * (256 * 1024 + 1)}
    assert server.post("/tokenize", long)[0] == 200
    error = server.post("/tokenize", {**long, "with_pieces": True})[1]["error"]
    assert error["param"] == "content" and "262144" in error["message"], error
    error = server.post("/detokenize", {"model": "text", "tokens": [1, 10**9]})[1]["error"]
    assert error["param"] == "tokens[1]", error
    assert server.post("/tokenize", {"content": "a"})[1]["error"]["param"] == "model"
    assert server.post("/tokenize", {"model": "text"})[1]["error"]["param"] == "content"


def test_counting_loads_no_model() -> None:
    server = Server(*(str(MODELS / f"{name}.gguf") for name in ["text", "long"]))
    request = {"model": "long", "messages": GOOD["messages"]}
    counted = server.post("/v1/messages/count_tokens", request)[1]["input_tokens"]
    server.post("/tokenize", {"model": "long", "content": "a"})
    models = json.loads(server.get("/v1/models"))["data"]
    assert [model["id"] for model in models if model["loaded"]] == ["text"]
    # The usage that a reply reports.
    usage = server.post(COMPLETIONS, {**request, "enable_thinking": False})[1]["usage"]
    assert counted == usage["prompt_tokens"]
    assert server.stop() == 0


@pytest.fixture(scope="module")
def vectors() -> Iterator[Server]:
    names = ["embedding", "reranker"]
    options = [part for name in names for part in ("--embedding", str(MODELS / f"{name}.gguf"))]
    server = Server(str(MODELS / "text.gguf"), *options)
    yield server
    assert server.stop() == 0


def cosine(a: Any, b: Any) -> float:
    return sum(x * y for x, y in zip(a, b))


def test_embeddings(vectors: Server) -> None:
    request = {"model": "embedding", "input": ["a text", "another one", "a text"]}
    status, reply, _ = vectors.post("/v1/embeddings", request)
    assert (status, reply["object"], reply["model"]) == (200, "list", "embedding"), reply
    assert [entry["index"] for entry in reply["data"]] == [0, 1, 2]
    first, second, third = (entry["embedding"] for entry in reply["data"])
    assert math.isclose(sum(number * number for number in first), 1, rel_tol=1e-4)
    assert cosine(first, third) > 0.9999 > cosine(first, second)
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] > 0
    encoded = vectors.post("/v1/embeddings", {**request, "encoding_format": "base64"})[1]
    data = base64.b64decode(encoded["data"][0]["embedding"])
    numbers = struct.unpack(f"<{len(data) // 4}f", data)
    assert cosine(numbers, first) > 0.9999
    listed = {model["id"]: model for model in json.loads(vectors.get("/v1/models"))["data"]}
    assert listed["embedding"]["capabilities"]["embeddings"] is True
    assert listed["embedding"]["loaded"] is True
    assert listed["text"]["capabilities"]["embeddings"] is False


def test_ranking(vectors: Server) -> None:
    request = {"model": "reranker", "query": "a", "documents": ["one", "two", "three"]}
    status, reply, _ = vectors.post("/v1/rerank", {**request, "return_documents": True})
    assert (status, reply["model"]) == (200, "reranker"), reply
    results = reply["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
    for result in results:
        assert result["document"]["text"] == request["documents"][result["index"]]
    best = vectors.post("/v1/rerank", {**request, "top_n": 1})[1]["results"]
    assert [each["index"] for each in best] == [results[0]["index"]]
    # A model that computes vectors cannot compute scores.
    assert vectors.post("/v1/rerank", {**request, "model": "embedding"})[0] == 400
    for field in [*request, "top_n", "return_documents", "truncate"]:
        for value in WRONG:
            status, reply, _ = vectors.post("/v1/rerank", {**request, field: value})
            if status != 200:
                assert status in (400, 404), (field, value, reply)
                assert set(reply["error"]) == {"message", "type", "param", "code"}


def test_models_are_used_for_what_they_are(vectors: Server) -> None:
    status, reply, _ = vectors.post(COMPLETIONS, {**GOOD, "model": "embedding"})
    assert status == 400 and "/v1/embeddings" in reply["error"]["message"]
    status, reply, _ = vectors.post("/v1/embeddings", {"model": "text", "input": "a"})
    assert status == 400 and "--embedding" in reply["error"]["message"]
    assert vectors.post(COMPLETIONS, {"messages": GOOD["messages"]})[0] == 200


def test_wrong_requests_for_embeddings(vectors: Server) -> None:
    good = {"model": "embedding", "input": ["a"], "encoding_format": "float", "user": "u"}
    for field in [*good, "dimensions", "truncate", "prefix"]:
        for value in WRONG:
            status, reply, _ = vectors.post("/v1/embeddings", {**good, field: value})
            if status != 200:
                assert status in (400, 404), (field, value, reply)
                assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert vectors.post("/v1/embeddings", {**good, "input": [[1, 2]]})[0] == 400
    assert vectors.post("/v1/embeddings", {**good, "input": "word " * 100_000})[0] == 400
    assert vectors.post("/v1/embeddings", good)[0] == 200


def test_the_official_client(vectors: Server) -> None:
    openai: Any = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=vectors.url + "/v1", api_key="none", max_retries=0)
    # The client asks for base64 and decodes it.
    reply = client.embeddings.create(model="embedding", input=["a text", "another one"])
    assert len(reply.data) == 2 and len(reply.data[0].embedding) > 1
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="text", input="a")
