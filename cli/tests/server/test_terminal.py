"""Tests the program on a terminal and with a hub, which the tests in Rust cannot provide."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import time

import pytest
from conftest import EXPECTED, HANGS, MODELS, PROGRAM, TOOLS
from picture_files import png
from sound_files import tone

sys.path.append(str(pathlib.Path(__file__).parents[3] / "bindings/python/tests"))
from hub_server import Hub  # noqa: E402


# The editor reads only after it has drawn its prompt. Earlier input may get lost.
PROMPT = "\x1b[K> "


class Terminal:
    """`llb` on a pseudo-terminal."""

    def __init__(self, *arguments: str, env: dict) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [PROGRAM, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", **env},
            start_new_session=True,
            preexec_fn=lambda: _control(slave),
        )
        os.close(slave)
        self.screen = ""

    def wait_for(self, text: str) -> None:
        """Reads until a text appears, after the texts of earlier waits."""
        end = time.monotonic() + HANGS
        while text not in self.screen:
            assert time.monotonic() < end, self.screen
            if select.select([self.master], [], [], 0.1)[0]:
                self.screen += os.read(self.master, 65536).decode("utf-8", "replace")
        self.seen, _, self.screen = self.screen.partition(text)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def answer(self, line: str) -> None:
        """Types a line at the prompt."""
        self.wait_for(PROMPT)
        self.type(line + "\r")

    def end(self) -> int:
        status = self.process.wait(HANGS)
        os.close(self.master)
        return status


    def resize(self, columns: int) -> None:
        """Sets the width that programs ask for."""
        import fcntl
        import termios

        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def _control(terminal: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def test_a_chat(tmp_path: pathlib.Path) -> None:
    saved = tmp_path / "chat.json"
    environment = {"XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"}
    chat = Terminal("chat", str(MODELS / "long.gguf"), env=environment)
    chat.answer("count")
    chat.wait_for("Counting:")
    # Ends the reply but not the program.
    chat.type("\x03")
    chat.answer("/undo")
    chat.answer("/system Be brief.")
    chat.answer("one \\")
    chat.type("two\r")
    chat.wait_for("300 done.")
    chat.answer(f"/save {saved}")
    chat.wait_for("saved ")
    chat.answer("/nothing")
    chat.wait_for("unknown command")
    chat.wait_for(PROMPT)
    chat.type("\x04")
    assert chat.end() == 0
    messages = json.loads(saved.read_text())["messages"]
    assert [message["content"] for message in messages] == [
        "Be brief.",
        "one \ntwo",
        EXPECTED["long"],
    ]
    history = tmp_path / "llb/history"
    assert "count" in history.read_text() and history.stat().st_mode & 0o077 == 0


def test_the_settings_of_a_chat(tmp_path: pathlib.Path) -> None:
    """The effects of /system, /tools, /save and /load, as shown by the saved file."""
    names = ["1.json", "2.json", "5.json", "tools.json"]
    first, second, wrong, tools = (tmp_path / name for name in names)
    wrong.write_text("5")
    tools.write_text(json.dumps(TOOLS))
    chat = Terminal("chat", str(MODELS / "tool_call.gguf"), "--no-history", env={"NO_COLOR": "1"})

    def command(line: str, note: str) -> None:
        chat.answer(line)
        chat.wait_for(note)

    command("/system", "no system message")
    command("/system Be brief.", "\r\nBe brief.")
    command("/system", "\r\nBe brief.")
    command(f"/tools {tools}", "1 tool")
    for line in [f"/tools {wrong}", f"/load {wrong}", f"/tools {tmp_path}/none", "/save", "/retry"]:
        command(line, "llb: ")
    command("weather", 'get_weather({"city": "Paris"})')
    chat.wait_for("result of get_weather> ")
    chat.type("\x03")
    # The turn without a result is forgotten, and so are the tools. Without tools it is text.
    command("/tools", "get_weather")
    command("/tools none", "no tools")
    command("/tools", "no tools")
    command("weather", "get_weather")
    command(f"/save {first}", "saved ")
    command(f"/tools {tools}", "1 tool")
    command("/clear", "0 messages")
    command("/system Be long.", "\r\nBe long.")
    command(f"/save {second}", "saved ")
    command(f"/load {first}", "2 messages")
    command("/system", "\r\nBe brief.")
    command("/usage", "tokens in the conversation")
    command(f"/save {tmp_path}", "llb: ")
    chat.answer("/quit")
    assert chat.end() == 0
    saved = json.loads(first.read_text())
    assert [message["role"] for message in saved["messages"]] == ["system", "user", "assistant"]
    assert saved["messages"][0]["content"] == "Be brief." and "tools" not in saved
    messages = [{"role": "system", "content": "Be long."}]
    assert json.loads(second.read_text()) == {"messages": messages, "tools": TOOLS}


def test_pictures_in_a_chat(tmp_path: pathlib.Path) -> None:
    model = str(MODELS / "pictures" / "mlp" / "model.gguf")
    picture, saved = tmp_path / "a red one.png", tmp_path / "1.json"
    picture.write_bytes(png(255, 20, 20))
    options = ["--no-history", "--temperature", "0", "--max-tokens", "8"]
    chat = Terminal("chat", model, *options, "--projector", "auto", env={"NO_COLOR": "1"})

    def command(line: str, note: str) -> None:
        chat.answer(line)
        chat.wait_for(note)

    text = tmp_path / "text.png"
    text.write_text("no picture")
    command(f"/image {tmp_path}/none.png", "llb: ")
    command(f"/image {picture}", "1 picture for the next message")
    command(f"/image {text}", "2 pictures for the next message")
    # The message can be sent again without the file that is refused.
    command("what is it", f"{text}: not a picture")
    command("what is it", "cut off after 8 tokens")
    command("and now", "cut off after 8 tokens")
    command(f"/save {saved}", "saved ")
    chat.answer("/quit")
    assert chat.end() == 0
    asked = [each for each in json.loads(saved.read_text())["messages"] if each["role"] == "user"]
    data = base64.b64encode(picture.read_bytes()).decode()
    assert [each["content"] for each in asked] == [
        [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            {"type": "text", "text": "what is it"},
        ],
        "and now",
    ]
    chat = Terminal("chat", model, *options, env={"NO_COLOR": "1"})
    command(f"/image {picture}", "the model takes text only")
    chat.wait_for("--projector FILE")
    chat.answer("/quit")
    assert chat.end() == 0


def test_sounds_in_a_chat(tmp_path: pathlib.Path) -> None:
    model = str(MODELS / "sounds" / "qwen2a" / "model.gguf")
    sound, saved = tmp_path / "a low one.wav", tmp_path / "1.json"
    sound.write_bytes(tone(200, 1))
    options = ["--no-history", "--temperature", "0", "--max-tokens", "8"]
    chat = Terminal("chat", model, *options, "--projector", "auto", env={"NO_COLOR": "1"})

    def command(line: str, note: str) -> None:
        chat.answer(line)
        chat.wait_for(note)

    command(f"/audio {tmp_path}/none.wav", "llb: ")
    command(f"/audio {sound}", "1 sound for the next message")
    command(f"/audio {sound}", "2 sounds for the next message")
    command("what is it", "cut off after 8 tokens")
    command("and now", "cut off after 8 tokens")
    command(f"/save {saved}", "saved ")
    chat.answer("/quit")
    assert chat.end() == 0
    asked = [each for each in json.loads(saved.read_text())["messages"] if each["role"] == "user"]
    data = base64.b64encode(sound.read_bytes()).decode()
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    whole = [part, part, {"type": "text", "text": "what is it"}]
    assert [each["content"] for each in asked] == [whole, "and now"]
    chat = Terminal("chat", model, *options, env={"NO_COLOR": "1"})
    command(f"/audio {sound}", "/audio: the model takes text only")
    chat.wait_for("--projector FILE")
    chat.answer("/quit")
    assert chat.end() == 0


def test_a_chat_changes_its_settings_and_its_model(tmp_path: pathlib.Path) -> None:
    chat = Terminal("chat", str(MODELS / "text.gguf"), "--no-history", env={"NO_COLOR": "1"})

    def command(line: str, note: str) -> None:
        chat.answer(line)
        chat.wait_for(note)

    command("/set max-tokens 2", "max_tokens  2")
    command("hello", "cut off after 2 tokens")
    chat.wait_for("2 tokens, ")
    chat.wait_for(" per second, the first after ")
    command("/set max_tokens 0", "llb: max_tokens: ")
    command("/set nonsense 1", "no setting has this name")
    command("/set temperature=0", "temperature  0")
    command("/set", "max_tokens   2")
    command("/set max_tokens default", "temperature  0")
    command("/model", "text.gguf")
    command(f"/model {tmp_path}/none", "no such file")
    command("/model", "text.gguf")
    command(f"/model {MODELS / 'long.gguf'}", "long.gguf")
    command("go on", "Counting:")
    chat.wait_for("300 done.")
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    command(f"/save {first}", "saved ")
    command("/undo", "2 messages")
    command(f"/save {first}", "saved ")
    second.write_text("mine")
    command(f"/save {second}", "this file exists")
    assert second.read_text() == "mine"
    command(f"/save! {second}", "saved ")
    chat.answer("/quit")
    assert chat.end() == 0
    assert len(json.loads(first.read_text())["messages"]) == 2
    assert json.loads(second.read_text()) == json.loads(first.read_text())


def test_lines_break_between_words_at_the_width_of_the_terminal() -> None:
    for columns in (20, 60):
        chat = Terminal("chat", str(MODELS / "long.gguf"), "--no-history", env={"NO_COLOR": "1"})
        chat.resize(columns)
        chat.wait_for(PROMPT)
        chat.type("count\r")
        chat.wait_for("Counting:")
        chat.wait_for("300 done.")
        lines = ("Counting:" + chat.seen + "300 done.").split("\r\n")
        assert max(len(line) for line in lines) <= columns
        words = " ".join(lines).split()
        assert words == EXPECTED["long"].split()
        # A line holds at most its columns and the space that the break replaces.
        assert len(lines) * (columns + 1) > len(EXPECTED["long"])
        chat.wait_for(PROMPT)
        chat.type("\x04")
        assert chat.end() == 0


def test_calls_ask_for_their_results(tmp_path: pathlib.Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    model = str(MODELS / "tool_call.gguf")
    chat = Terminal("chat", model, "--tools", str(tools), "--no-history", env={"NO_COLOR": "1"})
    chat.answer("weather")
    chat.wait_for('get_weather({"city": "Paris"})')
    chat.wait_for("result of get_weather> ")
    # The turn is forgotten because it has no result.
    chat.type("\x03")
    chat.wait_for(PROMPT)
    chat.type("\x04")
    assert chat.end() == 0


def test_reasoning_is_dimmed_only_with_colours() -> None:
    for colours, dim in [({}, "\x1b[2m"), ({"NO_COLOR": "1"}, "")]:
        chat = Terminal("chat", str(MODELS / "reasoning.gguf"), "x", env=colours)
        chat.wait_for("One, two,")
        assert chat.seen.endswith(dim)
        assert bool(re.search(r"\x1b\[\d+m", chat.seen)) == bool(dim)
        chat.wait_for("The answer.")
        assert chat.end() == 0


@pytest.fixture
def hub(tmp_path: pathlib.Path, monkeypatch):
    running = Hub({"m-Q8_0.gguf": (MODELS / "text.gguf").read_bytes()})
    monkeypatch.setenv("HF_ENDPOINT", running.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    yield running
    running.close()


def llb(*arguments: str, status: int = 0) -> str:
    process = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    assert process.returncode == status, process.stderr
    return process.stdout


def info_of(model: str) -> dict:
    """What `llb info` says, without the free memory, which changes between two calls."""
    info = json.loads(llb("info", model, "--json"))
    for memory in (info["memory"], *info["memory"]["contexts"]):
        for device in memory["devices"]:
            del device["free"]
    return info


def test_models_of_a_hub(hub: Hub) -> None:
    info = info_of("hf:o/n")
    assert info["name"] == "Scripted text" and hub.downloads() == []
    by_page = info_of(f"{hub.url}/o/n/resolve/main/m-Q8_0.gguf")
    assert by_page == info and hub.downloads() == []
    path = llb("fetch", "o/n").strip()
    assert len(hub.downloads()) == 1
    assert llb("run", "hf:o/n", "-p", "x") == EXPECTED["text"] + "\n"
    [model] = [m for m in json.loads(llb("models", "--json")) if m["place"] == "hub"]
    assert (model["name"], model["path"]) == ("o/n/m-Q8_0.gguf", path)
    assert llb("models", "verify", "o/n").startswith("o/n/m-Q8_0.gguf: ok, ")
    llb("models", "remove", "o/n")
    assert not os.path.exists(path)
    llb("fetch", "o/none", status=1)


# A coding agent: one request to the server that its environment names, and an exit status.
AGENT = """#!{python}
import json, os, sys, urllib.request

