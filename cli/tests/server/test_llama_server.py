"""`llb serve` beside a llama.cpp server (PyPI: xllamacpp) on the same scripted models: the members of
replies, their types, and the status of what is refused. docs/server.md has the differences."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest
from conftest import MODELS, Server

COMPARED = "2026.10."
SCRIPT = pathlib.Path(__file__).parents[3] / "bindings/python/tests/remote_server.py"
USER = [{"role": "user", "content": "Say hello."}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
CHAT = {"messages": USER, "max_tokens": 4, "temperature": 0}
TEXT = {"prompt": "Once", "max_tokens": 4, "temperature": 0}
PLAIN = {"prompt": "Once", "n_predict": 4, "temperature": 0}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CALL = {**CHAT, "max_tokens": 64, "tools": [TOOL]}

CHATS, TEXTS, PROMPT = "/v1/chat/completions", "/v1/completions", "/completion"
# Requests that both answer. Without a body it is a GET.
GOOD: List[Tuple[str, Any]] = [
    (CHATS, CHAT),
    (CHATS, {**CHAT, **STREAM}),
    (CHATS, {**CHAT, "logprobs": True, "top_logprobs": 2}),
    (CHATS, {**CHAT, **STREAM, "logprobs": True, "top_logprobs": 2}),
    (CHATS, CALL),
    (CHATS, {**CALL, **STREAM}),
    (CHATS, {"messages": USER, "n_predict": 3, "temperature": 0}),
    (CHATS, {"messages": USER, "max_tokens": -1}),
    (CHATS, {**CHAT, "max_tokens": 64, "json_schema": SCHEMA}),
    (CHATS, {**CHAT, "response_format": {"type": "json_object", "schema": SCHEMA}}),
    (CHATS, {**CHAT, "messages": [*USER, {"role": "assistant", "content": "Hel"}]}),
    (CHATS, {**CHAT, "stop": "x", "seed": -1, "cache_prompt": True, "id_slot": -1, "n_keep": 0}),
    (CHATS, {**CHAT, "model": "other", "samplers": ["top_k"], "mirostat": 0, "n_probs": 0}),
    (TEXTS, TEXT),
    (TEXTS, {**TEXT, **STREAM}),
    (TEXTS, {**TEXT, "prompt": ["One", "Two"]}),
    (TEXTS, {**TEXT, "prompt": [5, 6]}),
    (TEXTS, {**TEXT, "logprobs": 2}),
    (TEXTS, {**PLAIN}),
    (PROMPT, PLAIN),
    (PROMPT, {**PLAIN, "stream": True}),
    (PROMPT, {**PLAIN, "prompt": [5, 6]}),
    ("/apply-template", {"messages": USER}),
    ("/apply-template", {"messages": USER, "tools": [TOOL]}),
    ("/tokenize", {"content": "Grüße"}),
    ("/tokenize", {"content": "Grüße", "with_pieces": True}),
    ("/tokenize", {"content": "<|im_end|>", "add_special": True, "parse_special": True}),
    ("/detokenize", {"tokens": [100, 101]}),
    ("/props", None),
    ("/slots", None),
    ("/health", None),
    ("/v1/models", None),
    ("/lora-adapters", None),
    ("/lora-adapters", []),
    ("/v1/responses", {"input": "Say hello.", "max_output_tokens": 64}),
    ("/v1/responses", {"input": "Say hello.", "max_output_tokens": 64, "stream": True}),
    ("/v1/messages", {"messages": USER, "max_tokens": 4}),
    ("/v1/messages", {"messages": USER, "max_tokens": 4, "stream": True}),
    ("/v1/messages/count_tokens", {"messages": USER}),
]
VECTORS: List[Tuple[str, Any]] = [
    ("/v1/embeddings", {"input": "a"}),
    ("/v1/embeddings", {"input": ["a", "b"]}),
    ("/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
]
RANKS: List[Tuple[str, Any]] = [
    ("/v1/rerank", {"query": "a", "documents": ["a", "b"]}),
    ("/rerank", {"query": "a", "documents": ["a", "b"], "top_n": 1}),
]
# Members of the other server that are missing here, with all that they contain.
MISSING: Dict[str, Set[str]] = {
    CHATS: {"choices[].logprobs.content[].id", "choices[].logprobs.content[].top_logprobs[].id"},
    TEXTS: {"choices[].logprobs.content"},
    PROMPT: {"generation_settings", "prompt", "tokens"},
    "/props": {
        "default_generation_settings.params",
        "model_path",
        "modalities.video",
        "media_marker",
        "ui",
        "ui_settings",
        "cors_proxy_enabled",
    },
    "/slots": {
        "[].id_task",
        "[].n_prompt_tokens",
        "[].n_prompt_tokens_processed",
        "[].n_prompt_tokens_cache",
        "[].params",
        "[].next_token",
    },
    "/v1/models": {"models", "data[].meta.vocab_type", "data[].meta.n_vocab", "data[].aliases[]"},
    "/v1/responses": {"response.completed.timings"},
    "/v1/embeddings": {"data[].encoding_format"},
}
# What is refused: the status here, and there.
BAD: List[Tuple[str, Any, int, int]] = [
    (CHATS, {}, 400, 400),
    (CHATS, {"messages": None}, 400, 400),
    (CHATS, {"messages": "x"}, 400, 400),
    (CHATS, {"messages": ["x"]}, 400, 400),
    (CHATS, {"messages": []}, 400, 200),
    (CHATS, {"messages": [{"content": "x"}]}, 400, 500),
    (CHATS, {"messages": [{"role": "user"}]}, 400, 400),
    (CHATS, {"messages": [{"role": "user", "content": 1}]}, 400, 400),
    (CHATS, {"messages": [{"role": "user", "content": [{"type": "x"}]}]}, 400, 400),
    (CHATS, {"messages": [{"role": "user", "content": "a b c " * 2000}]}, 400, 400),
    (CHATS, {**CHAT, "max_tokens": "x"}, 400, 400),
    (CHATS, {**CHAT, "max_tokens": 0}, 400, 200),
    (CHATS, {**CHAT, "temperature": "x"}, 400, 400),
    (CHATS, {**CHAT, "n": 0}, 400, 400),
    (CHATS, {**CHAT, "stop": 1}, 400, 200),
    (CHATS, {**CHAT, "top_logprobs": 2}, 400, 400),
    (CHATS, {**CHAT, "grammar": "root ::= x"}, 400, 400),
    (CHATS, {**CHAT, "grammar": 'root ::= "yes" | "no"'}, 400, 200),
    (CHATS, {**CHAT, "logit_bias": [[5, 1.0]]}, 400, 200),
    (CHATS, {**CHAT, "tools": "x"}, 400, 500),
    (CHATS, {**CHAT, "tools": [{"type": "function"}]}, 400, 500),
    (CHATS, {**CALL, "tool_choice": "x"}, 400, 400),
    (CHATS, {**CHAT, "response_format": {"type": "x"}}, 400, 400),
    (CHATS, {**CHAT, "model": 1}, 400, 200),
    (CHATS, {**CHAT, "stream": "x"}, 400, 400),
    (CHATS, None, 405, 404),
    (TEXTS, {}, 400, 400),
    (TEXTS, {"prompt": 1}, 400, 400),
    (TEXTS, {"prompt": []}, 400, 400),
    (TEXTS, {"prompt": "", "max_tokens": 1}, 400, 200),
    (TEXTS, {"prompt": [10**9], "max_tokens": 1}, 400, 400),
    (TEXTS, {"prompt": [5, "a"], "max_tokens": 1}, 400, 200),
    (TEXTS, {**TEXT, "suffix": "x"}, 400, 200),
    (PROMPT, {}, 400, 400),
    (PROMPT, {"prompt": ["a", "b"], "n_predict": 1}, 400, 200),
    ("/infill", {"input_prefix": "a", "input_suffix": "b"}, 400, 501),
    ("/apply-template", {}, 400, 400),
    ("/tokenize", {}, 400, 200),
    ("/tokenize", {"content": 1}, 400, 400),
    ("/tokenize", {"content": ["a", 15]}, 400, 200),
    ("/detokenize", {}, 200, 200),
    ("/detokenize", {"tokens": "x"}, 400, 400),
    ("/detokenize", {"tokens": [10**9]}, 400, 500),
    ("/slots/0?action=save", {"filename": "x"}, 501, 501),
    ("/slots/0?action=erase", {}, 501, 501),
    ("/props", {}, 405, 501),
    ("/lora-adapters", [{"id": 5, "scale": 1}], 400, 200),
    ("/lora-adapters", "x", 400, 400),
    ("/v1/unknown", {}, 404, 404),
    ("/v1/embeddings", {"input": "a"}, 400, 501),
    ("/v1/rerank", {"query": "a", "documents": ["a"]}, 400, 501),
]
Answer = Tuple[int, str]


class LlamaServer:
    def __init__(self, model: str, kind: str, n_ctx: int = 512, projector: str = "") -> None:
        path = str(MODELS / f"{model}.gguf")
        media = [str(MODELS / f"{projector}.gguf")] if projector else []
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), path, str(n_ctx), kind, *media],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), "the server did not start"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def check_version() -> None:
    """Skips the test without the package, or with another version of it."""
    try:
        version = importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no xllamacpp, which has a llama.cpp server (pip install xllamacpp)")
    if not version.startswith(COMPARED):
        pytest.skip(f"compared with xllamacpp {COMPARED}, not {version}")


@pytest.fixture(scope="module", params=["text", "embedding", "reranker"])
def urls(request: Any) -> Iterator[Tuple[str, str, str]]:
    """The kind of a model, its URL here, and there."""
    check_version()
    kind = request.param
    embedding = [] if kind == "text" else ["--embedding", f"{kind}={MODELS / kind}.gguf"]
    options = ["--n-ctx", "512"] if kind == "text" else []
    ours = Server(f"text={MODELS / 'text.gguf'}", *options, *embedding)
    theirs = LlamaServer(kind, {"text": "chat"}.get(kind, kind))
    yield kind, ours.url, theirs.url
    theirs.stop()
    assert ours.stop() == 0, ours.log


def ask(url: str, body: Any) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def shape(value: Any, path: str, found: Dict[str, Set[str]]) -> None:
    """Adds the types of all members, by path."""
    found.setdefault(path, set()).add(kind_of(value))
    items: Any = value.items() if isinstance(value, dict) else []
    for name, child in items:
        shape(child, f"{path}.{name}" if path else name, found)
    for child in value if isinstance(value, list) else []:
        shape(child, f"{path}[]", found)


def shapes(text: str) -> Dict[str, Set[str]]:
    """The types of all members of a reply. Those of events have the event's type in their path."""
    found: Dict[str, Set[str]] = {}
    if text.startswith(("data:", "event:")):
        for line in text.splitlines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                shape(event, event.get("type", ""), found)
    else:
        shape(json.loads(text), "", found)
    return found


