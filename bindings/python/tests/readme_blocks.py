"""Runs the Python of README.md and of other pages as it is copied, each block on its own, in a
folder with `model.gguf`.

As a program, it needs only the installed package: `python readme_blocks.py MODEL [FRAMEWORK...]`
runs every block of Python, and the commands of `python -m llb`, each in a process of its own.
Blocks that import `openai` or `llb.FRAMEWORK` need the name of the framework. The hub of the
commands is on loopback.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
# The other pages with programs of Python, in a checkout. docs/server.md needs a running server. In
# docs/moving.md the language of other projects' programs is `py`.
PAGES = [README.parents[2] / name for name in ("README.md", "docs/start.md", "docs/moving.md")]


def blocks(language, page=README):
    """The blocks of a language, in their order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def framework(block):
    """The framework that a block imports, or None."""
    found = re.search(r"^(?:from llb\.(\w+) import|import (openai))", block, re.M)
    return found and (found[1] or found[2])


def programs():
    """Each block of Python, with its framework."""
    for page in [README, *filter(Path.is_file, PAGES)]:
        for block in blocks("python", page):
            yield block, framework(block)


def commands():
    """The commands of `python -m llb`."""
    lines = "".join(blocks("sh")).splitlines()
    return [line for line in lines if line.startswith("python -m llb ")]


def run(command, folder, **environment):
    """Runs a program in a folder and returns its stdout. Raises RuntimeError if it fails."""
    process = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if process.returncode != 0:
        raise RuntimeError(f"{command[-1]}\n{process.stdout}{process.stderr}")
    return process.stdout


def run_commands(folder):
    """Runs the commands, with a hub that has the model of the folder. Returns their outputs."""
    from hub_server import Hub

    hub = Hub({"m-Q8_0.gguf": (folder / "model.gguf").read_bytes()}, id="org/name")
    try:
        return [
            run(
                [sys.executable, *shlex.split(line, comments=True)[1:]],
                folder,
                HF_ENDPOINT=hub.url,
                HF_HOME=str(folder / "hub"),
            )
            for line in commands()
        ]
    finally:
        hub.close()


def main():
    import llb

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(sys.argv[1], folder / "model.gguf")
        count = 0
        for block, needs in programs():
            if needs is None or needs in sys.argv[2:]:
                run([sys.executable, "-c", block], folder)
                count += 1
        count += len(run_commands(folder))
    print(f"{count} blocks ran with {llb.version()}, {llb.__file__}")


if __name__ == "__main__":
    main()
