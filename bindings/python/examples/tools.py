"""Answers a question with the help of a tool: `python tools.py MODEL.gguf [QUESTION]`.

Runs the tool calls of the model and returns their results to it until it answers with text.
"""

import json
import sys
from typing import Any, Dict, List

import llb
from llb.types import Message

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The current weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def get_weather(city: str) -> Dict[str, Any]:
    return {"city": city, "celsius": 18, "sky": "clear"}


FUNCTIONS = {"get_weather": get_weather}


def run(path: str, question: str) -> None:
    messages: List[Message] = [{"role": "user", "content": question}]
    with llb.Chat(path) as chat:
        # A small model may call tools forever.
        for _ in range(4):
            stream = chat.create(messages=messages, tools=TOOLS, temperature=0, stream=True)
            reply = stream.until_done(on_text=lambda text: print(text, end="", flush=True))
            print()
            messages.append(reply["message"])
            if not reply["tool_calls"]:
                return
            for call in reply["tool_calls"]:
                print(f"[{call['name']} {call['arguments']}]")
                function = FUNCTIONS.get(call["name"])
                arguments = json.loads(call["arguments"])
                result = function(**arguments) if function else {"error": "no such tool"}
                content = json.dumps(result)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        run(sys.argv[1], " ".join(sys.argv[2:]) or "What is the weather in Paris?")
    except llb.LlbError as error:
        sys.exit(str(error))
