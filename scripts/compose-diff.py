#!/usr/bin/env python3
"""Compares composed templates rendered by llb, jinja2 and minijinja.

    scripts/compose-diff.py LIBRARY [CONFORMANCE]

Renders the shared components and those of the Python tests with the shared conversations. Needs
the packages jinja2, minijinja and pyyaml. Both engines render with and without `trim_blocks`.
Prints the number of compared renders and each difference. A refusal must be a refusal with the same
reason. This takes minutes and is not part of `make test`, which does the same with the built-in
templates and a few more.
"""

import copy
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if len(sys.argv) < 2:
    sys.exit(__doc__)
os.environ["LLB_LIBRARY"] = sys.argv[1]
sys.path[:0] = [str(ROOT / "bindings" / "python" / folder) for folder in ("src", "tests")]

import llb  # noqa: E402
import test_compose as engines  # noqa: E402

FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT.parent / "shared" / "conformance") / "compose"


def read(name):
    return [json.loads(line) for line in (FOLDER / name).open(encoding="utf-8")]


def parsed(messages):
    """Parses arguments that are JSON text, as hosts of DSML templates must (docs/compose.md)."""
    messages = copy.deepcopy(messages)
    for call in (call for message in messages for call in message.get("tool_calls") or []):
        function = call.get("function", call)
        if isinstance(function.get("arguments"), str):
            function["arguments"] = json.loads(function["arguments"])
    return messages


def outcome(render):
    try:
        return render()
    except llb.LlbError as error:
        return ("refused", error.details.get("reason"))
    except Exception as error:  # each engine has its own exceptions
        return ("refused", str(error).split(":")[0].split()[-1])


def main():
    makers = (engines.jinja2_engine, engines.minijinja_engine)
    others = {(make.__name__, trim): make(trim) for make in makers for trim in (True, False)}
    compared = differ = 0
    own = (
        {"name": f"own {index}", "components": {**engines.SPEC, **policy}}
        for index, policy in enumerate(engines.POLICIES)
    )
    for row in [*read("templates.jsonl"), *own]:
        components = row["components"]
        if "chat_template" in components:
            continue
        try:
            composed = llb.template_compose(components=components)
        except llb.LlbError as error:
            print(f"{row['name']}: {error.details}")
            continue
        dsml = "dsml_call" in json.dumps(composed["spec"])
        for context in read("contexts.jsonl"):
            conversation = {name: context[name] for name in ("messages", "tools", "skills") if name in context}
            conversation["add_generation_prompt"] = context.get("gen", False)
            ours = outcome(lambda: engines.rendered(conversation, components=components))
            messages = parsed(conversation["messages"]) if dsml else conversation["messages"]
            values = {"messages": messages, **engines.variables(composed, conversation)}
            for name, render in others.items():
                theirs = outcome(lambda: render(composed["chat_template"], values))
                compared += 1
                if theirs != ours:
                    differ += 1
                    print(f"{row['name']} {context['id']} {name}:\n  {ours!r}\n  {theirs!r}")
    print(f"{compared} renders compared, {differ} differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
