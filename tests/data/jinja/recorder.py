"""Collects cases and their outcomes."""

import json
import re

from environment import outcome, printable

# One variable for each type of value that JSON can carry, named in sources by these names.
VALUES = {
    "vn": None,
    "vt": True,
    "vi": 3,
    "vj": -7,
    "vf": 2.5,
    "vs": "ab",
    "vu": "é😀",
    "ve": [],
    "vl": [1, "a"],
    "vd0": {},
    "vd": {"a": 1},
}

BIG = "10000000000000000000000000"

# An expression for each type of value: the variables above, what only a literal can write, and an
# undefined name.
TYPES = list(VALUES) + [BIG, "(1,)", "un"]

NAMES = re.compile(r"\b(?:" + "|".join(VALUES) + r")\b")


class Recorder:
    def __init__(self):
        self.cases = []
        self.seen = set()
        self.skipped = 0

    def variables(self, source, given):
        found = {name: VALUES[name] for name in VALUES if re.search(rf"\b{name}\b", source)}
        found.update(given)
        return found

    def add(self, group, source, **given):
        """One case. Says whether it was kept."""
        variables = self.variables(source, given)
        key = (source, json.dumps(variables, sort_keys=True))
        if key in self.seen:
            return False
        self.seen.add(key)
        result = outcome(source, variables)
        if not printable(result):
            self.skipped += 1
            return False
        self.cases.append({"group": group, "source": source, "vars": variables, **result})
        return True

    def all(self, group, sources, **given):
        for source in sources:
            self.add(group, source, **given)

    def expressions(self, group, expressions, per_case=5, keep_errors=1, **given):
        """Prints expressions: those that succeed, several to a case; each that fails, a case of its own.

        Of the failures, every `keep_errors`-th is kept.
        """
        good = []
        failures = 0
        for expression in expressions:
            source = "{{ " + expression + " }}"
            result = outcome(source, self.variables(source, given))
            if not printable(result):
                self.skipped += 1
            elif "error" in result:
                failures += 1
                if (failures - 1) % keep_errors == 0:
                    self.add(group, source, **given)
            else:
                good.append(source)
        for start in range(0, len(good), per_case):
            self.add(group, "\n".join(good[start : start + per_case]), **given)
