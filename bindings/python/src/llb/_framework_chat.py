"""`FrameworkChat`: the chat behind an adapter of a framework, with and without asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Dict, Mapping, Optional, cast

from ._async_stream import AsyncStream, reply_of
from ._call import Call, stream_call
from ._chat import Chat
from ._session import Session
from ._stream import Stream
from .types import Reply


class FrameworkChat:
    """One chat, opened on first use. A framework calls it from threads and from event loops.

    Requests are those of `build_request`. Any thread.
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self._model = model
        self._options = options
        self._chat: Optional[Chat] = None
        # Many threads may be the first.
        self._opening = threading.Lock()

    def open(self) -> Chat:
        """Returns the chat. The first use loads the model. Raises what `Chat` raises."""
        with self._opening:
            if self._chat is None:
                self._chat = Chat(self._model, **self._options)
            return self._chat

    def close(self) -> None:
        """Frees the chat. The next use opens it again."""
        with self._opening:
            chat, self._chat = self._chat, None
        if chat is not None:
            chat.close()

    def create(self, request: Dict[str, Any]) -> Reply:
        """Runs a request."""
        session = _session(self.open())
        call = Call("llb_chat_infer", request)
        session.submit(call)
        return cast(Reply, session.wait(call))

    async def create_async(self, request: Dict[str, Any]) -> Reply:
        """Runs a request. If the task is cancelled, so is the call."""
        session = _session(await asyncio.to_thread(self.open))
        call = Call("llb_chat_infer", request)
        session.submit(call)
        return await reply_of(session, call)

    def stream(self, request: Dict[str, Any]) -> Stream:
        """Runs a request as a stream, whose last chunk has the usage."""
        chat = self.open()
        return Stream(chat, _session(chat), stream_call({**request, **_WITH_USAGE}))

    async def stream_async(self, request: Dict[str, Any]) -> AsyncStream:
        """As `stream`, for asyncio."""
        chat = await asyncio.to_thread(self.open)
        return AsyncStream(chat, _session(chat), stream_call({**request, **_WITH_USAGE}))


_WITH_USAGE = {"stream_options": {"include_usage": True}}


def _session(chat: Chat) -> Session:
    return chat._session  # pyright: ignore[reportPrivateUsage]
