"""What type checkers say of the modules for frameworks."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "checker", [["mypy", "--strict"], ["pyright", "-p", ".", "--pythonpath", sys.executable]]
)
def test_the_modules_are_typed(checker):
    modules = [f"src/llb/{name}.py" for name in ("langchain", "llama_index")]
    command = [sys.executable, "-m", *checker, *modules]
    process = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
