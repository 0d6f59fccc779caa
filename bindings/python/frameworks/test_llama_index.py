"""`llb.llama_index.Llb` on scripted models: replies, streams, tools, and all with asyncio."""

import asyncio
import json

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms import LLM
from llama_index.core.tools import FunctionTool

import llb
from llb.llama_index import Llb, LlbEmbedding, _message

HELLO = [ChatMessage(role="user", content="hi")]
CITIES = []


def get_weather(city: str) -> str:
    """The current weather in a city."""
    CITIES.append(city)
    return f"18 degrees in {city}"


TOOL = FunctionTool.from_defaults(get_weather)


@pytest.fixture
def model(models):
    opened = []

    def open_model(stem, **fields):
        fields = {"temperature": 0, "options": {"n_threads": 1, "n_ctx": 2048}, **fields}
        opened.append(Llb(model=models(stem), **fields))
        return opened[-1]

    yield open_model
    for each in opened:
        each.close()


def test_the_metadata_is_that_of_the_file(model):
    text = model("text")
    assert isinstance(text, LLM)
    assert text.metadata.context_window == 2048
    assert text.metadata.is_chat_model and text.metadata.is_function_calling_model
    assert text.metadata.model_name == "text.gguf"
    assert not model("no_tools").metadata.is_function_calling_model


def test_a_reply(model, expected):
    response = model("text").chat(HELLO)
    assert response.message.role is MessageRole.ASSISTANT
    assert response.message.content == expected["text"]
    usage = response.additional_kwargs
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert model("text").complete("hi").text == expected["text"]


def test_a_stream(model, expected):
    responses = list(model("text").stream_chat(HELLO))
    assert "".join(each.delta for each in responses) == expected["text"]
    assert len([each for each in responses if each.delta]) > 3
    for earlier, later in zip(responses, responses[1:]):
        assert later.message.content.startswith(earlier.message.content)
    assert responses[-1].message.content == expected["text"]
    assert list(model("text").stream_complete("hi"))[-1].text == expected["text"]


def test_asyncio(model, expected):
    async def main():
        text = model("text")
        one, two = await asyncio.gather(text.achat(HELLO), text.acomplete("hi"))
        stream = await text.astream_chat(HELLO)
        pieces = [each.delta async for each in stream]
        return one.message.content, two.text, "".join(pieces)

    assert asyncio.run(main()) == (expected["text"],) * 3


def test_a_tool_is_called(model):
    CITIES.clear()
    response = model("tool_call").predict_and_call([TOOL], "Weather in Paris?")
    assert response.response == "18 degrees in Paris"
    response = asyncio.run(model("tool_call").apredict_and_call([TOOL], "Weather in Paris?"))
    assert response.response == "18 degrees in Paris"
    assert CITIES == ["Paris", "Paris"]


def test_tool_calls_are_read_and_required(model):
    tool_call = model("tool_call")
    response = tool_call.chat_with_tools([TOOL], "Weather in Paris?")
    (selection,) = tool_call.get_tool_calls_from_response(response)
    assert (selection.tool_name, selection.tool_kwargs) == ("get_weather", {"city": "Paris"})
    *_, last = tool_call.stream_chat_with_tools([TOOL], "Weather in Paris?")
    (selection,) = tool_call.get_tool_calls_from_response(last)
    assert selection.tool_kwargs == {"city": "Paris"}

    # `text` writes a call only if one is forced.
    text = model("text", max_tokens=64)
    assert (
        text.get_tool_calls_from_response(
            text.chat_with_tools([TOOL], "hi"), error_on_no_tool_call=False
        )
        == []
    )
    with pytest.raises(ValueError, match="called no tool"):
        text.get_tool_calls_from_response(text.chat_with_tools([TOOL], "hi"))
    forced = text._prepare_chat_with_tools([TOOL], "hi", tool_required=True)
    assert forced["tool_choice"] == "required"
    assert forced["tools"][0]["function"]["name"] == "get_weather"


