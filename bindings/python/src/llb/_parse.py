"""Typed replies: a type becomes `response_format`, and a reply becomes a value of the type."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Mapping, Type, TypeVar

from ._errors import ReplyInvalid, ReplyRefused, ReplyTruncated
from ._json_schema import schema_of
from ._json_value import from_json
from .types import Reply

T = TypeVar("T")

# What lets small models fill a type: they have read its names and descriptions, and neither repeat
# the items of a list nor continue it until the context is full.
TYPED_DEFAULTS: Dict[str, Any] = {
    "schema_in_prompt": True,
    "bound_schema": True,
    "repeat_penalty": 1.1,
}


def with_format(parameters: Mapping[str, Any], reply_type: Any) -> Dict[str, Any]:
    """Returns the parameters with the `response_format` of a type, and with `TYPED_DEFAULTS`.

    Raises TypeError for a type that JSON cannot represent, and for parameters that have a format.
    """
    for name in ("response_format", "grammar"):
        if parameters.get(name) is not None:
            raise TypeError(f"parse() takes no {name}: the type of the reply sets it")
    name = re.sub(r"\W+", "_", getattr(reply_type, "__name__", str(reply_type)))
    schema = {"name": name[:64], "schema": schema_of(reply_type), "strict": True}
    typed = {**parameters, "response_format": {"type": "json_schema", "json_schema": schema}}
    for member, value in TYPED_DEFAULTS.items():
        if typed.get(member) is None:
            typed[member] = value
    return typed


def refuse_truncated(reply: Reply) -> None:
    """Raises ReplyTruncated for a reply that was cut off."""
    reason = reply["finish_reason"]
    if reason in ("length", "cancelled"):
        raise ReplyTruncated(f"the reply was cut off ({reason}); raise max_tokens", reply)


def parsed(reply: Reply, reply_type: Type[T]) -> T:
    """Returns the value that a reply spells.

    Raises ReplyTruncated, ReplyRefused or ReplyInvalid.
    """
    refuse_truncated(reply)
    text = reply["text"]
    try:
        json.loads(text)
    except ValueError as error:
        raise ReplyRefused(f"the reply is not JSON: {text[:200]!r}", reply) from error
    try:
        value: T = from_json(text, reply_type)
    except Exception as error:
        # pydantic and msgspec have their own exceptions.
        raise ReplyInvalid(f"the reply does not fit the type: {error}", reply) from error
    return value
