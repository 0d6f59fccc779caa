#!/usr/bin/env python3
"""Haystack: a chat generator with tools and streams.

pip install llb haystack-ai && python haystack_generator.py MODEL.gguf
"""

import json
import sys
from typing import Any, Callable, Dict, List, Optional

from haystack import Pipeline, component, default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, StreamingChunk, ToolCall
from haystack.tools import flatten_tools_or_toolsets
from haystack.tools.tool import Tool

import llb


@component
class LlbChatGenerator:
    """Generates replies with a GGUF model in this process. `options` are those of `llb.Chat`."""

    def __init__(
        self,
        model: str,
        options: Optional[Dict[str, Any]] = None,
        generation_kwargs: Optional[Dict[str, Any]] = None,
        tools: Optional[List[Tool]] = None,
        streaming_callback: Optional[Callable[[StreamingChunk], None]] = None,
    ):
        self.model = model
        self.options = options or {}
        self.generation_kwargs = generation_kwargs or {}
        self.tools = tools
        self.streaming_callback = streaming_callback
        self._chat: Optional[llb.Chat] = None

    def warm_up(self) -> None:
        """Loads the model."""
        self._open()

    def _open(self) -> llb.Chat:
        if self._chat is None:
            self._chat = llb.Chat(self.model, **self.options)
        return self._chat

    def to_dict(self) -> Dict[str, Any]:
        return default_to_dict(
            self,
            model=self.model,
            options=self.options,
            generation_kwargs=self.generation_kwargs,
        )

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> "LlbChatGenerator":
        return default_from_dict(cls, data)

    @component.output_types(replies=List[ChatMessage])
    def run(
        self,
        messages: List[ChatMessage],
        generation_kwargs: Optional[Dict[str, Any]] = None,
        tools: Optional[List[Tool]] = None,
        streaming_callback: Optional[Callable[[StreamingChunk], None]] = None,
    ) -> Dict[str, Any]:
        given = flatten_tools_or_toolsets(tools or self.tools)
        request = {**self.generation_kwargs, **(generation_kwargs or {})}
        if given:
            request["tools"] = [{"type": "function", "function": tool.tool_spec} for tool in given]
        on_chunk = streaming_callback or self.streaming_callback
        stream = self._open().create(
            [message.to_openai_dict_format() for message in messages], stream=True, **request
        )

        def show(text: str) -> None:
            if on_chunk is not None:
                on_chunk(StreamingChunk(content=text))

        reply = stream.until_done(on_text=show)
        calls = [
            ToolCall(id=call["id"], tool_name=call["name"], arguments=json.loads(call["arguments"]))
            for call in reply["tool_calls"]
        ]
        meta = {
            "model": self.model,
            "finish_reason": reply["finish_reason"],
            "usage": reply["usage"],
        }
        message = ChatMessage.from_assistant(
            reply["text"] or None,
            meta=meta,
            tool_calls=calls,
            reasoning=reply["reasoning_content"],
        )
        return {"replies": [message]}


if __name__ == "__main__":
    pipeline = Pipeline()
    pipeline.add_component("llm", LlbChatGenerator(sys.argv[1]))
    result = pipeline.run({"llm": {"messages": [ChatMessage.from_user("Name three colours.")]}})
    print(result["llm"]["replies"][0].text)
