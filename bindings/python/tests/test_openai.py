"""`llb.transport` and `llb.OpenAI`: the openai package's own clients, and the server's replies."""

import json
import os
import subprocess

import pytest

import llb
from conftest import skip
from test_chat import HELLO, WEATHER


@pytest.fixture(scope="module")
def openai():
    try:
        import openai
    except ImportError:
        skip("no openai (pip install openai)")
    return openai


@pytest.fixture(scope="module")
def httpx(openai):
    """The httpx that the openai package uses."""
    import importlib

    base = openai.DefaultHttpxClient.__mro__[-2]
    return importlib.import_module(base.__module__.partition(".")[0])


@pytest.fixture
def client(openai, models):
    """Opens clients on scripted models, and closes them after the test."""
    opened = []

    def open_client(stem, **options):
        opened.append(llb.OpenAI(models(stem), n_threads=1, **options))
        return opened[-1]

    yield open_client
    for each in opened:
        each.close()


def ask(client, stream=False, **parameters):
    return client.chat.completions.create(
        model="m", messages=HELLO, temperature=0, stream=stream, **parameters
    )


class Server:
    """`llb serve` with a scripted model."""

    def __init__(self, program, model):
        command = [program, "serve", str(model), "--port", "0", "--threads", "1"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "listening on " in line:
                self.url = line.split("listening on ")[1].split()[0]
                return
        raise AssertionError("the server has ended")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


# Values that differ from reply to reply. What is cached depends on the chats of a pool.
OWN = (
    "id",
    "item_id",
    "call_id",
    "created",
    "created_at",
    "completed_at",
    "timings",
    "cached_tokens",
)
EMPTY = ("diagnostics", None)


def same(value, name=""):
    """A JSON value without what differs from reply to reply."""
    if name in OWN and value is not None:
        return name
    if isinstance(value, dict):
        # The server may send diagnostics that are null.
        members = {each: inner for each, inner in value.items() if (each, inner) != EMPTY}
        return {each: same(inner, each) for each, inner in members.items()}
    if isinstance(value, list):
        return [same(inner) for inner in value]
    return value


def answer(response):
    """The status, and the body or the events, of a response."""
    text = response.read().decode()
    if not response.headers["content-type"].startswith("text/event-stream"):
        return response.status_code, same(json.loads(text))
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        data = [line[6:] for line in lines if line.startswith("data: ")]
        parsed = [each if each == "[DONE]" else same(json.loads(each)) for each in data]
        if lines:
            events.append(([line for line in lines if not line.startswith("data: ")], parsed))
    return response.status_code, events


FUNCTION = {"type": "function", **WEATHER["function"]}
FORM = {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
CALLED = [
    *HELLO,
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
]
ITEMS = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "rain"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Rain.", "annotations": []}],
    },
    {"role": "user", "content": "And tomorrow?"},
]
CHAT = {"model": "m", "messages": HELLO, "temperature": 0}
RESPONSE = {"model": "m", "input": "Hello", "temperature": 0, "store": False}
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
REQUESTS = {
    "chat": ("chat/completions", CHAT),
    "chat with tools": ("chat/completions", {**CHAT, "tools": [WEATHER]}),
    "chat with a result": ("chat/completions", {**CHAT, "messages": CALLED, "tools": [WEATHER]}),
    "chat with logprobs": ("chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 1}),
    "chat that is cut off": ("chat/completions", {**CHAT, "max_tokens": 1}),
    "chat with a schema": (
        "chat/completions",
        {**CHAT, "response_format": {"type": "json_schema", "json_schema": FORM}},
    ),
    "chat with an unknown member": ("chat/completions", {**CHAT, "tool_stream": True}),
    "chat stream": ("chat/completions", {**CHAT, "stream": True, "tools": [WEATHER]}),
    "chat stream with usage": ("chat/completions", {**CHAT, **WITH_USAGE, "tools": [WEATHER]}),
    "chat with a wrong role": ("chat/completions", {**CHAT, "messages": [{"role": "x"}]}),
    "stream with a wrong role": (
        "chat/completions",
        {**CHAT, "stream": True, "messages": [{"role": "x"}]},
    ),
    "response": ("responses", RESPONSE),
    "response with instructions": ("responses", {**RESPONSE, "instructions": "Be brief."}),
    "response with tools": ("responses", {**RESPONSE, "tools": [FUNCTION]}),
    "response with items": ("responses", {**RESPONSE, "input": ITEMS, "tools": [FUNCTION]}),
    "response that is cut off": ("responses", {**RESPONSE, "max_output_tokens": 1}),
    "response with a schema": (
        "responses",
        {**RESPONSE, "text": {"format": {"type": "json_schema", **FORM}}},
    ),
    "response with a choice": (
        "responses",
        {
            **RESPONSE,
            "tools": [FUNCTION],
            "tool_choice": {"type": "function", "name": "get_weather"},
        },
    ),
    "response stream": ("responses", {**RESPONSE, "stream": True, "tools": [FUNCTION]}),
    "response stream with logprobs": (
        "responses",
        {**RESPONSE, "stream": True, "include": ["message.output_text.logprobs"]},
    ),
    "response without input": ("responses", {"model": "m", "input": []}),
}


@pytest.mark.parametrize("stem", ["text", "reasoning", "tool_call"])
def test_replies_are_those_of_the_server(httpx, models, stem):
    """Each member and each event has the same value, but ids and times."""
    program = os.environ.get("LLB_PROGRAM") or skip("LLB_PROGRAM is not set")
    transport = llb.transport(models(stem), n_threads=1)
    with Server(program, models(stem)) as server, httpx.Client(timeout=60) as remote:
        with httpx.Client(transport=transport, timeout=60) as local:
            for name, (route, body) in REQUESTS.items():
                theirs = remote.post(f"{server.url}/v1/{route}", json=body)
                ours = local.post(f"http://any.invalid/v1/{route}", json=body)
                assert answer(ours) == answer(theirs), name
            # The server has further members, about the model and its other protocols.
            (theirs,) = remote.get(f"{server.url}/v1/models").json()["data"]
            (ours,) = local.get("http://any.invalid/v1/models").json()["data"]
            assert (ours["id"], ours["object"]) == (theirs["id"], theirs["object"])
            assert set(ours) <= set(theirs)


def test_the_official_client_runs_in_process(openai, client, expected):
    opened = client("text")
    assert isinstance(opened, openai.OpenAI)
    assert ask(opened).choices[0].message.content == expected["text"]
    chunks = list(ask(opened, stream=True))
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == expected["text"]
    with opened.responses.stream(model="m", input="Hello", temperature=0) as stream:
        deltas = [each.delta for each in stream if each.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "".join(deltas) == expected["text"]
    (entry,) = opened.models.list()
    assert opened.models.retrieve(entry.id) == entry


def test_failures_are_those_of_the_package(openai, client):
    opened = client("text")
    with pytest.raises(openai.BadRequestError) as raised:
        opened.chat.completions.create(model="m", messages=[{"role": "user"}])
    assert (raised.value.status_code, raised.value.param) == (400, "messages[0].content")
    for parameters in ({"n": 2}, {"modalities": ["audio"]}, {"functions": []}):
        with pytest.raises(openai.BadRequestError, match=next(iter(parameters))):
            ask(opened, **parameters)
    for parameters in (
        {"previous_response_id": "resp_1"},
        {"tools": [{"type": "web_search"}]},
        {"input": [{"type": "item_reference", "id": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
    ):
        with pytest.raises(openai.BadRequestError, match="in this process"):
            opened.responses.create(model="m", **{"input": "Hello", **parameters})
    with pytest.raises(openai.NotFoundError, match="no model other"):
        opened.models.retrieve("other")
    with pytest.raises(openai.NotFoundError, match="no such route"):
        opened.files.list()
    with pytest.raises(openai.BadRequestError, match="no embedding_model"):
        opened.embeddings.create(model="m", input="a")
    opened.close()
    with pytest.raises(llb.LlbError, match="MODEL_NOT_FOUND"):
        llb.OpenAI("no.gguf")


def test_a_reply_that_takes_longer_than_the_client_waits(openai, client):
    # No machine computes all these tokens in a millisecond.
    with pytest.raises(openai.APITimeoutError):
        ask(client("long", timeout=0.001), stream=False)


def test_a_reply_that_waits_longer_than_the_client(openai, models, blocked):
    with llb.Chat(models("long"), n_threads=1) as chat, llb.OpenAI(chat) as client:
        with chat.create(HELLO, stream=True) as stream:
            next(stream)
            with pytest.raises(openai.APITimeoutError):
                ask(client, timeout=0.001)
            with pytest.raises(openai.APITimeoutError):
                client.responses.create(model="m", input="Hello", timeout=0.001)


def test_vectors_that_take_longer_than_the_client_waits(openai, models):
    with llb.OpenAI(embedding_model=models("embedding")) as client:
        with pytest.raises(openai.APITimeoutError):
            client.embeddings.create(model="m", input=["the cat sat"] * 20_000, timeout=0.001)


def test_members_for_every_request(client):
    opened = client("text", request={"max_tokens": 1})
    assert ask(opened).usage.completion_tokens == 1
    assert ask(opened, max_tokens=2).usage.completion_tokens == 2


def test_an_open_model_is_used_and_left_open(openai, models):
    with llb.Model(models("text"), n_threads=1) as model:
        with llb.OpenAI(model) as client:
            assert ask(client).choices[0].message.content
        assert not model.closed
        with pytest.raises(TypeError, match="n_ctx: options are for"):
            llb.transport(model, n_ctx=512)


def test_a_stream_that_is_left_ends(client):
    opened = client("long")
    with ask(opened, stream=True) as stream:
        next(iter(stream))
    assert ask(opened, max_tokens=1).usage.completion_tokens == 1


def test_vectors(openai, client, models):
    with llb.OpenAI(embedding_model=models("embedding")) as alone:
        vectors = alone.embeddings.create(model="m", input=["the cat", "a dog"], dimensions=8)
        assert [len(each.embedding) for each in vectors.data] == [8, 8]
        with pytest.raises(openai.BadRequestError, match="no model"):
            ask(alone)
    both = client("text", embedding_model=models("embedding"))
    assert len(both.models.list().data) == 2
    assert both.embeddings.create(model="m", input="a").data[0].index == 0
    with llb.Embedder(models("embedding"), n_threads=1) as embedder:
        with llb.OpenAI(embedding_model=embedder) as borrowed:
            ours = borrowed.embeddings.create(model="m", input="a").data[0].embedding
        assert ours == pytest.approx(embedder.embed("a")["data"][0]["embedding"])


def test_asyncio(run, openai, models, expected):
    async def main():
        options = {"embedding_model": models("embedding"), "n_threads": 1}
        async with llb.AsyncOpenAI(models("text"), **options) as client:
            completions = client.chat.completions
            reply = await completions.create(model="m", messages=HELLO, temperature=0)
            assert reply.choices[0].message.content == expected["text"]
            stream = await completions.create(model="m", messages=HELLO, temperature=0, stream=True)
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(texts) == expected["text"]
            response = await client.responses.create(model="m", input="Hello", temperature=0)
            assert response.output_text == expected["text"]
            vectors = await client.embeddings.create(model="e", input=["the cat", "a dog"])
            assert len(vectors.data) == 2
            assert len([each async for each in client.models.list()]) == 2
            with pytest.raises(openai.BadRequestError):
                await completions.create(model="m", messages=[{"role": "user"}], stream=True)
        async with llb.AsyncModel(models("long"), n_threads=1) as model:
            async with llb.AsyncOpenAI(model) as client:
                completions = client.chat.completions
                stream = await completions.create(model="m", messages=HELLO, stream=True)
                async with stream:
                    await stream.__anext__()
                again = await completions.create(model="m", messages=HELLO, max_tokens=1)
                assert again.usage.completion_tokens == 1
            assert not model.closed

    run(main)


def test_a_model_for_the_other_kind_of_client(httpx, openai, models):
    transport = llb.transport(llb.AsyncModel(models("text"), n_threads=1))
    with httpx.Client(transport=transport) as client:
        with pytest.raises(TypeError, match="for asyncio clients; pass its file"):
            client.post("http://any.invalid/v1/chat/completions", json=CHAT)
