"""The value of incomplete JSON text."""

from __future__ import annotations

import json
import re
from typing import Any, List

# Matches a complete token. Anything else ends the text.
_TOKEN = re.compile(
    r"""\s*(?:(?P<open>[\[{]) | (?P<close>[\]}]) | (?P<between>[,:])
    | (?P<scalar> "(?:[^"\\]|\\.)*" | true | false | null
        | -?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\d.eE+-])))""",
    re.X | re.S,
)
_CLOSING = {"[": "]", "{": "}"}


def partial_json(text: str) -> Any:
    """Returns the value of the beginning of JSON text, or None if no value has begun.

    Texts, members and items that are cut off are omitted. Open lists and objects end there.
    """
    ends: List[str] = []
    # Whether the next string is the name of a member.
    named = False
    whole = ""
    token = _TOKEN.match(text)
    while token is not None:
        kind, last = token.lastgroup, token[0][-1]
        if kind == "open":
            ends.append(_CLOSING[last])
        elif kind == "close" and (not ends or ends.pop() != last):
            break
        if kind in ("open", "close") or (kind == "scalar" and not named):
            whole = text[: token.end()] + "".join(reversed(ends))
        if not ends:
            break
        if kind != "scalar":
            named = ends[-1] == "}" and last != ":"
        token = _TOKEN.match(text, token.end())
    try:
        return json.loads(whole)
    except ValueError:
        return None
