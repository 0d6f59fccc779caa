"""`llb.OpenAI`: the shape of its objects, compared with the openai package.

The tests are in one file because they share the comparison and the server.
"""

import importlib.util
import json
import pickle
from dataclasses import dataclass

import pytest

import llb
from conftest import skip
from test_chat import HELLO, WEATHER
from llb._openai.partial_json import partial_json
from test_remote import Server


@pytest.fixture(scope="module")
def openai():
    try:
        import openai
        import openai.types.chat
    except ImportError:
        skip("no openai (pip install openai)")
    return openai


@pytest.fixture
def client(models):
    """Opens clients on scripted models, and closes them after the test."""
    opened = []

    def open_client(stem, **options):
        opened.append(llb.OpenAI(models(stem), n_threads=1, **options))
        return opened[-1]

    yield open_client
    for each in opened:
        each.close()


def ask(client, stream, **parameters):
    return client.chat.completions.create(
        model="m", messages=HELLO, temperature=0, stream=stream, **parameters
    )


def shape(value):
    """The members of a JSON value, without its values. Texts of another length are equal."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@pytest.mark.parametrize("stem", ["text", "reasoning", "tool_call"])
@pytest.mark.parametrize("more", [{}, {"logprobs": True, "top_logprobs": 2}])
def test_a_reply_is_one_of_the_package(openai, client, stem, more):
    """The package's own class reads ours, and then has the same members with the same values."""
    reply = ask(client(stem), False, tools=[WEATHER], **more)
    theirs = openai.types.chat.ChatCompletion.model_validate(reply.model_dump(), strict=True)
    assert theirs.model_dump() == reply.model_dump()
    assert json.loads(theirs.model_dump_json()) == json.loads(reply.model_dump_json())
    assert theirs.choices[0].message.content == reply.choices[0].message.content
    assert reply.model == "m"


@pytest.mark.parametrize("stem", ["text", "reasoning", "tool_call"])
@pytest.mark.parametrize(
    "more", [{}, {"logprobs": True}, {"stream_options": {"include_usage": True}}]
)
def test_chunks_are_those_of_the_package(openai, client, stem, more):
    chunks = list(ask(client(stem), True, tools=[WEATHER], **more))
    for chunk in chunks:
        theirs = openai.types.chat.ChatCompletionChunk.model_validate(
            chunk.model_dump(), strict=True
        )
        assert theirs.model_dump() == chunk.model_dump()
    if "stream_options" in more:
        assert chunks.pop().choices == []
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert chunks[-1].choices[0].finish_reason in ("stop", "tool_calls")


