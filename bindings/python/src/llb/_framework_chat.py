"""`FrameworkChat`: the chat of a framework adapter, with and without asyncio."""

from __future__ import annotations

from typing import Any, Dict, Mapping, cast

from ._async_stream import AsyncStream
from ._call import stream_call
from ._chat import Chat
from ._framework_handle import FrameworkHandle
from ._stream import Stream
from .types import Reply

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
