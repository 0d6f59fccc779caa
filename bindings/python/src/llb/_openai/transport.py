"""`Transport`: answers the requests of an httpx client with a model in this process."""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import (
    Any,
    AsyncIterator,
    Dict,
    Generic,
    Iterator,
    Mapping,
    Optional,
    TypeVar,
    Union,
    cast,
)

from .._chat import Chat
from .._embedder import Embedder
from .._errors import LlbError
from .._model import Model
from .errors import answer
from .exchange import Exchange, object_in
from .routes import Routes

H = TypeVar("H")

Path = Union[str, "os.PathLike[str]"]


def transport(
    model: Union[Path, Any, None] = None,
    *,
    embedding_model: Union[Path, Any, None] = None,
    request: Optional[Mapping[str, Any]] = None,
    **options: Any,
) -> Any:
    """Returns a transport for `httpx.Client` and `httpx.AsyncClient`, without a server.

    `openai.OpenAI(http_client=httpx.Client(transport=llb.transport("model.gguf")))` is OpenAI's own
    client on a model in this process; the package's own httpx is that of its requirements. The
    transport serves `/chat/completions` and `/responses`, also as streams, `/embeddings` and
    `/models`, under any base URL, as `llb serve` does. Of `/responses` it takes text, functions and
    reasoning, and stores nothing.

    `model` is a GGUF file, with `options` of `Model`, or an open `Model` or `Chat`, for asyncio an
    `AsyncModel` or `AsyncChat`. `embedding_model` is a file, or an `Embedder` or `AsyncEmbedder`.
    `close` closes what the transport opened. `request` has members for requests that do not have
    them: `{"schema_in_prompt": True, "bound_schema": True}` lets small models fill schemas.

    A read timeout of the client ends a reply that is no stream.
    """
    # Several packages have the interface of httpx, each with a class of its own for transports.
    return Transport(model, embedding_model, request or {}, options)


def _is_file(model: Any) -> bool:
    return isinstance(model, (str, os.PathLike))


class Served(Generic[H]):
    """A model for blocking and for asyncio clients. It is opened for those that use it."""

    def __init__(
        self, given: Any, blocking: Any, coroutine: str, options: Mapping[str, Any]
    ) -> None:
        self._path = os.fspath(cast(Path, given)) if _is_file(given) else None
        self._blocking = blocking
        self._coroutine = coroutine
        self._options = options
        self._lock = threading.Lock()
        is_async = hasattr(given, "__aenter__")
        self._handle: Any = None if _is_file(given) or is_async else given
        self._async_handle: Any = given if is_async else None
        path = str(self._path or getattr(given, "path", None) or "llb")
        self.name = None if given is None else os.path.basename(path).removesuffix(".gguf")

    def blocking(self) -> Any:
        """The model for blocking calls. Raises what opening it raises."""
        with self._lock:
            if self._handle is None:
                self._handle = self._blocking(self._file("asyncio"), **self._options)
        return self._handle

    def coroutine(self) -> Any:
        """The model for asyncio."""
        if self._async_handle is None:
            module, name = self._coroutine.split(":")
            kind: Any = getattr(import_module(module, __package__), name)
            self._async_handle = kind(self._file("blocking"), **self._options)
        return self._async_handle

    def _file(self, kind: str) -> Any:
        if self._path is None:
            raise TypeError(f"the model of this transport is for {kind} clients; pass its file")
        return self._path

    def close(self) -> None:
        """Closes what was opened for blocking calls."""
        if self._path is not None and self._handle is not None:
            self._handle.close()

    async def aclose(self) -> None:
        """Closes what was opened."""
        if self._path is not None and self._async_handle is not None:
            await self._async_handle.close()
        self.close()


