#!/usr/bin/env python3
"""Writes cases.jsonl: what the real environment does with each case.

    generate.py           write cases.jsonl
    generate.py --check   compare with cases.jsonl; exit status 1 if they differ
"""

import argparse
import collections
import importlib
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from environment import check_versions, environment
from recorder import Recorder

PARTS = ["cases_operators", "cases_filters", "cases_methods", "cases_statements", "cases_output", "cases_sandbox"]
LEFT_OUT = {"random"}
LIMIT = 900_000


def left_out(sources):
    """Filters and tests of the environment that no case uses."""
    text = "\n".join(sources)
    missing = [f"filter {name}" for name in environment.filters if not re.search(rf"\|\s*{name}\b", text)]
    missing += [f"test {name}" for name in environment.tests if not re.search(rf"\bis (not )?{re.escape(name)}(?!\w)", text)]
    return [name for name in missing if name.split()[1] not in LEFT_OUT and name.split()[1][0].isalpha()]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="compare with cases.jsonl instead of writing it")
    check = arguments.parse_args().check
    check_versions()
    recorder = Recorder()
    here = Path(__file__).resolve().parent
    for part in PARTS:
        if (here / f"{part}.py").exists():
            importlib.import_module(part).record(recorder)
    text = "".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n" for case in recorder.cases)
    path = here / "cases.jsonl"
    groups = collections.Counter(case["group"].split("/")[0] for case in recorder.cases)
    errors = sum("error" in case for case in recorder.cases)
    print(f"{len(recorder.cases)} cases, {errors} of them errors, {len(text.encode())} bytes, {recorder.skipped} left out")
    print(", ".join(f"{name} {count}" for name, count in groups.items()))
    missing = left_out(case["source"] for case in recorder.cases)
    if missing:
        print("no case for: " + ", ".join(missing))
    if len(text.encode()) > LIMIT:
        raise SystemExit(f"more than {LIMIT} bytes")
    if check:
        if path.read_bytes() != text.encode():
            raise SystemExit("cases.jsonl differs")
    else:
        path.write_bytes(text.encode())


if __name__ == "__main__":
    main()
