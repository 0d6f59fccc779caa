#!/usr/bin/env python3
"""Writes a first corpus of picture files, one of each kind: picture_seeds.py FOLDER"""

import base64
import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "pictures.json"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    cases = json.loads(DATA.read_text())["cases"]
    for index, case in enumerate(cases):
        (folder / f"picture.{index}").write_bytes(base64.b64decode(case["file"]))
    (folder / "url").write_text("data:image/png;base64," + cases[0]["file"])
    print(f"    seeds of {len(cases)} pictures")


main()
