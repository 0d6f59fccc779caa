#!/usr/bin/env python3
"""Writes a first corpus of picture and sound files, one of each kind: media_seeds.py CORPUS

The files of a target are in the folder CORPUS/TARGET.
"""

import base64
import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"


def write(corpus, target, data):
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    cases = json.loads((DATA / data).read_text())["cases"]
    for index, case in enumerate(cases):
        (folder / f"file.{index}").write_bytes(base64.b64decode(case["file"]))
    print(f"    seeds of {target}: {len(cases)}")
    return folder, cases


def main():
    corpus = pathlib.Path(sys.argv[1])
    folder, cases = write(corpus, "picture_file", "pictures.json")
    (folder / "url").write_text("data:image/png;base64," + cases[0]["file"])
    write(corpus, "sound_file", "sounds.json")


main()
