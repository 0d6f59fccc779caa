"""`AsyncChat`: `Chat` for asyncio. Imported only if it is used."""

from __future__ import annotations

import asyncio
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    cast,
    overload,
)

from ._async_stream import AsyncStream, ended, reply_of
from ._base_chat import BaseChat
from ._call import Call, stream_call
from ._closing import AsyncClosing
from ._parameters import build_request, takes_parameters
from ._parse import parsed, with_format
from ._run import Conversation, PendingCall, Run
from ._session import Session
from .types import Explanation, Messages, Reply, RequestParameters, Tools

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncChat(BaseChat, AsyncClosing):
    """A chat on one model for asyncio: `async with llb.AsyncChat("model.gguf") as chat`.

    Takes the arguments of `Chat`, and works like it, with these differences. The model is loaded by
    `async with`, or by the first call, and errors of the creation are raised there. If a task that
    waits for a call is cancelled, so is the call. `on_event` is called on another thread, which has
    no event loop.

    Nothing blocks the event loop, and waiting calls have no threads: an open chat has one, which
    runs its calls one at a time. Works with every event loop of asyncio, and with several.
    """

    _session: Optional[Session] = None

    @property
    def closed(self) -> bool:
        """Whether the chat is closed."""
        return self._session is not None and self._session.closed

    @overload
    async def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: Literal[False] = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Reply: ...
    @overload
    async def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        stream: Literal[True],
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> AsyncStream: ...
    @overload
    async def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: bool = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Union[Reply, AsyncStream]: ...
    @takes_parameters
    async def create(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        stream: bool = False,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Union[Reply, AsyncStream]:
        """As `Chat.create`. With `stream=True`, returns an `AsyncStream`."""
        request = build_request("AsyncChat.create", messages, tools, extra_body, parameters)
        if stream:
            return AsyncStream(self, await self._open(), stream_call(request))
        return cast(Reply, await self._perform("llb_chat_infer", request))

    @takes_parameters
    async def explain(
        self,
        messages: Messages,
        tools: Optional[Tools] = None,
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Explanation:
        """As `Chat.explain`."""
        request = build_request("AsyncChat.explain", messages, tools, extra_body, parameters)
        return cast(Explanation, await self._perform("llb_chat_explain", request))

    @takes_parameters
    async def parse(
        self,
        messages: Messages,
        reply_type: Type[T],
        *,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> T:
        """As `Chat.parse`."""
        typed = with_format(parameters, reply_type)
        request = build_request("AsyncChat.parse", messages, None, extra_body, typed)
        return parsed(await self._perform("llb_chat_infer", request), reply_type)

    @takes_parameters
    async def run(
        self,
        messages: Messages,
        tools: Sequence[Callable[..., Any]],
        *,
        max_rounds: int = 10,
        extra_body: Optional[Mapping[str, Any]] = None,
        **parameters: Unpack[RequestParameters],
    ) -> Run:
        """As `Chat.run`. Coroutine functions run in this event loop, all others on threads."""
        method = "AsyncChat.run"
        conversation = Conversation(method, messages, tools, max_rounds, extra_body, parameters)
        while True:
            reply: Reply = await self._perform("llb_chat_infer", conversation.request())
            calls = conversation.take(reply)
            if not calls:
                return Run(reply, conversation.messages)
            conversation.answer(calls, await _perform_all(calls))

    def cancel(self) -> None:
        """As `Chat.cancel`."""
        if self._session is not None:
            self._session.cancel_all()

    async def close(self) -> None:
        """Cancels the running call, waits for its end, and frees the chat. Idempotent.

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
                # It has nothing more to do.
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

    async def __aenter__(self) -> AsyncChat:
        await self._open()
        return self


async def _perform_all(calls: List[PendingCall]) -> List[object]:
    """Performs calls at the same time. Returns results and exceptions."""
    return await asyncio.gather(*map(_perform, calls))


async def _perform(call: PendingCall) -> object:
    try:
        if call.is_async:
            return await call.perform()
        return await asyncio.to_thread(call.perform)
    except Exception as error:
        return error
