"""`ReplyTypes`: the types of a reply and its calls, for the client in openai's shape."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, cast

from .._json_value import from_json
from .shape import ChatCompletion
from .._parse import parsed, refuse_truncated, with_format
from .partial_json import partial_json
from ..types import Reply


class ReplyTypes:
    """The types that a program expects in replies: of `response_format`, and of strict tools.

    The arguments of a tool made by `openai.pydantic_function_tool` become a value of its model,
    those of another strict tool plain JSON values. All others are not parsed.
    """

    def __init__(self, response_format: Any, tools: Optional[Sequence[Any]]) -> None:
        absent = type(response_format).__name__ in ("NotGiven", "Omit")
        self._given = None if absent else response_format
        self._type: Any = None if isinstance(self._given, Mapping) else self._given
        self._tools = _strict_tools(tools)

    def request(self, parameters: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the parameters with the `response_format`.

        Raises TypeError for a type that JSON cannot represent, and for parameters with a grammar.
        """
        if self._type is None:
            return {**parameters, "response_format": self._given}
        return with_format(parameters, self._type)

    def content_so_far(self, text: str) -> Any:
        """The beginning of a reply as plain JSON, without cut-off parts. None without a type."""
        return None if self._type is None else partial_json(text)

    def content(self, reply: Reply) -> Any:
        """The value of a reply. None without a type, and for a reply that calls tools.

        Raises what `Chat.parse` raises. With strict tools, ReplyTruncated may be about a call.
        """
        if self._tools:
            refuse_truncated(reply)
        return None if self._type is None or reply["tool_calls"] else parsed(reply, self._type)

    def arguments_so_far(self, name: str, text: str) -> Any:
        """The beginning of arguments as plain JSON. None for a tool that is not strict."""
        return partial_json(text) if name in self._tools else None

    def arguments(self, name: str, text: str) -> Any:
        """The value of arguments. None for a tool that is not strict.

        Raises ValueError for arguments that do not fit, as pydantic does.
        """
        return from_json(text, self._tools[name]) if name in self._tools else None

    def parse(self, completion: ChatCompletion, reply: Reply) -> ChatCompletion:
        """Adds `parsed` and `parsed_arguments` to the message of a reply."""
        message = completion.choices[0].message
        message.parsed = self.content(reply)
        calls: List[Any] = message.tool_calls or []
        for function in (call.function for call in calls):
            function.parsed_arguments = self.arguments(function.name, function.arguments)
        return completion


def _strict_tools(tools: Any) -> Dict[str, Any]:
    """The types of the arguments of strict tools, by the tools' names."""
    types: Dict[str, Any] = {}
    for tool in cast(List[Any], tools if isinstance(tools, (list, tuple)) else []):
        function: Any = cast(Mapping[str, Any], tool).get("function")
        if isinstance(function, Mapping):
            function = cast(Any, function)
            if function.get("strict"):
                types[str(function.get("name"))] = getattr(function, "model", Any)
    return types
