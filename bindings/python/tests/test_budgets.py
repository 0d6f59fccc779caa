"""Tests the table "Budgets" of docs/security.md: each limit of a request, and one beyond it.

Rows of the server are tried by cli/tests/server/test_budgets.py.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import struct
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from budget_table import ROOT, Row, rows

MODELS = Path(os.environ.get("LLB_TEST_MODELS", ROOT / "target/scripted-models"))
# Where limits of requests are.
FOLDERS = ["api", "constraint", "embed", "jinja", "json", "llama/vocab", "memory", "template"]
# Constants that a message names, but that are not in the table, and why.
OTHERS = {
    "src/constraint/items.rs MAX_COUNTED": "the keyword is left out, with a diagnostic",
    "src/constraint/shape.rs MAX_COUNTED": "the keyword is left out, with a diagnostic",
    "src/embed/texts.rs MAX_TOKENS": "too many to compute here; a test of its file tries it",
    "src/json/mod.rs MAX_LEVELS": "of values built in Rust; tests/integration/typed.rs tries it",
    "src/llama/vocab/text_pieces.rs MAX_RUN": "only of some vocabularies; tried in its file",
    "src/llama/vocab/text_pieces.rs MAX_UNIT": "only of some vocabularies; tried in its file",
    "src/template/probe/usage.rs MAX_STEPS": "counts the probes of a template, not a request",
}
# The value that limits get that an option changes.
LOWERED = 3000
# Seconds of sound take longer than other things.
SECONDS = 20
# Limits of work, which is not counted from outside: tried with half and twice as much.
APPROXIMATE = {
    "src/jinja/budget.rs MAX_NESTING",
    "src/constraint/compilation.rs MAX_ELEMENTS",
    "src/jinja/value/number.rs MAX_BITS",
    "template_limits.fuel",
    "template_limits.memory_bytes",
}


ROWS = rows()
OF_LIBRARY = [row for row in ROWS if not row.is_of_server]


def value_of(constant: str) -> int:
    file, name = constant.split()
    source = (ROOT / file).read_text("utf-8")
    found = re.search(rf"const {name}: \w+ = ([\d_ <*]+);", source)
    assert found, f"{file} has no constant {name}"
    # Numbers, shifts and products.
    return int(eval(found[1]))


def test_the_table_has_the_limits_of_the_code() -> None:
    for row in ROWS:
        if row.constant:
            assert int(row.limit.replace(",", "")) == value_of(row.constant), row
    named = set()
    folders = [ROOT / "src" / folder for folder in FOLDERS] + [ROOT / "cli/src/serve"]
    files = [file for folder in folders for file in folder.rglob("*.rs")]
    for file in files:
        source = file.read_text("utf-8")
        for name in re.findall(r"\{(MAX_\w+)\}", source):
            # Without one in the file, it is imported.
            defined = f"const {name}: "
            owners = [file]
            if defined not in source:
                public = f") {defined}"
                owners = [other for other in files if public in other.read_text("utf-8")]
            named |= {f"{owner.relative_to(ROOT).as_posix()} {name}" for owner in owners}
    assert len(named) > 25
    missing = named - {row.constant for row in ROWS} - set(OTHERS)
    assert not missing, f"missing in the table of docs/security.md: {missing}"


def load() -> ctypes.CDLL:
    path = os.environ.get("LLB_LIBRARY", str(ROOT / "target/release/libllb.so"))
    library = ctypes.CDLL(path)
    library.llb_last_error.argtypes = []
    library.llb_string_free.argtypes = [ctypes.c_void_p]
    for name, arguments in {
        "llb_chat_create_with": 3,
        "llb_embed_create": 1,
        "llb_chat_destroy": 1,
        "llb_embed_destroy": 1,
    }.items():
        function = getattr(library, name)
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_void_p] * arguments
    return library


LIBRARY = load()


def reply_of(name: str, *arguments: Any) -> Dict[str, Any]:
    function = getattr(LIBRARY, name)
    function.restype = ctypes.c_void_p
    text = function(*arguments)
    value: Dict[str, Any] = json.loads(ctypes.string_at(text))
    LIBRARY.llb_string_free(text)
    return value


def create(function: str, options: Any) -> Any:
    """A handle, or the error."""
    text = ctypes.c_char_p(json.dumps(options).encode())
    arguments = [text, None, None] if function == "llb_chat_create_with" else [text]
    handle = getattr(LIBRARY, function)(*(ctypes.cast(each, ctypes.c_void_p) for each in arguments))
    return ctypes.c_void_p(handle) if handle else reply_of("llb_last_error")


class Handles:
    """What requests use. `chat` is in this process, `isolated` in a helper process."""

    def __init__(self) -> None:
        chat = {"model": model("tool_call"), "n_ctx": 1024, "n_threads": 1}
        self.chat = create("llb_chat_create_with", chat)
        self.isolated = create("llb_chat_create_with", {**chat, "isolation": "process"})
        self.embedder = create("llb_embed_create", {"model": model("embedding")})
        self.reranker = create("llb_embed_create", {"model": model("reranker")})

    def close(self) -> None:
        for chat in (self.chat, self.isolated):
            LIBRARY.llb_chat_destroy(chat)
        for embedder in (self.embedder, self.reranker):
            LIBRARY.llb_embed_destroy(embedder)


def model(name: str) -> str:
    return str(MODELS / f"{name}.gguf")


@pytest.fixture(scope="module")
def handles() -> Iterator[Handles]:
    made = Handles()
    yield made
    made.close()


Trial = Callable[[Handles, int], Dict[str, Any]]
ASK = {"messages": [{"role": "user", "content": "a"}]}


def text_of(request: Any) -> bytes:
    return json.dumps(request).encode()


def call(name: str, request: Callable[[int], Any]) -> Trial:
    return lambda _, n: reply_of(name, text_of(request(n)))


def chat(members: Callable[[int], Any]) -> List[Trial]:
    def explain(handle: Any, n: int) -> Dict[str, Any]:
        return reply_of("llb_chat_explain", handle, text_of({**ASK, **members(n)}))

    return [
        lambda handles, n: explain(handles.chat, n),
        lambda handles, n: explain(handles.isolated, n),
    ]


def opened(options: Callable[[int], Any]) -> List[Trial]:
    def open_chat(_: Handles, n: int) -> Dict[str, Any]:
        made = create("llb_chat_create_with", options(n))
        if isinstance(made, dict):
            return made
        LIBRARY.llb_chat_destroy(made)
        return {}

    return [open_chat]


def create_chat(members: Callable[[int], Any]) -> List[Trial]:
    return opened(lambda n: {"model": model("text"), "n_ctx": 256, **members(n)})


def render(template: Callable[[int], str], **members: Any) -> List[Trial]:
    def request(n: int) -> Any:
        return {**ASK, "chat_template": template(n), **members}

    return [call("llb_template_render", request)]


def limited(name: str, template: Callable[[int], str]) -> List[Trial]:
    return render(template, template_limits={name: LOWERED})


def png(width: int, height: int, n_bytes: int = 0) -> bytes:
    """The start of a PNG file of this size, and zeros up to a number of bytes."""
    sides = struct.pack(">II", width, height)
    header = b"IHDR" + sides + bytes([8, 2, 0, 0, 0])
    header = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    data = struct.pack(">I", 1 << 20) + b"IDAT"
    return (b"\x89PNG\r\n\x1a\n" + header + data).ljust(n_bytes, b"\0")


def wav(seconds: int) -> bytes:
    """A WAV file of silence with 1,000 samples of 8 bits a second."""
    data = b"\x80" * (1000 * seconds)
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 1000, 1000, 1, 8)
    chunks = b"WAVE" + head + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def with_media(name: str) -> List[Trial]:
    """Counts a request with pictures, whose headers are enough for that, or with a sound."""
    files: Dict[str, Callable[[int], List[bytes]]] = {
        "bytes": lambda n: [png(1, 1, n)],
        "pixels": lambda n: [png(n, 1)],
        "parts": lambda n: [png(1, 1)] * n,
        "seconds": lambda n: [wav(n)],
    }

    def part(file: bytes) -> Any:
        data = base64.b64encode(file).decode()
        if name == "seconds":
            return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        return {"type": "image_url", "image_url": {"url": f"data:;base64,{data}"}}

    def request(n: int) -> Any:
        content = [*map(part, files[name](n)), {"type": "text", "text": "a"}]
        folder = MODELS / ("sounds/qwen2a" if name == "seconds" else "pictures/mlp")
        return {
            "model_path": str(folder / "model.gguf"),
            "projector": "auto",
            "media_limits": {name: SECONDS if name == "seconds" else LOWERED},
            "messages": [{"role": "user", "content": content}],
        }

    return [call("llb_count", request)]


def vectors(function: str, handle: str, request: Callable[[int], Any]) -> Trial:
    return lambda handles, n: reply_of(function, getattr(handles, handle), text_of(request(n)))


def schema(value: Any) -> Any:
    json_schema = {"name": "a", "strict": True, "schema": value}
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


def nested(levels: int) -> Any:
    inner: Any = {"type": "null"}
    for _ in range(levels):
        inner = {"type": "array", "items": inner}
    return inner


def tokens(n: int) -> Any:
    """Tokens that spell a text of this length."""

    def token(text: str) -> int:
        request = {"model_path": model("text"), "text": text, "parse_special": True}
        [found] = reply_of("llb_tokenize", text_of(request))["ids"]
        return int(found)

    long = "<|im_end|>"
    ids = [token(long)] * (n // len(long)) + [token("a")] * (n % len(long))
    return {"model_path": model("text"), "ids": ids}


MACRO = "{% macro m(k) %}%s{% if k %}{{ m(k - 1) }}{% endif %}%s{% endmacro %}{{ m(COUNT) }}"


def macros(count: int, levels: int = 0) -> str:
    opening, closing = "{% if 1 %}" * levels, "{% endif %}" * levels
    template = MACRO.replace("%s", opening, 1).replace("%s", closing, 1)
    return template.replace("COUNT", str(count))


def values(n: int) -> Any:
    # The object, the name and the list are three of them.
    return {"unknown": [0] * (n - 3)}


TRIALS: Dict[str, List[Trial]] = {
    "src/json/mod.rs MAX_VALUES": [call("llb_template_render", values)],
    "src/llama/vocab/tokenize.rs MAX_TEXT": [call("llb_detokenize", tokens)],
    "src/constraint/schema/size.rs MAX_DEPTH": chat(lambda n: schema(nested(n))),
    # The schema and the list are two of them.
    "src/constraint/schema/size.rs MAX_NODES": chat(lambda n: schema({"enum": list(range(n - 2))})),
    "src/constraint/schema/size.rs MAX_PROPERTIES": chat(
        lambda n: schema({"properties": {f"p{number}": {} for number in range(n)}})
    ),
    "src/constraint/schema/size.rs MAX_POINTER": chat(
        lambda n: schema({"properties": {"a" * (n - len("/properties/")): {}}})
    ),
    "src/constraint/request_grammar.rs MAX_BYTES": chat(
        lambda n: {"grammar": 'start: "a" //'.ljust(n, "a")}
    ),
    "src/constraint/request_grammar.rs MAX_ELEMENTS": chat(
        lambda n: {"grammar": 'start: "a"' + ' | "a"' * (n - 1)}
    ),
    "src/constraint/request_grammar.rs MAX_FOLDED_CLASSES": chat(
        lambda n: {"grammar": f"start: /{'[a]' * n}/i"}
    ),
    "src/constraint/request_grammar.rs MAX_CONDITION_DEPTH": chat(
        lambda n: {"grammar": f'start: "a" %if {"(" * n}{")" * n}'}
    ),
    "src/constraint/request_grammar.rs MAX_REPETITIONS": chat(
        lambda n: {"grammar": f"start: A\nA: /a{{{n}}}/ & /b/"}
    ),
    # Commas count, even those of texts.
    "src/constraint/compilation.rs MAX_ELEMENTS": chat(
        lambda n: {
            **schema({"enum": [f"{number},,,,,,,,," for number in range(n // 10)]}),
            "timeout_ms": 600_000,
        }
    ),
    "src/embed/mod.rs MAX_TEXTS": [
        vectors("llb_embed", "embedder", lambda n: {"input": ["a"] * n, "timeout_ms": 1}),
        vectors(
            "llb_rank",
            "reranker",
            lambda n: {"query": "a", "documents": ["a"] * n, "timeout_ms": 1},
        ),
    ],
    "src/api/lora.rs MAX_ADAPTERS": [
        *create_chat(lambda n: {"lora": ["missing"] * n}),
        *chat(lambda n: {"lora": [{"id": number, "scale": 0} for number in range(n)]}),
    ],
    "src/api/engine.rs MAX_SERVERS": opened(
        lambda n: {
            "engine": {
                "type": "openai_completions",
                "base_url": ["http://127.0.0.1:9"] * n,
                "chat_template": "a",
            }
        }
    ),
    "src/api/engine.rs MAX_SALT": create_chat(
        lambda n: {
            "engine": {
                "type": "vllm",
                "base_url": "http://127.0.0.1:9",
                "model": "a",
                "cache_salt": "a" * n,
            }
        }
    ),
    "src/api/placement.rs MAX_OVERRIDES": create_chat(
        lambda n: {"override_tensor": [["missing", "CPU"]] * n}
    ),
    "src/api/placement.rs MAX_PATTERN_BYTES": create_chat(
        lambda n: {"override_tensor": [["a" * n, "CPU"]]}
    ),
    "src/api/placement.rs MAX_SHARES": create_chat(lambda n: {"tensor_split": [1] * n}),
    "src/api/output_control.rs MAX_STOP_STRINGS": chat(lambda n: {"stop": ["a"] * n}),
    "src/api/sampler_names.rs MAX_SAMPLERS": chat(lambda n: {"samplers": ["top_k"] * n}),
    "src/api/sampling.rs MAX_BREAKERS": chat(lambda n: {"dry_sequence_breakers": ["a"] * n}),
    "src/api/sampling.rs MAX_BYTES": chat(lambda n: {"dry_sequence_breakers": ["a" * n]}),
    "src/memory/mod.rs MAX_CONTEXTS": [
        call(
            "llb_memory", lambda n: {"model_path": model("text"), "contexts": [{"n_ctx": 256}] * n}
        )
    ],
    "src/jinja/value/number.rs MAX_DIGITS": render(lambda n: "{{ " + "9" * n + " }}"),
    "src/jinja/value/number.rs MAX_BITS": render(lambda n: f"{{{{ 2 ** {n - 1} > 0 }}}}"),
    "src/jinja/value/compare.rs MAX_DEPTH": render(
        lambda n: (
            "{% set ns = namespace(x=[1]) %}{% for i in range(COUNT) %}"
            "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}".replace("COUNT", str(n - 1))
        )
    ),
    # Two for the ends of the block, two for those of the list.
    "src/jinja/syntax/lexer.rs MAX_TOKENS": render(
        lambda n: "{{[" + "1," * ((n - 4) // 2) + "1" * ((n - 4) % 2) + "]}}"
    ),
    "src/jinja/syntax/parser.rs MAX_DEPTH": render(
        lambda n: "{% if 1 %}" * (n - 1) + "{% endif %}" * (n - 1)
    ),
    "src/jinja/syntax/parser.rs MAX_CHAIN": render(
        lambda n: "{{ messages" + ".a" * (n - 1) + " }}"
    ),
    "src/jinja/budget.rs MAX_NESTING": render(lambda n: macros(n // 100, 100)),
    "src/jinja/builtins/globals.rs MAX_TIME_FORMAT": render(
        lambda n: "{{ strftime_now('" + "a" * n + "')|length }}"
    ),
    "src/jinja/value/sequence.rs MAX_RANGE": render(lambda n: f"{{{{ range({n})|length }}}}"),
    "template_limits.output_bytes": limited("output_bytes", lambda n: "a" * n),
    "template_limits.recursion": limited("recursion", lambda n: macros(n - 1)),
    "template_limits.fuel": limited(
        "fuel", lambda n: f"{{% for i in range({n // 8}) %}}{{{{ i }}}}{{% endfor %}}"
    ),
    **{
        f"media_limits.{name}": with_media(name) for name in ("bytes", "pixels", "seconds", "parts")
    },
    "template_limits.memory_bytes": limited("memory_bytes", lambda n: f"{{{{ 'a' * {n // 2} }}}}"),
}


def names(limit: int, message: str) -> bool:
    """Whether a message names the limit, and not only how much there is."""
    return re.search(rf"(most|than|to|exceed|\() ?{limit}\b", message) is not None


def test_each_row_has_a_trial() -> None:
    assert {row.key for row in OF_LIBRARY} == set(TRIALS)


@pytest.mark.parametrize("row", OF_LIBRARY, ids=lambda row: row.key)
def test_each_limit_is_kept(row: Row, handles: Handles) -> None:
    lowered = SECONDS if row.key == "media_limits.seconds" else LOWERED
    limit = int(row.limit.replace(",", "")) if row.constant else lowered
    at, beyond = limit, limit + 1
    if row.key in APPROXIMATE:
        at, beyond = limit // 2, limit * 2
    for trial in TRIALS[row.key]:
        for size in (at, beyond):
            reply = trial(handles, size)
            error = reply.get("error", {})
            is_refused = error.get("code") == row.error and names(limit, error["message"])
            assert is_refused == (size == beyond), (size, str(reply)[:300])
