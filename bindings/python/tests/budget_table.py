"""The table "Budgets" of docs/security.md, for the tests that try its limits."""

from __future__ import annotations

from pathlib import Path
from typing import List, NamedTuple

ROOT = Path(__file__).parents[3]


class Row(NamedTuple):
    what: str
    limit: str
    option: str
    error: str
    constant: str

    @property
    def key(self) -> str:
        return self.constant or self.option

    @property
    def is_of_server(self) -> bool:
        return self.key.startswith(("cli/", "--"))


def rows() -> List[Row]:
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    section = page.split("\n## Budgets\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [
        Row(*(cell.strip().strip("`") for cell in line.strip("|").split("|"))) for line in lines
    ]
