"""The structure of Python types, for JSON: scalars, lists, dicts, and types with members.

pydantic and msgspec are never imported here: a program with such a type has imported them.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import typing
from collections import abc
from typing import Any, Callable, Dict, List, Optional, Union, cast

try:
    # `X | Y`, from Python 3.10 on.
    from types import UnionType as _UnionType
except ImportError:
    _UnionType = None  # type: ignore[assignment,misc]

SCALARS: Dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
LISTS = (list, set, frozenset, abc.Sequence, abc.Iterable, abc.Collection, abc.Set)
DICTS = (dict, abc.Mapping, abc.MutableMapping)
NONE = type(None)


@dataclasses.dataclass
class Field:
    """A member of a structured type, or a parameter of a function."""

    name: str
    hint: Any
    required: bool
    description: str = ""


def fields_of(hint: Any) -> List[Field]:
    """Returns the members of a dataclass, TypedDict or NamedTuple. Others raise TypeError."""
    if dataclasses.is_dataclass(hint):
        members: Dict[str, bool] = {
            each.name: each.default is dataclasses.MISSING
            and each.default_factory is dataclasses.MISSING
            for each in dataclasses.fields(hint)
            if each.init
        }
    elif hasattr(hint, "__required_keys__"):
        required = getattr(hint, "__required_keys__")
        members = {name: name in required for name in hint.__annotations__}
    elif hasattr(hint, "_field_defaults"):
        defaults = getattr(hint, "_field_defaults")
        members = {name: name not in defaults for name in getattr(hint, "_fields")}
    else:
        name = getattr(hint, "__name__", hint)
        raise TypeError(
            f"{name} has no JSON form; use a dataclass, a TypedDict or a pydantic model"
        )
    hints = typing.get_type_hints(hint, include_extras=True)
    return [
        Field(name, hints[name], required, description_of(hints[name]))
        for name, required in members.items()
    ]


def description_of(hint: Any) -> str:
    """The first text of an `Annotated`, or an empty string."""
    metadata = getattr(hint, "__metadata__", ())
    return next((each for each in metadata if isinstance(each, str)), "")


class TypeLibrary:
    """A library whose types have their own schemas and validation."""

    def __init__(
        self,
        schema: Callable[[Any], Dict[str, Any]],
        from_json: Callable[[str, Any], Any],
        from_value: Callable[[Any, Any], Any],
    ) -> None:
        self.schema = schema
        self.from_json = from_json
        self.from_value = from_value


def library_of(hint: Any) -> Optional[TypeLibrary]:
    """The library of a pydantic model or a msgspec struct, or None."""
    if not isinstance(hint, type):
        return None
    pydantic, msgspec = (cast(Any, sys.modules.get(name)) for name in ("pydantic", "msgspec"))
    if pydantic is not None and issubclass(hint, pydantic.BaseModel):
        return TypeLibrary(
            lambda model: model.model_json_schema(),
            lambda text, model: model.model_validate_json(text),
            lambda value, model: model.model_validate(value),
        )
    if msgspec is not None and issubclass(hint, msgspec.Struct):
        return TypeLibrary(
            lambda struct: dict(msgspec.json.schema(struct)),
            lambda text, struct: msgspec.json.decode(text, type=struct),
            msgspec.convert,
        )
    return None


def bare(hint: Any) -> Any:
    """The type without `Annotated`, `Required` and `NotRequired`."""
    while True:
        origin = typing.get_origin(hint)
        wrapper = getattr(origin, "_name", None) or getattr(origin, "__name__", None)
        if hasattr(hint, "__metadata__"):
            hint = hint.__origin__
        elif wrapper in ("Required", "NotRequired", "ReadOnly"):
            hint = typing.get_args(hint)[0]
        else:
            return hint


def is_union(origin: Any) -> bool:
    """Whether the origin of a type is that of `Union[X, Y]` or `X | Y`."""
    return origin is Union or (_UnionType is not None and origin is _UnionType)


def is_enum(hint: Any) -> bool:
    """Whether a type is an enum."""
    return isinstance(hint, type) and issubclass(hint, enum.Enum)
