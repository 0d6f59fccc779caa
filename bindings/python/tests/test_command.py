"""`python -m llb`, progress, the log, and what notebooks show."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import llb
from llb import _progress
from llb.__main__ import main
from test_chat import HELLO
from test_hub import hub  # noqa: F401


def test_info_is_a_table_or_json(models, capsys):
    assert main(["info", str(models("text"))]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["tools"] == "yes (native)"
    assert main(["info", "--json", str(models("text"))]) == 0
    assert json.loads(capsys.readouterr().out) == llb.model_info(models("text"))


def test_chat_prints_the_reply(models, capsys, expected):
    assert main(["chat", str(models("text")), "Say hello.", "--temperature", "0"]) == 0
    assert capsys.readouterr() == (expected["text"] + "\n", "")


def test_chat_passes_on_its_options(models, capsys):
    options = ["--n-ctx", "512", "--n-threads", "1", "--top-k", "5", "--seed", "1"]
    assert main(["chat", str(models("text")), "hi", "--max-tokens", "1", *options]) == 0
    assert "cut off" in capsys.readouterr().err
    for wrong in (["--n-ctx", "-1"], ["--top-p", "-1"]):
        assert main(["chat", str(models("text")), "hi", *wrong]) == 1
        assert wrong[0].strip("-").replace("-", "_") in capsys.readouterr().err


def test_chat_reads_messages_until_the_end_of_input(models, expected):
    process = subprocess.run(
        [sys.executable, "-m", "llb", "chat", str(models("text")), "--temperature", "0"],
        input="One.\n\nTwo.\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(llb.__file__).parents[1])},
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == (expected["text"] + "\n") * 2


def test_render_prints_the_prompt(models, capsys, tmp_path):
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps(HELLO))
    prompt = llb.template_render(gguf=models("text"), messages=HELLO)["prompt"]
    text = HELLO[0]["content"]
    for arguments in ([str(messages)], ["--message", text], ["-m", text]):
        assert main(["render", str(models("text")), *arguments]) == 0
        assert capsys.readouterr().out == prompt
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[0].content }}!")
    assert main(["render", str(template), str(messages)]) == 0
    assert capsys.readouterr().out == "Say hello.!"


def test_fetch_prints_the_path(hub, capsys):  # noqa: F811
    for id in ("o/n", "hf:o/n"):
        assert main(["fetch", id]) == 0
        out, err = capsys.readouterr()
        assert out.strip() == llb.fetch("o/n")["path"]
    # stderr is no terminal.
    assert err == ""
    assert main(["info", "hf:o/n"]) == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["info", "absent.gguf"], "llb: MODEL_NOT_FOUND: "),
        (["render", "absent.jinja", "--message", "x"], "llb: absent.jinja: No such file"),
        (["render", "a.jinja", "broken.json"], "llb: broken.json: not JSON: "),
        (["render", "bytes.jinja", "--message", "x"], "llb: bytes.jinja: not UTF-8"),
        (["render", "open.jinja", "--message", "x"], "llb: TEMPLATE_ERROR: open.jinja:2: "),
    ],
)
def test_an_error_is_one_line(library, capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jinja").write_text("a")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "bytes.jinja").write_bytes(b"\xff")
    (tmp_path / "open.jinja").write_text("\n{{ x")
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(message) and err.count("\n") == 1


def test_the_version_is_that_of_the_library(library, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == llb.version() + "\n"


class Terminal:
    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.fixture
def as_terminal(monkeypatch):
    """Makes stderr a terminal. Not done here: pytest sets stderr again before the test."""

    def make():
        monkeypatch.setattr(sys, "stderr", Terminal())
        return sys.stderr

    return make


def test_the_load_is_shown_on_a_terminal(models, as_terminal, monkeypatch):
    terminal = as_terminal()
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    events = []
    with llb.Chat(models("text"), progress=True, on_event=events.append):
        pass
    assert terminal.text.startswith("\rtext.gguf: ")
    assert terminal.text.endswith("text.gguf: 100 %\n")
    assert events[0] == "create_start"


def test_a_download_is_shown_by_tqdm(hub, as_terminal, monkeypatch):  # noqa: F811
    as_terminal()
    states = []

    class tqdm:
        def __init__(self, **options):
            self.n, self.total = 0, options["total"]
            assert options["desc"] == "o/n" and options["unit_scale"]

        def update(self, more):
            self.n += more
            states.append((self.n, self.total))

        def close(self):
            states.append("closed")

    auto = type(sys)("tqdm.auto")
    auto.tqdm = tqdm
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    size = llb.fetch("o/n", progress=True)["total_bytes"]
    assert states[-2:] == [(size, size), "closed"]


def test_nothing_is_shown_in_a_pipe(capsys):
    _progress.Progress("x")(1, 2)
    assert capsys.readouterr().err == ""


def test_the_log_goes_to_logging(models, caplog):
    caplog.set_level(logging.DEBUG, logger="llb")
    with llb.Chat(models("text"), log="debug") as chat:
        chat.create(HELLO, max_tokens=1)
    assert caplog.records
    assert {record.name for record in caplog.records} == {"llb"}
    assert {record.levelno for record in caplog.records} <= {10, 20, 30, 40}


def test_the_log_is_silent_without_configuration(script, models):
    code = "import llb, sys; llb.Chat(sys.argv[1], log='debug').close()"
    assert script(code, models("text")) == ""


def test_notebooks_show_the_capabilities(chat, models):
    shown = chat("text")
    assert "<caption>&lt;llb.AsyncChat " in llb.AsyncChat(models("text"))._repr_html_()
    html = shown._repr_html_()
    assert html.startswith("<table><caption>&lt;llb.Chat ")
    assert (
        "<th style='text-align:left'>tools</th><td style='text-align:left'>yes (native)</td>"
        in html
    )
