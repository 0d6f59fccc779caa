"""Fixtures: the library, the models, and the expected outputs of the scripted models.

LLB_TEST_MODELS names the folder written by `cargo run --release --example scripted_models -- DIR`,
LLB_MODELS a folder of real models. A test whose requirement is missing is skipped with the reason;
with LLB_REQUIRE_ALL=1 it fails.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import llb
from blocking import block_streams
from llb import _library, _session

REAL_MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

# The outputs of the scripted models, for a folder without expected.json.
EXPECTED = {
    "text": "Grüße aus Köln: naïve 東京, and an emoji 😀 cut in two.",
    "long": "Counting:" + "".join(f" {number}" for number in range(1, 301)) + " done.",
}


def skip(reason):
    if os.environ.get("LLB_REQUIRE_ALL"):
        pytest.fail(f"{reason}, and LLB_REQUIRE_ALL is set", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Enables SIGINT, which a shell ignores in processes that it starts in the background."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture(scope="session")
def library():
    try:
        return _library.load()
    except llb.LlbError as error:
        skip(f"no library: {error}")


@pytest.fixture(scope="session")
def models(library):
    """Returns the path of a scripted model by the stem of its name."""
    folder = os.environ.get("LLB_TEST_MODELS")
    if not folder:
        skip("LLB_TEST_MODELS is not set")

    def path(stem):
        file = Path(folder) / f"{stem}.gguf"
        if not file.is_file():
            skip(f"no {file.name} in LLB_TEST_MODELS")
        return file

    return path


@pytest.fixture(scope="session")
def expected(models):
    """The output of each scripted model, by the stem of its name."""
    file = models("text").parent / "expected.json"
    return {**EXPECTED, **(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {})}


@pytest.fixture(scope="session")
def real_model(library):
    folder = os.environ.get("LLB_MODELS")
    if not folder:
        skip("LLB_MODELS is not set")
    file = Path(folder) / REAL_MODEL
    if not file.is_file():
        skip(f"no {REAL_MODEL} in LLB_MODELS")
    return file


@pytest.fixture
def chat(models):
    """Opens chats on scripted models, and closes them after the test."""
    opened = []

    def open_chat(stem, **options):
        opened.append(llb.Chat(models(stem), **{"n_threads": 1, **options}))
        return opened[-1]

    yield open_chat
    for each in opened:
        each.close()


@pytest.fixture
def cancels(library, monkeypatch):
    """The handles passed to `llb_chat_cancel`."""
    handles = []
    cancel = library.c.llb_chat_cancel

    def record(handle):
        handles.append(handle)
        return cancel(handle)

    monkeypatch.setattr(library.c, "llb_chat_cancel", record)
    return handles


@pytest.fixture
def blocked(monkeypatch):
    """Blocks every stream in the library until it is cancelled or the returned event is set."""
    # Restores the method that `block_streams` replaces.
    method = _session.Session._receive_piece
    monkeypatch.setattr(_session.Session, "_receive_piece", method)
    return block_streams()


def _run_with_uvloop(main):
    try:
        import uvloop
    except ImportError:
        skip("no uvloop (pip install uvloop)")
    return uvloop.run(main())


@pytest.fixture(
    params=[lambda main: asyncio.run(main()), _run_with_uvloop], ids=["asyncio", "uvloop"]
)
def run(request):
    """Runs a coroutine function in each event loop."""
    return request.param


@pytest.fixture
def script(library):
    """Runs Python code in a new process and returns its stdout.

    The process must exit with 0 and write nothing to stderr.
    """

    def run(code, *arguments, **environment):
        package = str(Path(llb.__file__).resolve().parents[1])
        paths = [package, str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "LLB_LIBRARY": library.path,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (process.returncode, process.stderr) == (0, "")
        return process.stdout

    return run
