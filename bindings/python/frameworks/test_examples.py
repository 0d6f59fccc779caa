"""The examples of frameworks, on scripted models: as programs, and with tools."""

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import llb

EXAMPLES = Path(__file__).resolve().with_name("examples")


def example(name):
    return runpy.run_path(str(EXAMPLES / name))


@pytest.mark.parametrize("name", ["haystack_generator.py", "pydantic_ai_model.py"])
def test_an_example_prints_the_reply(models, expected, name):
    command = [sys.executable, str(EXAMPLES / name), models("text")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip() == expected["text"]


def test_haystack_calls_a_tool(models):
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function

    cities, pieces = [], []

    def get_weather(city: str) -> str:
        """The current weather in a city."""
        cities.append(city)
        return "foggy"

    kind = example("haystack_generator.py")["LlbChatGenerator"]
    tool = create_tool_from_function(get_weather)
    generator = kind(models("tool_call"), generation_kwargs={"temperature": 0})
    assert kind.from_dict(generator.to_dict()).model == generator.model
    agent = Agent(chat_generator=generator, tools=[tool], max_agent_steps=1)
    messages = agent.run(messages=[ChatMessage.from_user("Weather in Paris?")])["messages"]
    assert cities == ["Paris"]
    assert any(each.tool_call_result for each in messages)

    text = kind(models("text"), generation_kwargs={"temperature": 0})
    (reply,) = text.run([ChatMessage.from_user("hi")], streaming_callback=pieces.append)["replies"]
    assert "".join(piece.content for piece in pieces) == reply.text
    assert len(pieces) > 3 and reply.meta["usage"]["completion_tokens"] > 0


def test_pydantic_ai_calls_a_tool_and_returns_a_type(models):
    from pydantic import BaseModel
    from pydantic_ai import Agent, ToolOutput
    from pydantic_ai.exceptions import UsageLimitExceeded
    from pydantic_ai.usage import UsageLimits

    model_kind = example("pydantic_ai_model.py")["LlbModel"]
    cities = []

    class Weather(BaseModel):
        city: str

    def get_weather(city: str) -> str:
        """The current weather in a city."""
        cities.append(city)
        return "foggy"

    async def main():
        async with llb.AsyncChat(models("tool_call")) as chat:
            model = model_kind(chat, temperature=0)
            typed = Agent(model, output_type=ToolOutput(Weather, name="get_weather"))
            value = (await typed.run("Weather in Paris?")).output
            # This model calls the tool for ever: the second request has the result.
            with pytest.raises(UsageLimitExceeded):
                agent = Agent(model, tools=[get_weather])
                await agent.run("Weather?", usage_limits=UsageLimits(request_limit=2))
            return value

    assert asyncio.run(main()) == Weather(city="Paris")
    assert cities == ["Paris"] * 2


def test_pydantic_ai_asks_again(models):
    """A tool and a check of the reply may refuse what the model wrote."""
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.exceptions import UsageLimitExceeded
    from pydantic_ai.usage import UsageLimits

    module = example("pydantic_ai_model.py")
    to_openai, requests = module["to_openai"], []

    class Recorded(module["LlbModel"]):
        async def request(self, messages, *arguments):
            requests.append([each for message in messages for each in to_openai(message)])
            return await super().request(messages, *arguments)

    def get_weather(city: str) -> str:
        """The current weather in a city."""
        raise ModelRetry("which country?")

    def check(_):
        raise ModelRetry("shorter, please")

    async def main():
        limits = UsageLimits(request_limit=2)
        async with llb.AsyncChat(models("tool_call")) as chat:
            agent = Agent(Recorded(chat, temperature=0), tools=[get_weather], retries=5)
            with pytest.raises(UsageLimitExceeded):
                await agent.run("Weather?", usage_limits=limits)
        async with llb.AsyncChat(models("text")) as chat:
            agent = Agent(Recorded(chat, temperature=0), retries=5)
            agent.output_validator(check)
            with pytest.raises(UsageLimitExceeded):
                await agent.run("hi", usage_limits=limits)

    asyncio.run(main())
    assert [len(each) for each in requests] == [1, 3, 1, 3]
    refused, corrected = requests[1][-1], requests[3][-1]
    assert (refused["role"], corrected["role"]) == ("tool", "user")
    assert "which country?" in refused["content"]
    assert "shorter, please" in corrected["content"]


def test_smolagents_calls_a_tool(models, expected):
    from smolagents import tool

    @tool
    def get_weather(city: str) -> str:
        """The current weather in a city.

        Args:
            city: The name of the city.
        """
        return "foggy"

    model_kind = example("smolagents_model.py")["LlbModel"]
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    with llb.Chat(models("tool_call")) as chat:
        model = model_kind(chat, temperature=0)
        reply = model.generate(messages, tools_to_call_from=[get_weather])
    (call,) = model.parse_tool_calls(reply).tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    with llb.Chat(models("text")) as chat:
        reply = model_kind(chat, temperature=0)(messages)
    assert reply.content == expected["text"]
    assert reply.token_usage.output_tokens > 0


def test_dspy_reads_the_fields_of_a_reply(models, expected):
    import dspy

    engine = example("dspy_engine.py")["LlbEngine"](llb.Chat(models("text")))
    model = dspy.LM("llb/local", engine=engine, max_tokens=64, temperature=0, cache=False)
    assert model("hi") == [expected["text"]]
    # The scripted reply has none of the fields that the prompt asks for.
    with dspy.context(lm=model), pytest.raises(dspy.utils.exceptions.AdapterParseError):
        dspy.Predict("question -> answer")(question="hi")
    engine.close()
