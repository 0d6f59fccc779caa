#!/usr/bin/env python3
"""Builds the site of the documentation: the pages of docs/SUMMARY.md, as HTML.

    scripts/site.py MDBOOK OUTPUT [LIBRARY]

MDBOOK is the program mdbook, LIBRARY is libllb.so. The pages are copied with the files that they link
to, in the folders of the repository, so that their links hold. With LIBRARY and the conformance set,
docs/template-table.md becomes a table of its templates. docs/performance.md gets
plots of its tables. At the end every link of the built pages must lead to a file and an anchor.
"""

import collections
import csv
import ctypes
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import links
import plots
from conformance.folder import find as find_conformance

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOOK = """[book]
title = "llb"
src = "src"
language = "en"

[build]
build-dir = "html"
create-missing = false
# These would rename README.md, and replace `{{` in pages about templates.
use-default-preprocessors = false

[output.html]
no-section-label = true
additional-css = ["site.css"]
"""
# Room for code side by side.
CSS = """:root { --content-max-width: 70rem; }
.content td { vertical-align: top; padding: 3px 8px; }
.content td pre { margin: 0; font-size: .8em; }
"""


def stage(source):
    """Copies the pages of the summary, and what they link to. Returns the summary."""
    docs = ROOT / "docs"
    summary = (docs / "SUMMARY.md").read_text("utf-8")
    pages = {(docs / target).resolve() for target in links.links(summary)}
    copied = set()
    for page in sorted(pages):
        text = page.read_text("utf-8")
        for target in set(links.links(text)):
            name = urllib.parse.unquote(target.partition("#")[0])
            file = (page.parent / name).resolve()
            if not name:
                continue
            if file.is_dir():
                # The page of the folder, if it has one.
                readme = file / "README.md"
                index = readme if readme.exists() else None
                new = os.path.relpath(index, page.parent) if index else ""
                text = text.replace(f"]({target})", f"]({new})" if new else "")
                file = index
            if file and file not in pages:
                copied.add(file)
        write(source, page, text)
    for file in copied:
        destination = source / file.relative_to(ROOT)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, destination)

    def from_root(found):
        path = (docs / found[1]).resolve().relative_to(ROOT)
        return f"]({path})"

    return re.sub(r"\]\(([^)]+)\)", from_root, summary)


def add_plots(source):
    page = source / "docs/performance.md"
    page.write_text(plots.with_plots(page.read_text("utf-8")), "utf-8")


def write(source, page, text):
    destination = source / page.relative_to(ROOT)
    destination.parent.mkdir(parents=True, exist_ok=True)
    destination.write_text(text, "utf-8")


class Library:
    """`llb_template_info` of a shared library."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.llb_template_info.restype = ctypes.c_void_p
        self.library.llb_template_info.argtypes = [ctypes.c_char_p]
        self.library.llb_string_free.argtypes = [ctypes.c_void_p]

    def info(self, request):
        reply = self.library.llb_template_info(json.dumps(request).encode())
        value = json.loads(ctypes.string_at(reply))
        self.library.llb_string_free(reply)
        return value


def template_table(library, folder):
    """The page of all templates."""
    with (folder / "templates.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    lines, formats, totals = [], collections.Counter(), collections.Counter()
    for row in sorted(rows, key=lambda row: row["name"].lower()):
        text = (folder / "templates" / f"{row['name']}.jinja").read_bytes().decode("utf-8")
        tokens = {key: row[key] for key in ("bos_token", "eos_token") if row[key] != "-"}
        info = library.info({"chat_template": text, **tokens})
        if info["type"] == "error":
            lines.append(f"| {row['name']} | {info['error']['message'][:80]} | | | |")
            totals["unreadable"] += 1
            continue
        output = info["output_format"]
        name = output["family"] or ("derived" if output["tool_calls"] != "none" else "–")
        formats[output["tool_calls"]] += 1
        totals[info["tool_support"]] += 1
        codes = [finding["code"] for finding in info["findings"] if finding["severity"] != "info"]
        caps = info["template_caps"]
        able = [
            word
            for key, word in [
                ("supports_system_role", "system"),
                ("supports_parallel_tool_calls", "parallel"),
                ("supports_reasoning", "reasoning"),
            ]
            if caps.get(key)
        ]
        shown = " ".join(f"`{code}`" for code in dict.fromkeys(codes))
        lines.append(
            f"| {row['name']} | {info['tool_support']} | {' '.join(able)} "
            f"| {name}, {output['tool_calls']} | {shown} |"
        )
    counted = ", ".join(f"{count} {name}" for name, count in totals.most_common())
    verified = ", ".join(f"{count} {name}" for name, count in formats.most_common())
    return "\n".join(
        [
            "# Templates that were examined",
            "",
            f"{len(rows)} chat templates, by the library of this version. Tools: {counted}. Formats",
            f"of calls: {verified}.",
            "",
            "*Tools*: native if the template shows tools and calls, polyfilled if it carries text, none",
            "otherwise. A format is *verified* if a call that the template rendered was read back as it",
            "was ([outputs.md](outputs.md#formats)). Lints that are only worth knowing are left out",
            "([templates.md](templates.md#lints)).",
            "",
            "| template | tools | can | format of calls | lints |",
            "|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


class Page(html.parser.HTMLParser):
    """Links and anchors of a built page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        for name in ("href", "src"):
            if values.get(name):
                self.targets.append(values[name])


def dead_links(folder):
    """Dead links of the built pages. mdBook's page of all pages has those of other folders."""
    files = [file for file in folder.rglob("*.html") if file.name not in ("print.html", "404.html")]
    pages = {file.resolve(): Page(file.read_text("utf-8")) for file in files}
    for file, page in pages.items():
        for target in page.targets:
            if re.match(r"[a-z][a-z+.-]*:|//|#?$", target):
                continue
            name, _, anchor = urllib.parse.unquote(target).partition("#")
            other = (file.parent / name).resolve() if name else file
            if other.is_dir():
                other = other / "index.html"
            if not other.exists():
                yield file.relative_to(folder.resolve()), target, "no such file"
            elif anchor and other in pages and anchor not in pages[other].anchors:
                yield file.relative_to(folder.resolve()), target, "no such anchor"


def main():
    mdbook, output, *library = sys.argv[1:]
    output = pathlib.Path(output)
    shutil.rmtree(output, ignore_errors=True)
    source = output / "src"
    source.mkdir(parents=True)
    (output / "book.toml").write_text(BOOK)
    (output / "site.css").write_text(CSS)
    (source / "SUMMARY.md").write_text(stage(source), "utf-8")
    add_plots(source)
    conformance = find_conformance()
    if library and conformance:
        table = template_table(Library(library[0]), conformance)
        (source / "docs/template-table.md").write_text(table, "utf-8")
    else:
        print("SKIPPED: the table of templates: no conformance set", file=sys.stderr)
    subprocess.run([mdbook, "build", str(output)], check=True)
    problems = list(dead_links(output / "html"))
    for file, target, problem in problems:
        print(f"{file}: {target}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
