"""`AsyncChat`: `Chat` for asyncio. Imported only if used."""

from __future__ import annotations

from typing import Any, Mapping

from .handle import AsyncHandle
from .requests import AsyncRequests
from .stream import AsyncStream
from .._base_model import BaseChat
from .._call import stream_call


class AsyncChat(BaseChat, AsyncHandle, AsyncRequests):
    """A chat on one model for asyncio: `async with llb.AsyncChat("model.gguf") as chat`.

    Takes the arguments of `Chat`, and works like it, with these differences. The model is loaded by
    `async with`, or by the first call, and errors of the creation are raised there. If a task that
    waits for a call is cancelled, the call is cancelled too. `on_event` is called on another
    thread, which has no event loop.

    Nothing blocks the event loop, and waiting calls have no threads: an open chat has one, which
    runs its calls one at a time. Works with every event loop of asyncio, and with several.
    """

    def end_reasoning(self) -> None:
        """See `Chat.end_reasoning`. May be called from any thread."""
        if self._session is not None:
            self._session.end_reasoning()

    async def _stream(self, request: Mapping[str, Any]) -> AsyncStream:
        return AsyncStream(self, await self._open(), stream_call(request))
