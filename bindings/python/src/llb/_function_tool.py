"""Tools from Python functions: a schema from signature and docstring, and calls with JSON."""

from __future__ import annotations

import functools
import inspect
import json
import re
from typing import Any, Callable, Dict, List, Mapping, cast

from ._json_schema import object_schema
from ._json_type import Field, description_of, hints_of_function
from ._json_value import from_value, to_json
from .types import Tool

Function = Callable[..., Any]

# Sections of a docstring, in Google's or NumPy's style, that follow the description.
_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?):?\s*$", re.M
)
_SPHINX = re.compile(r"^:(param|parameter|arg|type|returns?|rtype|raises)\b", re.M)


class FunctionTool:
    """A function that a model may call.

    The name of the tool is that of the function, its description the docstring without sections.
    Parameters are described by `Annotated[str, "..."]` or by the docstring: `Args:` with
    `name: ...`, `:param name: ...`, or NumPy's `Parameters`. Raises TypeError for a function
    without a name, and for a parameter without annotation or of a type that JSON cannot represent.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        whole = function
        while isinstance(whole, functools.partial):
            whole = cast(Any, whole).func
        self.name = getattr(whole, "__name__", type(whole).__name__)
        if not self.name.isidentifier():
            raise TypeError(f"{self.name} is no name for a tool; write the function with def")
        self.is_async = inspect.iscoroutinefunction(function)
        doc = inspect.getdoc(whole) or ""
        self._description = _description(doc)
        hints = hints_of_function(whole if inspect.isroutine(whole) else _call_of(whole), self.name)
        self._fields = _parameters(self.name, function, hints, doc)

    def schema(self) -> Tool:
        """The tool in OpenAI's shape."""
        described = {"description": self._description} if self._description else {}
        parameters = object_schema(self._fields)
        function = {"name": self.name, **described, "parameters": parameters}
        return {"type": "function", "function": function}

    def call(self, arguments: str) -> Any:
        """Calls the function with a JSON object. Raises ValueError if it does not fit.

        Returns what the function returns: for a coroutine function, a coroutine.
        """
        values: Any = json.loads(arguments)
        if not isinstance(values, dict):
            raise ValueError(f"the arguments: expected an object, found {arguments[:80]}")
        values = cast(Dict[str, Any], values)
        hints = {field.name: field.hint for field in self._fields}
        for name in values:
            if name not in hints:
                raise ValueError(f"{name}: unknown argument")
        for field in self._fields:
            if field.required and field.name not in values:
                raise ValueError(f"{field.name}: missing argument")
        named = {name: from_value(value, hints[name], name) for name, value in values.items()}
        return self.function(**named)


def content_of(result: object) -> str:
    """A result as the content of a tool message. Text is used as it is, all else as JSON."""
    return result if isinstance(result, str) else to_json(result)


def error_content(error: BaseException) -> str:
    """An exception as the content of a tool message."""
    return to_json({"error": f"{type(error).__name__}: {error}"})


def _description(doc: str) -> str:
    for section in (_SECTION, _SPHINX):
        found = section.search(doc)
        if found is not None:
            doc = doc[: found.start()]
    return doc.strip()


def _call_of(instance: object) -> Function:
    """The method that runs when an object is called."""
    return cast(Function, getattr(instance, "__call__"))


def _parameters(name: str, function: Function, hints: Mapping[str, Any], doc: str) -> List[Field]:
    fields: List[Field] = []
    for each in inspect.signature(function).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise TypeError(f"{name}: a tool cannot have the parameter {each}")
        if each.name not in hints:
            raise TypeError(f"{name}: the parameter {each.name} has no type annotation")
        hint = hints[each.name]
        description = description_of(hint) or _described(doc, each.name)
        fields.append(Field(each.name, hint, each.default is each.empty, description))
    return fields


def _described(doc: str, name: str) -> str:
    """The description of a parameter in a docstring, as one line."""
    name = re.escape(name)
    patterns = (
        # Sphinx: `:param str city: The city.`
        rf"^:(?:param|parameter|arg)\s+(?:[^:\n]*\s)?{name}:\s*(?P<text>.+(?:\n[ \t]+\S.*)*)",
        # Google: `    city (str): The city.`
        rf"^(?P<indent>[ \t]+){name}(?:\s*\([^)\n]*\))?:\s*"
        r"(?P<text>.+(?:\n(?P=indent)[ \t]+\S.*)*)",
        # NumPy: `city : str` with the text on the following lines.
        rf"^{name}(?:\s*:[^\n]*)?\n(?P<text>(?:[ \t]+\S.*\n?)+)",
    )
    for pattern in patterns:
        found = re.search(pattern, doc, re.M)
        if found is not None:
            return " ".join(found.group("text").split())
    return ""