request = urllib.request.Request(
    os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
    json.dumps({{
        "model": os.environ["ANTHROPIC_MODEL"],
        "max_tokens": 20,
        "messages": [{{"role": "user", "content": "hi"}}],
    }}).encode(),
    {{"authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"]}},
)
with urllib.request.urlopen(request) as reply:
    print(sys.argv[1:], json.load(reply)["content"][0]["text"])
sys.exit(7)
"""


def launch(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    """Runs `llb launch` with the programs of a folder alone."""
    return subprocess.run(
        [PROGRAM, "launch", *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS,
        env={"PATH": str(folder), "HOME": str(folder), "LLB_API_KEY": "secret"},
    )


def test_launch_starts_an_agent_on_a_model(tmp_path):
    agent = tmp_path / "claude"
    agent.write_text(AGENT.format(python=sys.executable))
    agent.chmod(0o755)
    run = launch(tmp_path, "claude", f"{MODELS}/text.gguf", "--", "--flag")
    assert run.returncode == 7, run.stderr
    assert run.stdout.strip() == f"['--flag'] {EXPECTED['text']}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["claude"]


def test_launch_of_a_missing_agent_says_how_to_install_it(tmp_path):
    run = launch(tmp_path, "codex", "no-such-model.gguf")
    assert run.returncode == 1
    assert "npm install -g @openai/codex" in run.stderr
