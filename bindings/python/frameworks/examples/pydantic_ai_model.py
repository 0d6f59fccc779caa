#!/usr/bin/env python3
"""pydantic-ai: a model for agents, with tools and typed results.

    pip install llb pydantic-ai-slim && python pydantic_ai_model.py MODEL.gguf
"""

import sys

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

import llb


class LlbModel(Model):
    """Generates replies with an open `llb.AsyncChat`."""

    def __init__(self, chat: llb.AsyncChat, **settings):
        super().__init__(settings=settings)
        self.chat = chat

    model_name = property(lambda self: self.chat.path)
    system = property(lambda self: "llb")
    provider = None

    async def request(self, messages, model_settings, model_request_parameters):
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
        request = {name: settings[name] for name in named if name in (settings or {})}
        if tools and not parameters.allow_text_output:
            request["tool_choice"] = "required"
        reply = await self.chat.create(
            [each for message in messages for each in to_openai(message)], tools or None, **request
        )
        parts = [ToolCallPart(c["name"], c["arguments"], c["id"]) for c in reply["tool_calls"]]
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


def to_openai(message):
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
            content = part.model_response_str()
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        elif isinstance(part, RetryPromptPart) and part.tool_name:
            content = part.model_response()
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
        elif isinstance(part, RetryPromptPart):
            yield {"role": "user", "content": part.model_response()}
        else:
            raise TypeError(f"the model takes text only, not {part!r}")


async def main(path):
    async with llb.AsyncChat(path) as chat:
        agent = Agent(LlbModel(chat, max_tokens=256), instructions="Answer briefly.")
        print((await agent.run("What is the capital of France?")).output)


if __name__ == "__main__":
    import asyncio

    asyncio.run(main(sys.argv[1]))
