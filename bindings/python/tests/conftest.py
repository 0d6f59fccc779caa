"""Where the tests get the library, the models and their expected texts from.

LLB_TEST_MODELS: the folder `cargo run --release --example scripted_models -- DIR` writes. LLB_MODELS: a folder with
real models. What is absent skips its tests with the reason; LLB_REQUIRE_ALL=1 makes that a failure.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import llb
from holding import hold_streams
from llb import _library, _session

REAL_MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

# What the test models say, where the folder has no expected.json to tell.
EXPECTED = {
    "text": "Grüße aus Köln: naïve 東京, and an emoji 😀 cut in two.",
    "long": "Counting:" + "".join(f" {number}" for number in range(1, 301)) + " done.",
}


def absent(reason):
    if os.environ.get("LLB_REQUIRE_ALL"):
        pytest.fail(f"{reason}, and LLB_REQUIRE_ALL is set", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """A shell that starts the tests in the background has interrupts ignored, and Python leaves that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def library():
    try:
        return _library.load()
    except llb.LlbError as error:
        absent(f"no library: {error}")


@pytest.fixture(scope="session")
def models(library):
    """The path of a test model, by the stem of its name."""
    folder = os.environ.get("LLB_TEST_MODELS")
    if not folder:
        absent("LLB_TEST_MODELS is not set")

    def path(stem):
        file = Path(folder) / f"{stem}.gguf"
        if not file.is_file():
            absent(f"no {file.name} in LLB_TEST_MODELS")
        return file

    return path


@pytest.fixture(scope="session")
def expected(models):
    """What a test model says, by the stem of its name."""
    file = models("text").parent / "expected.json"
    return {**EXPECTED, **(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {})}


@pytest.fixture(scope="session")
def real_model(library):
    folder = os.environ.get("LLB_MODELS")
    if not folder:
        absent("LLB_MODELS is not set")
    file = Path(folder) / REAL_MODEL
    if not file.is_file():
        absent(f"no {REAL_MODEL} in LLB_MODELS")
    return file


@pytest.fixture
def chat(models):
    """Opens chats on test models, and closes them after the test."""
    opened = []

    def open_chat(stem, **options):
        opened.append(llb.Chat(models(stem), **{"n_threads": 1, **options}))
        return opened[-1]

    yield open_chat
    for each in opened:
        each.close()


@pytest.fixture
def cancels(library, monkeypatch):
    """The chats `llb_chat_cancel` was called with."""
    handles = []
    cancel = library.c.llb_chat_cancel
    monkeypatch.setattr(library.c, "llb_chat_cancel", lambda handle: (handles.append(handle), cancel(handle))[1])
    return handles


@pytest.fixture
def held(monkeypatch):
    """Streams stay in the library until they are ended or this event is set."""
    monkeypatch.setattr(_session.Call, "_receive", _session.Call._receive)
    return hold_streams()


@pytest.fixture
def script(library):
    """Runs Python code in a process of its own, which must end well and silently; answers its stdout."""

    def run(code, *arguments, **environment):
        package = str(Path(llb.__file__).resolve().parents[1])
        paths = [package, str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LLB_LIBRARY": library.path, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (process.returncode, process.stderr) == (0, "")
        return process.stdout

    return run
