"""`Snapshot`: the reply of a stream so far, and the openai package's events for it."""

from __future__ import annotations

from typing import Any, Iterator, List, Optional

from .._errors import LlbError
from .parse import ReplyTypes
from .shape import ChatCompletion, ChatCompletionChunk, Record, begun_completion
from ..types import Reply

_CALL = "tool_calls.function.arguments"


class Event(Record):
    """An event of a stream. Its members are Python values or records."""

    def __init__(self, type: str, **members: Any) -> None:
        super().__init__({"type": type})
        # `Record` converts dicts to records, but a part of a typed reply is a dict.
        vars(self).update(members)


class Snapshot:
    """The reply so far, and the events for what is added to it."""

    def __init__(self, types: ReplyTypes) -> None:
        self._types = types
        self._completion: Optional[ChatCompletion] = None
        self._content_ended = self._logprobs_ended = False

    @property
    def completion(self) -> ChatCompletion:
        """The reply so far. It changes with each chunk. Raises LlbError before the first."""
        if self._completion is None:
            raise LlbError("INVALID_REQUEST", "no chunk of the reply has come yet; read an event")
        return self._completion

    def add(self, chunk: ChatCompletionChunk) -> List[Event]:
        """Adds a chunk, and returns its events."""
        if self._completion is None:
            self._completion = begun_completion(chunk)
            (self._choice,) = self._completion.choices
            self._message = self._choice.message
        self._completion.usage = chunk.usage
        parts = [event for choice in chunk.choices for event in self._add(choice)]
        return [Event("chunk", chunk=chunk, snapshot=self._completion), *parts]

    def end(self, reply: Reply) -> Iterator[Event]:
        """Yields the events at the end. Raises what `ReplyTypes.content` raises."""
        yield from self._end_content(self._types.content(reply))
        if self._calls:
            yield self._end_call()

    @property
    def _calls(self) -> List[Any]:
        calls: List[Any] = self._message.tool_calls or []
        return calls

    def _add(self, choice: Any) -> Iterator[Event]:
        message, delta = self._message, choice.delta
        self._choice.finish_reason = choice.finish_reason
        reasoning = getattr(delta, "reasoning_content", None)
        if reasoning:
            message.reasoning_content = getattr(message, "reasoning_content", "") + reasoning
        if delta.content is not None:
            message.content = (message.content or "") + delta.content
            message.parsed = self._types.content_so_far(message.content)
            so_far = {"snapshot": message.content, "parsed": message.parsed}
            yield Event("content.delta", delta=delta.content, **so_far)
        parts: List[Any] = delta.tool_calls or []
        ended = [event for part in parts for event in self._begin_call(part)]
        for part in parts:
            yield self._add_to_call(part)
        if choice.logprobs is not None:
            yield self._add_logprobs(choice.logprobs.content)
        yield from ended

    def _begin_call(self, part: Any) -> Iterator[Event]:
        """Begins a call if this part is its first. Yields the events that end what came before."""
        if part.index < len(self._calls):
            return
        yield from self._end_content(None)
        if self._calls:
            yield self._end_call()
        function = {"name": part.function.name, "arguments": "", "parsed_arguments": None}
        call = {"id": part.id, "function": function, "type": part.type, "index": part.index}
        self._message.tool_calls = [*self._calls, Record(call)]

    def _add_to_call(self, part: Any) -> Event:
        function = self._calls[part.index].function
        piece = part.function.arguments or ""
        function.arguments += piece
        so_far = self._types.arguments_so_far(function.name, function.arguments)
        function.parsed_arguments = so_far
        return Event(f"{_CALL}.delta", index=part.index, arguments_delta=piece, **vars(function))

    def _add_logprobs(self, content: List[Any]) -> Event:
        if self._choice.logprobs is None:
            self._choice.logprobs = Record({"content": [], "refusal": None})
        self._choice.logprobs.content.extend(content)
        so_far = list(self._choice.logprobs.content)
        return Event("logprobs.content.delta", content=content, snapshot=so_far)

    def _end_content(self, value: Any) -> Iterator[Event]:
        message, logprobs = self._message, self._choice.logprobs
        if message.content and not self._content_ended:
            self._content_ended = True
            message.parsed = value
            yield Event("content.done", content=message.content, parsed=value)
        if logprobs is not None and not self._logprobs_ended:
            self._logprobs_ended = True
            yield Event("logprobs.content.done", content=logprobs.content)

    def _end_call(self) -> Event:
        call = self._calls[-1]
        function = call.function
        value = self._types.arguments(function.name, function.arguments)
        function.parsed_arguments = value
        return Event(f"{_CALL}.done", index=call.index, **vars(function))
