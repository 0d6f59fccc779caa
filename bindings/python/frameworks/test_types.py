"""What type checkers say of the modules for frameworks, and of the examples."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "checker", [["mypy", "--strict"], ["pyright", "-p", ".", "--pythonpath", sys.executable]]
)
def test_the_modules_are_typed(checker):
    check(*checker, *(f"src/llb/{name}.py" for name in ("langchain", "llama_index")))


def test_the_examples_are_typed(tmp_path):
    """Not strictly for pyright, which refuses every use of a package without types."""
    examples = PACKAGE / "frameworks" / "examples"
    check("mypy", "--strict", *map(str, sorted(examples.glob("*.py"))))
    settings = {
        "typeCheckingMode": "standard",
        "include": [str(examples)],
        "extraPaths": [str(PACKAGE / "src")],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    check("pyright", "-p", str(tmp_path), "--pythonpath", sys.executable)


def check(*checker):
    command = [sys.executable, "-m", *checker]
    process = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
