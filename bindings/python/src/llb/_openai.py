"""`OpenAI`: a client in the shape of the `openai` package's, for a model in this process."""

from __future__ import annotations

import os
from typing import (
    Any,
    Dict,
    Iterator,
    List,
    Literal,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    cast,
    overload,
)

from ._chat import Chat
from ._closing import Closing
from ._errors import LlbError
from ._openai_shape import (
    ChatCompletion,
    ChatCompletionChunk,
    Model,
    Record,
    chunks,
    completion,
    model_entry,
    plain,
)
from ._parse import parsed, with_format
from ._stream import Stream
from .types import Reply

T = TypeVar("T", bound=Record)

# Parameters of the package that change nothing here.
_WITHOUT_EFFECT = {
    "extra_headers",
    "extra_query",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
}


class OpenAI(Closing):
    """A client for one model, used like `openai.OpenAI`.

    `client.chat.completions.create`, `.parse` and `.stream`, and `client.models.list`, take the
    package's parameters and those of `Chat.create`, and return objects with its attributes and
    `model_dump`. `model` is a GGUF file or an open `Chat`, which the client then does not close.
    `options` are those of `Chat`. The `model` of a request is only a name, which is returned.

    `n` must be 1. `timeout` is in seconds. Failures are `LlbError`s. `finish_reason` may be
    "cancelled".
    """

    def __init__(self, model: Union[str, "os.PathLike[str]", Chat], **options: Any) -> None:
        self._owned = not isinstance(model, Chat)
        self._chat = model if isinstance(model, Chat) else Chat(model, **options)
        self.chat = ChatResource(Completions(self._chat))
        self.models = Models(self._chat)

    def close(self) -> None:
        """Closes the chat that the client opened. Idempotent."""
        if self._owned:
            self._chat.close()


class ChatResource:
    """`client.chat`."""

    def __init__(self, completions: Completions) -> None:
        self.completions = completions


class Models:
    """`client.models`."""

    def __init__(self, chat: Chat) -> None:
        self._name = _name(chat)

    def list(self) -> ModelPage:
        """Returns a page with the model of the client."""
        return ModelPage([model_entry(self._name)])

    def retrieve(self, model: str) -> Model:
        """Returns the entry of a model. Raises LlbError with `MODEL_NOT_FOUND` for another one."""
        if model != self._name:
            raise LlbError("MODEL_NOT_FOUND", f"no model {model}; the client has {self._name}")
        return model_entry(self._name)


class ModelPage(Record):
    """The result of `models.list`. Iterates over its entries."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__({"data": list(models), "object": "list"})

    def __iter__(self) -> Iterator[Model]:
        return iter(self.data)


class Completions:
    """`client.chat.completions`."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

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
        """As `openai`'s: a `ChatCompletion`, or with `stream=True` an iterator over chunks."""
        model, request = self._request(parameters)
        if stream:
            return ChunkStream(self._chat.create(plain(messages), stream=True, **request), model)
        reply = cast(Reply, self._chat.create(plain(messages), **request))
        return completion(reply, model)

    def parse(
        self, *, messages: Sequence[Any], response_format: Type[Any], **parameters: Any
    ) -> ChatCompletion:
        """As `openai`'s: `choices[0].message.parsed` is a value of the type `response_format`.

        Raises what `Chat.parse` raises.
        """
        model, request = self._request(parameters)
        typed = with_format(request, response_format)
        reply = cast(Reply, self._chat.create(plain(messages), **typed))
        value = None if reply["tool_calls"] else parsed(reply, response_format)
        return completion(reply, model, value, typed=True)

    def stream(self, *, messages: Sequence[Any], **parameters: Any) -> EventStream:
        """As `openai`'s: a context manager and iterator over events, by their `type`."""
        model, request = self._request(parameters)
        return EventStream(self._chat.create(plain(messages), stream=True, **request), model)

    def _request(self, parameters: Dict[str, Any]) -> Any:
        """Splits off the name of the model, and returns what `Chat.create` takes."""
        given = {
            name: plain(value)
            for name, value in parameters.items()
            # The package's marks for an absent value.
            if type(value).__name__ not in ("NotGiven", "Omit") and name not in _WITHOUT_EFFECT
        }
        model = given.pop("model", None) or _name(self._chat)
        if given.pop("n", None) not in (None, 1):
            raise LlbError("INVALID_REQUEST", "n: must be 1; call create for each reply")
        timeout = given.pop("timeout", None)
        if timeout is not None:
            given["timeout_ms"] = int(timeout * 1000)
        return model, given


class RecordStream(Closing, Iterator[T]):
    """An iterator over what is made of the chunks of a reply. `with` ends the reply."""

    def __init__(self, stream: Stream, model: str) -> None:
        self._stream = stream
        self._model = model
        self._records = self._all()

    def close(self) -> None:
        """Cancels the reply if it still runs."""
        self._stream.close()

    def _all(self) -> Iterator[T]:
        raise NotImplementedError

    def __next__(self) -> T:
        return next(self._records)


class ChunkStream(RecordStream[ChatCompletionChunk]):
    """The chunks of a reply."""

    def _all(self) -> Iterator[ChatCompletionChunk]:
        for chunk in self._stream:
            yield from chunks(chunk, self._model)


class EventStream(RecordStream[Record]):
    """The events of a reply: `chunk`, `content.delta`, `content.done`,
    `tool_calls.function.arguments.delta` and `tool_calls.function.arguments.done`."""

    def get_final_completion(self) -> ChatCompletion:
        """Reads the rest, and returns the whole reply."""
        return completion(self._stream.until_done(), self._model)

    def until_done(self) -> EventStream:
        """Reads the rest."""
        self._stream.until_done()
        return self

    def _all(self) -> Iterator[Record]:
        text = ""
        calls: List[Dict[str, Any]] = []
        for raw in self._stream:
            for chunk in chunks(raw, self._model):
                yield Record({"type": "chunk", "chunk": chunk})
            for choice in raw["choices"]:
                piece = choice["delta"].get("content")
                if piece:
                    text += piece
                    yield Record({"type": "content.delta", "delta": piece, "snapshot": text})
                for part in choice["delta"].get("tool_calls", []):
                    if part["index"] == len(calls):
                        calls.append({"name": part["function"].get("name"), "arguments": ""})
                    call = calls[part["index"]]
                    piece = part["function"].get("arguments", "")
                    call["arguments"] += piece
                    if piece:
                        kind = "tool_calls.function.arguments.delta"
                        place = {"type": kind, "index": part["index"], "arguments_delta": piece}
                        yield Record({**place, **call})
        if text:
            yield Record({"type": "content.done", "content": text})
        reply = self._stream.reply
        for index, done in enumerate(reply["tool_calls"] if reply else []):
            place = {"type": "tool_calls.function.arguments.done", "index": index}
            yield Record({**place, "name": done["name"], "arguments": done["arguments"]})


def _name(chat: Chat) -> str:
    return os.path.basename(chat.path or "") or "llb"