def test_reasoning_is_a_block(model):
    blocks = model("reasoning").chat(HELLO).message.blocks
    assert isinstance(blocks[0], ThinkingBlock) and blocks[0].content
    pieces = [
        each.additional_kwargs["thinking_delta"]
        for each in model("reasoning").stream_chat(HELLO)
        if "thinking_delta" in each.additional_kwargs
    ]
    assert "".join(pieces).strip() == blocks[0].content.strip()


def test_a_conversation_with_calls_is_in_the_shape_of_openai():
    call = ToolCallBlock(tool_call_id="c1", tool_name="f", tool_kwargs={"a": "ü"})
    message = ChatMessage(role="assistant", blocks=[TextBlock(text="wait"), call])
    converted = _message(message)
    (made,) = converted.pop("tool_calls")
    assert converted == {"role": "assistant", "content": "wait"}
    assert json.loads(made["function"].pop("arguments")) == {"a": "ü"}
    assert made == {"id": "c1", "type": "function", "function": {"name": "f"}}
    result = ChatMessage(role="tool", content="7", additional_kwargs={"tool_call_id": "c1"})
    assert _message(result) == {"role": "tool", "content": "7", "tool_call_id": "c1"}
    with pytest.raises(TypeError, match="audio block; llb takes text and images only"):
        _message(ChatMessage(blocks=[AudioBlock(audio=b"x")]))


def test_images_are_parts(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"x")
    blocks = [
        ImageBlock(image=b"x"),
        ImageBlock(path=file),
        ImageBlock(url="data:image/png;base64,eA=="),
        TextBlock(text="see"),
    ]
    assert _message(ChatMessage(role="user", blocks=blocks)) == {
        "role": "user",
        "content": [
            {"type": "image", "image": b"x"},
            {"type": "image", "path": file},
            {"type": "image", "url": "data:image/png;base64,eA=="},
            {"type": "text", "text": "see"},
        ],
    }


def test_wrong_parameters_and_errors(model):
    with pytest.raises(TypeError, match="temprature.*did you mean 'temperature'"):
        model("text").chat(HELLO, temprature=1)
    with pytest.raises(llb.LlbError) as caught:
        Llb(model="/absent.gguf").chat(HELLO)
    assert caught.value.code == "MODEL_NOT_FOUND"


def test_a_call_in_a_callback_is_refused(model):
    def on_event(event):
        if event == "infer_start":
            busy.complete("hi")

    busy = model("text", options={"n_threads": 1, "on_event": on_event})
    with pytest.raises(llb.LlbError) as caught:
        busy.complete("hi")
    assert caught.value.code == "BUSY"


def test_a_value_of_a_type(model):
    """LlamaIndex makes it from a forced call of a function that is named after the type."""
    from llama_index.core.prompts import PromptTemplate
    from pydantic import create_model

    weather = create_model("get_weather", city=(str, ...))
    value = model("tool_call").structured_predict(weather, PromptTemplate("Weather?"))
    assert value == weather(city="Paris")


def test_vectors(models):
    path = models("embedding")
    model = LlbEmbedding(model=path, options={"n_threads": 1}, query_prefix="the ")
    with llb.Embedder(path, n_threads=1) as embedder:
        reply = embedder.embed(["the cat", "a dog"])
    query, text = (pytest.approx(each["embedding"], abs=1e-4) for each in reply["data"])
    assert model.model_name == "embedding.gguf"
    assert model.get_query_embedding("cat") == query
    assert model.get_text_embedding("a dog") == text
    assert model.get_text_embedding_batch(["a dog"] * 25) == [text] * 25

    async def use():
        assert await model.aget_query_embedding("cat") == query
        assert await model.aget_text_embedding("a dog") == text
        assert await model.aget_text_embedding_batch(["a dog"] * 25) == [text] * 25

    asyncio.run(use())
    model.close()
    assert model.get_text_embedding("a dog") == text
    model.close()
