"""The JSON Schema of a Python type.

Knows None, bool, int, float, str, Any, Literal, enums, Optional and Union, lists, tuples, sets,
dicts with str keys, dataclasses, TypedDicts and NamedTuples, pydantic models and msgspec structs.
"""

from __future__ import annotations

import typing
from collections import abc
from typing import Any, Dict, List, Literal

from ._json_type import (
    DICTS,
    LISTS,
    NONE,
    SCALARS,
    Field,
    bare,
    fields_of,
    is_enum,
    is_union,
    library_of,
)


def schema_of(hint: Any) -> Dict[str, Any]:
    """Returns the JSON Schema of a type. Raises TypeError for a type that JSON cannot represent."""
    builder = _SchemaBuilder()
    return builder.with_definitions(builder.schema(hint))


def object_schema(fields: List[Field]) -> Dict[str, Any]:
    """Returns the JSON Schema of an object with these members and no others."""
    builder = _SchemaBuilder()
    return builder.with_definitions(builder.members(fields))


class _SchemaBuilder:
    def __init__(self) -> None:
        self._definitions: Dict[str, Any] = {}
        self._names: Dict[Any, str] = {}

    def with_definitions(self, schema: Dict[str, Any]) -> Dict[str, Any]:
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def schema(self, hint: Any) -> Dict[str, Any]:
        hint = bare(hint)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        library = library_of(hint)
        if library is not None:
            return self._foreign(library.schema(hint))
        if hint is Any or hint is object:
            return {}
        if is_union(origin):
            return {"anyOf": [self.schema(each) for each in arguments]}
        if origin is Literal:
            return {"enum": list(arguments)}
        kind = origin or hint
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            items = [self.schema(each) for each in arguments]
            count = len(items)
            return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
        if kind in LISTS or kind is tuple:
            unique = {"uniqueItems": True} if kind in (set, frozenset, abc.Set) else {}
            return {
                "type": "array",
                **unique,
                "items": self.schema(arguments[0] if arguments else Any),
            }
        if kind in DICTS:
            if arguments and arguments[0] is not str:
                raise TypeError(f"{hint!r}: keys of JSON objects are str")
            return {
                "type": "object",
                "additionalProperties": self.schema(arguments[1]) if arguments else True,
            }
        if is_enum(hint):
            return {"enum": [each.value for each in hint]}
        if hint in SCALARS:
            return {"type": SCALARS[hint]}
        if hint in (None, NONE):
            return {"type": "null"}
        return self._named(hint)

    def members(self, fields: List[Field]) -> Dict[str, Any]:
        properties: Dict[str, Any] = {}
        for field in fields:
            described = {"description": field.description} if field.description else {}
            properties[field.name] = {**self.schema(field.hint), **described}
        return {
            "type": "object",
            "properties": properties,
            "required": [field.name for field in fields if field.required],
            "additionalProperties": False,
        }

    def _named(self, hint: Any) -> Dict[str, Any]:
        # Types are defined by name, so that a type may contain itself.
        if hint not in self._names:
            fields = fields_of(hint)
            name = self._names[hint] = self._free_name(hint.__name__)
            self._definitions[name] = None
            self._definitions[name] = self.members(fields)
        return {"$ref": f"#/$defs/{self._names[hint]}"}

    def _foreign(self, schema: Dict[str, Any]) -> Dict[str, Any]:
        for name, definition in schema.pop("$defs", {}).items():
            if self._definitions.setdefault(name, definition) != definition:
                raise TypeError(f"two types of the name {name}")
        return schema

    def _free_name(self, name: str) -> str:
        while name in self._definitions:
            name += "_"
        return name
