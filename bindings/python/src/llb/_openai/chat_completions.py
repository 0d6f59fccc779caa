"""`/chat/completions`: the library's request and replies are nearly those of OpenAI."""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping, Optional

from .._errors import LlbError
from .._model_info import version
from .errors import answer, invalid
from .exchange import Exchange, Writer, event, new_id

# Members that the library does not get: the server's own, and some without an effect here.
_OWN = {
    "metadata",
    "modalities",
    "model",
    "n",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_format",
    "user",
    "verbosity",
}


def begin(body: Mapping[str, Any], model: str) -> Exchange:
    """Returns the exchange for the body of a request. Raises LlbError for one that is refused."""
    if body.get("n") not in (None, 1):
        raise invalid("n", "must be 1; send a request for each reply")
    if body.get("modalities") not in (None, ["text"]):
        raise invalid("modalities", 'only "text" is supported')
    for name, instead in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(name) is not None:
            raise invalid(name, f"is not supported; use `{instead}`")
    request = {name: value for name, value in body.items() if name not in _OWN}
    stream = body.get("stream") is True
    if not stream:
        request.pop("stream_options", None)
    options: Any = request.get("stream_options") or {}
    writer = ChunkWriter(model, stream and options.get("include_usage") is True)
    return Exchange("llb_chat_infer", request, writer, stream)


class ChunkWriter(Writer):
    """Writes a `chat.completion`, or chunks of it."""

    def __init__(self, model: str, has_usage: bool) -> None:
        self._id = new_id("chatcmpl-")
        self._model = model
        self._has_usage = has_usage
        self._last: Dict[str, Any] = {}

    def whole(self, reply: Mapping[str, Any]) -> Dict[str, Any]:
        """The completion."""
        choice = {
            "index": 0,
            "message": {"content": None, "refusal": None, **reply["message"]},
            "logprobs": reply.get("logprobs"),
            "finish_reason": _finish_reason(reply["finish_reason"]),
        }
        completion = {
            "id": self._id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [choice],
            "usage": reply["usage"],
            "timings": _timings(reply),
            "system_fingerprint": version(),
        }
        for name in ("polyfills_applied", "ignored_keys", "diagnostics"):
            if reply.get(name):
                completion[name] = reply[name]
        return completion

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        """A chunk. If the request asks for the usage, it comes in a chunk of its own."""
        members: Dict[str, Any] = {**chunk, "id": self._id, "model": self._model}
        members["system_fingerprint"] = version()
        (choice,) = chunk["choices"]
        members["choices"] = [{**choice, "finish_reason": _finish_reason(choice["finish_reason"])}]
        if not members.get("diagnostics"):
            members.pop("diagnostics", None)
        if self._has_usage:
            self._last = {**members, "usage": members.get("usage")}
            members["usage"] = None
        return event(members)

    def end(self, reply: Mapping[str, Any]) -> str:
        """The usage, and the mark of the end."""
        text = ""
        if self._has_usage:
            left_out = ("diagnostics", "ignored_keys", "polyfills_applied")
            last = {name: self._last[name] for name in self._last if name not in left_out}
            last["choices"] = []
            last["usage"], last["timings"] = reply["usage"], _timings(reply)
            text = event(last)
        return text + "data: [DONE]\n\n"

    def error(self, error: LlbError) -> str:
        """The failure."""
        return event(answer(error)[1])


def _timings(reply: Mapping[str, Any]) -> Dict[str, Any]:
    """The times of a reply, with the counts that llama.cpp's server gives beside them."""
    usage, timings = reply["usage"], dict(reply["timings"])
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    timings["cache_n"] = cached
    counts = {
        "prompt": usage["prompt_tokens"] - cached,
        "predicted": usage["completion_tokens"],
    }
    for phase, tokens in counts.items():
        timings[f"{phase}_n"] = tokens
        timings[f"{phase}_per_token_ms"] = timings[f"{phase}_ms"] / max(tokens, 1)
    return timings


def _finish_reason(reason: Optional[str]) -> Optional[str]:
    """OpenAI's clients know no `cancelled`."""
    return "length" if reason == "cancelled" else reason
