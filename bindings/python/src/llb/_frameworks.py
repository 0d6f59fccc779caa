"""What framework adapters share: a chat and an embedder, with and without asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, TypeVar, cast

from ._async.stream import AsyncStream
from ._async.waiting import reply_of
from ._call import Call, stream_call
from ._chat import Chat
from ._embedder import Embedder
from ._handle import Handle
from ._stream import Stream
from .types import Embeddings, Reply

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


_WITH_USAGE = {"stream_options": {"include_usage": True}}


class FrameworkChat(FrameworkHandle[Chat]):
    """One chat, opened on first use. Requests are those of `build_request`."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        super().__init__(Chat, model, options)

    def create(self, request: Mapping[str, Any]) -> Reply:
        """Runs a request."""
        return cast(Reply, self.perform("llb_chat_infer", request))

    async def create_async(self, request: Mapping[str, Any]) -> Reply:
        """Runs a request. If the task is cancelled, cancels the call."""
        return cast(Reply, await self.perform_async("llb_chat_infer", request))

    def stream(self, request: Dict[str, Any]) -> Stream:
        """Runs a request as a stream, whose last chunk has the usage."""
        chat = self.open()
        return chat._stream({**request, **_WITH_USAGE})  # pyright: ignore[reportPrivateUsage]

    async def stream_async(self, request: Dict[str, Any]) -> AsyncStream:
        """Like `stream`, for asyncio."""
        chat = await self.open_async()
        session = chat._session  # pyright: ignore[reportPrivateUsage]
        return AsyncStream(chat, session, stream_call({**request, **_WITH_USAGE}))


class FrameworkEmbedder(FrameworkHandle[Embedder]):
    """One embedder, opened on first use. The `input` of a request is a list, which may be empty."""

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        super().__init__(Embedder, model, options)

    def embed(self, request: Dict[str, Any]) -> List[List[float]]:
        """Computes the vectors of a request."""
        return _vectors(self.perform("llb_embed", request)) if request["input"] else []

    async def embed_async(self, request: Dict[str, Any]) -> List[List[float]]:
        """Like `embed`. If the task is cancelled, cancels the call."""
        if not request["input"]:
            return []
        return _vectors(await self.perform_async("llb_embed", request))


def _vectors(reply: object) -> List[List[float]]:
    return [each["embedding"] for each in cast(Embeddings, reply)["data"]]
