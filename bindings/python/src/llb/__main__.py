"""`python -m llb`: describe, fetch, talk to and render for models, from a terminal.

Output goes to stdout; progress and errors go to stderr. Exits with 1 on an error of the library.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

import llb
from llb._html import info_rows
from llb.types import Message

_HUB = "hf:"
# Names, types and meanings, as in the program `llb`.
_Option = Tuple[str, Callable[[str], object], str]
_CHAT_OPTIONS: Tuple[_Option, ...] = (
    ("n_ctx", int, "tokens of context"),
    ("n_threads", int, "threads of each decode"),
    ("n_gpu_layers", int, "layers on GPUs"),
    ("n_cpu_moe", int, "layers whose experts stay in main memory"),
    ("split_mode", str, "how GPUs divide the model: layer, none, row or tensor"),
    ("main_gpu", int, "the index of the GPU that has all layers, with split mode none"),
)
_SAMPLING: Tuple[_Option, ...] = (
    ("temperature", float, "what the model recommends, or 0.7"),
    ("top_p", float, "keeps the likeliest tokens up to this probability"),
    ("top_k", int, "keeps this number of tokens"),
    ("min_p", float, "drops tokens below this part of the likeliest one's probability"),
    ("seed", int, "repeats a reply"),
    ("reasoning_budget", int, "the most tokens of each block of reasoning"),
)
_MODEL = "a GGUF file, or hf:ORG/NAME[:QUANT] for a model of the Hugging Face hub"


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs a command and returns the exit status."""
    if sys.platform == "win32":
        # A pipe would have the system's code page, which lacks most characters.
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
                stream.reconfigure(encoding="utf-8")
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except llb.LlbError as error:
        print(f"llb: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"llb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llb", description="Run local GGUF chat models.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, help="the version of the library")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="describe a model and its capabilities")
    info.add_argument("model", help=_MODEL)
    info.add_argument("--json", action="store_true", help="all that is known, as JSON")
    info.set_defaults(run=_info)

    fetch = commands.add_parser("fetch", help="download a model of the Hugging Face hub")
    fetch.add_argument("id", help="ORG/NAME or ORG/NAME:QUANT")
    fetch.add_argument("--filename", help="a file of the repository")
    fetch.add_argument("--revision", help="a branch, a tag or a commit; main")
    fetch.add_argument("--cache-dir", help="the cache; that of huggingface_hub")
    fetch.add_argument("--offline", action="store_true", help="use only the cache")
    fetch.add_argument("--dry-run", action="store_true", help="describe the download as JSON")
    fetch.add_argument("--any", action="store_true", help="also a model without tools")
    fetch.set_defaults(run=_fetch)

    chat = commands.add_parser("chat", help="talk to a model; Ctrl-C ends a reply, Ctrl-D the chat")
    chat.add_argument("model", help=_MODEL)
    chat.add_argument("prompt", nargs="?", help="one message; without it, messages are read")
    chat.add_argument("--system", help="a system message")
    for name, kind, meaning in _CHAT_OPTIONS:
        chat.add_argument(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    chat.add_argument("--max-tokens", type=int, default=1024, help="of a reply; 1024")
    for name, kind, meaning in _SAMPLING:
        chat.add_argument(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    chat.set_defaults(run=_chat)

    render = commands.add_parser("render", help="print the prompt of messages")
    render.add_argument("model", help="a GGUF file, or a Jinja template (any other name)")
    render.add_argument("messages", nargs="?", metavar="FILE", help="JSON messages; stdin")
    render.add_argument("--tools", help="a JSON file of tools")
    render.add_argument("-m", "--message", help="one user message instead of a file")
    render.set_defaults(run=_render)
    return parser


class _Version(argparse.Action):
    """The library is loaded to print the version, so `--version` asks for it only when used."""

    def __init__(self, option_strings: List[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(llb.version())
        parser.exit()


def _path(model: str, require_tools: bool = True) -> str:
    """The path of a model file. A model on the hub is downloaded first."""
    if not model.startswith(_HUB):
        return model
    return llb.fetch(model[len(_HUB) :], require_tools=require_tools, progress=True)["path"]


def _info(options: argparse.Namespace) -> None:
    info = llb.model_info(_path(options.model, require_tools=False))
    if options.json:
        print(json.dumps(info, indent=2, ensure_ascii=False))
        return
    rows = info_rows(info)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    for finding in info["findings"]:
        print(f"{finding['severity']}: {finding['message']}")


def _fetch(options: argparse.Namespace) -> None:
    fetched = llb.fetch(
        options.id[len(_HUB) :] if options.id.startswith(_HUB) else options.id,
        filename=options.filename,
        revision=options.revision,
        cache_dir=options.cache_dir,
        offline=options.offline,
        dry_run=options.dry_run,
        require_tools=not options.any,
        progress=True,
    )
    print(json.dumps(fetched, indent=2) if options.dry_run else fetched["path"])


def _chat(options: argparse.Namespace) -> None:
    messages: List[Message] = []
    if options.system is not None:
        messages.append({"role": "system", "content": options.system})
    path = _path(options.model, require_tools=False)
    given = {name: getattr(options, name) for name, _, _ in _CHAT_OPTIONS}
    with llb.Chat(path, tool_policy="any", progress=True, **given) as chat:
        if options.prompt is not None:
            _reply(chat, [*messages, _user(options.prompt)], options)
            return
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "")
            except EOFError:
                return
            if line.strip():
                try:
                    messages += _reply(chat, [*messages, _user(line)], options)
                except KeyboardInterrupt:
                    print()


def _reply(chat: llb.Chat, messages: List[Message], options: argparse.Namespace) -> List[Message]:
    """Prints a reply as it arrives. Returns the messages that it adds to the conversation."""
    reasoning = sys.stdout.isatty()
    reply = chat.create(
        messages,
        stream=True,
        max_tokens=options.max_tokens,
        extra_body={name: getattr(options, name) for name, _, _ in _SAMPLING},
    ).until_done(
        on_text=lambda text: print(text, end="", flush=True),
        on_reasoning=lambda text: reasoning and print(f"\x1b[2m{text}\x1b[0m", end="", flush=True),
    )
    print()
    if reply["finish_reason"] == "length":
        print("llb: the reply was cut off; raise --max-tokens", file=sys.stderr)
    return [messages[-1], reply["message"]]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _render(options: argparse.Namespace) -> None:
    request: Dict[str, Any] = {}
    if options.model.startswith(_HUB) or options.model.endswith(".gguf"):
        request["gguf"] = _path(options.model, require_tools=False)
    else:
        request["chat_template"] = _read(options.model)
    if options.message is not None:
        request["messages"] = [_user(options.message)]
    else:
        request["messages"] = _json(options.messages)
    if options.tools is not None:
        request["tools"] = _json(options.tools)
    try:
        prompt = llb.template_render(**request)["prompt"]
    except llb.LlbError as error:
        if error.code != "TEMPLATE_ERROR":
            raise
        line = error.details.get("line") if error.details else None
        place = options.model if line is None else f"{options.model}:{line}"
        raise llb.LlbError(error.code, f"{place}: {error.message}", error.details) from error
    sys.stdout.write(prompt)


def _json(path: Optional[str]) -> Any:
    text = _read(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{_name(path)}: not JSON: {error}") from error


def _read(path: Optional[str]) -> str:
    if path is None or path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8") from error


def _name(path: Optional[str]) -> str:
    return "stdin" if path is None or path == "-" else path


if __name__ == "__main__":
    sys.exit(main())
