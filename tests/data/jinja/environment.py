"""The real environment: transformers' Jinja2 environment with a fixed clock, and what a template does in it."""

import datetime
import json
import os
import re

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import jinja2
import transformers
from transformers.utils import chat_template_utils

JINJA2 = "3.1.6"
TRANSFORMERS = "5.23.0"
NOW = datetime.datetime(2026, 1, 31, 9, 30, 0)

# What transformers passes besides the caller's own variables; `llb_template_render` is given the
# same.
FIXED = {
    "messages": [{"role": "user", "content": "x"}],
    "tools": None,
    "documents": None,
    "add_generation_prompt": False,
}

ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def check_versions():
    wrong = [
        f"{name} {found}, not {wanted}"
        for name, found, wanted in (
            ("jinja2", jinja2.__version__, JINJA2),
            ("transformers", transformers.__version__, TRANSFORMERS),
        )
        if found != wanted
    ]
    if wrong:
        raise SystemExit("wrong versions: " + "; ".join(wrong))


chat_template_utils.datetime = Clock

# The environment, its filters and tests: for the checks that the cases leave none out.
environment = chat_template_utils._compile_jinja_template("").environment
compile_template = chat_template_utils._cached_compile_jinja_template
if hasattr(compile_template, "__wrapped__"):
    compile_template = compile_template.__wrapped__


def outcome(source, variables):
    """`{"text"}` or `{"error": {"class", "message"[, "line"]}}`: `line` for an error of syntax."""
    variables = json.loads(json.dumps(variables))
    try:
        template = environment.from_string(source)
        text = template.render(**FIXED, **chat_template_utils._plain_template_data(variables))
    except jinja2.TemplateSyntaxError as error:
        return {"error": {"class": type(error).__name__, "message": error.message, "line": error.lineno}}
    except Exception as error:
        return {"error": {"class": type(error).__name__, "message": str(error)}}
    return {"text": text}


def printable(result):
    """Whether the outcome is the same in every process and can be written as UTF-8."""
    said = json.dumps(result, ensure_ascii=False)
    if ADDRESS.search(said):
        return False
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True
