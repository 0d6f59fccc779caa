"""The library's log: events `log:<level>:<text>` become records of the logger `llb`.

A program that does not configure `logging` sees none of them.
"""

from __future__ import annotations

import logging

_LOGGER = logging.getLogger("llb")
# Without a handler, Python would print warnings to stderr.
_LOGGER.addHandler(logging.NullHandler())

_PREFIX = "log:"
_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}


def is_log(event: bytes) -> bool:
    """Whether an event is a log line."""
    return event.startswith(b"log:")


def log_event(event: str) -> None:
    """Logs an event if it is a log line."""
    if event.startswith(_PREFIX):
        level, _, text = event[len(_PREFIX) :].partition(":")
        _LOGGER.log(_LEVELS.get(level, logging.INFO), "%s", text)
