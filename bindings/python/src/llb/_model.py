"""`Model`: the weights of a model, and a pool of chats on them."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Optional, Union

from ._chat import Chat
from ._closing import Closing
from ._html import model_table
from ._model_info import model_info
from ._pool import ChatPool
from ._requests import Requests
from ._stream import Stream
from .types import ModelInfo

# The library's default of `n_parallel`.
_PARALLEL = 4


class Model(Requests, Closing):
    """The weights of a model in memory, until `close`. Use it as a context manager.

    `path`, `on_event`, `progress` and `options` are those of `Chat`. `create`, `explain`, `parse`
    and `run` work as on a `Chat`, but up to `max_chats` requests are decoded together, and a
    conversation goes on where its prefix is in the KV cache: each request runs on the chat of a
    pool whose last conversation it continues, on a new one, or on the least recently used.
    `max_chats` is `n_parallel` (4).

    Raises what `Chat` raises. All methods may be called from any thread. A dropped model closes
    itself. A forked process cannot use the models of its parent (`ENGINE_CLOSED`).
    """

    def __init__(
        self,
        path: Union[str, bytes, os.PathLike[Any]],
        *,
        max_chats: Optional[int] = None,
        on_event: Optional[Callable[[str], object]] = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        if max_chats is not None and max_chats < 1:
            raise ValueError("max_chats: must be at least 1")
        self._path = os.fsdecode(path)
        self._options: Dict[str, Any] = {"on_event": on_event, **options}
        self._info: Optional[ModelInfo] = None
        path, options = self._path, self._options
        # The first chat loads the weights, which stay as long as there is one.
        first = Chat(path, progress=progress, **options)
        most: int = max_chats or options.get("n_parallel") or _PARALLEL
        self._pool = ChatPool(first, lambda: Chat(path, **options), most)

    @property
    def path(self) -> str:
        """The path passed to the constructor, as text."""
        return self._path

    @property
    def info(self) -> ModelInfo:
        """What `model_info` returns for the file. Read once."""
        if self._info is None:
            self._info = model_info(self._path)
        return self._info

    @property
    def closed(self) -> bool:
        """Whether the model is closed."""
        return self._pool.closed

    def chat(self, **options: Any) -> Chat:
        """Opens a chat on these weights, which the caller closes. It is not in the pool.

        `options` are those of `Chat`, and replace those of the model. Raises what `Chat` raises.
        """
        return Chat(self._path, **{**self._options, **options})

    def close(self) -> None:
        """Cancels what runs in the pool and frees its chats. Idempotent.

        The weights are freed with the last chat, also with those of `chat`. Raises what
        `Chat.close` raises.
        """
        self._pool.close()

    def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        pooled = self._pool.take(request.get("messages"))
        reply: Any = {}
        try:
            reply = pooled.chat._perform(function, request)  # pyright: ignore[reportPrivateUsage]
            return reply
        finally:
            self._pool.give_back(pooled, reply.get("message"))

    def _stream(self, request: Mapping[str, Any]) -> Stream:
        pool = self._pool
        pooled = pool.take(request.get("messages"))
        try:
            stream = pooled.chat._stream(request)  # pyright: ignore[reportPrivateUsage]
        except BaseException:
            pool.give_back(pooled)
            raise
        stream._when_done(  # pyright: ignore[reportPrivateUsage]
            lambda reply: pool.give_back(pooled, reply["message"] if reply else None)
        )
        return stream

    def __repr__(self) -> str:
        return f"<llb.Model {self._path!r}{' closed' if self.closed else ''}>"

    def _repr_html_(self) -> Optional[str]:
        """What notebooks show: the capabilities of the model as a table."""
        return model_table(repr(self), self._path)
