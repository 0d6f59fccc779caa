"""What `Stream` and `AsyncStream` share: the call, which ends with the stream, and the handlers of
chunks."""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional, cast

from ._call import Call
from ._closing import when_collected
from ._session import Session
from .types import Chunk, Reply, ToolCall

OnText = Callable[[str], object]
OnToolCall = Callable[[ToolCall], object]


def text_of(chunk: Chunk) -> str:
    """The visible text of a chunk, or an empty string."""
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def reasoning_of(chunk: Chunk) -> str:
    """The reasoning of a chunk, or an empty string."""
    return "".join(choice["delta"].get("reasoning_content") or "" for choice in chunk["choices"])


class Handlers:
    """Functions that are called as a reply arrives."""

    def __init__(
        self,
        on_text: Optional[OnText],
        on_reasoning: Optional[OnText],
        on_tool_call: Optional[OnToolCall],
    ) -> None:
        self._by_part = ((text_of, on_text), (reasoning_of, on_reasoning))
        self._on_tool_call = on_tool_call

    def chunk(self, chunk: Chunk) -> Iterator[object]:
        """Calls the handlers for the parts of a chunk, and yields their results."""
        for part_of, handler in self._by_part:
            part = part_of(chunk)
            if handler is not None and part:
                yield handler(part)

    def tool_calls(self, calls: List[ToolCall]) -> Iterator[object]:
        """Calls the handler for each complete tool call of the reply, and yields the results."""
        if self._on_tool_call is not None:
            for call in calls:
                yield self._on_tool_call(call)


class BaseStream:
    """A call whose reply arrives in chunks. Creating the stream starts it."""

    def __init__(self, chat: object, session: Session, call: Call) -> None:
        # This keeps the chat alive.
        self._chat = chat
        self._session = session
        self._call = call
        self._ended = False
        session.submit(call)
        when_collected(self, setattr, call, "cancelled", True)

    @property
    def reply(self) -> Optional[Reply]:
        """The whole reply, as `create` returns it without `stream`.

        None while the reply is generated and after a failure.
        """
        return cast(Optional[Reply], self._call.reply())

    def when_done(self, work: Callable[[Optional[Reply]], object]) -> None:
        """Calls `work` with `reply` at the end. `work` must not refer to the stream."""
        call = self._call
        call.outcome.when_done(lambda: work(cast(Optional[Reply], call.reply())))