def test_the_package_collects_our_chunks(openai, client):
    """Its accumulator of streams finds the reply in our chunks."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    for chunk in ask(client("tool_call"), True, tools=[WEATHER]):
        chunk = openai.types.chat.ChatCompletionChunk.model_validate(chunk.to_dict())
        state.handle_chunk(chunk)
    (call,) = state.get_final_completion().choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Paris"},
    )


def script(client, openai):
    """A program for the package. Returns the shapes of all that it receives."""
    seen = {}
    reply = client.chat.completions.create(
        model="m", messages=HELLO, temperature=0, max_tokens=8, user="someone", n=1
    )
    seen["reply"] = shape(reply.model_dump(exclude_none=True))
    again = client.chat.completions.create(
        model="m",
        messages=[*HELLO, reply.choices[0].message, {"role": "user", "content": "And?"}],
        max_tokens=4,
        stop=openai.NOT_GIVEN,
    )
    seen["again"] = again.choices[0].message.role
    chunks = list(
        client.chat.completions.create(
            model="m",
            messages=HELLO,
            temperature=0,
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    seen["first"] = chunks[0].choices[0].delta.role
    texts = [chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    seen["chunk"] = shape(texts[-1].model_dump(exclude_none=True))
    seen["finish"] = shape(chunks[-2].model_dump(exclude_none=True))
    seen["usage"] = shape(chunks[-1].model_dump(exclude_none=True))
    seen.update(events(client), parsed=parse(client))
    seen["models"] = shape(client.models.list().data[0].model_dump(exclude_none=True))
    return seen


def events(client):
    """The shape of the last event of each type. Of a chunk, the last one with text."""
    seen = {}
    with client.chat.completions.stream(
        model="m", messages=HELLO, temperature=0, max_tokens=8
    ) as stream:
        for event in stream:
            choices = event.chunk.choices if event.type == "chunk" else None
            if choices is None or (choices and choices[0].delta.content):
                seen[event.type] = shape(event.model_dump(exclude_none=True))
    snapshot = stream.current_completion_snapshot
    return {**seen, "snapshot": shape(snapshot.model_dump(exclude_none=True))}


def parse(client):
    city = Weather().city
    reply = client.chat.completions.parse(
        model="m",
        messages=[{"role": "user", "content": "Name the capital of France."}],
        temperature=0,
        response_format=city,
    )
    assert isinstance(reply.choices[0].message.parsed, city)
    return shape(reply.model_dump(exclude_none=True, warnings=False))


def members(value):
    """The paths of the members of a shape."""
    if isinstance(value, list):
        return set().union(*map(members, value))
    if not isinstance(value, dict):
        return {("", value)}
    return {
        (f".{name}{path}", kind) for name, each in value.items() for path, kind in members(each)
    }


def test_the_same_script_runs_with_a_server(openai, real_model):
    """llama.cpp's server has members of its own, but no member that we lack or type otherwise."""
    if importlib.util.find_spec("xllamacpp") is None:
        skip("no xllamacpp, which has a llama.cpp server (pip install xllamacpp)")
    server = Server(real_model)
    try:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as remote:
            theirs = script(remote, openai)
    finally:
        server.kill()
    with llb.OpenAI(real_model, n_ctx=2048, n_threads=1) as client:
        ours = script(client, openai)
    # Of the server alone, and of ours alone: counts of reasoning and of guesses, which are part of
    # the package's shape.
    own = {"timings", "system_fingerprint", "meta", "aliases", "tags", "architecture"}
    for part, their in theirs.items():
        missing = {
            each
            for each in members(their) - members(ours[part])
            if own.isdisjoint(each[0].split("."))
        }
        assert missing == set(), part
        more = {path for path, _ in members(ours[part]) - members(their)}
        details = ".usage.completion_tokens_details."
        assert {path for path in more if details not in path} == set(), part


def test_events_of_a_stream(client):
    completions = client("tool_call").chat.completions
    with completions.stream(model="m", messages=HELLO, tools=[WEATHER], temperature=0) as stream:
        events = list(stream)
    deltas = [each for each in events if each.type == "tool_calls.function.arguments.delta"]
    assert "".join(each.arguments_delta for each in deltas) == deltas[-1].arguments
    assert events[-1].type == "tool_calls.function.arguments.done"
    assert json.loads(events[-1].arguments) == {"city": "Paris"}
    with client("text").chat.completions.stream(model="m", messages=HELLO) as stream:
        events = [event for event in stream if event.type.startswith("content")]
        final = stream.get_final_completion()
    assert events[-1].content == events[-2].snapshot == final.choices[0].message.content
    assert "".join(each.delta for each in events[:-1]) == events[-1].content


class Weather:
    """Types for replies and tools, made when pydantic is known to be there."""

    def __init__(self):
        import pydantic

        self.city = pydantic.create_model("City", name=(str, ...), country=(str, ...))
        self.arguments = pydantic.create_model("get_weather", city=(str, ...))


