"""`AsyncModel`: `Model` for asyncio. Imported only if used."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Sequence

from .chat import AsyncChat
from .requests import AsyncRequests
from .stream import AsyncStream
from .._base_model import BaseModel
from .._closing import AsyncClosing
from .._model_info import memory_of, model_info
from .._parameters import build_request, takes_parameters
from .._pool import PooledChat
from ..types import ContextOptions, Memory, Messages, ModelInfo, RequestParameters, Tokens, Tools

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncModel(BaseModel[AsyncChat], AsyncRequests, AsyncClosing):
    """The weights of a model for asyncio: `async with llb.AsyncModel("model.gguf") as model`.

    Takes the arguments of `Model`, and works like it: its tasks share one copy of the weights, and
    a pool of chats. As with `AsyncChat`, the model is loaded by `async with`, or by the first call,
    errors of the creation are raised there, and a cancelled task cancels its call.
    """

    _chat_type = AsyncChat
    _info: Optional[ModelInfo] = None

    async def info(self) -> ModelInfo:
        """The result of `model_info` for the file. Read once."""
        if self._info is not None:
            return self._info
        info = await asyncio.to_thread(model_info, self._path)
        self._info = info
        return info

    async def memory(self, *, contexts: Sequence[ContextOptions] = ()) -> Memory:
        """See `Model.memory`."""
        return await asyncio.to_thread(memory_of, self._path, self._options, contexts)

    async def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = False
    ) -> Tokens:
        """See `Model.tokenize`."""
        tokenize = self._vocabulary.tokenize
        return await asyncio.to_thread(tokenize, text, add_special, parse_special)

    async def detokenize(
        self, ids: Iterable[int], *, remove_special: bool = False, unparse_special: bool = True
    ) -> str:
        """See `Model.detokenize`."""
        detokenize = self._vocabulary.detokenize
        return await asyncio.to_thread(detokenize, ids, remove_special, unparse_special)

    @takes_parameters
    async def count_tokens(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> int:
        """See `Model.count_tokens`."""
        request = build_request(self, "count_tokens", messages, tools, extra_body, parameters)
        return await asyncio.to_thread(self._vocabulary.count, request)

    async def close(self) -> None:
        """See `Model.close`."""
        async with AsyncExitStack() as closing:
            for chat in self._pool.close():
                closing.push_async_callback(chat.close)

    async def _take(self, request: Mapping[str, Any]) -> PooledChat[AsyncChat]:
        """Chooses an open chat for a request. The first chat loads the weights for all."""
        pool = self._pool
        pool.refuse_if_closed()
        await self._first._open()  # pyright: ignore[reportPrivateUsage]
        pooled = pool.take(request.get("messages"))
        try:
            await pooled.chat._open()  # pyright: ignore[reportPrivateUsage]
        except BaseException:
            pool.give_back(pooled)
            if pooled.chat.closed:
                pool.remove(pooled)
            raise
        return pooled

    async def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        pooled = await self._take(request)
        reply: Any = {}
        try:
            chat = pooled.chat
            reply = await chat._perform(function, request)  # pyright: ignore[reportPrivateUsage]
            return reply
        finally:
            self._pool.give_back(pooled, reply.get("message"))

    async def _stream(self, request: Mapping[str, Any]) -> AsyncStream:
        pooled = await self._take(request)
        try:
            stream = await pooled.chat._stream(request)  # pyright: ignore[reportPrivateUsage]
        except BaseException:
            self._pool.give_back(pooled)
            raise
        self._pool.give_back_after(stream, pooled)
        return stream

    async def __aenter__(self) -> AsyncModel:
        await self._first._open()  # pyright: ignore[reportPrivateUsage]
        return self
