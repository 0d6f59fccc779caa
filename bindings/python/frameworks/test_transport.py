"""Frameworks for OpenAI's API on a model in this process: `llb.transport`."""

import asyncio
import json
from importlib import import_module

import openai
import pytest
from pydantic import BaseModel

import llb
from conftest import skip

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
HELLO = [{"role": "user", "content": "Hello"}]


class City(BaseModel):
    name: str
    country: str


def need(name):
    """A module of a framework. Without it, the test is skipped."""
    try:
        return import_module(name)
    except ImportError as error:
        skip(f"no {name}: {error}")


@pytest.fixture
def client(models):
    """Opens OpenAI's clients on scripted models, and closes them after the test."""
    opened = []

    def open_client(stem, **options):
        opened.append(llb.OpenAI(models(stem), n_threads=1, **options))
        return opened[-1]

    yield open_client
    for each in opened:
        each.close()


def test_instructor(client):
    instructor = need("instructor")
    request = {"schema_in_prompt": True, "bound_schema": True, "max_tokens": 200}
    typed = instructor.from_openai(
        client("text", request=request), mode=instructor.Mode.JSON_SCHEMA
    )
    city = typed.chat.completions.create(model="m", messages=HELLO, response_model=City)
    assert isinstance(city, City)


@pytest.mark.parametrize("name", ["OpenAIChatModel", "OpenAIResponsesModel"])
def test_pydantic_ai(models, expected, name):
    agents, kinds = need("pydantic_ai"), need("pydantic_ai.models.openai")
    provider = need("pydantic_ai.providers.openai").OpenAIProvider

    async def main():
        async with llb.AsyncOpenAI(models("text"), n_threads=1) as opened:
            model = getattr(kinds, name)("m", provider=provider(openai_client=opened))
            agent = agents.Agent(model)
            assert (await agent.run("Hello")).output == expected["text"]
            async with agent.run_stream("Hello") as stream:
                assert await stream.get_output() == expected["text"]
        cities = []
        async with llb.AsyncOpenAI(models("tool_call"), n_threads=1) as opened:
            model = getattr(kinds, name)("m", provider=provider(openai_client=opened))
            agent = agents.Agent(model)

            @agent.tool_plain
            def get_weather(city: str) -> str:
                cities.append(city)
                return "sunny"

            # The scripted model calls the tool in every turn.
            with pytest.raises(agents.UsageLimitExceeded):
                await agent.run("Hello", usage_limits=agents.UsageLimits(request_limit=2))
        assert cities == ["Paris", "Paris"]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def test_openai_agents(models, expected, name):
    agents = need("agents")
    agents.set_tracing_disabled(True)
    cities = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        cities.append(city)
        return "sunny"

    async def main():
        async with llb.AsyncOpenAI(models("text"), n_threads=1) as opened:
            model = getattr(agents, name)(model="m", openai_client=opened)
            agent = agents.Agent(name="a", model=model)
            assert (await agents.Runner.run(agent, "Hello")).final_output == expected["text"]
            streamed = agents.Runner.run_streamed(agent, "Hello")
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == expected["text"]
        async with llb.AsyncOpenAI(models("tool_call"), n_threads=1) as opened:
            model = getattr(agents, name)(model="m", openai_client=opened)
            agent = agents.Agent(name="a", model=model, tools=[get_weather])
            with pytest.raises(agents.MaxTurnsExceeded):
                await agents.Runner.run(agent, "Hello", max_turns=2)

    asyncio.run(main())
    assert cities == ["Paris", "Paris"]


def test_langchain_openai(models, expected):
    kind = need("langchain_openai").ChatOpenAI
    where = {"model": "m", "base_url": "http://llb.invalid/v1", "api_key": "none"}

    def chat(stem, **options):
        http = openai.DefaultHttpxClient(transport=llb.transport(models(stem), n_threads=1))
        return kind(http_client=http, **where, **options)

    assert chat("text").invoke("Hello").content == expected["text"]
    assert "".join(chunk.content for chunk in chat("text").stream("Hello")) == expected["text"]
    assert chat("text", use_responses_api=True).invoke("Hello").text == expected["text"]
    (call,) = chat("tool_call").bind_tools([TOOL]).invoke("Hello").tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})


def test_litellm(client, expected):
    litellm = need("litellm")
    where = {"model": "openai/m", "messages": HELLO}
    reply = litellm.completion(client=client("text"), **where)
    assert reply.choices[0].message.content == expected["text"]
    stream = litellm.completion(client=client("text"), stream=True, **where)
    assert "".join(each.choices[0].delta.content or "" for each in stream) == expected["text"]
    reply = litellm.completion(client=client("tool_call"), tools=[TOOL], **where)
    (call,) = reply.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
