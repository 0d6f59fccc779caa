"""`AsyncOpenAI`: `OpenAI` for asyncio. Imported only if used."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Generic,
    List,
    Literal,
    Optional,
    Sequence,
    TypeVar,
    Union,
    cast,
    overload,
)

from .._async.chat import AsyncChat
from .._async.embedder import AsyncEmbedder
from .._async.stream import AsyncStream
from .._closing import AsyncClosing
from .client import ModelPage, Models
from .errors import PACKAGE_ERRORS
from .parse import ReplyTypes
from .request import chat_request, embed_request, name_of, require
from .shape import (
    ChatCompletion,
    ChatCompletionChunk,
    CreateEmbeddingResponse,
    Model,
    Record,
    chunks,
    completion,
    embeddings,
    plain,
)
from .snapshot import Event, Snapshot
from .stream import is_last
from ..types import Reply

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T", bound=Record)


class AsyncOpenAI(AsyncClosing):
    """A client for one chat model and one embedding model, used like `openai.AsyncOpenAI`.

    Like `OpenAI`, with `await`, `async for` and `async with`. `model` and `embedding_model` are
    files, which are opened on first use, or an `AsyncChat` and an `AsyncEmbedder`.
    """

    def __init__(
        self,
        model: Union[str, os.PathLike[str], AsyncChat, None] = None,
        *,
        embedding_model: Union[str, os.PathLike[str], AsyncEmbedder, None] = None,
        timeout: Any = None,
        **options: Any,
    ) -> None:
        self._own: List[Union[AsyncChat, AsyncEmbedder]] = []
        chat = embedder = None
        if isinstance(model, AsyncChat):
            chat = model
        elif model is not None:
            chat = AsyncChat(model, **options)
            self._own.append(chat)
        if isinstance(embedding_model, AsyncEmbedder):
            embedder = embedding_model
        elif embedding_model is not None:
            embedder = AsyncEmbedder(embedding_model)
            self._own.append(embedder)
        self._models = (chat, embedder)
        self.chat = AsyncChatResource(AsyncCompletions(chat, timeout))
        self.beta = AsyncBetaResource(self.chat)
        self.embeddings = AsyncEmbeddingResource(embedder, timeout)
        self.models = AsyncModels([name_of(each) for each in (chat, embedder) if each is not None])

    def with_options(
        self, *, timeout: Any = None, max_retries: Optional[int] = None
    ) -> AsyncOpenAI:
        """See `OpenAI.with_options`."""
        chat, embedder = self._models
        return AsyncOpenAI(chat, embedding_model=embedder, timeout=timeout)

    async def close(self) -> None:
        """Closes what the client opened. Idempotent."""
        async with AsyncExitStack() as closing:
            for each in self._own:
                closing.push_async_callback(each.close)


class AsyncChatResource:
    """`client.chat`."""

    def __init__(self, completions: AsyncCompletions) -> None:
        self.completions = completions


class AsyncBetaResource:
    """`client.beta`: the former place of `client.chat.completions.parse` and `.stream`."""

    def __init__(self, chat: AsyncChatResource) -> None:
        self.chat = chat


class AsyncModels:
    """`client.models`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._models = Models(names)

    def list(self) -> AsyncModelPage:
        """Returns the client's models. `await` gives a page, `async for` its entries."""
        return AsyncModelPage(self._models.list())

    async def retrieve(self, model: str) -> Model:
        """See `OpenAI.models.retrieve`."""
        return self._models.retrieve(model)


class AsyncModelPage(Awaitable[ModelPage]):
    """The result of `models.list`."""

    def __init__(self, page: ModelPage) -> None:
        self._page = page

    def __await__(self) -> Generator[Any, None, ModelPage]:
        return self._load().__await__()

    async def _load(self) -> ModelPage:
        return self._page

    async def __aiter__(self) -> AsyncIterator[Model]:
        for model in self._page:
            yield model


class AsyncEmbeddingResource:
    """`client.embeddings`."""

    def __init__(self, embedder: Optional[AsyncEmbedder], timeout: Any) -> None:
        self._embedder = embedder
        self._timeout = timeout

    async def create(
        self, *, input: Union[str, Sequence[str]], **parameters: Any
    ) -> CreateEmbeddingResponse:
        """See `OpenAI.embeddings.create`."""
        with PACKAGE_ERRORS:
            embedder = require(self._embedder, "embedding_model")
            model, request = embed_request(embedder, parameters, self._timeout)
            return embeddings(await embedder.embed(plain(input), **request), model)


