"""The request of `/responses` as one of the library: items become messages.

Text, calls of functions and their results, and reasoning. `llb serve` takes items and tools of
every kind.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, cast

from .errors import invalid
from .exchange import list_in, object_in

# Members that are the same in both APIs.
_SAME = (
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "enable_thinking",
    "reasoning_budget",
    "reasoning_budget_message",
    "n_keep",
    "lora",
    "chat_template_kwargs",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "logit_bias",
    "grammar",
    "schema_in_prompt",
    "bound_schema",
)
_UNSUPPORTED = ("conversation", "prompt", "previous_response_id", "background")


def library_request(body: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the library's request. Raises LlbError for what this transport does not support."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise invalid(name, "is not supported in this process; send the whole input")
    request: Dict[str, Any] = {name: body[name] for name in _SAME if name in body}
    request["messages"] = _messages(body)
    request["max_tokens"] = body.get("max_output_tokens")
    request["reasoning_effort"] = object_in(body, "reasoning").get("effort")
    tools = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(list_in(body, "tools"))]
    if tools:
        request["tools"] = tools
        request["tool_choice"] = _tool_choice(body.get("tool_choice"))
    form = object_in(body, "text").get("format")
    if form is not None:
        request["response_format"] = _response_format(form)
    if "message.output_text.logprobs" in list_in(body, "include"):
        request["logprobs"] = True
        request["top_logprobs"] = body.get("top_logprobs")
    return request


def _messages(body: Mapping[str, Any]) -> List[Dict[str, Any]]:
    given = body.get("input")
    items: Any = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise invalid("input", "expected a string or an array")
    conversation = _Conversation()
    if body.get("instructions"):
        conversation.add({"role": "system", "content": body["instructions"]})
    for at, item in enumerate(cast("List[Any]", items)):  # type: ignore[redundant-cast]
        path = f"input[{at}]"
        if not isinstance(item, dict):
            raise invalid(path, "expected an object")
        conversation.add_item(cast("Dict[str, Any]", item), path)
    return conversation.messages


class _Conversation:
    """Adjacent reasoning, assistant messages and calls are one message, as the model wrote it."""

    def __init__(self) -> None:
        self.messages: List[Dict[str, Any]] = []
        # Whether the next item of the assistant belongs to the last message.
        self._open = False

    def add(self, message: Dict[str, Any]) -> None:
        self.messages.append(message)
        self._open = False

    def add_item(self, item: Dict[str, Any], path: str) -> None:
        kind = item.get("type") or "message"
        if kind == "message":
            self._add_message(item, path)
        elif kind == "reasoning":
            text = _text(item.get("content") or [], f"{path}.content")
            if text:
                # Reasoning begins a new answer.
                self._open = False
                self._assistant()["reasoning_content"] = text
        elif kind == "function_call":
            function = {name: _required(item, name, path) for name in ("name", "arguments")}
            call = {"id": _required(item, "call_id", path), "type": "function"}
            calls = self._assistant().setdefault("tool_calls", [])
            calls.append({**call, "function": function})
        elif kind == "function_call_output":
            content = _text(item.get("output"), f"{path}.output")
            call_id = _required(item, "call_id", path)
            self.add({"role": "tool", "tool_call_id": call_id, "content": content})
        else:
            raise invalid(f"{path}.type", f'"{kind}" is not supported in this process')

    def _add_message(self, item: Dict[str, Any], path: str) -> None:
        role = _required(item, "role", path)
        content = _text(item.get("content"), f"{path}.content")
        if role != "assistant":
            self.add({"role": role, "content": content})
            return
        last = self.messages[-1] if self.messages else {}
        if last.get("content") != "" or "tool_calls" in last:
            self._open = False
        self._assistant()["content"] = content

    def _assistant(self) -> Dict[str, Any]:
        if not self._open:
            self.messages.append({"role": "assistant", "content": ""})
            self._open = True
        return self.messages[-1]


def _required(item: Mapping[str, Any], name: str, path: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise invalid(f"{path}.{name}", "expected a string")
    return value


def _text(content: Any, path: str) -> str:
    """The text of a string, or of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(path, "expected a string or an array")
    whole = ""
    for at, part in enumerate(cast("List[Any]", content)):  # type: ignore[redundant-cast]
        members = cast("Dict[str, Any]", part) if isinstance(part, dict) else {}
        text = members.get("text", members.get("refusal"))
        if not isinstance(text, str):
            raise invalid(f"{path}[{at}]", "only text is supported in this process")
        whole += text
    return whole


def _tool(tool: Any, path: str) -> Dict[str, Any]:
    if tool.get("type") != "function":
        kind = tool.get("type")
        raise invalid(f"{path}.type", f'"{kind}" does not run in this process; use "function"')
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Optional[Any]:
    if not isinstance(choice, dict):
        return choice
    members = cast("Dict[str, Any]", choice)
    if members.get("type") != "function":
        raise invalid("tool_choice.type", 'expected "function"')
    return {"type": "function", "function": {"name": members.get("name")}}


def _response_format(form: Any) -> Dict[str, Any]:
    if form.get("type") != "json_schema":
        return {"type": form.get("type")}
    schema = {name: form.get(name) for name in ("name", "schema", "strict")}
    return {"type": "json_schema", "json_schema": schema}
