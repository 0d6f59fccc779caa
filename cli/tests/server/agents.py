"""Coding agents with a scripted model: a task with a read, an edit and a shell call ends, and prompts
are in the cache. `make test-agents` installs the agents and runs this file.

`LLB_AGENTS` and `LLB_AIDER` say where they are (`coding_agents.py`). Without them, the tests are skipped.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import Iterator, List, Tuple

import pytest
from coding_agents import ARGUMENTS, MODEL, TASK, Workplace
from conftest import Server

PROGRAMS = [
    str(pathlib.Path(folder) / name)
    for folder, name in ((os.environ.get("LLB_AGENTS"), ".bin"), (os.environ.get("LLB_AIDER"), ""))
    if folder
]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Workplace]:
    place = Workplace(tmp_path, ":".join(PROGRAMS))
    yield place
    place.end()


def need(program: str) -> None:
    if not any((pathlib.Path(folder) / program).exists() for folder in PROGRAMS):
        pytest.skip(f"{program} is not in LLB_AGENTS or LLB_AIDER")


def check(place: Workplace, said: str, last: str = "The task is done.") -> None:
    assert last in said
    # The edit came before the copy.
    files = [(place.folder / name).read_text() for name in ("notes.txt", "copy.txt")]
    assert files == ["alpha\ngamma\n"] * 2


def prompts(server: Server) -> List[Tuple[int, int]]:
    """The tokens of each prompt, and those that were in the cache."""
    line = re.compile(r"POST /v1/chat/completions 200 .* prompt=(\d+) cached=(\d+)")
    found = [line.search(text) for text in server.log]
    return [(int(match[1]), int(match[2])) for match in found if match]


@pytest.mark.parametrize("agent", ARGUMENTS)
def test_a_task_ends(agent: str, place: Workplace) -> None:
    need(agent)
    said = place.launch(agent, ["--n-ctx", "65536"], TASK)
    check(place, said, *(["Applied edit to notes.txt"] if agent == "aider" else []))


@pytest.mark.parametrize("agent", ["cline", "continue"])
def test_a_task_ends_with_settings_in_files(agent: str, place: Workplace) -> None:
    need({"continue": "cn"}.get(agent, agent))
    server = Server(f"agent={MODEL}", "--n-ctx", "65536")
    use = place.use_cline if agent == "cline" else place.use_continue
    check(place, use(server.url, TASK))
    assert server.stop() == 0, server.log
    found = prompts(server)
    assert len(found) == 4
    for (before, _), (_, cached) in zip(found, found[1:]):
        # The last token of a prompt is the step of the scripted model.
        assert cached >= before - 1, found
