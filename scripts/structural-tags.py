#!/usr/bin/env python3
"""Compares structural tags and grammars in EBNF with xgrammar: which texts it accepts.

    scripts/structural-tags.py [--write]

tests/data/xgrammar.json has constraints as llguidance's Lark, as the format of a structural tag and
as EBNF, and texts with what xgrammar says about them. The Rust tests check that llguidance says the
same about the Lark, and that llb sends these formats and this EBNF. Needs the package xgrammar, but
no GPU. Versions before 0.2.5 read EBNF only. With --write the verdicts are replaced.
"""

import argparse
import json
import pathlib
import sys

import xgrammar
from xgrammar.testing import _is_grammar_accept_string

DATA = pathlib.Path(__file__).parent.parent / "tests/data/xgrammar.json"


def grammars(case):
    """The grammars of a case that this version of xgrammar reads."""
    if "format" in case and hasattr(xgrammar.Grammar, "from_lark"):
        tag = {"type": "structural_tag", "format": case["format"]}
        yield xgrammar.Grammar.from_structural_tag(tag)
    if "ebnf" in case:
        yield xgrammar.Grammar.from_ebnf(case["ebnf"])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data = json.loads(DATA.read_text(encoding="utf-8"))
    differences = 0
    for case in data["cases"]:
        for grammar in grammars(case):
            for text in case["texts"]:
                accepted = _is_grammar_accept_string(grammar, text["text"])
                if accepted != text.get("accepted"):
                    differences += 1
                    print(f"{case['name']}: {text['text']!r}: {accepted}")
                    text["accepted"] = accepted
    if arguments.write:
        DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
