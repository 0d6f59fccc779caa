#!/usr/bin/env python3
"""Prints the folder of the conformance set; exit status 1 if there is none.

The tests written in Rust look in the same places (src/test_support/conformance_folder.rs).
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def find():
    """The set of LLB_CONFORMANCE, ../shared/conformance or target/conformance; None without one."""
    named = os.environ.get("LLB_CONFORMANCE")
    folders = [Path(named)] if named else [ROOT.parent / "shared" / "conformance", ROOT / "target" / "conformance"]
    return next((folder for folder in folders if (folder / "goldens.jsonl.gz").is_file()), None)


if __name__ == "__main__":
    found = find()
    if found is None:
        sys.exit(1)
    print(found)
