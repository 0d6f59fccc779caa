#!/usr/bin/env python3
"""DSPy: an engine for `dspy.LM`.

pip install llb dspy && python dspy_engine.py MODEL.gguf
"""

import sys
from typing import Any, List

import dspy  # type: ignore[import-untyped]
from dspy.lm15 import (  # type: ignore[import-untyped]
    Message,
    Request,
    Response,
    TextPart,
    ThinkingPart,
    Usage,
    response_to_events,
)

import llb


class LlbEngine:
    """Runs DSPy's requests on an open chat. The messages are text, as those of its adapters."""

    def __init__(self, chat: llb.Chat):
        self.chat = chat

    def complete(self, request: Request) -> Response:
        messages: List[Any] = [
            {"role": each.role, "content": each.text or ""} for each in request.messages
        ]
        if request.system is not None:
            system = request.system
            if not isinstance(system, str):
                system = "".join(part.text for part in system if isinstance(part, TextPart))
            messages.insert(0, {"role": "system", "content": system})
        config = request.config
        reply = self.chat.create(
            messages,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            seed=config.seed,
            stop=list(config.stop) or None,
            response_format=config.response_format,
        )
        parts: List[Any] = [TextPart(reply["text"])]
        if reply["reasoning_content"]:
            parts.insert(0, ThinkingPart(reply["reasoning_content"]))
        usage = reply["usage"]
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(parts),
            finish_reason="length" if reply["finish_reason"] == "length" else "stop",
            usage=Usage(
                input_tokens=usage["prompt_tokens"],
                output_tokens=usage["completion_tokens"],
                total_tokens=usage["total_tokens"],
            ),
        )

    def stream(self, request: Request) -> Any:
        return response_to_events(self.complete(request))

    def close(self) -> None:
        self.chat.close()


if __name__ == "__main__":
    model = dspy.LM("llb/local", engine=LlbEngine(llb.Chat(sys.argv[1])), max_tokens=256)
    with dspy.context(lm=model):
        print(dspy.Predict("question -> answer")(question="What is the capital of France?").answer)
