#!/usr/bin/env python3
"""Plots of the tables of docs/performance.md, as SVG in the page (scripts/site.py).

    scripts/plots.py PAGE.md     # prints the page with its plots

The tables are the data: a plot is put after its table, and shows its cells. Lines and text have the
colour of the page's text, so a plot is readable in dark and in light.
"""

import dataclasses
import math
import re
import sys
import textwrap
from typing import Callable, List, Optional, Tuple
from xml.sax.saxutils import escape

# Each colour has a contrast of at least 3 to white and to mdBook's dark backgrounds.
COLOURS = ["#3f7fd0", "#c9711a", "#2f9a68"]
WIDTH, LEFT, RIGHT = 760, 250, 60
BAR, GAP = 15, 11



@dataclasses.dataclass
class Value:
    """The number in a table cell as it is written there, and its range if it has one."""

    label: str
    ends: List[float]

    @property
    def middle(self) -> float:
        return float(self.label.replace(",", ""))



@dataclasses.dataclass
class Plot:
    """`header` is the start of the table's first line."""

    header: str
    title: str
    # The name of each series, and a function that finds its value in the cells of a row.
    series: List[Tuple[str, Callable[[List[str]], Optional[Value]]]]
    is_logarithmic: bool = False
    # Bars begin at 0. Ratios are drawn as points.
    is_ratio: bool = False
    target: Optional[float] = None
    leaves_out: str = "$^"


def cell(index: int, which: int = 0) -> Callable[[List[str]], Optional[Value]]:
    """The number in a cell, with its range in brackets. "13.8 against 12.8" has two numbers."""

    def value(cells: List[str]) -> Optional[Value]:
        middle, ends = (
            re.findall(r"\d[\d,]*(?:\.\d+)?", part) for part in cells[index].partition("(")[::2]
        )
        return Value(middle[which], [float(end) for end in ends]) if middle[which:] else None

    return value


PLOTS = [
    Plot(
        "| template, conversation |",
        "Rendering a prompt: times as long as llb",
        [("transformers", cell(2)), ("jinja2 alone", cell(3)), ("@huggingface/jinja", cell(4))],
        target=5,
        leaves_out="median|minimum",
    ),
    Plot(
        "| reply | 1,000 tokens |",
        "Reply parser: nanoseconds for a token, by the length of the reply",
        [("1,000 tokens", cell(1)), ("10,000", cell(2)), ("100,000", cell(3))],
    ),
    Plot(
        "| run | rounds |",
        "Speed of llb over that of the loop: median, least and greatest round",
        [("prefill", cell(2)), ("decode, greedy", cell(3)), ("decode, default sampler", cell(4))],
        is_ratio=True,
        target=0.95,
    ),
    Plot(
        "| chats | tokens/s |",
        "Concurrent chats: tokens per second, all together",
        [("llb", cell(1)), ("llama.cpp's server", cell(1, 1))],
    ),
    Plot(
        "| samplers | llb |",
        "Drawing a token: microseconds",
        [("llb", cell(1)), ("llama.cpp", cell(2))],
        is_logarithmic=True,
    ),
    Plot(
        "| busy processes | auto |",
        "Decode beside 0, 1, 2 and 4 busy processes: tokens per second",
        [("auto", cell(1)), ("1 thread", cell(2)), ("2 threads", cell(3))],
    ),
]


class Axis:
    """Maps values from `low` to `high` to positions."""

    def __init__(self, plot: Plot, values: List[float]) -> None:
        self.is_logarithmic = plot.is_logarithmic
        high = max([*values, plot.target or 0])
        if self.is_logarithmic:
            self.ticks = [10.0**power for power in range(math.floor(math.log10(min(values))),
                                                         math.ceil(math.log10(high)) + 1)]
        else:
            step = 10 ** math.floor(math.log10(high / 4))
            step = next(step * by for by in (1, 2, 2.5, 5, 10) if high / (step * by) <= 6)
            self.ticks = [step * index for index in range(math.ceil(high / step) + 1)]
        self.low, self.high = self.ticks[0], self.ticks[-1]

    def place(self, value: float) -> float:
        scale = math.log10 if self.is_logarithmic else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return LEFT + max(share, 0) * (WIDTH - LEFT - RIGHT)


