"""How the tests start the coding agents of npm, each in a folder and with a home of its own.

`LLB_AGENTS` is the `node_modules` of an npm installation with `agents/package.json`.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Dict, List

from conftest import MODELS, PROGRAM

MODEL = str(MODELS / "agent.gguf")
TASK = "Replace beta by gamma in notes.txt, and keep a copy in copy.txt."
# All tools of Claude Code make a prompt of 77,000 bytes, each a token of the scripted model.
TOOLS = "--tools=Read,Edit,Bash,Write,Skill,TaskCreate,TaskUpdate"
# The arguments of a run without a terminal: for the first task, and for one that continues.
ARGUMENTS: Dict[str, List[List[str]]] = {
    "codex": [
        ["exec", *options, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        for options in ([], ["resume", "--last"])
    ],
    "claude": [
        [*options, TOOLS, "--allowedTools=Read,Edit,Bash", "-p"]
        for options in ([], ["--continue"])
    ],
    "opencode": [["run"], ["run", "--continue"]],
}


class Workplace:
    """A folder with `notes.txt`, and an environment for an agent."""

    def __init__(self, folder: pathlib.Path, agents: pathlib.Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        (self.folder / "notes.txt").write_text("alpha\nbeta\n")
        home = folder / "home"
        (home / ".codex").mkdir(parents=True)
        self.environment = {
            "PATH": f"{agents / '.bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "dumb",
            # Claude Code refuses some modes to root, unless it is in a container.
            "IS_SANDBOX": "1",
            "API_TIMEOUT_MS": "900000",
            # opencode would wait for servers that a test may not reach.
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    def launch(self, agent: str, options: List[str], task: str, is_first: bool = True) -> str:
        """Runs `llb launch AGENT` in the folder, and returns what it prints."""
        arguments = ARGUMENTS[agent][0 if is_first else 1]
        command = [PROGRAM, "launch", agent, f"agent={MODEL}", *options, "--", *arguments, task]
        ran = subprocess.run(
            [os.path.abspath(part) if part == PROGRAM else part for part in command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout
