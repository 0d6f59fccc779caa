"""Renders every template with every conversation by Hugging Face transformers: render.py FOLDER

In: FOLDER with templates.tsv, templates/ and contexts/. Out: FOLDER/goldens.jsonl.gz, in the order of
the table and of the conversations' names, the same bytes each time. Runs in the virtual environment
that has the pinned transformers and jinja2. Never uses the network.
"""

import csv
import datetime
import gzip
import json
import multiprocessing
import os
import re
import sys
from pathlib import Path

from jinja2.exceptions import SecurityError, TemplateError, TemplateRuntimeError, UndefinedError
from transformers.utils import chat_template_utils as transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from models import Progress, say

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
UNDEFINED = re.compile(r"'(\w+)' is undefined")


class Clock(datetime.datetime):
    """The clock of strftime_now: the time of the conversation."""

    time = None

    @classmethod
    def now(cls, tz=None):
        return cls.time


transformers.datetime = Clock


def kind_of(error):
    """The word for an error; that of transformers itself is told from the template's own."""
    if isinstance(error, UndefinedError):
        return "undefined_variable" if UNDEFINED.fullmatch(error.message) else "undefined_attribute"
    if isinstance(error, SecurityError):
        return "security"
    if isinstance(error, TemplateRuntimeError):
        return "template_runtime"
    if type(error) is TemplateError:
        return "raise_exception"
    if isinstance(error, ValueError) and str(error).startswith("continue_final_message is set"):
        return "continue_final_message"
    return type(error).__name__


def outcome(render):
    """What a render gives: its text or its error, as in a line of the goldens."""
    try:
        text, spans = render()
    except Exception as error:
        # How deep Python got depends on the caller, so that message says nothing.
        message = "" if isinstance(error, RecursionError) else str(error)
        return {"ok": False, "error": {"class": type(error).__name__, "kind": kind_of(error), "message": message}}, None
    return {"ok": True, "text": text}, spans


def golden(name, source, tokens, context):
    Clock.time = Clock.fromisoformat(context["now"])
    messages = context["messages"]
    given = {key: context.get(key) for key in ("tools", "documents", "add_generation_prompt")}
    variables = {**tokens, **context["kwargs"]}
    continues = context.get("continue_final_message", False)
    tracked = bool(GENERATION.search(source))

    def prepared():
        texts, spans = transformers.render_jinja_template(
            [messages],
            chat_template=source,
            return_assistant_tokens_mask=tracked,
            continue_final_message=continues,
            **given,
            **variables,
        )
        return texts[0], spans[0] if tracked else None

    def bare():
        template = transformers._compile_jinja_template(source)
        return template.render(messages=messages, **given, **variables), None

    result, spans = outcome(prepared)
    line = {"template": name, "context": context["name"], **result}
    # transformers changes messages only for these two reasons.
    if continues or transformers._alias_reasoning_fields(messages) != messages:
        raw, _ = outcome(bare)
        if raw != result:
            line["raw"] = raw
    # After a cut they would not fit the text.
    if spans is not None and not continues:
        line["generation_spans"] = spans
    if not result["ok"] and result["error"]["kind"] == "undefined_variable":
        line["missing_variable"] = UNDEFINED.fullmatch(result["error"]["message"])[1]
    return line


def lines_of(task):
    folder, row = task
    source = (folder / "templates" / f"{row['name']}.jinja").read_bytes().decode("utf-8")
    tokens = {key: row[key] for key in ("bos_token", "eos_token")}
    lines = [golden(row["name"], source, tokens, context) for context in contexts_of(folder)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def contexts_of(folder):
    paths = sorted((folder / "contexts").glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def main():
    folder = Path(sys.argv[1])
    with (folder / "templates.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    progress = Progress()
    new = folder / "goldens.jsonl.gz.new"
    count = 0
    with new.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as out, multiprocessing.Pool() as pool:
        for done, lines in enumerate(pool.imap(lines_of, [(folder, row) for row in rows]), 1):
            out.write(lines.encode("utf-8"))
            count += lines.count("\n")
            progress.show(f"  rendering: {done} of {len(rows)} templates")
    progress.clear()
    os.replace(new, folder / "goldens.jsonl.gz")
    say(f"  {count} renders of {len(rows)} templates")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
