"""What the library refused, as exceptions.

In comes an error object of the library's JSON, out goes an exception with a stable code. Exceptions that
a caller's own callback raised are not wrapped: they come back as they were.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

_NOT_TOOL_CAPABLE = "MODEL_NOT_TOOL_CAPABLE"


class LlbError(Exception):
    """A call that failed.

    `code` is a stable string to branch on: one of the library's (`INVALID_REQUEST`, `MODEL_NOT_FOUND`,
    `ENGINE_CLOSED`, ...) or `LIBRARY_NOT_FOUND`, `LIBRARY_INCOMPATIBLE` when there is no library to ask.
    `message` is for people and names the field that was wrong: `messages[2].role: unknown role "assistent"`.
    `details` is what else the library told, or None. `events` are the events of a `Chat` that could not be
    created, in order, else empty. `info` is the reply of `model_info` as it was, else None.
    """

    code: str
    message: str
    details: Optional[Any]
    events: Tuple[str, ...]
    info: Optional[Mapping[str, Any]]

    def __init__(
        self,
        code: str,
        message: str,
        details: Optional[Any] = None,
        *,
        events: Sequence[str] = (),
        info: Optional[Mapping[str, Any]] = None,
    ) -> None:
        # The three in `args` are what pickle passes to the constructor; the rest travels as attributes.
        super().__init__(code, message, details)
        self.code = code
        self.message = message
        self.details = details
        self.events = tuple(events)
        self.info = info

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ToolsUnsupported(LlbError):
    """The gate: the model's chat template cannot carry tools and tool calls (`MODEL_NOT_TOOL_CAPABLE`).

    `details` holds the capabilities, the template variant that was tried, the evidence and what to do next.
    """


def error_from(error: Mapping[str, Any], events: Sequence[str] = ()) -> LlbError:
    """The exception for the `error` object `{"code", "message", "details"?}` of a reply."""
    code = str(error.get("code", "INTERNAL_BRIDGE_ERROR"))
    kind = ToolsUnsupported if code == _NOT_TOOL_CAPABLE else LlbError
    return kind(code, str(error.get("message", "")), error.get("details"), events=events)
