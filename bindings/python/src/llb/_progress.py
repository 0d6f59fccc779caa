"""Progress of a load or a download on stderr: by tqdm if it is installed, else as a plain line.

Shows nothing where no person reads it: if stderr is neither a terminal nor a notebook.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, Optional

OnEvent = Callable[[str], object]

_LOAD = "load_progress:"


class Progress:
    """A bar for one task. Called with the amount done and the total, in any unit."""

    def __init__(self, title: str, unit: str = "B") -> None:
        self._title = title
        self._unit = unit
        self._shown = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Shows the state. The bar ends when everything is done."""
        if not self._shown:
            return
        if self._bar is None:
            self._bar = _tqdm_bar(self._title, self._unit, total) or _Line(self._title)
        self._bar.total = total
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._shown = False
            self._bar.close()


class _Line:
    """The part of tqdm that `Progress` uses, as a line that is rewritten at each percent."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._percent = -1
        self.n = 0
        self.total = 0

    def update(self, more: int) -> None:
        self.n += more
        percent = 100 * self.n // self.total if self.total else 100
        if percent != self._percent:
            self._percent = percent
            print(f"\r{self._title}: {percent} %", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print(file=sys.stderr, flush=True)


def _tqdm_bar(title: str, unit: str, total: int) -> Any:
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return None
    return tqdm(desc=title, total=total, unit=unit, unit_scale=unit == "B", file=sys.stderr)


def with_load_progress(title: str, on_event: Optional[OnEvent]) -> OnEvent:
    """Returns an `on_event` that shows the load of a model and also calls the given one."""
    bar = Progress(title, "%")

    def receive(event: str) -> None:
        if event.startswith(_LOAD):
            bar(round(100 * float(event[len(_LOAD) :])), 100)
        if on_event is not None:
            on_event(event)

    return receive
