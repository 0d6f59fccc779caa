"""`llb.OpenAI`: the shape of its objects, compared with the openai package."""

import importlib.util
import json
from dataclasses import dataclass

import pytest

import llb
from conftest import skip
from test_chat import HELLO, WEATHER
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
    seen["models"] = shape(client.models.list().data[0].model_dump(exclude_none=True))
    return seen


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
    # Of the server alone, and of ours alone: reasoning_tokens is part of the package's shape.
    own = (".timings", ".system_fingerprint", ".meta", ".aliases", ".tags", ".architecture")
    for part, their in theirs.items():
        missing = {
            each for each in members(their) - members(ours[part]) if not each[0].startswith(own)
        }
        assert missing == set(), part
        more = {path for path, _ in members(ours[part]) - members(their)}
        assert more <= {".usage.completion_tokens_details.reasoning_tokens"}, part


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


def test_parse_returns_a_value(client):
    @dataclass
    class City:
        name: str

    completions = client("text").chat.completions
    reply = completions.parse(model="m", messages=HELLO, response_format=City, temperature=0)
    assert isinstance(reply.choices[0].message.parsed, City)
    with pytest.raises(llb.ReplyTruncated):
        completions.parse(messages=HELLO, response_format=City, max_tokens=1)


def test_requests_that_cannot_be_served_are_refused(client):
    with pytest.raises(llb.LlbError, match="n: must be 1"):
        ask(client("text"), False, n=2)
    with pytest.raises(TypeError, match="temprature"):
        client("text").chat.completions.create(messages=HELLO, temprature=1)
    with pytest.raises(AttributeError, match="no attribute 'contents'"):
        ask(client("text"), False).choices[0].message.contents


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
