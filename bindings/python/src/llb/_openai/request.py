"""Converts requests in the openai package's shape to the library's."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Optional, Tuple, TypeVar

from .._errors import LlbError
from .._handle import BaseHandle
from .shape import plain

H = TypeVar("H", bound=BaseHandle)

# Parameters of the package that have no effect here.
_WITHOUT_EFFECT = {
    "extra_headers",
    "extra_query",
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
}


def require(handle: Optional[H], option: str) -> H:
    """Returns the handle that an option of the client opened. Raises LlbError without one."""
    if handle is None:
        raise LlbError("INVALID_REQUEST", f"the client has no {option}; pass one to it")
    return handle


def chat_request(
    handle: BaseHandle, parameters: Mapping[str, Any], timeout: Any = None
) -> Tuple[str, Dict[str, Any]]:
    """Returns the name of the model, and what `Chat.create` takes. Raises LlbError for `n` not 1.

    `timeout` is that of the client, in seconds.
    """
    request = _given(parameters, timeout)
    model = request.pop("model", None) or name_of(handle)
    if request.pop("n", None) not in (None, 1):
        raise LlbError("INVALID_REQUEST", "n: must be 1; call create for each reply")
    modalities = request.pop("modalities", None)
    if modalities not in (None, ["text"]):
        raise LlbError("INVALID_REQUEST", f'modalities: must be ["text"], got {modalities!r}')
    return model, request


def embed_request(
    handle: BaseHandle, parameters: Mapping[str, Any], timeout: Any = None
) -> Tuple[str, Dict[str, Any]]:
    """Returns the model's name, and the arguments of `Embedder.embed`. `timeout` as above."""
    request = _given(parameters, timeout)
    return request.pop("model", None) or name_of(handle), request


def name_of(handle: BaseHandle) -> str:
    """The name of a model, which is the name of its file."""
    return os.path.basename(handle.path or "") or "llb"


def _given(parameters: Mapping[str, Any], timeout: Any = None) -> Dict[str, Any]:
    """Returns the parameters that have a value and an effect here, as plain values."""
    known = {
        name: plain(value)
        for name, value in parameters.items()
        # The package's markers for an absent value.
        if type(value).__name__ not in ("NotGiven", "Omit") and name not in _WITHOUT_EFFECT
    }
    timeout = known.pop("timeout", timeout)
    # `openai.Timeout` has a time for each phase of an exchange with a server.
    timeout = getattr(timeout, "read", timeout)
    if timeout is not None:
        known["timeout_ms"] = int(timeout * 1000)
    return known
