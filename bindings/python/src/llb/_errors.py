"""The exceptions for errors of the library.

An exception raised by a callback of the caller is never wrapped: it is re-raised unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple, cast

if TYPE_CHECKING:
    from .types import Reply

_NOT_TOOL_CAPABLE = "MODEL_NOT_TOOL_CAPABLE"


class LlbError(Exception):
    """A failed call.

    `code` is a stable string to branch on: a code of the library (`INVALID_REQUEST`,
    `MODEL_NOT_FOUND`, `ENGINE_CLOSED`, ...), or `LIBRARY_NOT_FOUND` or `LIBRARY_INCOMPATIBLE` if no
    usable library was found. `message` is for people and begins with the JSON path of an invalid
    field: `messages[2].role: unknown role "assistent"`. `details` has further members that depend
    on the code, or is None.

    `events` are the events of a `Chat` that could not be opened, in order; otherwise empty. `info`
    is the result of a failed `model_info`; otherwise None.
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
        # Pickle passes `args` to the constructor and restores the rest as attributes.
        super().__init__(code, message, details)
        self.code = code
        self.message = message
        self.details = details
        self.events = tuple(events)
        self.info = info

    def __str__(self) -> str:
        """The code, the message and, if the library has one, what to do next."""
        remedy = self._remedy()
        return f"{self.code}: {self.message}" + (f"; {remedy}" if remedy else "")

    def __repr__(self) -> str:
        # `details` may have pages.
        return f"{type(self).__name__}({self.code!r}, {self.message!r})"

    def _remedy(self) -> Optional[str]:
        details: Any = self.details
        if not isinstance(details, dict):
            return None
        found = cast("Dict[str, Any]", details).get("next")
        return found if isinstance(found, str) else None


class ToolsUnsupported(LlbError):
    """The chat template of the model does not support tools (`MODEL_NOT_TOOL_CAPABLE`).

    `details` has the capabilities (`caps`), the checked template (`template_variant`), the
    `evidence`, and what to do next (`next`). `tool_policy="any"` opens the model anyway.
    """


class ReplyError(LlbError):
    """A reply that does not give the caller what was asked for. `reply` is the whole reply."""

    def __init__(self, message: str, reply: Reply) -> None:
        super().__init__(self._code, message)
        self.reply = reply

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.message, self.reply)

    _code = "REPLY_INVALID"


class ReplyInvalid(ReplyError):
    """JSON that does not fit the type of `parse` (`REPLY_INVALID`).

    `__cause__` is the error of the validation, for instance pydantic's.
    """


class ReplyRefused(ReplyError):
    """Text instead of the JSON that `parse` asked for (`REPLY_REFUSED`)."""

    _code = "REPLY_REFUSED"


class ReplyTruncated(ReplyError):
    """A reply that was cut off by `max_tokens`, a cancel or a time-out (`REPLY_TRUNCATED`)."""

    _code = "REPLY_TRUNCATED"


class TooManyRounds(ReplyError):
    """The model of a `run` still called tools after `max_rounds` requests (`TOO_MANY_ROUNDS`)."""

    _code = "TOO_MANY_ROUNDS"


def error_from(error: Mapping[str, Any], events: Sequence[str] = ()) -> LlbError:
    """Returns the exception for the `error` object `{"code", "message", "details"?}` of a reply."""
    code = str(error.get("code", "INTERNAL_BRIDGE_ERROR"))
    kind = ToolsUnsupported if code == _NOT_TOOL_CAPABLE else LlbError
    return kind(code, str(error.get("message", "")), error.get("details"), events=events)
