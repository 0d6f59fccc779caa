#!/usr/bin/env python3
"""Compares llb's template interpreter with transformers' own Jinja2 environment.

    scripts/jinja-diff.py LIBRARY                      random templates until Ctrl-C
    scripts/jinja-diff.py LIBRARY --seed 7 --count 500 the same 500 templates each time
    scripts/jinja-diff.py LIBRARY --cases FILE.jsonl   the cases of a file, without Jinja2

LIBRARY is libllb.so. Random templates need the Python packages listed in tests/data/jinja/README.md.
Texts are compared byte for byte. The messages of two errors are not compared, because llb words its
errors differently. Exit status: 0 no difference, 1 a difference, 2 wrong arguments.
"""

import argparse
import collections
import ctypes
import json
import random
import re
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "jinja"
NOW = "2026-01-31T09:30:00"
LONG_NUMBER = re.compile(r"\d{5,}")


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(Path(path).resolve()))
        self.library.llb_template_render.argtypes = [ctypes.c_char_p]
        self.library.llb_template_render.restype = ctypes.c_void_p
        self.library.llb_string_free.argtypes = [ctypes.c_void_p]
        self.library.llb_string_free.restype = None

    def outcome(self, source, variables):
        request = {
            "chat_template": source,
            "messages": [{"role": "user", "content": "x"}],
            "chat_template_kwargs": variables,
            "add_generation_prompt": False,
            "polyfills": {"apply_polyfills": False},
            "now": NOW,
        }
        pointer = self.library.llb_template_render(json.dumps(request).encode())
        if not pointer:
            return {"error": {"class": "llb", "message": "no reply"}}
        try:
            reply = json.loads(ctypes.string_at(pointer))
        finally:
            self.library.llb_string_free(pointer)
        if reply.get("type") == "rendered":
            return {"text": reply["prompt"]}
        error = reply.get("error", {})
        return {"error": {"class": error.get("code", "?"), "message": error.get("message", "")}}


class Templates:
    """Random templates, weighted towards typical chat templates."""

    NAMES = ["h", "m", "t", "s", "n", "f", "z", "l", "d", "e", "u"]
    VALUES = ["", "a", " a b\n", "é😀", "<think>x</think>y", "user", 0, 1, -3, 7, 2.5, 1e16, None, True, False, [], {}, [1, 2, 3], ["b", "a"], {"k": 1, "b": "v"}, [{"role": "user", "content": "q"}], [[1, "x"], [2, "y"]], 10**17, {"items": 1}, "a,b,,c", "1.50", "ẞß"]
    FILTERS = ["trim", "upper", "lower", "length", "tojson", "string", "first", "last", "list", "join(', ')", "join", "int", "float", "default('q')", "default('q', true)", "capitalize", "title", "e", "safe", "items | list", "reverse", "reverse | list", "sort", "unique | list", "map('string') | list", "select | list", "reject('none') | list", "replace('a', 'bb')", "tojson(indent=2)", "tojson(ensure_ascii=true)", "dictsort", "indent(2)", "round", "abs", "sum", "min", "max", "map(attribute='role') | list", "selectattr('role', 'equalto', 'user') | list", "batch(2) | list", "truncate(5)", "wordcount", "count", "map('upper') | join('/')", "pprint", "urlencode", "striptags", "center(7)", "items | map('first') | list", "groupby('role') | list", "attr('role')"]
    METHODS = ["strip()", "lstrip('\\n')", "rstrip()", "split()", "split(',')", "split('</think>')[-1]", "upper()", "startswith('a')", "endswith(('b', 'y'))", "replace('a', '')", "items()", "keys() | list", "values() | list", "get('k')", "get('role', 'z')", "items() | list", "index(1)", "count('a')", "title()", "splitlines()", "partition(',')", "find('b')", "isdigit()", "format(1)", "rsplit(',', 1)", "copy()", "capitalize()", "zfill(4)", "removeprefix('a')", "join(['p', 'q'])", "append(1)"]
    TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "odd", "even", "lower", "eq 1", "in [1, 'a']", "divisibleby 2", "not none", "not defined", "not string", "callable", "escaped", "gt(1)", "sameas none"]
    BINARY = ["+", "+", "~", "~", "-", "*", "/", "//", "%", "**", "==", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "and", "or", "or"]
    LITERALS = ["'a'", "''", "'\\n'", "'é'", "\"it's\"", "0", "1", "2", "-1", "3.0", "1e3", "none", "true", "false", "[]", "{}", "[1, 'a']", "(1, 2)", "('a',)", "{'k': 1}", "'%s'", "'{}'", "'user'", "'role'", "10000000000000000000000"]
    TEXTS = ["", " ", "\n", "x", "<|im_start|>", "\n\n  ", "  ", "é", "{", "a\n", "\t"]

    # Most variables have these values, and most postfixes on them are these. With random ones nearly
    # every template would fail.
    TYPED_VALUES = {
        "s": ["", "a", " a b\n", "é😀", "<think>x</think>y", "user", "a,b,,c", "1.50", "ẞß", "it's \"q\"", "A\r\nb"],
        "t": ["x", "role", "{}", "%s", "  ", "ǆ <b>&amp;</b>"],
        "n": [0, 1, 2, 3, 7, -3, 10**17],
        "f": [2.5, 0.5, -1.25, 1e16, 1e-7, 3.0],
        "l": [[], [1, 2, 3], ["b", "a", "B"], [[1, "x"], [2, "y"]], [True, None], [{"role": "user", "content": "q"}]],
        "d": [{}, {"k": 1, "b": "v"}, {"items": 1}, {"k": {"b": [1]}, "role": None}],
    }
    TYPED_POSTFIXES = {
        "s": [" | trim", " | upper", " | length", " | tojson", ".strip()", ".split(',')", ".split('</think>')[-1]", ".startswith('a')", ".replace('a', 'b')", "[0]", "[-1:]", "[::-1]", ".lstrip('\\n')", " | capitalize", " | title", " | list", " | indent(2)", " | e", ".splitlines()", ".rstrip()", " | int", " | float", ".partition(',')", ".title()", " | urlencode", " | pprint", " | truncate(5)", " | reverse"],
        "n": [" | string", " | tojson", " | abs", " | float", " is odd", " % 2", " // 2", " + 1", " * 2", " | round", " / 4", " ** 2"],
        "f": [" | string", " | tojson", " | int", " | round(1)", " * 3", " | round", " // 1", " % 0.7", " | abs"],
        "l": ["[0]", "[-1]", "[1:]", " | length", " | join(', ')", " | first", " | last", " | tojson", " | list", " | reverse | list", " + [1]", " | map('string') | join", " | tojson(indent=2)", " | select | list", "[::-1]", " | batch(2) | list", " | unique | list"],
        "d": [".k", "['b']", ".get('k')", ".get('x', 'z')", ".items() | list", " | tojson", " | items | list", " | length", " | dictsort", ".keys() | list", ".nope", ".nope is defined", " | tojson(indent=2)", " | list", ".b | default('q')"],
        "m": [".role", ".content", "['content']", ".role == 'user'", ".tool_calls", ".get('name')", " | tojson", ".content is string", ".content | default('', true)", ".tool_calls is defined", ".items() | list", ".content or ''", ".nope"],
        "h": [" | length", "[0].role", "[-1].content", "[0]['role'] == 'system'", "[1:]", " | tojson", " | map(attribute='role') | list", " | selectattr('role', 'equalto', 'user') | list | length", " | rejectattr('tool_calls') | map(attribute='content') | list", " | last"],
    }
    TYPED_POSTFIXES["t"] = TYPED_POSTFIXES["s"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, values):
        return self.random.choice(values)

    def chance(self, percent):
        return self.random.randrange(100) < percent

    def variables(self):
        found = {}
        for name in self.NAMES[2:-1]:
            if self.chance(85):
                typed = self.TYPED_VALUES.get(name)
                found[name] = self.pick(typed if typed and self.chance(85) else self.VALUES)
        found["h"] = [self.message() for _ in range(self.random.randrange(5))]
        found["m"] = self.message()
        return found

    def message(self):
        message = {"role": self.pick(["system", "user", "assistant", "tool"]), "content": self.pick(["", "hi", " x \n", None, [{"type": "text", "text": "p"}], "<think>a</think>b", "é"])}
        if self.chance(25):
            message["tool_calls"] = [{"type": "function", "function": {"name": "f", "arguments": self.pick([{}, {"a": 1}, {"b": [True, None], "c": "é"}, "{}"])}}]
        return message

    def primary(self, depth):
        roll = self.random.randrange(100)
        if roll < 45 or depth <= 0:
            return self.pick(self.NAMES)
        if roll < 70:
            return self.pick(self.LITERALS)
        if roll < 76:
            return f"[{self.expression(depth - 1)}, {self.expression(depth - 1)}]"
        if roll < 80:
            return "{" + f"'k': {self.expression(depth - 1)}, 'role': {self.primary(depth - 1)}" + "}"
        if roll < 84:
            return self.pick(["range(3)", f"range({self.primary(0)})", "namespace(k=1)", "dict(k=2)", "strftime_now('%Y-%m-%d')", "loop.index", "loop.last", "loop.first", "loop.index0", "loop.previtem", "loop", "ns.k", "g(1)", "cycler('a').next()"])
        return f"({self.expression(depth - 1)})"

    def postfix(self, depth):
        if self.chance(65):
            name = self.pick("sstnfllddmmmhh")
            text = name + self.pick(self.TYPED_POSTFIXES[name]) if self.chance(75) else name
            return f"({text})" if " " in text else text
        text = self.primary(depth)
        for _ in range(self.pick([0, 0, 1, 1, 2])):
            roll = self.random.randrange(100)
            if roll < 25:
                text += "." + self.pick(["role", "content", "k", "b", "items", "tool_calls", "function", "x"])
            elif roll < 45:
                text += f"[{self.pick(['0', '-1', '1', chr(39) + 'role' + chr(39), chr(39) + 'content' + chr(39), '1:', ':-1', '::-1', ':2', '5', 'n', chr(39) + 'k' + chr(39), '-2:'])}]"
            elif roll < 70:
                text += "." + self.pick(self.METHODS)
            else:
                text += " | " + self.pick(self.FILTERS)
        return text

    def expression(self, depth=3):
        roll = self.random.randrange(100)
        if depth <= 0 or roll < 50:
            return self.postfix(depth)
        if roll < 70:
            operator = self.pick(self.BINARY if self.chance(35) else ["~", "~", "==", "!=", "and", "or"])
            right = self.pick(["0", "1", "2", "-1", "0.5"]) if operator == "**" else self.expression(depth - 1)
            return f"{self.postfix(depth - 1)} {operator} {right}"
        if roll < 85:
            return f"{self.postfix(depth - 1)} is {self.pick(self.TESTS)}"
        if roll < 90:
            return f"{self.expression(depth - 1)} if {self.expression(depth - 1)} else {self.expression(depth - 1)}"
        if roll < 95:
            return "not " + self.expression(depth - 1)
        return self.pick(["-", "+"]) + self.pick(["n", "f", "n", self.postfix(depth - 1)])

    def tag(self, body):
        return "{%" + self.pick(["", "", "", "-", "-", "+"]) + f" {body} " + self.pick(["", "", "", "-", "-", "+"]) + "%}"

    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 4)))

    def statement(self, depth):
        roll = self.random.randrange(100)
        if roll < 20:
            return self.pick(self.TEXTS)
        if roll < 55 or depth <= 0:
            return "{{" + self.pick(["", "", "-"]) + f" {self.expression()} " + self.pick(["", "", "-"]) + "}}"
        if roll < 65:
            end = self.tag("else") + self.block(depth - 1) if self.chance(40) else ""
            middle = self.tag("elif " + self.expression(2)) + self.block(depth - 1) if self.chance(20) else ""
            return self.tag("if " + self.expression(2)) + self.block(depth - 1) + middle + end + self.tag("endif")
        if roll < 78:
            target = self.pick(["m", "m", "x", "k, v", "e"])
            over = self.pick(["h", "h", "l", "d.items()", "range(3)", "h[1:]", "s", "h | reverse", "d | dictsort", self.postfix(1)])
            condition = " if " + self.expression(1) if self.chance(15) else ""
            jump = self.tag(f"if {self.expression(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") if self.chance(12) else ""
            otherwise = self.tag("else") + self.block(0) if self.chance(15) else ""
            return self.tag(f"for {target} in {over}{condition}") + self.block(depth - 1) + jump + self.block(0) + otherwise + self.tag("endfor")
        if roll < 88:
            return self.tag(self.pick([f"set {self.pick(self.NAMES)} = {self.expression(2)}", f"set ns = namespace(k={self.expression(1)})", f"set ns.k = {self.expression(1)}", f"set e, u = {self.expression(1)}, {self.expression(1)}"]))
        if roll < 91:
            return self.tag(f"set {self.pick(self.NAMES)}") + self.block(0) + self.tag("endset")
        if roll < 94:
            return self.tag("macro g(a, b=1)") + self.pick(["{{ a }}", "{{ b }}{{ a }}", self.block(0)]) + self.tag("endmacro") + "{{ g(" + self.expression(1) + ") }}"
        if roll < 96:
            return self.tag("generation") + self.block(depth - 1) + self.tag("endgeneration")
        if roll < 97:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(2)"])) + self.block(0) + self.tag("endfilter")
        if roll < 98:
            return self.tag(f"with e = {self.expression(1)}") + self.block(0) + self.tag("endwith")
        return self.pick(["{# c #}", "{#- c -#}", "{% raw %}{{ x }}{% endraw %}"])

    def template(self):
        return "".join(self.statement(3) for _ in range(self.random.randrange(1, 4)))


def short(outcome, limit=600):
    if "text" in outcome:
        text = json.dumps(outcome["text"], ensure_ascii=False)
        return "text  " + (text if len(text) <= limit else text[:limit] + "…")
    return f"error {outcome['error']['class']}: {outcome['error']['message'][:limit]}"


def differs(wanted, found):
    if "text" in wanted and "text" in found:
        return "text and text" if wanted["text"] != found["text"] else None
    if "error" in wanted and "error" in found:
        return None
    return "text and error" if "text" in wanted else "error and text"


def report(title, source, variables, wanted, found):
    print(f"--- {title}\nsource {json.dumps(source, ensure_ascii=False)}\nvars   {json.dumps(variables, ensure_ascii=False)}")
    print(f"wanted {short(wanted)}\nllb    {short(found)}", flush=True)


def shrink(source, variables, real, library):
    """Removes pieces of the template while the outcomes still differ in the same way."""
    kind = differs(real(source, variables), library.outcome(source, variables))
    # Long numbers are kept: a text times a billion is not the same as a text times a million.
    numbers = set(LONG_NUMBER.findall(source))
    size = max(1, len(source) // 2)
    tries = 400
    while size >= 1 and tries > 0:
        start, smaller = 0, False
        while start < len(source) and tries > 0:
            attempt = source[:start] + source[start + size :]
            tries -= 1
            safe = attempt and "**" not in attempt and set(LONG_NUMBER.findall(attempt)) <= numbers
            if safe and differs(real(attempt, variables), library.outcome(attempt, variables)) == kind:
                source, smaller = attempt, True
            else:
                start += size
        if not smaller:
            size //= 2
    return source


def run_cases(library, path, arguments):
    totals, bad = collections.Counter(), collections.Counter()
    with open(path, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            case = json.loads(line)
            group = case["group"].split("/")[0]
            if arguments.only and not case["group"].startswith(arguments.only):
                continue
            totals[group] += 1
            found = library.outcome(case["source"], case["vars"])
            kind = differs(case, found)
            if kind:
                bad[group] += 1
                if not arguments.quiet:
                    report(f"{case['group']}, line {number}: {kind}", case["source"], case["vars"], case, found)
    for group, total in totals.items():
        print(f"{group:14} {total - bad[group]:5} of {total}")
    print(f"{'all':14} {sum(totals.values()) - sum(bad.values()):5} of {sum(totals.values())}")
    return 1 if bad else 0


def run_random(library, arguments):
    sys.path.insert(0, str(DATA))
    import environment

    environment.check_versions()
    real = environment.outcome
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    templates = Templates(seed)
    count, kinds, texts, skipped = 0, collections.Counter(), 0, 0
    try:
        while arguments.count is None or count < arguments.count:
            source, variables = templates.template(), templates.variables()
            count += 1
            wanted = real(source, variables)
            if not environment.printable(wanted) or len(wanted.get("text", "")) > 200_000:
                skipped += 1
                continue
            texts += "text" in wanted
            found = library.outcome(source, variables)
            kind = differs(wanted, found)
            if kind:
                kinds[kind] += 1
                if arguments.shrink:
                    source = shrink(source, variables, real, library)
                    variables = {name: value for name, value in variables.items() if name in source}
                    wanted, found = real(source, variables), library.outcome(source, variables)
                if not arguments.quiet:
                    report(f"template {count}: {kind}", source, variables, wanted, found)
    except KeyboardInterrupt:
        print()
    print(f"{count} templates, {texts} rendered to a text, {skipped} skipped; differences: {dict(kinds) or 'none'}")
    return 1 if kinds else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", metavar="LIBRARY", help="path of libllb.so")
    parser.add_argument("--cases", metavar="FILE.jsonl", help="run the cases of this file instead of random templates")
    parser.add_argument("--only", metavar="GROUP", help="with --cases: only groups with this prefix")
    parser.add_argument("--seed", type=int, help="seed of the random templates")
    parser.add_argument("--count", type=int, help="number of random templates; default: until Ctrl-C")
    parser.add_argument("--shrink", action="store_true", help="minimise templates that differ before printing them")
    parser.add_argument("--quiet", action="store_true", help="print only the totals")
    arguments = parser.parse_args()
    library = Library(arguments.library)
    if arguments.cases:
        raise SystemExit(run_cases(library, arguments.cases, arguments))
    raise SystemExit(run_random(library, arguments))


if __name__ == "__main__":
    main()
