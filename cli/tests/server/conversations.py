"""Recorded conversations of coding agents: what is kept of a request, and how it is stored.

A fixture has the first request of a conversation, and for each further one what changed. Texts have
other words, because they are those of the agents' authors and of a person's machine: a word stands
for itself, so equal beginnings stay equal, and of long texts only some words are kept.
"""

from __future__ import annotations

import copy
import hashlib
import json
import pathlib
import re
from typing import Any, Dict, Iterator, List, Union

FOLDER = pathlib.Path(__file__).with_name("conversations")
# Texts that are longer than this lose words.
LONG = 300
# Strings that are no prose, by their member.
NAMES = set(
    "type role name model effort status id call_id tool_call_id tool_use_id enum required format "
    "$schema pattern tool_choice summary include namespace phase entrypoint".split()
)
# What the server itself knows by its words.
KNOWN = re.compile(r"x-anthropic-billing-header:")

Json = Any
Key = Union[str, int]


def anonymous(value: Json, one_in: int, member: str = "") -> Json:
    """The same request with other words. Of long texts one word in `one_in` is kept."""
    if isinstance(value, dict):
        return {key: anonymous(item, one_in, key) for key, item in value.items()}
    if isinstance(value, list):
        return [anonymous(item, one_in, member) for item in value]
    if not isinstance(value, str) or member in NAMES or KNOWN.match(value):
        return value
    if member == "arguments":
        return json.dumps(anonymous(json.loads(value), one_in))
    if len(value) > LONG:
        words = re.findall(r"\s*\S+", value)
        value = "".join(word for word in words if digest(word)[0] % one_in == 0)
    return re.sub(r"[A-Za-z]+|[0-9]+|[^\x00-\x7f]+", other_word, value)


def other_word(found: "re.Match[str]") -> str:
    word = found[0]
    first = "0" if word[0].isdigit() else "A" if word[0].isupper() else "a"
    base = 10 if first == "0" else 26
    code = digest(word) * (1 + len(word) // 32)
    rest = "0" if first == "0" else "a"
    letters = [chr(ord(rest) + number % base) for number in code[: len(word)]]
    letters[0] = chr(ord(first) + code[0] % base)
    return "".join(letters)


def digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


def changes(before: Json, after: Json, path: List[Key]) -> Iterator[List[Json]]:
    """`[path, value]` for what is new, and `[path]` for what is gone."""
    if type(before) is not type(after) or not isinstance(before, (dict, list)):
        if before != after:
            yield [path, after]
        return
    if isinstance(before, dict):
        gone = [key for key in before if key not in after]
        new = [key for key in after if key not in before]
        common = [key for key in after if key in before]
    else:
        common = list(range(min(len(before), len(after))))
        gone = list(range(len(after), len(before)))[::-1]
        new = list(range(len(before), len(after)))
    for key in common:
        yield from changes(before[key], after[key], [*path, key])
    yield from ([[*path, key]] for key in gone)
    yield from ([[*path, key], after[key]] for key in new)


def apply(body: Json, change: List[Json]) -> None:
    *above, key = change[0]
    for part in above:
        body = body[part]
    if len(change) == 1:
        del body[key]
    elif isinstance(body, list) and key == len(body):
        body.append(change[1])
    else:
        body[key] = change[1]


def save(name: str, client: str, route: str, requests: List[Dict[str, Json]]) -> None:
    """Writes a fixture."""
    pairs = zip(requests, requests[1:])
    steps = [list(changes(before, after, [])) for before, after in pairs]
    document = {"client": client, "route": route, "first": requests[0], "changes": steps}
    lines = json.dumps(document, indent=1, ensure_ascii=True)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(lines + "\n")


def load(name: str) -> "tuple[str, List[Dict[str, Json]]]":
    """The route and the requests of a fixture."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    requests = [document["first"]]
    for step in document["changes"]:
        body = copy.deepcopy(requests[-1])
        for change in step:
            apply(body, change)
        requests.append(body)
    return document["route"], requests
