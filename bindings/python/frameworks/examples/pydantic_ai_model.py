#!/usr/bin/env python3
"""pydantic-ai: a model for agents, with tools and typed results.

pip install llb pydantic-ai-slim && python pydantic_ai_model.py MODEL.gguf
"""

import sys
from typing import Any, Dict, Iterator, List, Optional, cast

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

import llb


class LlbModel(Model):
    """Generates replies with an open `llb.AsyncChat`."""

    def __init__(self, chat: llb.AsyncChat, **settings: Any) -> None:
        super().__init__(settings=cast(ModelSettings, settings))
        self.chat = chat

    @property
    def model_name(self) -> str:
        return self.chat.path or "llb"

    @property
    def system(self) -> str:
        return "llb"

    async def request(
        self,
        messages: List[ModelMessage],
        model_settings: Optional[ModelSettings],
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        tools = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.parameters_json_schema,
                },
            }
            for tool in [*parameters.function_tools, *parameters.output_tools]
        ]
        named = ("max_tokens", "temperature", "top_p", "seed", "parallel_tool_calls")
        given: Dict[str, Any] = {**(settings or {})}
        request = {name: given[name] for name in named if name in given}
        if tools and not parameters.allow_text_output:
            request["tool_choice"] = "required"
        reply = await self.chat.create(
            [each for message in messages for each in to_openai(message)], tools or None, **request
        )
        parts: List[Any] = [
            ToolCallPart(c["name"], c["arguments"], c["id"]) for c in reply["tool_calls"]
        ]
        if reply["text"] or not parts:
            parts.insert(0, TextPart(reply["text"]))
        if reply["reasoning_content"]:
            parts.insert(0, ThinkingPart(reply["reasoning_content"]))
        usage = reply["usage"]
        return ModelResponse(
            parts,
            usage=RequestUsage(
                input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"]
            ),
            model_name=self.model_name,
        )


def to_openai(message: ModelMessage) -> Iterator[Any]:
    """Yields the messages of a request or a response in OpenAI's shape."""
    if isinstance(message, ModelResponse):
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
            }
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
        yield {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
        return
    assert isinstance(message, ModelRequest)
    if message.instructions:
        yield {"role": "system", "content": message.instructions}
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart) and isinstance(part.content, str):
            yield {"role": "user", "content": part.content}
        elif isinstance(part, ToolReturnPart):
            # The agent converts requests to try again to parts of these kinds.
            content = part.model_response_str()
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        else:
            raise TypeError(f"the model takes text only, not {part!r}")


async def main(path: str) -> None:
    async with llb.AsyncChat(path) as chat:
        agent = Agent(LlbModel(chat, max_tokens=256), instructions="Answer briefly.")
        print((await agent.run("What is the capital of France?")).output)


if __name__ == "__main__":
    import asyncio

    asyncio.run(main(sys.argv[1]))
