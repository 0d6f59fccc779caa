"""The blocks of README.md that need other packages run as they are copied."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import readme_blocks

PROGRAMS = [program for program, needs in readme_blocks.programs() if needs is not None]


@pytest.mark.parametrize("at", range(len(PROGRAMS)))
def test_a_block_runs(models, expected, tmp_path, at):
    (tmp_path / "model.gguf").symlink_to(models("text"))
    output = readme_blocks.run([sys.executable, "-c", PROGRAMS[at]], tmp_path)
    assert set(output.splitlines()) == {expected["text"]}
