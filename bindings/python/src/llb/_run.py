"""Lets a model call functions: request, calls and results until it answers with text."""

from __future__ import annotations

import contextvars
import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from ._errors import TooManyRounds
from ._function_tool import Function, FunctionTool, content_of, error_content
from ._mcp import McpTool
from ._parameters import build_request
from .types import Message, Messages, Reply, Tool, ToolCall

# The most calls of one reply that run at the same time.
_MAX_THREADS = 8


# The diagnostics of a call that the model meant, but that did not become one.
_LOST_CALLS = ("call_like_content", "malformed_call", "truncated_call")


# A tool that a model may call.
_RunnableTool = Union[FunctionTool, McpTool]


class Run(NamedTuple):
    """The end of a run: the last reply, and the whole conversation including that reply."""

    reply: Reply
    messages: List[Message]


class PendingCall:
    """A tool call of a reply, with the function that it names, or None if it is unknown."""

    def __init__(self, call: ToolCall, tool: Optional[_RunnableTool]) -> None:
        self.id = call["id"]
        self.name = call["name"]
        self.arguments = call["arguments"]
        self.tool = tool

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return self.tool is not None and self.tool.is_async

    def begin(self) -> Union[str, Awaitable[object]]:
        """Calls the function. Returns the content of the tool message, or what to `finish`.

        An exception becomes content too: it must not end the run, or be set on a future, which
        cannot hold a StopIteration.
        """
        try:
            if self.tool is None:
                raise LookupError(f"no tool {self.name}")
            result = self.tool.call(self.arguments)
            return result if inspect.isawaitable(result) else content_of(result)
        except Exception as error:
            return error_content(error)

    def message(self, content: str) -> Message:
        """The tool message."""
        return {"role": "tool", "tool_call_id": self.id, "content": content}


async def finish(result: Awaitable[object]) -> str:
    """Returns the content of a tool message when a result has been awaited."""
    try:
        return content_of(await result)
    except Exception as error:
        return error_content(error)


class Conversation:
    """The requests of a run, built from the replies and results so far."""

    def __init__(
        self,
        caller: object,
        method: str,
        messages: Messages,
        functions: Sequence[Function],
        max_rounds: int,
        extra_body: Optional[Mapping[str, Any]],
        parameters: Mapping[str, Any],
    ) -> None:
        self._caller = caller
        self._method = method
        tools = [_tool(function) for function in functions]
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) < len(tools):
            raise TypeError("two tools have the same name")
        if max_rounds < 1:
            raise ValueError("max_rounds: must be at least 1")
        self.messages: List[Message] = list(messages)
        self._schemas: List[Tool] = [tool.schema() for tool in tools]
        self._extra_body = extra_body
        self._parameters: Dict[str, Any] = dict(parameters)
        self._rounds_left = max_rounds

    def request(self) -> Dict[str, Any]:
        """The next request. Raises TypeError for an unknown parameter."""
        return build_request(
            self._caller,
            self._method,
            self.messages,
            self._schemas,
            self._extra_body,
            self._parameters,
        )

    def take(self, reply: Reply) -> List[PendingCall]:
        """Adds a reply. Returns its calls; without calls, the run has ended.

        Warns of text that looks like a call and is none, because the run ends with it. Raises
        TooManyRounds if the calls could not be answered by another request.
        """
        self.messages.append(reply["message"])
        self._rounds_left -= 1
        calls = reply["tool_calls"] if reply["finish_reason"] == "tool_calls" else []
        if calls and self._rounds_left == 0:
            raise TooManyRounds("the model still calls tools; raise max_rounds", reply)
        if not calls:
            for note in reply["diagnostics"]:
                if note["code"] in _LOST_CALLS:
                    warnings.warn(f"a tool call was lost: {note['message']}", stacklevel=3)
        # A forced call would otherwise be forced again in every round.
        if self._parameters.get("tool_choice") not in (None, "none"):
            self._parameters["tool_choice"] = "auto"
        return [PendingCall(call, self._tools.get(call["name"])) for call in calls]

    def answer(self, calls: List[PendingCall], contents: List[str]) -> None:
        """Adds the contents of the results of calls, in their order."""
        self.messages.extend(call.message(each) for call, each in zip(calls, contents))


def _tool(function: Function) -> _RunnableTool:
    return function if isinstance(function, McpTool) else FunctionTool(function)


def perform_all(calls: List[PendingCall]) -> List[str]:
    """Performs calls at the same time, each on a thread. Returns the contents of their results."""
    if any(isinstance(call.tool, McpTool) and call.tool.runs_here() for call in calls):
        raise RuntimeError(
            "this thread runs the loop of an MCP session; use AsyncChat, or "
            "asyncio.to_thread(chat.run, ...)"
        )
    with ThreadPoolExecutor(max_workers=min(len(calls), _MAX_THREADS)) as pool:
        # Each call sees the caller's context variables.
        futures = [pool.submit(contextvars.copy_context().run, _perform, call) for call in calls]
        return [future.result() for future in futures]


def _perform(call: PendingCall) -> str:
    begun = call.begin()
    if isinstance(begun, str):
        return begun
    import asyncio

    return asyncio.run(finish(begun))
