"""The blocks of README.md that need other packages run as they are copied."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
BLOCKS = [block for block in BLOCKS if "from llb." in block]


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_a_block_runs(models, expected, tmp_path, monkeypatch, capsys, at):
    (tmp_path / "model.gguf").symlink_to(models("text"))
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[at], str(README), "exec"), {})
    assert capsys.readouterr().out == expected["text"] + "\n"
