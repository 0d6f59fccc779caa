"""The reply to `/responses`: chunks of the library become items and their events."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional

from .._errors import LlbError
from .errors import answer
from .exchange import Exchange, Writer, event, list_in, new_id, object_in
from .responses_input import library_request


def begin(body: Mapping[str, Any], model: str) -> Exchange:
    """Returns the exchange for the body of a request. Raises LlbError for one that is refused."""
    request = library_request(body)
    return Exchange(
        "llb_chat_infer", request, ResponseWriter(body, model), body.get("stream") is True
    )


class ResponseWriter(Writer):
    """Writes a response, or the events of one. A new kind of delta begins a new item."""

    def __init__(self, body: Mapping[str, Any], model: str) -> None:
        defaults: Dict[str, Any] = {
            "instructions": None,
            "max_output_tokens": None,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "metadata": {},
        }
        given = {name: body[name] for name in defaults if body.get(name) is not None}
        self._response: Dict[str, Any] = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "store": False,
            "usage": None,
            "background": False,
            **defaults,
            **given,
        }
        self._items: List[Dict[str, Any]] = []
        self._open: Optional[str] = None
        self._text = ""
        self._logprobs: List[Any] = []
        self._sequence_number = 0

    def whole(self, reply: Mapping[str, Any]) -> Dict[str, Any]:
        """The response."""
        message = reply["message"]
        delta = {name: message.get(name) for name in ("reasoning_content", "content", "tool_calls")}
        logprobs = reply.get("logprobs")
        self.chunk({"choices": [{"delta": delta, "logprobs": logprobs}]})
        self.end(reply)
        return self._response

    def start(self) -> str:
        """The first events."""
        return self._about("response.created") + self._about("response.in_progress")

    def chunk(self, chunk: Mapping[str, Any]) -> str:
        """The events for a chunk."""
        choice: Dict[str, Any] = chunk["choices"][0]
        delta: Dict[str, Any] = choice["delta"]
        text = ""
        if delta.get("reasoning_content"):
            text += self._continue("reasoning") + self._append(delta["reasoning_content"])
        if delta.get("content"):
            logprobs = list_in(object_in(choice, "logprobs"), "content")
            text += self._continue("message") + self._append(delta["content"], logprobs)
        for call in list_in(delta, "tool_calls"):
            function = call["function"]
            if function.get("name") is not None:
                text += self._close(False)
                item = {"id": new_id("fc_"), "type": "function_call", "status": "in_progress"}
                more = {"call_id": call["id"], "name": function["name"], "arguments": ""}
                text += self._begin("function_call", {**item, **more})
            if function.get("arguments"):
                text += self._append(function["arguments"])
        return text

    def end(self, reply: Mapping[str, Any]) -> str:
        """The last events."""
        is_cut_off = reply["finish_reason"] in ("length", "cancelled")
        text = self._close(is_cut_off)
        response = self._response
        response["output"] = self._items
        response["usage"] = _usage(reply["usage"])
        if reply.get("diagnostics"):
            response["diagnostics"] = reply["diagnostics"]
        if is_cut_off:
            response["status"] = "incomplete"
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["status"] = "completed"
            response["completed_at"] = int(time.time())
        return text + self._about(f"response.{response['status']}")

    def error(self, error: LlbError) -> str:
        """The events for a failure."""
        text = self._close(True)
        code = answer(error)[1]["error"]["code"] or "server_error"
        self._response["status"] = "failed"
        self._response["error"] = {"code": code, "message": error.message}
        return text + self._about("response.failed")

    def _about(self, name: str) -> str:
        return self._event(name, {"response": self._response})

    def _event(self, name: str, members: Mapping[str, Any]) -> str:
        number = self._sequence_number
        self._sequence_number += 1
        return event({"type": name, "sequence_number": number, **members}, name)

    def _place(self) -> Dict[str, Any]:
        """The members that say which item an event is about."""
        return {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}

    def _continue(self, kind: str) -> str:
        """Continues an open item of this kind, or begins one."""
        if self._open == kind:
            return ""
        item: Dict[str, Any] = {"id": new_id("rs_"), "type": "reasoning", "summary": []}
        part: Dict[str, Any] = {"type": "reasoning_text", "text": ""}
        if kind == "message":
            item = {"id": new_id("msg_"), "type": "message", "role": "assistant"}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        text = self._close(False)
        text += self._begin(kind, {**item, "status": "in_progress", "content": []})
        members = {**self._place(), "content_index": 0, "part": part}
        return text + self._event("response.content_part.added", members)

    def _begin(self, kind: str, item: Dict[str, Any]) -> str:
        self._open = kind
        self._items.append(item)
        members = {"output_index": len(self._items) - 1, "item": item}
        return self._event("response.output_item.added", members)

    def _append(self, text: str, logprobs: Optional[List[Any]] = None) -> str:
        self._text += text
        members = {**self._place(), "delta": text}
        if self._open == "function_call":
            return self._event("response.function_call_arguments.delta", members)
        members["content_index"] = 0
        if self._open == "reasoning":
            return self._event("response.reasoning_text.delta", members)
        self._logprobs += logprobs or []
        return self._event("response.output_text.delta", {**members, "logprobs": logprobs or []})

    def _close(self, is_cut_off: bool) -> str:
        """Ends the open item."""
        kind, self._open = self._open, None
        text, self._text = self._text, ""
        logprobs, self._logprobs = self._logprobs, []
        if kind is None:
            return ""
        item, place = self._items[-1], self._place()
        item["status"] = "incomplete" if is_cut_off else "completed"
        if kind == "function_call":
            item["arguments"] = text
            call = {**place, "arguments": text, "name": item["name"]}
            events = self._event("response.function_call_arguments.done", call)
        else:
            part: Dict[str, Any] = {"type": "reasoning_text", "text": text}
            done: Dict[str, Any] = {"text": text}
            if kind == "message":
                done["logprobs"] = logprobs
                part = {"type": "output_text", "annotations": [], **done}
            item["content"] = [part]
            place["content_index"] = 0
            events = self._event(f"response.{part['type']}.done", {**place, **done})
            events += self._event("response.content_part.done", {**place, "part": part})
        members = {"output_index": len(self._items) - 1, "item": item}
        return events + self._event("response.output_item.done", members)


def _usage(usage: Mapping[str, Any]) -> Dict[str, Any]:
    prompt = object_in(usage, "prompt_tokens_details")
    completion = object_in(usage, "completion_tokens_details")
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": prompt.get("cached_tokens") or 0,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": completion.get("reasoning_tokens") or 0},
        "total_tokens": usage["total_tokens"],
    }
