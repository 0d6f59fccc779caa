#!/usr/bin/env python3
"""Checks the relative links of all Markdown files, and their anchors: files that exist, headings that
exist. Each page of docs/ must be in docs/SUMMARY.md. Prints each fault; the exit status is 1 if there
are any. Links to other hosts are not followed.

    scripts/links.py [FILE...]        Markdown files; without any, those that git tracks
"""

import pathlib
import re
import subprocess
import sys
import urllib.parse

FENCE = re.compile(r"^(\s*)(```+|~~~+).*?^\1\2\s*$", re.S | re.M)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|(?:href|src)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.M)
MARKUP = re.compile(r"[*`]|!?\[([^\]]*)\]\([^)]*\)")


def slug(heading):
    """As GitHub and mdBook write it."""
    text = MARKUP.sub(lambda found: found[1] or "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text):
    found, counts = set(), {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        name = slug(heading)
        count = counts.get(name, 0)
        counts[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links(text):
    """Targets that are not on another host. Code is not searched."""
    text = re.sub(r"(`+).+?\1", "", FENCE.sub("", text))
    for found in LINK.finditer(text):
        target = found[1] or found[2]
        if not re.match(r"[a-z][a-z+.-]*:|//", target):
            yield target


def dead(path):
    text = path.read_text("utf-8")
    for target in links(text):
        name, _, anchor = urllib.parse.unquote(target).partition("#")
        file = path.parent / name if name else path
        if not file.exists():
            yield target, "no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
            yield target, "no such heading"


def missing_pages(names):
    listed = set(links(pathlib.Path("docs/SUMMARY.md").read_text("utf-8")))
    for name in names:
        path = pathlib.PurePosixPath(name)
        is_page = path.parent == pathlib.PurePosixPath("docs") and path.name != "SUMMARY.md"
        if is_page and path.name not in listed:
            yield "docs/SUMMARY.md", path.name, "the page is not listed"


def main(names):
    missing = []
    if not names:
        listed = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True)
        names = listed.stdout.split()
        missing = list(missing_pages(names))
    problems = [(name, *each) for name in names for each in dead(pathlib.Path(name))]
    problems += missing
    for name, target, problem in problems:
        print(f"{name}: {target}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
