"""The structure of Python types, for JSON: scalars, lists, dicts, and types with members.

pydantic and msgspec are never imported here: a program with such a type has imported them.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
import typing
from collections import abc
from typing import Any, Callable, Dict, List, Mapping, Optional, Union, cast

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
    hints = _hints_of_class(hint) if isinstance(hint, type) else {}
    required = _required_members(hint, hints) if isinstance(hint, type) else None
    if required is None:
        name = getattr(hint, "__name__", hint)
        raise TypeError(
            f"{name} has no JSON form; use a dataclass, a TypedDict or a pydantic model"
        )
    return [
        Field(name, hints[name], needed, description_of(hints[name]))
        for name, needed in required.items()
    ]


def _required_members(hint: Any, hints: Mapping[str, Any]) -> Optional[Dict[str, bool]]:
    """The names of a type's members, each with whether it is required. None without members."""
    if dataclasses.is_dataclass(hint):
        return {
            each.name: each.default is dataclasses.MISSING
            and each.default_factory is dataclasses.MISSING
            for each in dataclasses.fields(hint)
            if each.init
        }
    if hasattr(hint, "__required_keys__"):
        required = getattr(hint, "__required_keys__")
        return {name: _is_required(each, name in required) for name, each in hints.items()}
    if hasattr(hint, "_field_defaults"):
        defaults = getattr(hint, "_field_defaults")
        return {name: name not in defaults for name in getattr(hint, "_fields")}
    return None


def hints_of_function(function: Callable[..., Any], name: str) -> Dict[str, Any]:
    """Returns the types of a function's parameters, by name.

    Raises TypeError for an annotation with an undefined name. The type of the result is not read,
    so it may be known to type checkers only.
    """
    inner: Any = inspect.unwrap(getattr(function, "__func__", function))
    annotations = {**getattr(function, "__annotations__", {})}
    annotations.pop("return", None)
    holder = types.SimpleNamespace(__annotations__=annotations)
    try:
        return typing.get_type_hints(holder, getattr(inner, "__globals__", {}), include_extras=True)
    except NameError as error:
        raise _undefined(name, error) from error


def _hints_of_class(hint: type) -> Dict[str, Any]:
    try:
        return typing.get_type_hints(hint, include_extras=True)
    except NameError:
        # A class inside a function, which may contain itself.
        names = {**vars(hint), hint.__name__: hint}
    try:
        return typing.get_type_hints(hint, None, names, include_extras=True)
    except NameError as error:
        raise _undefined(hint.__name__, error) from error


def _undefined(owner: str, error: NameError) -> TypeError:
    return TypeError(
        f"{owner}: {error}; an annotation needs names that are defined in its module at run time"
    )


def _is_required(hint: Any, required: bool) -> bool:
    """What the type says, else `required`. With postponed annotations, only the type knows."""
    wrapper = _wrapper_of(hint)
    while wrapper in ("Annotated", "ReadOnly"):
        hint = typing.get_args(hint)[0]
        wrapper = _wrapper_of(hint)
    return wrapper == "Required" if wrapper in ("Required", "NotRequired") else required


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
    """The type without `Annotated`, `Required` and `NotRequired`, and without names of its own."""
    while True:
        if hasattr(hint, "__metadata__"):
            hint = hint.__origin__
        elif _wrapper_of(hint) in ("Required", "NotRequired", "ReadOnly"):
            hint = typing.get_args(hint)[0]
        elif hasattr(hint, "__supertype__"):
            # `NewType`.
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            # `type X = ...`, from Python 3.12 on.
            hint = hint.__value__
        else:
            return hint


def _wrapper_of(hint: Any) -> Optional[str]:
    origin = typing.get_origin(hint)
    return getattr(origin, "_name", None) or getattr(origin, "__name__", None)


def is_union(origin: Any) -> bool:
    """Whether the origin of a type is that of `Union[X, Y]` or `X | Y`."""
    return origin is Union or (_UnionType is not None and origin is _UnionType)


def is_enum(hint: Any) -> bool:
    """Whether a type is an enum."""
    return isinstance(hint, type) and issubclass(hint, enum.Enum)
