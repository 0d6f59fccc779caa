"""How the tests start coding agents, each in a folder and with a home of its own.

`LLB_AGENTS` is the `node_modules` of an npm installation with `agents/package.json`, `LLB_AIDER` the
folder of the program aider.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from typing import Dict, List

from conftest import MODELS, PROGRAM

MODEL = str(MODELS / "agent.gguf")
TASK = "Replace beta by gamma in notes.txt, and keep a copy in copy.txt."
# All tools of Claude Code make a prompt of 77,000 bytes, each a token of the scripted model.
TOOLS = "--tools=Read,Edit,Bash,Write,Skill,TaskCreate,TaskUpdate"
# aider runs no command that a model asks for unless a person agrees, but it runs a test.
AIDER = ["--yes-always", "--no-pretty", "--no-check-update", "--no-show-release-notes", "--no-git"]
AIDER += ["--no-analytics", "--no-show-model-warnings", "--no-detect-urls", "--auto-test"]
AIDER += ["--test-cmd=cp notes.txt copy.txt", "notes.txt", "--message"]
# The arguments of a run without a terminal: for the first task, and for one that continues.
ARGUMENTS: Dict[str, List[List[str]]] = {
    "codex": [
        ["exec", *options, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        for options in ([], ["resume", "--last"])
    ],
    "claude": [
        [*options, TOOLS, "--allowedTools=Read,Edit,Bash", "-p"] for options in ([], ["--continue"])
    ],
    "opencode": [["run"], ["run", "--continue"]],
    "aider": [AIDER, ["--restore-chat-history", *AIDER]],
}
# What the settings of Continue's program are in.
CONTINUE = """name: llb
version: 1.0.0
schema: v1
models:
  - name: agent
    provider: openai
    model: agent
    apiBase: {url}/v1
    apiKey: none
"""


class Workplace:
    """A folder with `notes.txt`, and an environment for an agent."""

    def __init__(self, folder: pathlib.Path, programs: str) -> None:
        """`programs` are folders of programs, as in `PATH`."""
        self.folder = folder / "work"
        self.folder.mkdir()
        (self.folder / "notes.txt").write_text("alpha\nbeta\n")
        self.home = folder / "home"
        (self.home / ".codex").mkdir(parents=True)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
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
        return self.run([os.path.abspath(part) if part == PROGRAM else part for part in command])

    def use_cline(self, url: str, task: str) -> str:
        """Runs Cline's program, whose settings a command writes."""
        provider = ["auth", "-p", "openai-compatible", "-k", "none", "-m", "agent"]
        self.run(["cline", *provider, "-b", f"{url}/v1"])
        return self.run(["cline", task])

    def use_continue(self, url: str, task: str) -> str:
        """Runs Continue's program."""
        settings = self.home / "config.yaml"
        settings.write_text(CONTINUE.format(url=url))
        return self.run(["cn", "--config", str(settings), "--auto", "-p", task])

    def run(self, command: List[str]) -> str:
        """Runs a command in the folder, and returns what it prints."""
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert ran.returncode == 0, (ran.stdout + ran.stderr)[-2000:]
        return ran.stdout

    def end(self) -> None:
        """Ends what an agent has left running: Cline starts a daemon."""
        mark = f"HOME={self.home}".encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                is_ours = mark in (process / "environ").read_bytes().split(b"\0")
                if is_ours:
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue
