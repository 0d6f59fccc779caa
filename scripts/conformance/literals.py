"""The texts that a file of a package may hold: its bytes, or the strings in its source.

In: the path of a file and its bytes. Out: every text that could be a chat template. The caller picks
the one with the SHA-256 that it wants, so no rule for a certain package is needed here.
Never runs the file.
"""

import ast
import json
import re

SLOT = "{system_message}"
USUAL_SYSTEM_MESSAGE = "You are a helpful assistant."
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
# A raw string of C++, or a string of C++, JavaScript or TypeScript. A comment is taken whole, so that
# an apostrophe in it opens no string.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/
    |R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"
    |"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|`(?P<template>(?:[^`\\]|\\.)*)`""",
    re.DOTALL | re.VERBOSE,
)
ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
# Between two literals that are one string.
JOIN = re.compile(r"\s*\+?\s*(?:(?://[^\n]*|/\*.*?\*/)\s*)*", re.DOTALL)


def texts(path, data):
    """Yields the texts as bytes, the whole file first."""
    yield data
    ending = path.rsplit(".", 1)[-1]
    source = data.decode("utf-8", "replace")
    if ending == "json":
        found = strings_of_json(json.loads(source))
    elif ending == "py":
        found = with_system_messages(strings_of_python(source))
    elif ending in ("cpp", "js", "ts"):
        found = strings_of_c(source)
    else:
        return
    for text in found:
        yield text.encode("utf-8", "surrogatepass")


def strings_of_json(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings_of_json(item)


def strings_of_python(source):
    names, found = {}, {}
    for node in ast.walk(ast.parse(source)):
        text = constant(node, names)
        if text is not None:
            found[text] = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.setdefault(node.targets[0].id, constant(node.value, names))
    return list(found)


def constant(node, names):
    """The text of a string, of a name that was given one, or of two of these added; or None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left, names), constant(node.right, names)
        return None if left is None or right is None else left + right
    return None


def with_system_messages(found):
    """Also each text with the slot of its system message filled with every other text of the file."""
    yield from found
    fillings = [USUAL_SYSTEM_MESSAGE, *(re.sub(r"(['\"\\\\])", r"\\\1", text) for text in found)]
    for text in found:
        if SLOT in text:
            yield from (text.replace(SLOT, filling) for filling in fillings)


def strings_of_c(source):
    """Every literal, and every chain of literals as one string."""
    chain, end = "", None
    for token in TOKEN.finditer(source):
        if not token.lastgroup:
            continue
        if end is not None and not JOIN.fullmatch(source, end, token.start()):
            yield chain
            chain = ""
        text = token["raw"] if token["raw"] is not None else unescaped(token[token.lastgroup])
        # Some sources trim a template that they write on lines of its own.
        yield from (text, text.strip())
        chain, end = chain + text, token.end()
    yield chain


def unescaped(text):
    def one(escape):
        code = escape[1] or escape[2] or escape[3]
        if code:
            return chr(int(code, 16))
        return "" if escape[4] in ("\n", "\r\n") else ESCAPES.get(escape[4], escape[4])

    # Two escapes may be the halves of one character.
    return ESCAPE.sub(one, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
