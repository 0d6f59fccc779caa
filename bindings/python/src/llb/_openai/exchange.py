"""`Exchange`: a request to the library, and the writer of its answer."""

from __future__ import annotations

import json
import uuid
from typing import Any, Dict, List, Mapping, Optional, cast

from .._errors import LlbError


class Writer:
    """Writes the answer to a request: a body, or server-sent events."""

    def whole(self, reply: Mapping[str, Any]) -> Dict[str, Any]:
        """The body for a reply."""
        raise NotImplementedError

    def start(self) -> str:
        """The events before the first chunk."""
        return ""

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        """The events for a chunk of the library."""
        raise NotImplementedError

    def end(self, reply: Mapping[str, Any]) -> str:
        """The events after the last chunk."""
        raise NotImplementedError

    def error(self, error: LlbError) -> str:
        """The events for a failure after the first chunk."""
        raise NotImplementedError


class Exchange:
    """A function of the library and its request. Without a function, only the answer."""

    def __init__(
        self,
        function: Optional[str],
        request: Mapping[str, Any],
        writer: Writer,
        stream: bool = False,
    ) -> None:
        self.function = function
        # A member that is null is absent.
        self.request = {name: value for name, value in request.items() if value is not None}
        self.writer = writer
        self.stream = stream


def object_in(members: Mapping[str, Any], name: str) -> Dict[str, Any]:
    """Returns the object of this name; an empty one if it is absent."""
    value: Any = members.get(name)
    return cast("Dict[str, Any]", value) if isinstance(value, dict) else {}


def list_in(members: Mapping[str, Any], name: str) -> List[Any]:
    """Returns the list of this name; an empty one if it is absent."""
    value: Any = members.get(name)
    return cast("List[Any]", value) if isinstance(value, list) else []  # type: ignore[redundant-cast]


def new_id(prefix: str) -> str:
    """Returns a new id."""
    return f"{prefix}{uuid.uuid4().hex}"


def event(data: Mapping[str, Any], name: Optional[str] = None) -> str:
    """The text of a server-sent event."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
