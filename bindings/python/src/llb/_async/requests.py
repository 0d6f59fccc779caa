"""`AsyncRequests`: the calls that `AsyncChat` and `AsyncModel` share, like `Requests`."""

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

from .stream import AsyncStream
from .._parameters import NamedMethods, build_request, takes_parameters
from .._parse import parsed, with_format
from .._run import Conversation, PendingCall, Run, finish
from ..types import Explanation, Messages, Reply, RequestParameters, Tools

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncRequests(NamedMethods):
    """Checks and converts requests and replies. A subclass runs them."""

    async def _perform(self, function: str, request: Mapping[str, Any]) -> Any:
        """Runs a request with a function of the library, and returns its reply."""
        raise NotImplementedError

    async def _stream(self, request: Mapping[str, Any]) -> AsyncStream:
        """Begins a request whose reply arrives in chunks."""
        raise NotImplementedError

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
        """See `Chat.create`. With `stream=True`, returns an `AsyncStream`."""
        request = build_request(self, "create", messages, tools, extra_body, parameters)
        if stream:
            return await self._stream(request)
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
        """See `Chat.explain`."""
        request = build_request(self, "explain", messages, tools, extra_body, parameters)
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
        """See `Chat.parse`."""
        typed = with_format(parameters, reply_type)
        request = build_request(self, "parse", messages, None, extra_body, typed)
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
        """See `Chat.run`. Coroutine functions run in this event loop, all others on threads."""
        conversation = Conversation(
            self, "run", messages, tools, max_rounds, extra_body, parameters
        )
        while True:
            reply: Reply = await self._perform("llb_chat_infer", conversation.request())
            calls = conversation.take(reply)
            if not calls:
                return Run(reply, conversation.messages)
            conversation.answer(calls, await _perform_all(calls))


async def _perform_all(calls: List[PendingCall]) -> List[str]:
    """Performs calls at the same time. Returns the contents of their results."""
    return await asyncio.gather(*map(_perform, calls))


async def _perform(call: PendingCall) -> str:
    begun = call.begin() if call.is_async else await asyncio.to_thread(call.begin)
    return begun if isinstance(begun, str) else await finish(begun)
