"""The coding agents of npm, started by `llb launch` on a scripted model: a task with a read, an edit and
a shell call ends. `make test-agents` installs them and runs this file.

Without `LLB_AGENTS`, the `node_modules` of `agents/package.json`, the tests are skipped.
"""

from __future__ import annotations

import os
import pathlib

import pytest
from coding_agents import ARGUMENTS, TASK, Workplace

AGENTS = os.environ.get("LLB_AGENTS", "")


@pytest.mark.parametrize("agent", ARGUMENTS)
def test_a_task_ends(agent: str, tmp_path: pathlib.Path) -> None:
    agents = pathlib.Path(AGENTS)
    if not AGENTS or not (agents / ".bin" / agent).exists():
        pytest.skip(f"{agent} is not in LLB_AGENTS")
    place = Workplace(tmp_path, agents)
    said = place.launch(agent, ["--n-ctx", "65536"], TASK)
    assert "The task is done." in said
    # The edit came before the copy.
    files = [(place.folder / name).read_text() for name in ("notes.txt", "copy.txt")]
    assert files == ["alpha\ngamma\n"] * 2
