"""Failures of the client in the shape of openai's, as exceptions of that package too.

A program that catches `openai.BadRequestError` has imported the package. Only then do failures get
its class, next to that of `LlbError`. The package is never imported here.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Tuple, Type, cast

from .._errors import LlbError, ReplyTruncated
from .shape import completion

# The status with which `llb serve` would answer, by code. 500 for all others.
_STATUS = {
    "INVALID_REQUEST": 400,
    "CONTEXT_OVERFLOW": 400,
    "SCHEMA_UNSUPPORTED": 400,
    "TEMPLATE_ERROR": 400,
    "TEMPLATE_LIMIT": 400,
    "MODEL_NOT_FOUND": 404,
    "OUT_OF_MEMORY": 503,
    "ENGINE_CLOSED": 503,
    "BUSY": 503,
    "CANCELLED": 503,
}
_CODES = {"INVALID_REQUEST": None, "CONTEXT_OVERFLOW": "context_length_exceeded"}
_NAMES = {400: "BadRequestError", 404: "NotFoundError"}


class PackageErrors:
    """A context manager that makes an LlbError also the package's exception of its kind.

    `status_code`, `body`, `param` and `type` are as `llb serve` would answer. `code` and `message`
    are those of LlbError. There is no server, so `request`, `response` and `request_id` are None.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        if isinstance(error, LlbError) and "openai" in sys.modules:
            _adopt(error, sys.modules["openai"])


PACKAGE_ERRORS = PackageErrors()

_CLASSES: Dict[Tuple[Type[LlbError], Type[Exception]], Type[LlbError]] = {}


def _adopt(error: LlbError, package: Any) -> None:
    if isinstance(error, ReplyTruncated):
        name = "LengthFinishReasonError"
        members: Dict[str, Any] = {"completion": completion(error.reply, "llb")}
    else:
        status = _STATUS.get(error.code, 500)
        name = _NAMES.get(status, "InternalServerError")
        members = _answer(error, status)
    theirs = getattr(package, name, None)
    if isinstance(theirs, type) and not isinstance(error, theirs):
        cast(Any, error).__class__ = _both(type(error), cast(Type[Exception], theirs))
        vars(error).update(members)


def _answer(error: LlbError, status: int) -> Dict[str, Any]:
    path, colon, _ = error.message.partition(": ")
    has_path = error.code in ("INVALID_REQUEST", "SCHEMA_UNSUPPORTED") and colon
    param = path if has_path and " " not in path else None
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = _CODES.get(error.code, error.code.lower())
    body = {"message": error.message, "type": kind, "param": param, "code": code}
    absent = {"request": None, "response": None, "request_id": None}
    return {"status_code": status, "body": body, "param": param, "type": kind, **absent}


def _both(ours: Type[LlbError], theirs: Type[Exception]) -> Type[LlbError]:
    """Returns a class of exceptions that are both. They are pickled as `ours`."""
    known = _CLASSES.get((ours, theirs))
    if known is not None:
        return known

    def reduced(self: LlbError) -> Tuple[Any, ...]:
        return (ours, *ours.__reduce__(self)[1:])

    members = {"__reduce__": reduced, "__module__": ours.__module__, "__doc__": ours.__doc__}
    return _CLASSES.setdefault((ours, theirs), type(ours.__name__, (ours, theirs), members))
