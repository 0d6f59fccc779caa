"""A request on a chat, from its arrival to its end."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any, Callable, Dict, Mapping, Optional

from ._errors import LlbError
from ._library import encode
from ._outcome import Outcome


class Call:
    """One request: waiting, running in the library, or done. A `Session` runs it.

    The constructor raises TypeError or ValueError if the request cannot be encoded as JSON.
    """

    __slots__ = (
        "cancelled",
        "deadline",
        "function",
        "outcome",
        "pieces",
        "request",
        "waited",
        "wake",
        "_encoded",
    )

    def __init__(self, function: str, request: Mapping[str, Any], stream: bool = False) -> None:
        self.function = function
        self.request = request
        self._encoded = encode(request)
        # `timeout_ms` counts from here. The library counts from the start of its own call.
        timeout = request.get("timeout_ms")
        self.deadline: Optional[float] = None
        if isinstance(timeout, (int, float)) and timeout > 0:
            self.deadline = time.monotonic() + min(timeout / 1000, threading.TIMEOUT_MAX / 2)
        self.outcome: Outcome[Dict[str, Any]] = Outcome()
        # The chunks of a stream, as JSON. None marks the end. `wake` is called after each chunk. It
        # returns False once the stream has no reader.
        self.pieces: Optional[SimpleQueue[Optional[bytes]]] = SimpleQueue() if stream else None
        self.wake: Optional[Callable[[], bool]] = None
        self.cancelled = False
        self.waited = False

    def json(self) -> bytes:
        """The request. If it has waited, its `timeout_ms` is reduced by that time."""
        seconds = self.seconds_left() if self.waited else None
        if seconds is None:
            return self._encoded
        return encode({**self.request, "timeout_ms": max(1, int(seconds * 1000))})

    def seconds_left(self) -> Optional[float]:
        """What is left of `timeout_ms`, at least 0. None if the request has no `timeout_ms`."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def expired(self) -> bool:
        """Whether `timeout_ms` has passed."""
        return self.seconds_left() == 0.0

    def receive(self, piece: Optional[bytes]) -> None:
        """Passes a chunk to the reader of the stream."""
        assert self.pieces is not None, "a stream's call has pieces"
        self.pieces.put(piece)
        if self.wake is not None and not self.wake():
            self.cancelled = True

    def succeed(self, reply: Dict[str, Any]) -> None:
        """Ends the call with a reply."""
        self.outcome.succeed(reply)
        if self.pieces is not None:
            self.receive(None)

    def fail(self, error: BaseException) -> None:
        """Ends the call with an exception."""
        self.outcome.fail(error)
        if self.pieces is not None:
            self.receive(None)

    def reply(self) -> Optional[Dict[str, Any]]:
        """The reply. None before the end and after a failure."""
        return self.outcome.result() if self.outcome.succeeded else None

    def invalidate(self, reason: str) -> None:
        """Runs in a forked child, where the call's thread is gone and locks may still be held."""
        if self.outcome.done:
            return
        self.outcome = Outcome()
        self.outcome.fail(LlbError("ENGINE_CLOSED", reason))
        if self.pieces is not None:
            self.pieces = SimpleQueue()
            self.pieces.put(None)


def stream_call(request: Mapping[str, Any]) -> Call:
    """Returns a call whose reply arrives in chunks."""
    return Call("llb_chat_infer_stream", {**request, "stream_format": "chunks"}, stream=True)
