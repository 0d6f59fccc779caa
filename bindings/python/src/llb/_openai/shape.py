"""Objects in the shape of the `openai` package's: attributes, `model_dump`, and its members.

The members are those of openai 3.54. Some of them are always None here.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, cast

from ..types import Chunk, ChunkChoice, Embeddings, Reply


class Record:
    """A JSON object with attributes. Objects inside it, and in its lists, are records too."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.__dict__.update({name: _record(value) for name, value in members.items()})

    if TYPE_CHECKING:
        # Type checkers do not know the members.
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        # Called only for other names. Declared for type checkers too.
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def model_dump(
        self, *, exclude_none: bool = False, exclude_unset: bool = False, **_: Any
    ) -> Dict[str, Any]:
        """Returns the members as a dict."""
        leave_out = exclude_none or exclude_unset
        return {
            name: _plain(value, leave_out)
            for name, value in vars(self).items()
            if not (leave_out and value is None)
        }

    def to_dict(self) -> Dict[str, Any]:
        """Returns the members that are not None as a dict."""
        return self.model_dump(exclude_none=True)

    def model_dump_json(self, *, indent: Optional[int] = None, **options: Any) -> str:
        """Returns the members as JSON text."""
        separators = (",", ":") if indent is None else None
        members = self.model_dump(**options)
        return json.dumps(members, indent=indent, separators=separators, ensure_ascii=False)

    def to_json(self, *, indent: Optional[int] = 2) -> str:
        """Returns the members that are not None as JSON text."""
        return self.model_dump_json(indent=indent, exclude_none=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and vars(self) == vars(other)

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({members})"


class ChatCompletion(Record):
    """The reply of `create`."""


class ChatCompletionChunk(Record):
    """A part of a streamed reply."""


class ChatCompletionMessage(Record):
    """The message of a reply. It can be used as a message of the next request."""


class CreateEmbeddingResponse(Record):
    """The vectors of texts."""


class Model(Record):
    """An entry of `models.list`."""


_NO_MESSAGE: Dict[str, Any] = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "annotations": None,
    "audio": None,
    "function_call": None,
    "tool_calls": None,
}


def plain(value: Any) -> Any:
    """Returns a value without records and without objects of the openai package.

    Members of objects that are None are omitted, except `content`.
    """
    if isinstance(value, Record) or hasattr(value, "model_dump"):
        members: Dict[str, Any] = value.model_dump()
        return {
            name: plain(each)
            for name, each in members.items()
            if each is not None or name == "content"
        }
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in cast(Mapping[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in cast(List[Any], value)]
    return value


def completion(reply: Reply, model: str) -> ChatCompletion:
    """Returns a reply in the package's shape."""
    choice = {
        "finish_reason": reply["finish_reason"],
        "index": 0,
        "logprobs": _logprobs(reply["logprobs"]),
        "message": ChatCompletionMessage({**_NO_MESSAGE, **reply["message"]}),
    }
    created = int(time.time())
    members = _envelope(f"chatcmpl-{uuid.uuid4().hex}", "chat.completion", created, model)
    members.update(choices=[choice], metadata=None, usage=_usage(cast(Any, reply["usage"])))
    return ChatCompletion(members)


def begun_completion(chunk: ChatCompletionChunk) -> ChatCompletion:
    """Returns the completion that a stream's chunks are added to. `chunk` is the first chunk."""
    message = ChatCompletionMessage({**_NO_MESSAGE, "parsed": None})
    choice = {"finish_reason": None, "index": 0, "logprobs": None, "message": message}
    members = _envelope(chunk.id, "chat.completion", chunk.created, chunk.model)
    members.update(choices=[choice], metadata=None, usage=None)
    return ChatCompletion(members)


def chunks(chunk: Chunk, model: str) -> Iterator[ChatCompletionChunk]:
    """Yields a chunk in the package's shape. Usage follows in a chunk without choices."""
    members = _envelope(chunk["id"], chunk["object"], chunk["created"], model)
    members["obfuscation"] = None
    yield ChatCompletionChunk(
        {**members, "choices": [_chunk_choice(each) for each in chunk["choices"]], "usage": None}
    )
    usage = chunk.get("usage")
    if usage is not None:
        yield ChatCompletionChunk({**members, "choices": [], "usage": _usage(cast(Any, usage))})


def embeddings(reply: Embeddings, model: str) -> CreateEmbeddingResponse:
    """Returns vectors in the package's shape."""
    members = {"data": reply["data"], "model": model, "object": "list", "usage": reply["usage"]}
    return CreateEmbeddingResponse(members)


def model_entry(name: str) -> Model:
    """Returns the entry of a model in `models.list`."""
    return Model({"id": name, "created": 0, "object": "model", "owned_by": "llb"})


def _envelope(id: str, kind: str, created: int, model: str) -> Dict[str, Any]:
    return {
        "id": id,
        "choices": [],
        "created": created,
        "model": model,
        "object": kind,
        "moderation": None,
        "service_tier": None,
        "system_fingerprint": None,
    }


def _chunk_choice(choice: ChunkChoice) -> Dict[str, Any]:
    delta: Dict[str, Any] = {
        "audio": None,
        "content": None,
        "function_call": None,
        "refusal": None,
        "role": None,
        "tool_calls": None,
        **choice["delta"],
    }
    if delta["tool_calls"]:
        delta["tool_calls"] = [
            {
                "index": each["index"],
                "id": each.get("id"),
                "function": {"arguments": None, "name": None, **each["function"]},
                "type": each.get("type"),
            }
            for each in delta["tool_calls"]
        ]
    return {
        "delta": delta,
        "finish_reason": choice["finish_reason"],
        "index": choice["index"],
        "logprobs": _logprobs(choice.get("logprobs")),
    }


def _usage(usage: Mapping[str, Any]) -> Dict[str, Any]:
    completion_details = usage.get("completion_tokens_details")
    return {
        **usage,
        "completion_tokens_details": completion_details
        and {
            "accepted_prediction_tokens": None,
            "audio_tokens": None,
            "reasoning_tokens": None,
            "rejected_prediction_tokens": None,
            "text_tokens": None,
            **completion_details,
        },
        "prompt_tokens_details": {
            "audio_tokens": None,
            "cache_write_tokens": None,
            "image_tokens": None,
            "text_tokens": None,
            **usage["prompt_tokens_details"],
        },
    }


def _logprobs(logprobs: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    if logprobs is None:
        return None
    content = [
        {**each, "top_logprobs": each.get("top_logprobs", [])} for each in logprobs["content"]
    ]
    return {"content": content, "refusal": None}


def _record(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Record(cast(Mapping[str, Any], value))
    if isinstance(value, list):
        return list(map(_record, cast("list[Any]", value)))  # type: ignore[redundant-cast]
    return value


def _plain(value: Any, leave_out: bool) -> Any:
    if isinstance(value, Record):
        return value.model_dump(exclude_none=leave_out)
    if isinstance(value, list):
        items = cast("list[Any]", value)  # type: ignore[redundant-cast]
        return [_plain(each, leave_out) for each in items]
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return value
