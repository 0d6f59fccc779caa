"""The code in README.md runs as it is copied."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
# `make test-python-frameworks` runs those that need other packages.
BLOCKS = [block for block in BLOCKS if "from llb." not in block]


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_a_block_runs(script, models, tmp_path, at):
    """Each block runs after the imports of those before it, in a folder with `model.gguf`."""
    (tmp_path / "model.gguf").symlink_to(models("text"))
    earlier = "".join(re.findall(r"^import .*\n", "".join(BLOCKS[:at]), re.M))
    script(f"import os\nos.chdir({str(tmp_path)!r})\n{earlier}{BLOCKS[at]}")
