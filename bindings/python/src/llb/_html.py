"""For notebooks: a model's description and capabilities as a table."""

from __future__ import annotations

from html import escape
from typing import Any, List, Optional, Tuple

from ._errors import LlbError
from ._model_info import model_info
from .types import ModelInfo

_ROWS = (
    "name",
    "architecture",
    "n_params",
    "quantization",
    "context_length",
    "file_size",
    "license",
)


def info_rows(info: ModelInfo) -> List[Tuple[str, str]]:
    """The members of a model info that interest people, as text."""
    rows = [(name, _text(info.get(name))) for name in _ROWS]
    rows.append(("tools", _text(info["supports_tools"]) + f" ({info['tool_support']})"))
    output = info["output_format"]
    rows.append(("reasoning", str(output.get("reasoning"))))
    rows.append(
        ("output format", f"{output.get('family') or 'inferred'}, {output.get('tool_calls')}")
    )
    rows += [(name, _text(value)) for name, value in sorted(info["caps"].items())]
    return rows


def model_table(title: str, path: Optional[str]) -> Optional[str]:
    """The rows for a model file as an HTML table. None without a file."""
    try:
        return None if path is None else _table(title, model_info(path))
    except LlbError:
        # The file no longer exists. Notebooks then show `repr`.
        return None


def _table(title: str, info: ModelInfo) -> str:
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in info_rows(info)
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "unknown" if value is None else str(value)
