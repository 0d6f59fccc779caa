"""`mcp_tools`: tools of a server of the official SDK of MCP, in `run`."""

import asyncio
import pathlib
import sys
import warnings

import pytest

import llb
from test_chat import HELLO

# The SDK's own warnings are not these tests' concern.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    mcp = pytest.importorskip("mcp", reason="the SDK of MCP is not installed")
    stdio = pytest.importorskip("mcp.client.stdio")
    pytest.importorskip("mcp.server.mcpserver", reason="the SDK of MCP is older than 2")
pytestmark = pytest.mark.filterwarnings("default")

SERVER = str(pathlib.Path(__file__).with_name("mcp_weather.py"))


def with_tools(use):
    """Runs `await use(tools)` beside a server."""

    async def main():
        server = mcp.StdioServerParameters(command=sys.executable, args=[SERVER])
        async with stdio.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            return await use(await llb.mcp_tools(session))

    return asyncio.run(asyncio.wait_for(main(), 300))


def test_tools_are_described_by_their_server():
    async def use(tools):
        return [tool.schema()["function"] for tool in tools]

    functions = {function["name"]: function for function in with_tools(use)}
    assert list(functions) == ["get_weather", "paint", "measure", "cities"]
    weather = functions["get_weather"]
    assert weather["description"] == "The weather of a city."
    assert weather["parameters"]["required"] == ["city"]
    assert weather["parameters"]["properties"]["city"]["type"] == "string"


def test_results_are_texts():
    async def use(tools):
        weather, paint, measure, _ = tools
        calls = [weather(city="Rome"), weather(city="Atlantis"), paint(city="Rome"), measure()]
        return await asyncio.gather(*calls, paint.call('{"city": "Rome"}'))

    sunny, failed, picture, numbers, again = with_tools(use)
    assert sunny == "Sunny in Rome."
    assert failed.startswith("Error: ") and "get_weather" in failed
    assert picture == again == "[image: image/png]"
    assert "21" in numbers and "celsius" in numbers


# The scripted model calls the tool in every reply, so the run ends after the first call's result.
PARAMETERS = {"max_rounds": 2, "temperature": 0, "parallel_tool_calls": False}


def test_an_async_chat_calls_them(models):
    async def use(tools):
        async with llb.AsyncChat(models("tool_call"), n_threads=1) as chat:
            with pytest.raises(llb.TooManyRounds):
                await chat.run(HELLO, tools, **PARAMETERS)
        return await tools[-1]()

    assert with_tools(use) == "Paris"


def test_a_chat_calls_them_from_another_thread(models):
    async def use(tools):
        with llb.Chat(models("tool_call"), n_threads=1) as chat:
            with pytest.raises(llb.TooManyRounds):
                await asyncio.to_thread(chat.run, HELLO, tools, **PARAMETERS)
            with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
                chat.run(HELLO, tools, **PARAMETERS)
        return await tools[-1]()

    assert with_tools(use) == "Paris"
