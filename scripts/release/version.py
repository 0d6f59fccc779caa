#!/usr/bin/env python3
"""Checks that all packages have one version, that the changelog has it with a date, and that a tag is
its tag: version.py [TAG]. Without a tag, the changelog may say that it is not released."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ["Cargo.toml", "cli/Cargo.toml", "bindings/python/pyproject.toml"]


def version_in(path):
    return re.search(r'^version = "(.*)"$', (ROOT / path).read_text(), re.M)[1]


def main(tag):
    version = version_in(MANIFESTS[0])
    faults = [path for path in MANIFESTS if version_in(path) != version]
    poms = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "bindings/java/*pom.xml"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    # The first version of a POM is its own or that of its parent.
    for pom in poms:
        text = re.sub(r"<parent>\s*<groupId>(?!dev\.llb).*?</parent>", "",
                      (ROOT / pom).read_text(), flags=re.S)  # fmt: skip
        if re.search(r"<version>(.*?)</version>", text)[1] != version:
            faults.append(pom)
    changelog = (ROOT / "docs/changelog.md").read_text()
    heading = re.search(rf"^## {re.escape(version)}(?: \((.*)\))?$", changelog, re.M)
    if not heading:
        faults.append("docs/changelog.md")
    if tag and tag != f"v{version}":
        faults.append(f"the tag {tag}")
    if tag and heading and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1] or ""):
        faults.append("docs/changelog.md: the date of the release")
    if faults:
        sys.exit(f"not of version {version}: {', '.join(faults)}")
    print(f"    {version}: {len(MANIFESTS) + len(poms)} packages")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
