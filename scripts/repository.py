#!/usr/bin/env python3
"""Writes the public address of the repository into the metadata of all packages: Cargo.toml,
pyproject.toml and the parent POM. Run it once, when the repository has its address, and commit.

    scripts/repository.py URL         such as https://github.com/OWNER/llb
    scripts/repository.py --print     prints the address; fails if there is none
"""

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
POM = """  <url>{url}</url>
  <scm child.scm.connection.inherit.append.path="false"
       child.scm.developerConnection.inherit.append.path="false"
       child.scm.url.inherit.append.path="false">
    <connection>scm:git:{url}.git</connection>
    <developerConnection>scm:git:{url}.git</developerConnection>
    <url>{url}</url>
  </scm>
"""
# File, what an earlier address left, the line before the address, the text.
PLACES = [
    ("Cargo.toml", r"repository = .*\n", r"license = .*\n", 'repository = "{url}"\n'),
    ("cli/Cargo.toml", r"repository = .*\n", r"license = .*\n", 'repository = "{url}"\n'),
    (
        "bindings/python/pyproject.toml",
        r"\[project\.urls\]\n(?:.+\n)*\n",
        r"(?=\[project\.optional-dependencies\]\n)",
        '[project.urls]\nRepository = "{url}"\nDocumentation = "{url}/tree/main/docs"\n'
        'Changelog = "{url}/blob/main/docs/changelog.md"\nIssues = "{url}/issues"\n\n',
    ),
    (
        "bindings/java/pom.xml",
        r"  <url>.*</url>\n  <scm(?:.*\n)*?  </scm>\n",
        r"  <description>.*\n",
        POM,
    ),
]


def written(name, earlier, before, text, url):
    """The text of a file with the address."""
    content = re.sub(earlier, "", (ROOT / name).read_text(), count=1)
    content, count = re.subn(
        before, lambda found: found[0] + text.format(url=url), content, count=1
    )
    if count != 1:
        sys.exit(f"{name}: no place for the address: {before}")
    return content


def address():
    found = re.search(r'^repository = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)
    return found and found[1]


def main(argument):
    if argument == "--print":
        print(address() or sys.exit("the packages have no repository: scripts/repository.py URL"))
        return
    url = argument.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.netloc or url.endswith(".git"):
        sys.exit(f"{argument}: not an address such as https://github.com/OWNER/llb")
    # Nothing is written if a file has no place for it.
    contents = {ROOT / name: written(name, *place, url) for name, *place in PLACES}
    for path, content in contents.items():
        path.write_text(content)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