STRICT = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
STREAMS = {
    "text": ("text", lambda openai: {}),
    "reasoning": ("reasoning", lambda openai: {}),
    "usage": ("text", lambda openai: {"stream_options": {"include_usage": True}}),
    "logprobs": ("text", lambda openai: {"logprobs": True, "top_logprobs": 1}),
    "typed": ("text", lambda openai: {"response_format": Weather().city}),
    "json": ("text", lambda openai: {"response_format": {"type": "json_object"}}),
    "tool": ("tool_call", lambda openai: {"tools": [WEATHER]}),
    "strict": ("tool_call", lambda openai: {"tools": [STRICT], "logprobs": True}),
    "pydantic": (
        "tool_call",
        lambda openai: {"tools": [openai.pydantic_function_tool(Weather().arguments)]},
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_events_are_those_of_the_package(openai, client, name):
    """The package makes the same events of our chunks, with the same snapshots at each."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    stem, parameters = STREAMS[name]
    request = {"model": "m", "messages": HELLO, "temperature": 0, **parameters(openai)}
    types = {"response_format": request.get("response_format", openai.omit)}
    state = ChatCompletionStreamState(input_tools=request.get("tools", openai.omit), **types)
    chunks = 0
    with client(stem).chat.completions.stream(**request) as stream:
        for event in stream:
            if event.type == "chunk":
                chunk = openai.types.chat.ChatCompletionChunk.model_validate(event.chunk.to_dict())
                theirs = iter(state.handle_chunk(chunk))
                chunks += 1
            their = next(theirs)
            assert event.type == their.type
            # The package does not parse the first chunk.
            if chunks > 1 or name != "typed":
                assert event.model_dump() == their.model_dump(warnings=False)
        assert list(theirs) == [] and chunks > 3
        final = stream.get_final_completion()
    assert final is stream.current_completion_snapshot
    assert final.model_dump() == state.get_final_completion().model_dump(warnings=False)


@pytest.mark.parametrize(
    "text",
    [
        *(
            ' {"a": [1, {"b": "c\\"d", "e": [[], {}, true]}, -1.5e3], "f": null}'[:n]
            for n in range(2, 70)
        ),
        *('["x", {"y": "', '{"a": 1.', '{"a": -', "[fal", "[1e", '[{"a": {"b"', "[1, 23"),
    ],
)
def test_the_beginning_of_json_is_read_as_by_the_package(openai, text):
    from jiter import from_json

    assert partial_json(text) == from_json(text.encode(), partial_mode=True)


def test_what_is_no_json_has_no_value():
    assert [partial_json(text) for text in ("", "  ", "Hello", '"cut', "]", "nul")] == [None] * 6


def test_parse_returns_a_value(client):
    @dataclass
    class City:
        name: str

    completions = client("text").chat.completions
    reply = completions.parse(model="m", messages=HELLO, response_format=City, temperature=0)
    assert isinstance(reply.choices[0].message.parsed, City)
    with pytest.raises(llb.ReplyTruncated):
        completions.parse(messages=HELLO, response_format=City, max_tokens=1)
    with completions.stream(messages=HELLO, response_format=City, max_tokens=1) as stream:
        with pytest.raises(llb.ReplyTruncated):
            stream.until_done()
    with pytest.raises(TypeError, match="takes no grammar"):
        completions.stream(messages=HELLO, response_format=City, grammar='start: "a"')
    assert completions.parse(messages=HELLO, max_tokens=2).choices[0].message.parsed is None


def test_parse_reads_the_arguments_of_strict_tools(openai, client):
    """As the package does with the same reply."""
    from openai.lib._parsing import parse_chat_completion

    model = Weather().arguments
    for tool, parsed in (
        (openai.pydantic_function_tool(model), model(city="Paris")),
        (STRICT, {"city": "Paris"}),
        (WEATHER, None),
    ):
        reply = client("tool_call").chat.completions.parse(
            model="m", messages=HELLO, tools=[tool], temperature=0
        )
        (call,) = reply.choices[0].message.tool_calls
        assert call.function.parsed_arguments == parsed
        plain = openai.types.chat.ChatCompletion.model_validate(reply.to_dict())
        theirs = parse_chat_completion(
            response_format=openai.omit, input_tools=[tool], chat_completion=plain
        )
        assert reply.model_dump() == theirs.model_dump(warnings=False)


def test_a_call_of_a_strict_tool_that_is_cut_off(client):
    completions = client("tool_call").chat.completions
    request = {"messages": HELLO, "tools": [STRICT], "temperature": 0, "max_tokens": 10}
    with pytest.raises(llb.ReplyTruncated):
        completions.parse(**request)
    with completions.stream(**request) as stream, pytest.raises(llb.ReplyTruncated):
        stream.until_done()


def test_requests_that_cannot_be_served_are_refused(client):
    with pytest.raises(llb.LlbError, match="n: must be 1"):
        ask(client("text"), False, n=2)
    with pytest.raises(TypeError, match="temprature"):
        client("text").chat.completions.create(messages=HELLO, temprature=1)
    with pytest.raises(AttributeError, match="no attribute 'contents'"):
        _ = ask(client("text"), False).choices[0].message.contents


def test_the_model_is_listed(client, chat):
    listed = client("text")
    (entry,) = listed.models.list()
    assert (entry.id, entry.object) == ("text.gguf", "model")
    assert listed.models.retrieve("text.gguf") == entry
    with pytest.raises(llb.LlbError, match="no model other"):
        listed.models.retrieve("other")


def test_an_open_chat_is_used_and_left_open(chat):
    opened = chat("text")
    with llb.OpenAI(opened) as client:
        assert ask(client, False).choices[0].message.content
    assert not opened.closed


@pytest.fixture
def embedding_client(models):
    with llb.OpenAI(embedding_model=models("embedding")) as opened:
        yield opened


def test_vectors_are_those_of_the_package(openai, embedding_client, models):
    for texts in ("the cat", ["the cat", "a dog"]):
        ours = embedding_client.embeddings.create(model="m", input=texts, dimensions=8)
        theirs = openai.types.CreateEmbeddingResponse.model_validate(ours.model_dump(), strict=True)
        assert theirs.model_dump() == ours.model_dump()
        assert json.loads(theirs.model_dump_json()) == json.loads(ours.model_dump_json())
        assert (ours.model, len(ours.data[-1].embedding), ours.data[-1].object) == (
            "m",
            8,
            "embedding",
        )
        assert ours.usage.prompt_tokens == ours.usage.total_tokens > 0
    encoded = embedding_client.embeddings.create(input="x", encoding_format="base64")
    assert isinstance(encoded.data[0].embedding, str) and encoded.model == "embedding.gguf"


def test_a_client_may_have_two_models_or_one(client, models, embedding_client):
    two = client("text", embedding_model=models("embedding"))
    assert [each.id for each in two.models.list()] == ["text.gguf", "embedding.gguf"]
    assert two.embeddings.create(input="a", timeout=60).data[0].index == 0
    assert ask(two, False).choices[0].message.content
    with pytest.raises(llb.LlbError, match="no embedding_model"):
        client("text").embeddings.create(input="a")
    with pytest.raises(llb.LlbError, match="no model"):
        ask(embedding_client, False)
    with llb.Embedder(models("embedding"), n_threads=1) as embedder:
        with llb.OpenAI(embedding_model=embedder) as borrowed:
            assert borrowed.embeddings.create(input="a").data
        assert not embedder.closed


@pytest.mark.parametrize("name", STREAMS)
def test_the_events_with_asyncio_are_the_same(run, openai, client, models, name):
    stem, parameters = STREAMS[name]
    request = {"model": "m", "messages": HELLO, "temperature": 0, **parameters(openai)}

    async def main():
        async with llb.AsyncOpenAI(models(stem), n_threads=1) as opened:
            async with opened.chat.completions.stream(**request) as stream:
                events = [shape(event.model_dump()) async for event in stream]
                final = await stream.get_final_completion()
            assert final is stream.current_completion_snapshot
            return events, final

    events, final = run(main)
    with client(stem).chat.completions.stream(**request) as stream:
        assert events == [shape(event.model_dump()) for event in stream]
    same = {"id": final.id, "created": final.created}
    theirs = {**stream.get_final_completion().model_dump(), **same}
    if final.choices[0].message.tool_calls:
        (call,) = theirs["choices"][0]["message"]["tool_calls"]
        call["id"] = final.choices[0].message.tool_calls[0].id
    assert theirs == final.model_dump()


def test_a_program_for_asyncio(run, openai, models, expected):
    city = Weather().city

    async def main():
        client = llb.AsyncOpenAI(models("text"), embedding_model=models("embedding"), n_threads=1)
        completions = client.chat.completions
        reply = await completions.create(model="m", messages=HELLO, temperature=0)
        theirs = openai.types.chat.ChatCompletion.model_validate(reply.model_dump(), strict=True)
        assert theirs.model_dump() == reply.model_dump()
        assert reply.choices[0].message.content == expected["text"]
        pieces = [
            chunk.choices[0].delta.content or ""
            async for chunk in await completions.create(
                messages=[*HELLO, reply.choices[0].message], temperature=0, stream=True
            )
        ]
        assert "".join(pieces) == expected["text"] and len(pieces) > 3
        typed = await completions.parse(messages=HELLO, response_format=city, temperature=0)
        assert isinstance(typed.choices[0].message.parsed, city)
        vectors = await client.embeddings.create(model="e", input=["the cat", "a dog"])
        assert (len(vectors.data), vectors.model) == (2, "e")
        names = ["text.gguf", "embedding.gguf"]
        assert [model.id for model in (await client.models.list()).data] == names
        assert [model.id async for model in client.models.list()] == names
        assert (await client.models.retrieve("text.gguf")).id == "text.gguf"
        with pytest.raises(llb.LlbError, match="n: must be 1"):
            await completions.create(messages=HELLO, n=2)
        await client.close()
        with pytest.raises(llb.LlbError, match="ENGINE_CLOSED"):
            await completions.create(messages=HELLO)
        async with llb.AsyncChat(models("text"), n_threads=1) as chat:
            async with llb.AsyncOpenAI(chat) as borrowed:
                with pytest.raises(llb.LlbError, match="no embedding_model"):
                    await borrowed.embeddings.create(input="a")
            assert not chat.closed

    run(main)


def test_a_stream_with_asyncio_that_is_left_ends(run, models, blocked):
    async def main():
        async with llb.AsyncOpenAI(models("long"), n_threads=1) as client:
            async with client.chat.completions.stream(messages=HELLO) as stream:
                assert (await stream.__anext__()).type == "chunk"
            again = await client.chat.completions.create(messages=HELLO, max_tokens=1)
            return again.usage.completion_tokens

    assert run(main) == 1


def wrong_requests(client):
    """Each way of a request, with a message that lacks its content."""
    wrong = [{"role": "user"}]
    completions = client.chat.completions
    return [
        lambda: completions.create(model="m", messages=wrong),
        lambda: list(completions.create(model="m", messages=wrong, stream=True)),
        lambda: completions.parse(model="m", messages=wrong),
        lambda: list(completions.stream(model="m", messages=wrong)),
        lambda: list(client.beta.chat.completions.stream(model="m", messages=wrong)),
    ]


def test_failures_are_exceptions_of_the_package_too(openai, client):
    opened = client("text")
    for request in wrong_requests(opened):
        with pytest.raises(openai.BadRequestError) as raised:
            request()
        error = raised.value
        assert isinstance(error, llb.LlbError)
        assert (error.code, error.status_code) == ("INVALID_REQUEST", 400)
        assert error.param == error.body["param"] == "messages[0].content"
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.code, str(copy)) == (llb.LlbError, error.code, str(error))
    with pytest.raises(openai.NotFoundError):
        opened.models.retrieve("other")
    with pytest.raises(openai.BadRequestError):
        opened.embeddings.create(model="m", input="text")
    with pytest.raises(openai.BadRequestError) as raised:
        ask(opened, False, modalities=["audio"])
    assert "modalities" in str(raised.value)

    @dataclass
    class City:
        name: str

    with pytest.raises(openai.LengthFinishReasonError) as raised:
        opened.chat.completions.parse(model="m", messages=HELLO, response_format=City, max_tokens=1)
    assert raised.value.completion.usage.completion_tokens == 1
    opened.close()
    with pytest.raises(openai.InternalServerError) as raised:
        ask(opened, False)
    assert raised.value.status_code == 503


def test_failures_do_not_import_the_package(models, script):
    script(
        """
import sys
import llb

with llb.OpenAI(sys.argv[1], n_threads=1) as client:
    try:
        client.chat.completions.create(messages=[{"role": "user"}])
    except llb.LlbError as error:
        assert type(error) is llb.LlbError
    else:
        raise AssertionError("no failure")
assert "openai" not in sys.modules
""",
        models("text"),
    )


def test_a_client_with_other_options_shares_the_models(client):
    opened = client("text")
    other = opened.with_options(timeout=-1, max_retries=3)
    with pytest.raises(llb.LlbError, match="timeout_ms"):
        ask(other, False)
    assert ask(other, False, timeout=60).choices[0].finish_reason == "stop"
    other.close()
    assert ask(opened, False).choices[0].finish_reason == "stop"
