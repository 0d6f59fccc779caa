"""`AsyncHandle`: `Handle` for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

from .waiting import ended, reply_of
from .._call import Call
from .._closing import AsyncClosing
from .._handle import BaseHandle
from .._session import Session

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncHandle(BaseHandle, AsyncClosing):
    """A handle whose calls are awaited. It is opened by `async with`, or by the first call."""

    _session: Optional[Session] = None

    @property
    def closed(self) -> bool:
        """Whether the handle was opened and `close` has been called since."""
        return self._session is not None and self._session.closed

    def cancel(self) -> None:
        """Cancels all calls.

        The running call of a chat returns its output so far, with `finish_reason` `cancelled`. All
        others raise `CANCELLED`. Does not wait. May be called from any thread.
        """
        if self._session is not None:
            self._session.cancel_all()

    async def close(self) -> None:
        """Cancels the running call, waits for its end, and frees the handle. Idempotent.

        Raises what `on_event` raises.
        """
        session = self._session
        if session is None or session.destroyed.done:
            return
        session.begin_close()
        try:
            await ended(session.destroyed)
        finally:
            if session.destroyed.done:
                # The thread has nothing left to do.
                session.thread.join()

    async def _open(self) -> Session:
        if self._session is None:
            self._session = self._start()
        await ended(self._session.opened)
        return self._session

    async def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        call = Call(function, request)
        session = await self._open()
        session.submit(call)
        return await reply_of(session, call)

    async def __aenter__(self) -> Self:
        await self._open()
        return self