def differences(ours: str, theirs: str, missing: Set[str]) -> List[str]:
    here, there = shapes(ours), shapes(theirs)
    problems = []
    for path, kinds in there.items():
        if any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in missing):
            continue
        if path not in here:
            problems.append(f"{path} is missing")
        elif not here[path] & kinds:
            problems.append(f"{path} is {here[path]}, not {kinds}")
    return problems


def test_replies_have_the_members_of_llama_cpps_server(urls: Tuple[str, str, str]) -> None:
    kind, ours, theirs = urls
    problems = []
    for route, body in {"text": GOOD, "embedding": VECTORS, "reranker": RANKS}[kind]:
        here, there = ask(ours + route, body), ask(theirs + route, body)
        assert here[0] == there[0] == 200, (route, body, here, there)
        found = differences(here[1], there[1], MISSING.get(route, set()))
        problems += [(route, body, problem) for problem in found]
    assert not problems, problems


def test_what_is_refused(urls: Tuple[str, str, str]) -> None:
    kind, ours, theirs = urls
    if kind != "text":
        return
    found = [
        (route, body, ask(ours + route, body)[0], ask(theirs + route, body)[0])
        for route, body, *_ in BAD
    ]
    assert found == BAD


def test_schemas_and_limits_of_llama_cpps_server(urls: Tuple[str, str, str]) -> None:
    kind, ours, theirs = urls
    if kind != "text":
        return
    free = {"messages": USER, "temperature": 0, "max_tokens": 64}
    for server in (ours, theirs):
        for format_ in (
            {"json_schema": SCHEMA},
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
        ):
            reply = json.loads(ask(server + CHATS, {**free, **format_})[1])
            assert list(json.loads(reply["choices"][0]["message"]["content"])) == ["city"]
        limited = json.loads(ask(server + CHATS, {"messages": USER, "n_predict": 3})[1])
        assert limited["usage"]["completion_tokens"] == 3
        timings = limited["timings"]
        assert timings["prompt_n"] + timings["cache_n"] == limited["usage"]["prompt_tokens"]
        assert timings["predicted_n"] == 3
        # A prompt of this route has special tokens.
        for prompt in ("Once", "Once<|im_end|>"):
            plain = json.loads(ask(server + PROMPT, {**PLAIN, "prompt": prompt})[1])
            counted = json.loads(
                ask(server + "/tokenize", {"content": prompt, "parse_special": True})[1]
            )
            assert plain["tokens_evaluated"] == len(counted["tokens"])
            assert plain["content"] and plain["stop_type"] == "limit"
