"""Validated conversion between JSON and values of the types that `_json_schema` knows."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import typing
from collections import abc
from typing import Any, Dict, List, Literal, Tuple, cast

from ._json_type import (
    DICTS,
    LISTS,
    NONE,
    SCALARS,
    bare,
    fields_of,
    is_enum,
    is_union,
    library_of,
)


def from_json(text: str, hint: Any) -> Any:
    """Returns the value of type `hint` that JSON text spells.

    Raises ValueError with the JSON path, or what pydantic or msgspec raise.
    """
    library = library_of(hint)
    if library is not None:
        return library.from_json(text, hint)
    return from_value(json.loads(text), hint)


def from_value(value: Any, hint: Any, path: str = "") -> Any:
    """Converts the result of `json.loads` to type `hint`. Raises what `from_json` raises."""
    hint = bare(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    library = library_of(hint)
    if library is not None:
        return library.from_value(value, hint)
    if hint is Any or hint is object:
        return value
    if is_union(origin):
        return _from_alternatives(value, arguments, path)
    if origin is Literal:
        if any(value == each and type(value) is type(each) for each in arguments):
            return value
        raise _mismatch(path, f"one of {list(arguments)}", value)
    kind = origin or hint
    if kind in LISTS or kind is tuple:
        return _from_list(value, kind, arguments, path)
    if kind in DICTS:
        _expect(path, value, dict, "an object")
        member = arguments[1] if arguments else Any
        return {key: from_value(each, member, f"{path}.{key}") for key, each in value.items()}
    if is_enum(hint):
        for each in hint:
            if each.value == value:
                return each
        raise _mismatch(path, f"one of {[each.value for each in hint]}", value)
    if hint in SCALARS or hint in (None, NONE):
        return _from_scalar(value, hint, path)
    return _from_object(value, hint, path)


def to_json(value: Any) -> str:
    """Returns a value of one of these types as JSON text. Other objects become their `str`."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _from_alternatives(value: Any, alternatives: Tuple[Any, ...], path: str) -> Any:
    failures: List[str] = []
    for each in alternatives:
        try:
            return from_value(value, each, path)
        except Exception as error:
            # pydantic and msgspec have their own exceptions.
            failures.append(str(error))
    raise ValueError("; or ".join(failures))


def _from_list(value: Any, kind: Any, arguments: Tuple[Any, ...], path: str) -> Any:
    _expect(path, value, list, "an array")
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise _mismatch(path, f"{len(arguments)} items", value)
        hints = list(arguments)
    else:
        hints = [arguments[0] if arguments else Any] * len(value)
    items = [
        from_value(each, hint, f"{path}[{at}]") for at, (each, hint) in enumerate(zip(value, hints))
    ]
    build: Any = kind if kind in (set, frozenset, tuple) else list
    return build(items)


def _from_scalar(value: Any, hint: Any, path: str) -> Any:
    if hint in (None, NONE):
        hint = NONE
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise _mismatch(path, SCALARS.get(hint, "null"), value)
    return value


def _from_object(value: Any, hint: Any, path: str) -> Any:
    fields = fields_of(hint)
    _expect(path, value, dict, "an object")
    names = {field.name for field in fields}
    unknown = next((key for key in value if key not in names), None)
    if unknown is not None:
        raise ValueError(f"{path}.{unknown}".lstrip(".") + ": unknown member")
    members: Dict[str, Any] = {}
    for field in fields:
        place = f"{path}.{field.name}".lstrip(".")
        if field.name in value:
            members[field.name] = from_value(value[field.name], field.hint, place)
        elif field.required:
            raise ValueError(f"{place}: missing")
    return hint(**members)


def _expect(path: str, value: Any, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise _mismatch(path, name, value)


def _mismatch(path: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"{path or 'the value'}: expected {expected}, found {json.dumps(value)[:80]}")


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(cast("frozenset[Any]", value))
    if isinstance(value, abc.Mapping):
        return {**cast(Dict[Any, Any], value)}
    msgspec = cast(Any, sys.modules.get("msgspec"))
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return str(value)
