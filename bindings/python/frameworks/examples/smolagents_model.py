#!/usr/bin/env python3
"""smolagents: a model for agents.

pip install llb smolagents && python smolagents_model.py MODEL.gguf
"""

import sys
from typing import Any, Dict, List, Optional

from smolagents import CodeAgent, Model, Tool  # type: ignore[import-untyped]
from smolagents.models import ChatMessage, TokenUsage  # type: ignore[import-untyped]

import llb


class LlbModel(Model):  # type: ignore[misc]
    """Generates replies with an open chat. `parameters` are those of each request."""

    def __init__(self, chat: llb.Chat, **parameters: Any) -> None:
        super().__init__(flatten_messages_as_text=True, model_id=chat.path, **parameters)
        self.chat = chat

    def generate(
        self,
        messages: List[Any],
        stop_sequences: Optional[List[str]] = None,
        response_format: Optional[Dict[str, Any]] = None,
        tools_to_call_from: Optional[List[Tool]] = None,
        **parameters: Any,
    ) -> ChatMessage:
        request = self._prepare_completion_kwargs(
            messages, stop_sequences, response_format, tools_to_call_from, **parameters
        )
        reply = self.chat.create(**request)
        usage = reply["usage"]
        return ChatMessage.from_dict(
            dict(reply["message"]),
            raw=reply,
            token_usage=TokenUsage(usage["prompt_tokens"], usage["completion_tokens"]),
        )


if __name__ == "__main__":
    with llb.Chat(sys.argv[1], n_ctx=8192) as chat:
        agent = CodeAgent(tools=[], model=LlbModel(chat, max_tokens=512))
        print(agent.run("What is 17 times 23?", max_steps=3))
