"""Failures as `llb serve` answers them: a status and a body in OpenAI's shape."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from .._errors import LlbError

# The status by code; 500 for all others.
_STATUS = {
    "INVALID_REQUEST": 400,
    "CONTEXT_OVERFLOW": 400,
    "SCHEMA_UNSUPPORTED": 400,
    "TEMPLATE_ERROR": 400,
    "TEMPLATE_LIMIT": 400,
    "GRAMMAR_FAILED": 400,
    "MODEL_NOT_FOUND": 404,
    "OUT_OF_MEMORY": 503,
    "ENGINE_CLOSED": 503,
    "BUSY": 503,
    "CANCELLED": 503,
}
_CODES = {
    "INVALID_REQUEST": None,
    "CONTEXT_OVERFLOW": "context_length_exceeded",
    "MODEL_NOT_FOUND": "model_not_found",
}


def invalid(param: str, problem: str) -> LlbError:
    """The error for a member of a request."""
    return LlbError("INVALID_REQUEST", f"{param}: {problem}")


def answer(error: LlbError) -> Tuple[int, Dict[str, Any]]:
    """Returns the status and the body for a failure."""
    code = error.code
    details: Mapping[str, Any] = error.details or {}
    if details.get("kind") == "grammar_failed":
        # It fails again when the client repeats the request.
        code = "GRAMMAR_FAILED"
    status = _STATUS.get(code, 500)
    path, colon, _ = error.message.partition(": ")
    has_path = error.code in ("INVALID_REQUEST", "SCHEMA_UNSUPPORTED") and colon
    kind = "server_error" if status >= 500 else "invalid_request_error"
    members = {
        "message": error.message,
        "type": "not_found_error" if status == 404 else kind,
        "param": path if has_path and " " not in path else None,
        "code": _CODES.get(code, code.lower()),
    }
    return status, {"error": members}
