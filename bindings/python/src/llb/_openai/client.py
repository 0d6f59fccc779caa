"""`OpenAI`: a client like the `openai` package's, for a model in this process."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, Iterator, Literal, Optional, Sequence, Union, cast, overload

from .._chat import Chat
from .._closing import Closing
from .._embedder import Embedder
from .._errors import LlbError
from .errors import PACKAGE_ERRORS
from .parse import ReplyTypes
from .request import chat_request, embed_request, name_of, require
from .shape import (
    ChatCompletion,
    CreateEmbeddingResponse,
    Model,
    Record,
    completion,
    embeddings,
    model_entry,
    plain,
)
from .stream import ChunkStream, EventStream
from ..types import Reply


class OpenAI(Closing):
    """A client for one chat model and one embedding model, used like `openai.OpenAI`.

    `client.chat.completions.create`, `.parse` and `.stream`, `client.embeddings.create`, and
    `client.models.list`, take the package's parameters and those of `Chat.create` and
    `Embedder.embed`, and return objects with its attributes and `model_dump`. `model` is a GGUF
    file or an open `Chat`, `embedding_model` a file or an open `Embedder`. The client closes what
    it opened. `options` are those of `Chat`. The `model` of a request is only a name, which is
    returned.

    `n` must be 1. `timeout`, of the client or of a request, is in seconds. `finish_reason` may be
    "cancelled". Failures are `LlbError`s. If the program has imported the `openai` package, they
    are also its exceptions: `openai.BadRequestError` for a wrong request, and so on.
    """

    def __init__(
        self,
        model: Union[str, "os.PathLike[str]", Chat, None] = None,
        *,
        embedding_model: Union[str, "os.PathLike[str]", Embedder, None] = None,
        timeout: Any = None,
        **options: Any,
    ) -> None:
        with ExitStack() as opened:
            chat = embedder = None
            if isinstance(model, Chat):
                chat = model
            elif model is not None:
                chat = opened.enter_context(Chat(model, **options))
            if isinstance(embedding_model, Embedder):
                embedder = embedding_model
            elif embedding_model is not None:
                embedder = opened.enter_context(Embedder(embedding_model))
            self._opened = opened.pop_all()
        self._models = (chat, embedder)
        self.chat = ChatResource(Completions(chat, timeout))
        self.beta = BetaResource(self.chat)
        self.embeddings = EmbeddingResource(embedder, timeout)
        self.models = Models([name_of(each) for each in (chat, embedder) if each is not None])

    def with_options(self, *, timeout: Any = None, max_retries: Optional[int] = None) -> OpenAI:
        """Returns a client for the same models with another `timeout`. Closing it closes nothing.

        `max_retries` has no effect, because there is no connection that fails.
        """
        chat, embedder = self._models
        return OpenAI(chat, embedding_model=embedder, timeout=timeout)

    def close(self) -> None:
        """Closes what the client opened. Idempotent."""
        self._opened.close()


class ChatResource:
    """`client.chat`."""

    def __init__(self, completions: Completions) -> None:
        self.completions = completions


class BetaResource:
    """`client.beta`: the former place of `client.chat.completions.parse` and `.stream`."""

    def __init__(self, chat: ChatResource) -> None:
        self.chat = chat


class Models:
    """`client.models`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def list(self) -> ModelPage:
        """Returns a page with the client's models."""
        return ModelPage([model_entry(name) for name in self._names])

    def retrieve(self, model: str) -> Model:
        """Returns a model's entry. Raises LlbError with `MODEL_NOT_FOUND` for an unknown one."""
        with PACKAGE_ERRORS:
            if model not in self._names:
                names = ", ".join(self._names)
                raise LlbError("MODEL_NOT_FOUND", f"no model {model}; the client has {names}")
        return model_entry(model)


class ModelPage(Record):
    """The result of `models.list`. Iterates over its entries."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__({"data": list(models), "object": "list"})

    def __iter__(self) -> Iterator[Model]:
        return iter(self.data)


class EmbeddingResource:
    """`client.embeddings`."""

    def __init__(self, embedder: Optional[Embedder], timeout: Any) -> None:
        self._embedder = embedder
        self._timeout = timeout

    def create(
        self, *, input: Union[str, Sequence[str]], **parameters: Any
    ) -> CreateEmbeddingResponse:
        """As in `openai`, but with texts only. Raises what `Embedder.embed` raises."""
        with PACKAGE_ERRORS:
            embedder = require(self._embedder, "embedding_model")
            model, request = embed_request(embedder, parameters, self._timeout)
            return embeddings(embedder.embed(plain(input), **request), model)


class Completions:
    """`client.chat.completions`."""

    def __init__(self, chat: Optional[Chat], timeout: Any) -> None:
        self._opened = chat
        self._timeout = timeout

    @property
    def _chat(self) -> Chat:
        return require(self._opened, "model")

    @overload
    def create(
        self, *, messages: Sequence[Any], stream: Optional[Literal[False]] = None, **parameters: Any
    ) -> ChatCompletion: ...
    @overload
    def create(
        self, *, messages: Sequence[Any], stream: Literal[True], **parameters: Any
    ) -> ChunkStream: ...
    @overload
    def create(
        self, *, messages: Sequence[Any], stream: Optional[bool] = None, **parameters: Any
    ) -> Union[ChatCompletion, ChunkStream]: ...
    def create(
        self, *, messages: Sequence[Any], stream: Optional[bool] = None, **parameters: Any
    ) -> Union[ChatCompletion, ChunkStream]:
        """As in `openai`: a `ChatCompletion`, or with `stream=True` an iterator over chunks."""
        with PACKAGE_ERRORS:
            model, request = chat_request(self._chat, parameters, self._timeout)
            if stream:
                chunked = self._chat.create(plain(messages), stream=True, **request)
                return ChunkStream(chunked, model)
            reply = cast(Reply, self._chat.create(plain(messages), **request))
            return completion(reply, model)

    def parse(
        self, *, messages: Sequence[Any], response_format: Any = None, **parameters: Any
    ) -> ChatCompletion:
        """As in `openai`: `choices[0].message.parsed` is a value of the type `response_format`.

        `parsed_arguments` of the calls of strict tools are values too. Raises what `Chat.parse`
        raises.
        """
        with PACKAGE_ERRORS:
            types = ReplyTypes(response_format, parameters.get("tools"))
            model, request = chat_request(self._chat, types.request(parameters), self._timeout)
            reply = cast(Reply, self._chat.create(plain(messages), **request))
            return types.parse(completion(reply, model), reply)

    def stream(
        self, *, messages: Sequence[Any], response_format: Any = None, **parameters: Any
    ) -> EventStream:
        """As in `openai`: a context manager and an iterator over events, which have a `type`.

        The types are those of `parse`.
        """
        with PACKAGE_ERRORS:
            types = ReplyTypes(response_format, parameters.get("tools"))
            model, request = chat_request(self._chat, types.request(parameters), self._timeout)
            stream = self._chat.create(plain(messages), stream=True, **request)
            return EventStream(stream, model, types)