def text(x: float, y: float, words: str, **attributes: str) -> str:
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.0f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" {more}/>'


def mark(axis: Axis, plot: Plot, value: Value, y: float, colour: str) -> List[str]:
    """Draws a bar or a point, its range, and its number."""
    x, centre = axis.place(value.middle), y + BAR / 2
    parts = []
    if plot.is_ratio:
        parts.append(f'<circle cx="{x:.1f}" cy="{centre:.1f}" r="5" fill="{colour}"/>')
    else:
        parts.append(
            f'<rect x="{LEFT}" y="{y + 1:.1f}" width="{max(x - LEFT, 1):.1f}" '
            f'height="{BAR - 2}" fill="{colour}"/>'
        )
    if value.ends:
        places = [axis.place(end) for end in value.ends]
        style = f'stroke="{colour if plot.is_ratio else "currentColor"}" stroke-width="1.5"'
        parts.append(line(places[0], centre, places[1], centre, style))
        parts += [line(at, centre - 3, at, centre + 3, style) for at in places]
        x = max(x, places[1])
    return [*parts, text(x + 8, centre + 4, value.label, font_size="11")]


def svg(plot: Plot, rows: List[List[str]]) -> str:
    values = [[read(row) for _, read in plot.series] for row in rows]
    known = [value for row in values for value in row if value]
    axis = Axis(plot, [number for value in known for number in [value.middle, *value.ends]])
    top, group = 58, len(plot.series) * BAR + GAP
    bottom = top + len(rows) * group
    parts = [text(0, 16, plot.title, font_size="15", font_weight="600")]
    x = LEFT
    for (name, _), colour in zip(plot.series, COLOURS):
        parts.append(f'<rect x="{x}" y="29" width="11" height="11" fill="{colour}"/>')
        parts.append(text(x + 16, 39, name))
        x += 34 + 8 * len(name)
    for tick in axis.ticks:
        at = axis.place(tick)
        parts.append(line(at, top - 6, at, bottom, 'stroke="currentColor" stroke-opacity=".25"'))
        parts.append(text(at, bottom + 16, f"{tick:,g}", text_anchor="middle", font_size="11"))
    if plot.target:
        at = axis.place(plot.target)
        dashed = 'stroke="currentColor" stroke-width="1.5" stroke-dasharray="5 4"'
        parts.append(line(at, top - 6, at, bottom, dashed))
        label = f"target {plot.target:g}"
        parts.append(text(at, bottom + 32, label, text_anchor="middle", font_size="11"))
    for index, (row, row_values) in enumerate(zip(rows, values)):
        y = top + index * group
        words = textwrap.wrap(row[0], 38)
        first = y + len(plot.series) * BAR / 2 + 11 - 7 * len(words)
        for number, part in enumerate(words):
            parts.append(text(LEFT - 10, first + 14 * number, part, text_anchor="end"))
        for number, value in enumerate(row_values):
            if value:
                parts += mark(axis, plot, value, y + number * BAR, COLOURS[number])
    height = bottom + (40 if plot.target else 24)
    return (
        f'<svg role="img" aria-label="{escape(plot.title)}; its values are in the table above" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12" '
        f'fill="currentColor" style="max-width: {WIDTH}px; width: 100%; height: auto">'
        + "".join(parts) + "</svg>"
    )


def with_plots(page: str) -> str:
    """Returns the page with a plot after each table that has one. A missing table is an error."""
    for plot in PLOTS:
        found = re.search(rf"^{re.escape(plot.header)}.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.M)
        if not found:
            raise ValueError(f"no table begins with {plot.header!r}; change scripts/plots.py")
        rows = [[words.strip() for words in row.strip("|").split("|")]
                for row in found[1].splitlines()]
        rows = [row for row in rows if not re.match(plot.leaves_out, row[0])]
        figure = f'\n<div class="plot">{svg(plot, rows)}</div>\n'
        page = page[: found.end()] + figure + page[found.end() :]
    return page


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(with_plots(file.read()))
