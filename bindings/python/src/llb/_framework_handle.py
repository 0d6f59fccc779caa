"""`FrameworkHandle`: the handle of a framework adapter, with and without asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Generic, Mapping, Optional, TypeVar

from ._async_waiting import reply_of
from ._call import Call
from ._handle import Handle

H = TypeVar("H", bound=Handle)


class FrameworkHandle(Generic[H]):
    """One handle, opened on first use. A framework calls it from threads and from event loops."""

    def __init__(self, kind: Callable[..., H], model: str, options: Mapping[str, Any]) -> None:
        self._kind = kind
        self._model = model
        self._options = options
        self._handle: Optional[H] = None
        # Several threads may try to open it at the same time.
        self._opening = threading.Lock()

    def open(self) -> H:
        """Returns the handle. The first use loads the model, and raises what its class raises."""
        with self._opening:
            handle = self._handle or self._kind(self._model, **self._options)
            self._handle = handle
            return handle

    async def open_async(self) -> H:
        """Like `open`, without blocking the event loop."""
        handle = self._handle
        return await asyncio.to_thread(self.open) if handle is None else handle

    def close(self) -> None:
        """Frees the handle. The next use opens it again."""
        with self._opening:
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def perform(self, function: str, request: Mapping[str, Any]) -> Any:
        """Runs a request with a function of the library."""
        return self.open()._perform(function, request)  # pyright: ignore[reportPrivateUsage]

    async def perform_async(self, function: str, request: Mapping[str, Any]) -> Any:
        """Like `perform`. If the task is cancelled, cancels the call."""
        session = (await self.open_async())._session  # pyright: ignore[reportPrivateUsage]
        call = Call(function, request)
        session.submit(call)
        return await reply_of(session, call)