class Transport:
    """A transport of `httpx`, and of packages with its interface. See `transport`."""

    def __init__(
        self,
        model: Any,
        embedding_model: Any,
        request: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        if options and not _is_file(model):
            raise TypeError(f"{', '.join(options)}: options are for a model that is a file")
        self._chat: Served[Chat] = Served(model, Model, ".._async.model:AsyncModel", options)
        self._embedder: Served[Embedder] = Served(
            embedding_model, Embedder, ".._async.embedder:AsyncEmbedder", {}
        )
        self._routes = Routes(self._chat.name, self._embedder.name, request)

    def open(self) -> None:
        """Opens the files for blocking clients now. Raises what `Model` and `Embedder` raise."""
        for served in (self._chat, self._embedder):
            if served.name is not None:
                served.blocking()

    def handle_request(self, request: Any) -> Any:
        """Answers a request of a blocking client."""
        http = _package(request)
        exchange: Optional[Exchange] = None
        try:
            exchange = self._begin(request, request.read())
            if exchange.function is None:
                return http.Response(200, json=exchange.writer.whole({}), request=request)
            handle = self._served(exchange).blocking()
            if exchange.stream:
                stream = handle._stream(exchange.request)
                body = _body(http.SyncByteStream, _Events)(exchange, stream, next(stream, None))
                return http.Response(200, headers=_EVENTS, stream=body, request=request)
            reply = handle._perform(exchange.function, exchange.request)
            return _whole(http, request, exchange, reply)
        except LlbError as error:
            return _failure(http, request, exchange, error)

    async def handle_async_request(self, request: Any) -> Any:
        """Answers a request of an asyncio client."""
        http = _package(request)
        exchange: Optional[Exchange] = None
        try:
            exchange = self._begin(request, await request.aread())
            if exchange.function is None:
                return http.Response(200, json=exchange.writer.whole({}), request=request)
            handle = self._served(exchange).coroutine()
            if exchange.stream:
                stream = await handle._stream(exchange.request)
                first = await anext_or_none(stream)
                body = _body(http.AsyncByteStream, _AsyncEvents)(exchange, stream, first)
                return http.Response(200, headers=_EVENTS, stream=body, request=request)
            reply = await handle._perform(exchange.function, exchange.request)
            return _whole(http, request, exchange, reply)
        except LlbError as error:
            return _failure(http, request, exchange, error)

    def _begin(self, request: Any, content: bytes) -> Exchange:
        exchange = self._routes.begin(request.method, request.url.path, content)
        timeout = object_in(request.extensions, "timeout").get("read")
        if timeout is not None and exchange.function is not None and not exchange.stream:
            exchange.request.setdefault("timeout_ms", max(1, int(timeout * 1000)))
        return exchange

    def _served(self, exchange: Exchange) -> Served[Any]:
        return self._embedder if exchange.function == "llb_embed" else self._chat

    def close(self) -> None:
        """Closes what the transport opened for blocking clients. Idempotent."""
        self._chat.close()
        self._embedder.close()

    async def aclose(self) -> None:
        """Closes what the transport opened. Idempotent."""
        await self._chat.aclose()
        await self._embedder.aclose()

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


_EVENTS = {"content-type": "text/event-stream"}


def _package(request: Any) -> Any:
    """The package of a request: httpx, or another one with its interface."""
    return import_module(type(request).__module__.partition(".")[0])


def _whole(http: Any, request: Any, exchange: Exchange, reply: Dict[str, Any]) -> Any:
    if reply.get("finish_reason") == "cancelled":
        _raise_late(http, request, exchange)
    return http.Response(200, json=exchange.writer.whole(reply), request=request)


def _failure(http: Any, request: Any, exchange: Optional[Exchange], error: LlbError) -> Any:
    # A call may end before its turn, and one for vectors has no reply then.
    if error.code == "CANCELLED" and exchange is not None:
        _raise_late(http, request, exchange)
    status, body = answer(error)
    return http.Response(status, json=body, request=request)


def _raise_late(http: Any, request: Any, exchange: Exchange) -> None:
    """Raises the client's own error for a cancelled call that had a time limit."""
    if "timeout_ms" in exchange.request:
        raise http.ReadTimeout("the reply took longer than the read timeout", request=request)


async def anext_or_none(stream: Any) -> Any:
    """The next chunk, or None at the end."""
    async for chunk in stream:
        return chunk
    return None


def _body(base: Any, kind: Any) -> Any:
    """The class of a body that is also one of the client's package, which asks for it."""
    return type(kind.__name__, (kind, base), {})


class _Events:
    """The events of a stream. Closing it ends the reply."""

    def __init__(self, exchange: Exchange, stream: Any, first: Any) -> None:
        self._writer = exchange.writer
        self._stream = stream
        self._first = first

    def __iter__(self) -> Iterator[bytes]:
        writer = self._writer
        yield writer.start().encode()
        try:
            if self._first is not None:
                yield writer.chunk(self._first).encode()
            for chunk in self._stream:
                yield writer.chunk(chunk).encode()
            yield writer.end(self._stream.until_done()).encode()
        except LlbError as error:
            yield writer.error(error).encode()

    def close(self) -> None:
        self._stream.close()


class _AsyncEvents:
    """The same for asyncio."""

    def __init__(self, exchange: Exchange, stream: Any, first: Any) -> None:
        self._writer = exchange.writer
        self._stream = stream
        self._first = first

    async def __aiter__(self) -> AsyncIterator[bytes]:
        writer = self._writer
        yield writer.start().encode()
        try:
            if self._first is not None:
                yield writer.chunk(self._first).encode()
            async for chunk in self._stream:
                yield writer.chunk(chunk).encode()
            yield writer.end(await self._stream.until_done()).encode()
        except LlbError as error:
            yield writer.error(error).encode()

    async def aclose(self) -> None:
        await self._stream.close()