class AsyncCompletions:
    """`client.chat.completions`."""

    def __init__(self, chat: Optional[AsyncChat], timeout: Any) -> None:
        self._opened = chat
        self._timeout = timeout

    @property
    def _chat(self) -> AsyncChat:
        return require(self._opened, "model")

    @overload
    async def create(
        self, *, messages: Sequence[Any], stream: Optional[Literal[False]] = None, **parameters: Any
    ) -> ChatCompletion: ...
    @overload
    async def create(
        self, *, messages: Sequence[Any], stream: Literal[True], **parameters: Any
    ) -> AsyncChunkStream: ...
    @overload
    async def create(
        self, *, messages: Sequence[Any], stream: Optional[bool] = None, **parameters: Any
    ) -> Union[ChatCompletion, AsyncChunkStream]: ...
    async def create(
        self, *, messages: Sequence[Any], stream: Optional[bool] = None, **parameters: Any
    ) -> Union[ChatCompletion, AsyncChunkStream]:
        """As in `openai`: a `ChatCompletion`, or with `stream=True` chunks for `async for`."""
        with PACKAGE_ERRORS:
            model, request = chat_request(self._chat, parameters, self._timeout)
            if stream:
                chunked = await self._chat.create(plain(messages), stream=True, **request)
                return AsyncChunkStream(chunked, model)
            reply = cast(Reply, await self._chat.create(plain(messages), **request))
            return completion(reply, model)

    async def parse(
        self, *, messages: Sequence[Any], response_format: Any = None, **parameters: Any
    ) -> ChatCompletion:
        """See `OpenAI.chat.completions.parse`."""
        with PACKAGE_ERRORS:
            types = ReplyTypes(response_format, parameters.get("tools"))
            model, request = chat_request(self._chat, types.request(parameters), self._timeout)
            reply = cast(Reply, await self._chat.create(plain(messages), **request))
            return types.parse(completion(reply, model), reply)

    def stream(
        self, *, messages: Sequence[Any], response_format: Any = None, **parameters: Any
    ) -> AsyncEventStreamManager:
        """See `OpenAI.chat.completions.stream`. The reply begins at `async with`."""
        with PACKAGE_ERRORS:
            types = ReplyTypes(response_format, parameters.get("tools"))
            model, request = chat_request(self._chat, types.request(parameters), self._timeout)

        async def begin() -> AsyncEventStream:
            with PACKAGE_ERRORS:
                stream = await self._chat.create(plain(messages), stream=True, **request)
                return AsyncEventStream(stream, model, types)

        return AsyncEventStreamManager(begin)


class AsyncRecordStream(AsyncClosing, AsyncIterator[T], Generic[T]):
    """An iterator over objects made from the chunks of a reply. `async with` ends the reply."""

    def __init__(self, stream: AsyncStream, model: str) -> None:
        self._stream = stream
        self._model = model
        self._records = self._all()

    async def close(self) -> None:
        """Cancels the reply if it is still running."""
        await self._stream.close()

    def _all(self) -> AsyncIterator[T]:
        raise NotImplementedError

    async def __anext__(self) -> T:
        with PACKAGE_ERRORS:
            return await self._records.__anext__()


class AsyncChunkStream(AsyncRecordStream[ChatCompletionChunk]):
    """The chunks of a reply."""

    async def _all(self) -> AsyncIterator[ChatCompletionChunk]:
        async for chunk in self._stream:
            for each in chunks(chunk, self._model):
                yield each


class AsyncEventStream(AsyncRecordStream[Event]):
    """See `EventStream`."""

    def __init__(self, stream: AsyncStream, model: str, types: ReplyTypes) -> None:
        super().__init__(stream, model)
        self._snapshot = Snapshot(types)

    @property
    def current_completion_snapshot(self) -> ChatCompletion:
        """The reply so far. Raises LlbError before the first chunk has arrived."""
        return self._snapshot.completion

    async def get_final_completion(self) -> ChatCompletion:
        """Reads the rest and returns the whole reply, with usage if the request asks for it."""
        await self.until_done()
        return self.current_completion_snapshot

    async def until_done(self) -> Self:
        """Reads the rest."""
        async for _ in self:
            pass
        return self

    async def _all(self) -> AsyncIterator[Event]:
        async for raw in self._stream:
            for chunk in chunks(raw, self._model):
                for event in self._snapshot.add(chunk):
                    yield event
                if is_last(chunk):
                    # Raises the failure of the call, if it has one.
                    for event in self._snapshot.end(await self._stream.until_done()):
                        yield event


class AsyncEventStreamManager:
    """Begins a reply with `async with`, and ends it there."""

    def __init__(self, begin: Callable[[], Awaitable[AsyncEventStream]]) -> None:
        self._begin = begin
        self._stream: Optional[AsyncEventStream] = None

    async def __aenter__(self) -> AsyncEventStream:
        self._stream = await self._begin()
        return self._stream

    async def __aexit__(self, *_: object) -> None:
        if self._stream is not None:
            await self._stream.close()
