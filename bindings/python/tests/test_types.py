"""Types: what type checkers say of the package, and whether replies have the stated shapes."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llb
from conftest import skip
from llb import types
from test_chat import HELLO, WEATHER

PACKAGE = Path(__file__).resolve().parents[1]
# A type checker must refuse the marked lines, and no others.
REFUSED = """
from typing import Literal, Union
from typing_extensions import assert_type
import llb
from llb.types import Chunk, Reply

def use(chat: Union[llb.Chat, llb.Model], stream: bool) -> None:
    assert_type(chat.create([]), Reply)
    assert_type(chat.create([], stream=True), llb.Stream)
    for chunk in chat.create([], stream=True):
        assert_type(chunk, Chunk)
    chat.create([])["txt"]  # refused
    chat.create([], temprature=1)  # refused
    chat.create([], temperature="hot")  # refused
    chat.create([], tool_choice="always")  # refused
    chat.create([], stream=True)["text"]  # refused

def measure() -> None:
    llb.memory("a", contexts=[{"n_ctx": "fit", "cache_type_k": "q8_0"}, {}])
    llb.memory("a", contexts=[{"n_ctxx": 1}])  # refused
    llb.memory("a", flash_attn=True)  # refused
    for found in llb.memory("a")["contexts"]:
        assert_type(found["type"], Literal["memory", "error"])
        if found["type"] == "error":
            assert_type(found["error"]["code"], str)
        else:
            assert_type(found["total"], int)

async def use_async(chat: Union[llb.AsyncChat, llb.AsyncModel]) -> None:
    assert_type(await chat.create([]), Reply)
    assert_type(await chat.create([], stream=True), llb.AsyncStream)
    await chat.create([], temprature=1)  # refused

def use_chats(model: llb.Model, async_model: llb.AsyncModel) -> None:
    assert_type(model.chat(), llb.Chat)
    assert_type(async_model.chat(), llb.AsyncChat)
"""


def checker(name):
    if importlib.util.find_spec(name) is None:
        skip(f"no {name} (pip install mypy 'pyright[nodejs]' ruff)")
    return [sys.executable, "-m", name]


def run(command, folder):
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800)
    return process.returncode, process.stdout + process.stderr


CHECKERS = {
    "mypy": ["--strict", "--no-incremental"],
    "pyright": ["-p", ".", "--pythonpath", sys.executable],
}


@pytest.fixture(scope="module", params=CHECKERS)
def checked(request, tmp_path_factory):
    """One run of a type checker, on the package, its examples, and the lines above."""
    command = [*checker(request.param), *CHECKERS[request.param]]
    folder = tmp_path_factory.mktemp("package")
    for name in ("examples", "pyproject.toml"):
        (folder / name).symlink_to(PACKAGE / name)
    # `make test-python-frameworks` checks the modules that need other packages.
    frameworks = shutil.ignore_patterns("langchain.py", "llama_index.py")
    shutil.copytree(PACKAGE / "src", folder / "src", ignore=frameworks)
    (folder / "refused.py").write_text(REFUSED)
    return run([*command, "src", "examples", "refused.py"], folder)


def test_the_package_and_its_examples_are_typed(checked):
    _, output = checked
    wrong = [line for line in output.splitlines() if "error:" in line and "refused.py" not in line]
    assert wrong == []
    assert "refused.py" in output


def test_wrong_uses_are_refused(checked):
    status, output = checked
    lines = REFUSED.splitlines()
    found = {
        int(line.split("refused.py:")[1].split(":")[0])
        for line in output.splitlines()
        if "refused.py:" in line and "error:" in line
    }
    assert status == 1
    assert found == {at for at, line in enumerate(lines, 1) if line.endswith("# refused")}


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_the_code_is_as_ruff_wants_it(command):
    folders = [PACKAGE / name for name in ("src", "tests", "frameworks", "examples")]
    files = [*folders, *PACKAGE.glob("*.py")]
    status, output = run([*checker("ruff"), *command, "--no-cache", *map(str, files)], PACKAGE)
    assert status == 0, output


def assert_shape(value, shape):
    """`value` has the members of the TypedDict `shape`: all that it requires, and no others."""
    assert set(value) >= shape.__required_keys__
    assert set(value) <= shape.__required_keys__ | shape.__optional_keys__


@pytest.mark.parametrize("stem", ["text", "reasoning", "tool_call"])
def test_replies_have_their_shape(chat, stem):
    reply = chat(stem).create(HELLO, [WEATHER], temperature=0, extra_body={"bogus": 1})
    assert_shape(reply, types.Reply)
    assert_shape(reply["message"], types.AssistantMessage)
    assert_shape(reply["usage"], types.Usage)
    assert_shape(reply["timings"], types.Timings)
    for call in reply["tool_calls"]:
        assert_shape(call, types.ToolCall)
    assert_shape(chat(stem).explain(HELLO), types.Explanation)


@pytest.mark.parametrize("stem", ["text", "tool_use", "no_template"])
def test_model_info_has_its_shape(models, stem):
    assert_shape(llb.model_info(models(stem)), types.ModelInfo)
