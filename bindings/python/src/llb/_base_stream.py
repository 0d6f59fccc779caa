"""`BaseStream`: what `Stream` and `AsyncStream` share: the call, which ends with the stream."""

from __future__ import annotations

from typing import Callable, Optional, cast

from ._call import Call
from ._closing import when_collected
from ._session import Session
from .types import Reply


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
