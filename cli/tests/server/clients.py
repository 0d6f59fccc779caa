"""Other clients against `llb serve`: litellm, langchain-openai, pydantic-ai, llm, LangChain4j, and the
openai package for Node (`make test-clients`). The official clients of OpenAI and Anthropic for Python
are tested in separate files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import litellm
import pytest
from conftest import EXPECTED, MODELS, TOOLS, Server
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic_ai import Agent
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

MESSAGES = [{"role": "user", "content": "Hello"}]
CITY = {"city": "Paris"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    chats = [str(MODELS / f"{name}.gguf") for name in ("text", "tool_call", "reasoning")]
    server = Server(*chats, "--embedding", str(MODELS / "embedding.gguf"))
    yield server.url + "/v1"
    assert server.stop() == 0, server.log


def test_litellm(url: str) -> None:
    where = {"api_base": url, "api_key": "none"}
    reply = litellm.completion(model="openai/text", messages=MESSAGES, **where)
    assert reply.choices[0].message.content == EXPECTED["text"]
    stream = litellm.completion(model="openai/text", messages=MESSAGES, stream=True, **where)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == EXPECTED["text"]
    reply = litellm.completion(model="openai/tool_call", messages=MESSAGES, tools=TOOLS, **where)
    call = reply.choices[0].message.tool_calls[0].function
    assert (call.name, json.loads(call.arguments)) == ("get_weather", CITY)
    message = litellm.completion(model="openai/reasoning", messages=MESSAGES, **where).choices[0].message
    assert message.reasoning_content == "One, two, drei fünf, six."
    response = litellm.responses(model="openai/text", input="Hello", **where)
    assert response.output[0].content[0].text == EXPECTED["text"]
    assert len(litellm.embedding(model="openai/embedding", input=["a", "b"], **where).data) == 2


def test_langchain(url: str) -> None:
    def chat(model: str, **options: bool) -> ChatOpenAI:
        return ChatOpenAI(model=model, base_url=url, api_key="none", **options)

    assert chat("text").invoke("Hello").content == EXPECTED["text"]
    assert "".join(chunk.content for chunk in chat("text").stream("Hello")) == EXPECTED["text"]
    assert chat("text", use_responses_api=True).invoke("Hello").text == EXPECTED["text"]
    tools = chat("tool_call").bind_tools(TOOLS)
    call = tools.invoke("Hello").tool_calls[0]
    assert (call["name"], call["args"]) == ("get_weather", CITY)
    chunks = list(tools.stream("Hello"))
    whole = sum(chunks[1:], chunks[0])
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("get_weather", CITY)]
    schema = {
        "title": "place", "type": "object", "required": ["city"], "additionalProperties": False,
        "properties": {"city": {"type": "string", "maxLength": 8}},
    }
    place = chat("text").with_structured_output(schema, method="json_schema").invoke("Hello")
    assert list(place) == ["city"] and len(place["city"]) <= 8
    # Without the option it sends lists of tokens (docs/server.md).
    embeddings = OpenAIEmbeddings(
        model="embedding", base_url=url, api_key="none", check_embedding_ctx_length=False
    )
    assert len(embeddings.embed_documents(["a", "b"])) == 2


def test_pydantic_ai(url: str) -> None:
    provider = OpenAIProvider(base_url=url, api_key="none")
    for model in (OpenAIChatModel, OpenAIResponsesModel):
        assert Agent(model("text", provider=provider)).run_sync("Hello").output == EXPECTED["text"]
    cities: List[str] = []
    agent = Agent(OpenAIChatModel("tool_call", provider=provider))

    @agent.tool_plain
    def get_weather(city: str) -> str:
        cities.append(city)
        return "sunny"

    # The scripted model calls the tool in every turn.
    with pytest.raises(UsageLimitExceeded):
        agent.run_sync("Hello", usage_limits=UsageLimits(request_limit=2))
    assert cities == ["Paris", "Paris"]


@pytest.mark.parametrize("options", [[], ["--no-stream"]])
def test_llm(url: str, tmp_path: Path, options: List[str]) -> None:
    models = f"- model_id: local\n  model_name: text\n  api_base: {url}\n"
    (tmp_path / "extra-openai-models.yaml").write_text(models)
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-m", "llm", "-m", "local", *options, "Hello"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == EXPECTED["text"], ran.stderr


def test_openai_for_node(url: str) -> None:
    modules = os.environ.get("LLB_NODE_MODULES")
    if not modules:
        pytest.skip("LLB_NODE_MODULES, a folder with the openai package, is not set")
    client = Path(__file__).parent / "openai-node/client.cjs"
    ran = subprocess.run(
        ["node", client, url],
        env={**os.environ, "NODE_PATH": modules},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    came = json.loads(ran.stdout)
    assert came.pop("tokens") > 0
    events = came.pop("response_events")
    assert (events[0], events[-1]) == ("response.created", "response.completed")
    assert "response.output_text.delta" in events
    text = EXPECTED["text"]
    assert came == {
        "text": text,
        "stream": text,
        "helper": [text, text],
        "thinking": "One, two, drei fünf, six.",
        "logprobs": [2, 2],
        "call": ["get_weather", CITY],
        "run": ["Paris"] * 3,
        "parsed": ["is_city"],
        "response": text,
        "response_stream": text,
        "continued": True,
        "models": ["text", "tool_call", "reasoning", "embedding"],
        "vectors": [32, 32],
        "unknown_model": ["NotFoundError", 404, "model"],
        "wrong_value": ["BadRequestError", 400, "temperature"],
    }


def test_langchain4j(url: str) -> None:
    classes = os.environ.get("LLB_LANGCHAIN4J")
    if not classes:
        pytest.skip("LLB_LANGCHAIN4J, the class path of LangChain4j, is not set")
    java = Path(os.environ["JAVA_HOME"], "bin/java")
    client = Path(__file__).parent / "langchain4j/Client.java"
    command = [java, "-Dfile.encoding=UTF-8", "-cp", Path(classes).read_text(), client, url]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600)
    assert ran.returncode == 0, ran.stderr
    came = json.loads(ran.stdout)
    # Members whose values are not known in advance.
    assert json.loads(came.pop("schema")).keys() == {"is_city"}
    assert "unknown model" in came.pop("unknown_model")
    assert came.pop("tokens") == came["stream"]["tokens"]
    for name in ("stream", "thinking_stream", "call_stream", "response_stream"):
        assert came[name].pop("tokens") > 0
    thinking, call = "One, two, drei fünf, six.", ["get_weather", json.dumps(CITY)]
    text = {"text": EXPECTED["text"], "thinking": "", "calls": [], "finish": "STOP"}
    assert came == {
        "text": EXPECTED["text"],
        "finish": "STOP",
        "stream": text,
        "thinking": thinking,
        "thinking_stream": {**text, "text": "The answer.", "thinking": thinking},
        "response": EXPECTED["text"],
        "response_stream": text,
        "call": call,
        "call_stream": {**text, "text": "", "calls": call, "finish": "TOOL_EXECUTION"},
        "second_call": call,
        "vectors": [32, 32],
        "models": ["text", "tool_call", "reasoning", "embedding"],
    }
