#!/usr/bin/env python3
"""smolagents: a model for agents.

    pip install llb smolagents && python smolagents_model.py MODEL.gguf
"""

import sys

from smolagents import CodeAgent, Model
from smolagents.models import ChatMessage, TokenUsage

import llb


class LlbModel(Model):
    """Generates replies with an open chat. `parameters` are those of each request."""

    def __init__(self, chat: llb.Chat, **parameters):
        super().__init__(flatten_messages_as_text=True, model_id=chat.path, **parameters)
        self.chat = chat

    def generate(
        self,
        messages,
        stop_sequences=None,
        response_format=None,
        tools_to_call_from=None,
        **parameters,
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
