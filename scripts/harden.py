#!/usr/bin/env python3
"""Runs all hardening proofs within a time, and prints a table of what was tried and found.

    scripts/harden.py [--seconds 1500] [--only PART,...]

Everything is built first; that time does not count. Each part then has a share of the time, and ends
by itself. A part that runs for longer than twice its share and five minutes is ended, and counts as a
hang. A part without its tools is skipped and says so. The exit status is 1 after any finding.

A part prints lines `harden: inputs=N faults=N crashes=N hangs=N leaks=N wrong=N`, each number
optional. The fuzz targets have reports of their own, which are counted here.
The output of a part is in target/harden/PART.log.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST_PYTHON = ROOT / "target/venv/bin/python"
COLUMNS = ("inputs", "faults", "crashes", "hangs", "leaks", "wrong")
# Targets of tests/fuzz/run.sh.
FUZZ = ("template_source template_grammar template_messages template_request template_info output "
        "parse_request schemas arguments compose chat_request model_file server_stream hub_answers "
        "created_model state_file lark_grammar picture_file sound_file")
# The ABI tests of input that must not end the process.
HOSTILE = ["hostile::", "odd_files::", "faults::", "isolation::", "state::no_file", "large::",
           "remote_hostile::"]


def cargo(*arguments):
    return ["cargo", "test", "--release", *arguments]


class Part:
    """A proof: how it is built and run, and its share of the time."""

    def __init__(self, name, share, build, run, needs=None):
        self.name, self.share, self.build, self.run, self.needs = name, share, build, run, needs
        self.counts = dict.fromkeys(COLUMNS, 0)
        self.status, self.seconds = "", 0.0


def parts():
    fuzz = str(ROOT / "tests/fuzz/run.sh")
    models = ["cargo", "run", "--release", "--quiet", "--manifest-path",
              str(ROOT / "tests/models/Cargo.toml"), "--target-dir", str(ROOT / "target/models")]
    return [
        Part("model files", 0.33, cargo("--test", "corpus", "--no-run"),
             lambda seconds: (cargo("--test", "corpus", "no_model_file", "--", "--nocapture"),
                              {"LLB_CORPUS_SECONDS": seconds})),
        Part("failed allocations, disks, files, clocks", 0.10, cargo("--test", "faults", "--no-run"),
             lambda seconds: (cargo("--test", "faults", "--", "--nocapture", "--test-threads=1"),
                              {"LLB_FAULTS_SECONDS": seconds * 2 // 3})),
        Part("hostile input through the ABI", 0.08, cargo("--test", "integration", "--no-run"),
             lambda seconds: (cargo("--test", "integration", "--", *HOSTILE), {})),
        # A debug build checks for overflows of integers and has debug assertions.
        Part("debug build without the engine", 0.18,
             ["cargo", "test", "--no-default-features", "--no-run"],
             lambda seconds: (["cargo", "test", "--no-default-features"], {})),
        Part("grammars and parsers", 0.06, cargo("--lib", "--no-run"),
             lambda seconds: (cargo("--lib", "constraint::tests::property", "--", "--nocapture"),
                              {"LLB_PROPERTY_SECONDS": max(1, seconds // 2)})),
        Part("replies with drafts", 0.04, cargo("--test", "integration", "--no-run"),
             lambda seconds: (cargo("--test", "integration", "drafts::", "--", "--nocapture"),
                              {"LLB_DRAFTED_REQUESTS": max(5, seconds // 5)})),
        Part("time that grows", 0.05, cargo("--test", "integration", "--no-run"),
             lambda seconds: (cargo("--test", "integration", "growth::"), {"LLB_GROWTH": "long"})),
        Part("time that grows in the server", 0.05,
             ["make", "cli", "scripted-models"],
             lambda seconds: ([str(PYTEST_PYTHON), "-m", "pytest", "-q", "-p", "no:cacheprovider",
                               "cli/tests/server/test_growth.py"], {"LLB_GROWTH": "long"}), "pytest"),
        Part("orders of threads", 0.04, [*models[:1], "build", *models[2:]],
             lambda seconds: (models, {"LLB_MODEL_SECONDS": max(1, seconds // 6)})),
        Part("fuzzing", 0.23, [fuzz, *FUZZ.split()],
             lambda seconds: ([fuzz, *FUZZ.split()],
                              {"FUZZ_SECONDS": max(1, seconds // len(FUZZ.split()))}), "nightly"),
    ]


# What a part may need: a command that succeeds where it is present, and how to get it.
NEEDS = {
    "nightly": (["cargo", "+nightly", "--version"],
                "no nightly compiler (rustup toolchain install nightly)"),
    "pytest": ([str(PYTEST_PYTHON), "-c", "import pytest"], "no pytest (make test-cli)"),
}


def is_present(need):
    try:
        return subprocess.run(NEEDS[need][0], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def call(command, environment, log, limit=None):
    """Runs a command. Returns its exit status, or None if it was ended at the limit."""
    environment = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    with log.open("ab") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out,
                                   start_new_session=True)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def count(part, text):
    """Adds up what a part has reported."""
    for line in re.findall(r"harden: (.*)$", text, re.MULTILINE):
        for name, number in re.findall(r"(\w+)=(\d+)", line):
            part.counts[name] += int(number)
    for number in re.findall(r"stat::number_of_executed_units: *(\d+)", text):
        part.counts["inputs"] += int(number)
    # For tests that do not report how many inputs they tried.
    if "inputs=" not in text and "executed_units" not in text:
        # Of cargo and of pytest.
        for number, outcome in re.findall(r"(\d+) (passed|failed)\b(?=.* in [\d.]+s)", text):
            part.counts["inputs"] += int(number)
            part.counts["wrong"] += int(number) if outcome == "failed" else 0


def run(part, seconds, folder):
    log = folder / (re.sub(r"\W+", "-", part.name) + ".log")
    command, environment = part.run(int(seconds))
    start = time.monotonic()
    before = log.stat().st_size if log.exists() else 0
    status = call(command, environment, log, 2 * seconds + 300)
    part.seconds = time.monotonic() - start
    text = log.read_bytes()[before:].decode("utf-8", "replace")
    count(part, text)
    if status is None:
        part.counts["hangs"] += 1
        part.status = "ended at its limit"
    elif status != 0:
        part.status = f"FAILED, see {log.relative_to(ROOT)}"
        # A failure that no column shows.
        if not any(part.counts[name] for name in COLUMNS[2:]):
            part.counts["crashes" if status < 0 else "wrong"] += 1


def table(done, seconds):
    width = max(len(part.name) for part in done)
    head = f"{'part':{width}}" + "".join(f"{name:>10}" for name in COLUMNS) + "   seconds"
    print("\n" + head + "\n" + "-" * len(head))
    for part in done:
        numbers = "".join(f"{part.counts[name]:>10}" for name in COLUMNS)
        print(f"{part.name:{width}}{numbers}{part.seconds:>10.0f}  {part.status}".rstrip())
    sums = "".join(f"{sum(part.counts[name] for part in done):>10}" for name in COLUMNS)
    print("-" * len(head) + f"\n{'all':{width}}{sums}{seconds:>10.0f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--seconds", type=int, default=1500, help="for all parts together")
    arguments.add_argument("--only", help="names of parts, or beginnings of them, with commas")
    options = arguments.parse_args()
    names = options.only.split(",") if options.only else [""]
    chosen = [part for part in parts() if any(part.name.startswith(name) for name in names)]
    if not chosen:
        sys.exit("no such part: " + options.only)
    folder = ROOT / "target/harden"
    folder.mkdir(parents=True, exist_ok=True)
    for part in chosen:
        log = folder / (re.sub(r"\W+", "-", part.name) + ".log")
        log.write_bytes(b"")
        if part.needs and not is_present(part.needs):
            part.status = "SKIPPED: " + NEEDS[part.needs][1]
            continue
        print(f"    building: {part.name}", flush=True)
        if call(part.build, {"FUZZ_BUILD": "1"}, log) != 0:
            part.status = f"SKIPPED: not built, see {log.relative_to(ROOT)}"
    start = time.monotonic()
    shares = sum(part.share for part in chosen if not part.status)
    for part in [part for part in chosen if not part.status]:
        seconds = options.seconds * part.share / shares
        print(f"    {part.name}: {seconds:.0f} s", flush=True)
        run(part, seconds, folder)
    table(chosen, time.monotonic() - start)
    skipped = [part for part in chosen if part.status.startswith("SKIPPED")]
    if skipped and os.environ.get("LLB_REQUIRE_ALL"):
        sys.exit(1)
    sys.exit(any(part.counts[name] for part in chosen for name in COLUMNS[2:]))


if __name__ == "__main__":
    main()
