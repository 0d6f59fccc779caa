"""The code in README.md runs as it is copied."""

import shutil

import pytest

import readme_blocks

# `make test-python-frameworks` runs those that need other packages.
PROGRAMS = [program for program, needs in readme_blocks.programs() if needs is None]


@pytest.mark.parametrize("at", range(len(PROGRAMS)))
def test_a_block_runs(script, models, tmp_path, at):
    model = "embedding" if "Embedder(" in PROGRAMS[at] else "text"
    (tmp_path / "model.gguf").symlink_to(models(model))
    script(f"import os\nos.chdir({str(tmp_path)!r})\n{PROGRAMS[at]}")


def test_the_commands_run(models, tmp_path, expected, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(models("text"), tmp_path / "model.gguf")
    info, path, reply, prompt = readme_blocks.run_commands(tmp_path)
    assert "architecture" in info
    assert path.strip().endswith("m-Q8_0.gguf")
    assert reply == expected["text"] + "\n"
    assert "Hello!" in prompt
