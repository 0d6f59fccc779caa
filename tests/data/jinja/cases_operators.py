"""Operators, literals, subscripts, attributes, and how values print."""

import itertools

from recorder import BIG, TYPES


def record(recorder):
    pairs(recorder)
    unary(recorder)
    numbers(recorder)
    comparisons(recorder)
    precedence(recorder)
    literals(recorder)
    subscripts(recorder)
    attributes(recorder)
    printing(recorder)


def hangs(operator, left, right):
    """`**` with an exponent that would take for ever."""
    return operator == "**" and right == BIG and left in ("vi", "vj", BIG)


def pairs(recorder):
    kept = {"+": 4, "*": 7, "<": 5, "%": 7, "in": 6, "-": 11, "/": 11, "//": 13, "**": 11, "<=": 13, ">": 13, ">=": 13, "not in": 13}
    for operator in ("+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "in", "not in"):
        for left in TYPES:
            expressions = [
                f"{left} {operator} {right}" for right in TYPES if not hangs(operator, left, right)
            ]
            recorder.expressions(f"operators/{operator}", expressions, per_case=7, keep_errors=kept[operator])
    for left in TYPES:
        for operator in ("~", "==", "!=", "and", "or"):
            recorder.expressions(f"operators/{operator}", [f"{left} {operator} {right}" for right in TYPES], per_case=7)
    literal = ["none", "true", "3", "-7", "2.5", "'ab'", "[1, 'a']", "(1,)", "{'a': 1}"]
    for left, right in itertools.product(literal, literal):
        recorder.expressions(
            "operators/literal", [f"{left} {op} {right}" for op in ("+", "*", "%", "<", "==", "in", "~")], per_case=7, keep_errors=7
        )


def unary(recorder):
    for operator in ("-", "+", "not ", "not not ", "- -"):
        recorder.expressions("operators/unary", [operator + value for value in TYPES], per_case=7)
    recorder.expressions(
        "operators/conditional",
        [f"'y' if {value} else 'n'" for value in TYPES]
        + ["'y' if vn", "('y' if vn) is defined", "'y' if vt", "1 if 0 else 2 if 0 else 3", "(1 if 1) + 1"],
        per_case=7,
    )
    recorder.expressions("operators/conditional", ["(1 if 0) + 1", "('y' if vn).a", "('a' if 0 else un).b", "vt if vt else un.a"])


def numbers(recorder):
    ints = ["7", "-7", "2", "-2", "0", "1", "9007199254740993", "9223372036854775807", "-9223372036854775808", BIG]
    floats = ["2.5", "-2.5", "0.0", "-0.0", "0.1", "1e308", "3.0", "-0.3"]
    for left, right in itertools.product(ints, ints):
        expressions = [f"{left} {op} {right}" for op in ("//", "%", "/", "*", "-")]
        recorder.expressions("numbers/int", expressions, per_case=5, keep_errors=4)
    for left, right in itertools.product(floats, floats + ["2", "-3"]):
        expressions = [f"{left} {op} {right}" for op in ("//", "%", "/", "*", "+")]
        recorder.expressions("numbers/float", expressions, per_case=5, keep_errors=4)
    recorder.expressions(
        "numbers/pow",
        ["2 ** 10", "2 ** -1", "(-2) ** 3", "-2 ** 2", "2 ** 3 ** 2", "2 ** 0.5", "(-8) ** 0.5", "(-8) ** (1/3)", "0 ** 0",
         "0 ** -1", "0.0 ** -1", "2 ** 64", "2 ** 63", "10 ** 25", "(10 ** 25) ** 2", "10.0 ** 400", "2.0 ** 1024", "2 ** -1074",
         "true ** 2", "(-1) ** 10", "4 ** 0.5", "(-7) ** 2", "1e200 ** 2", "2 ** 200 - 2 ** 199", "'a' ** 2",
         "(10 ** 400) | length", "10 ** 400 / 3", "10 ** 400 * 1.0", "(10 ** 400) // 10 ** 399", "10 ** 5000",
         "(10 ** 4299) | string | length", "(10 ** 4300) | string | length", "1 / 10 ** 400", "10 ** 30 / 10 ** 29", "2 ** 0.0"],
    )
    recorder.expressions(
        "numbers/print",
        ["1.0", "1e16", "1e15", "9999999999999998.0", "123456789012345680.0", "1e-4", "1e-5", "0.0001", "0.00001", "1e22",
         "1e23", "1.5e300", "1e-300", "5e-324", "4.9e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "1e309", "-1e309",
         "1e309 - 1e309", "0.1 + 0.2", "1 / 3", "2 / 3", "100.0", "1e100", "-0.0", "0.0 * -1", "3.14159265358979", "1e5",
         "123456.789", "0.1", "1/10", "10/2", "7/2", "1e0", "1E3", "1e+3", "1e-3", "1_000", "1_000.5", "1_0e1_0", "0x1F",
         "0b101", "0o17", "0XFF", "0B1", "0O7", "0x_f", "00", "0", "1e1000", "'inf' | float", "'nan' | float", "'-inf' | float",
         "('nan' | float) == ('nan' | float)", "['nan' | float]", "{'a': 1e309}", "1e309 // 1", "5 % 1e309", "-5 % 1e309",
         "1e16 + 1", "2 ** 53 + 1.0", "9007199254740993 * 1.0", "9007199254740993 == 9007199254740992.0",
         "9007199254740993 > 9007199254740992.0", "1e308 * 10", "1e22 | int", "1e23 | int", "1.5e300 | int", "true + true", "-true",
         "true / 2", "true // 1", "3 | float", f"{BIG} | float", "10 ** 22 * 1.0", "1e21", "12345678901234567890.0", "0.5", ".5"],
        per_case=4,
    )
    halves = ["0.5", "1.5", "2.5", "-0.5", "-1.5", "3.5", "2.675", "1.005", "0.125", "0.375", "1e20", "1234.5678", "15", "25", "-25", "-2.5"]
    for half in halves:
        recorder.expressions(
            "numbers/round",
            [f"{half} | round", f"{half} | round(2)", f"{half} | round(1, 'floor')", f"{half} | round(1, 'ceil')",
             f"{half} | round(-1)", f"{half} | round(0, 'ceil')", f"{half} | round | int", f"({half}) | int"],
            per_case=8,
        )
    recorder.all(
        "numbers/vars",
        ["{{ a }} {{ a + 1 }} {{ -a }} {{ a // 2 }} {{ a % 10 }} {{ a / 2 }} {{ [a] }} {{ a | tojson }}"],
        a=9223372036854775807,
    )
    for value in (0, -1, 1.0, -0.0, 1e16, 1e15, 1e-7, 123456789.125, 0.1, 1e100, 4294967296, -9223372036854775808, 18446744073709551615, 3.0, 1e22, 5e-324, 2**53, 0.30000000000000004):
        recorder.all("numbers/vars", ["{{ a }} {{ [a] }} {{ a | tojson }} {{ a | int }} {{ a | float }} {{ a | round }} {{ a ~ '' }} {{ a is integer }} {{ a is float }} {{ '%s' % a }}"], a=value)


def comparisons(recorder):
    recorder.expressions(
        "comparisons/chain",
        ["1 < 2 < 3", "3 > 2 > 1", "1 < 3 < 2", "1 == 1 == 1", "1 < 2 == 2", "1 in [1] == true", "1 in [1] in [[1]]", "1 not in [2] and 1",
         "1 < 2 > 0", "not 1 == 2", "not 1 in [1]", "not 1 not in [1]", "1 <= 1 >= 1", "1 != 2 != 1", "1 < 2 < 'a'", "3 < 2 < 'a'",
         "'a' < 'b' < 'c'", "1 == 1.0", "1 == true", "0 == false", "0 == ''", "none == false", "none == none", "un == un", "un == none",
         "un == ''", "un == un2", "un != un2", "'' == []", "[] == ()", "[1] == [1.0]", "[1] == (1,)", "(1,) == (true,)", "{'a': 1} == {'a': 1.0}",
         "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "[1, 2] < [1, 3]", "[1, 2] < [1, 2, 3]", "[1, 'a'] < [1, 2]", "[1, 'a'] < [2, 2]", "(1, 2) <= (1, 2)",
         "'a' < 'B'", "'é' > 'z'", "'Z' < 'a'", "'😀' > '\\uffff'", "'ab' > 'a'", "'' < 'a'", "true < 2", "1 < 1.5", f"{BIG} > 1e25", f"{BIG} == 1e25",
         f"{BIG} < 1e26", "none < 1", "{} < {}", "[] < 1", "un < 1", "un < un", "1 < un", "'a' < 1", "none < none", "true > false",
         "'b' in 'abc'", "'' in 'abc'", "'' in ''", "'abc' in 'b'", "1 in 'abc'", "none in 'abc'", "un in 'abc'", "un in [un]", "un in []", "1 in un",
         "1 in none", "1 in 1", "'a' in {'a': 1}", "1 in {'a': 1}", "[] in {'a': 1}", "{} in {'a': 1}", "1 in {1: 2}", "1.0 in {1: 2}", "true in [1]",
         "'1' in [1]", "none in [none]", "(1,) in [(1,)]", "[1] in [[1]]", "3 in range(5)", "5 in range(5)", "2.0 in range(5)", "'a' in range(3)",
         "'a' in ('a', 'b')", "'a' in vd.keys()", "1 in vd.values()", "('a', 1) in vd.items()", "['a', 1] in vd.items()", "'ab' not in 'abc'",
         "range(3) == range(3)", "range(0) == range(2, 2)", "range(3) == [0, 1, 2]", "vd.keys() == vd.keys()", "vd.items() == [('a', 1)]"],
        per_case=4,
    )


def precedence(recorder):
    recorder.expressions(
        "precedence",
        ["1 + 2 * 3", "(1 + 2) * 3", "1 + 2 ~ 3", "1 ~ 2 + 3", "1 ~ 2 * 3", "'a' ~ 1 == 'a1'", "1 - 2 - 3", "2 * 3 % 4", "2 + 3 % 4", "7 // 2 * 2",
         "-2 ** 2", "2 ** -1", "-1 | abs", "(-1) | abs", "1 + -1 | abs", "- 1 | abs", "not true == false", "not 1 + 1", "1 or 0 and 0",
         "(1 or 0) and 0", "not 0 and 0", "not (0 and 0)", "1 if 0 else 2 + 3", "1 + 1 if 0 else 2", "'a' | upper ~ 'b'", "'a' ~ 'b' | upper",
         "('a' ~ 'b') | upper", "1 + 2 | string", "[1] + [2] | length", "1 is odd and 2 is even", "not 1 is odd", "1 is not odd", "1 is odd is true",
         "1 + 1 is odd", "1 is odd + 1", "2 ** 3 | string", "'a' in 'ab' ~ 'c'", "'a' ~ 'b' in 'abc'", "1 == 1 and 2 == 2", "1 < 2 and 3 < 2",
         "1 | string | length", "-1 is odd", "- 3 is odd", "'a' 'b'", "'a' 'b' | upper", "'a' ~ 'b' 'c'", "1 if 1 else 2 if 1 else 3", "(1, 2) | length",
         "1, 2", "1, 2 | string", "(1)", "((1))", "()", "1,", "'a', 'b' | upper", "vd.a + 1", "vd['a'] + 1", "-vd.a", "-vd.a ** 2", "vl[0] is odd",
         "not vl", "not vl and vd", "vl and vd", "vl or vd", "ve or vd0 or 'z'", "ve and 1", "vn or un or 0", "1 is divisibleby 1 and 1",
         "4 is divisibleby(2)", "4 is divisibleby 2", "4 is not divisibleby 3", "'a' is in ['a']", "'a' is in 'abc'", "1 is eq 1", "1 is ne(2)",
         "5 is gt 3 and 2", "5 is ge 5", "5 is lt 3 or 1", "1 is sameas true", "true is sameas true", "none is none is true", "'%s' % 'a' ~ 'b'",
         "'%s' % 1 + 'b'", "1 ~ -1", "1 - -1", "1--1", "2**-1", "+1", "+-1", "not -1", "- -1", "1 in [1] and 2 in [1]", "1 if vd", "1 if vd0",
         "'x' if 'a' in vd else 'y'", "vd.a if vd.a is defined else 0", "vd.b if vd.b is defined else 0", "vd.b | default('q') ~ 'r'",
         "(vd.b | default('q')) ~ 'r'", "1 + vd.b | default(2)", "2 * 3 ** 2", "-2 ** -2", "1 < 2 ~ ''", "1 ~ 2 < 3", "'12' == 1 ~ 2", "1 == 2 or 3",
         "[1, 2] == [1] + [2]", "1 +1", "1 - 1", "1 -1", "[1 -1]", "'a'|upper|lower|title", "('a'|upper)[0]", "'abc'|upper[0]", "'abc'[0]|upper",
         "'abc'.upper()[0]", "vd.get('a')|string", "1.5.is_integer()", "1 .bit_length()", "(1).bit_length()", "1.bit_length()", "5 is odd ~ 'x'"],
        per_case=4,
    )


def literals(recorder):
    recorder.expressions(
        "literals/strings",
        [r"'a\nb'", r"'a\tb'", r"'a\\b'", r"'a\'b'", r'"a\"b"', r"'a\"b'", r"'\x41'", r"'\u00e9'", r"'\U0001F600'", r"'\101'", r"'\0'", r"'\a'", r"'\q'",
         r"'\8'", r"'\N{BULLET}'", r"'\N{NOPE}'", r"'\x4'", r"'\u12'", r"'\U00110000'", r"'é\n'", r"'é\x41'", r"'😀\u00e9'", r"'\r\n'", r"'\ud83d\ude00' | length", "'a\nb'",
         "'a\r\nb'", "'a\\\nb'", "''", '""', "'a' \"b\"", "'%}'", "'}}'", "'{{'", "'{%'", "'#}'", "'{#'", r"'\{\{'", r"'\v\f\b' | tojson", r"'\1234'", r"'\18'", r"'\x41\x42'",
         r"'\\n'", r"'\\\n' | length", r"'\'' ", r"'\"\''", "'‘’'", r"'\/'", r"'\d+'", r"'\u2028' | tojson", r"'\x7f\x80\xa0\xad' | tojson"],
        per_case=3,
    )
    recorder.expressions(
        "literals/others",
        ["true", "True", "TRUE", "false", "False", "none", "None", "NONE", "null", "nil", "[1, 2,]", "(1, 2,)", "(1,)", "{'a': 1,}", "{}", "[]", "()", "{1: 2}", "{none: 1}",
         "{true: 1, 1: 2}", "{1.0: 1}", "{(1, 2): 3}", "{[1]: 2}", "{{}: 1}", "{'a': 1, 'a': 2}", "{un: 1}", "{'a': {'b': [1, (2, 3)]}}", "[[], [[]]]", "{'a' 'b': 1}",
         "{1 + 1: 2}", "[1 if 0 else 2]", "[un]", "(un,)", "{'a': un}", "[none, true, 1.5, 'x']", "{'a': [1, {'b': none}]}", "[1,,2]", "[,]", "{,}", "{a}", "{'a'}", "(,)",
         "1__0", "1_", "_1", "1.", "1.e5", "1e", "0x", "0b2", "08", "007", "1 2", "'a", "a b"],
        per_case=4,
    )


def subscripts(recorder):
    values = {"l": [10, 20, 30, 40, 50], "s": "aé😀cd", "d": {"a": 1, "1": "x", "": "e"}}
    slices = ["0", "-1", "4", "5", "-5", "-6", "1:", ":1", ":", "::2", "::-1", "1:3", "3:1", "-3:-1", "-1:-3:-1", "4:0:-2", "::0", "10:", ":10", "-10:2", "1:10:3",
              "true", "1.0", "'a'", "none", "none:2", "un", "un:2", ":un", "'1'", "1.5:", "'a':", f"{BIG}", f"{BIG}:", f":{BIG}", f"::{BIG}", f"-{BIG}:", "1,2", "(1)", "1:2:", "::", "-1:", ":-1", "2:2", "0:0:1", "false:"]
    for name in ("l", "s"):
        recorder.expressions("subscripts/" + name, [f"{name}[{piece}]" for piece in slices], per_case=5, **{name: values[name]})
    recorder.expressions("subscripts/tuple", [f"(1, 2, 3)[{piece}]" for piece in slices], per_case=5, keep_errors=2)
    recorder.expressions("subscripts/range", [f"range(10)[{piece}]" for piece in slices], per_case=5, keep_errors=2)
    recorder.expressions("subscripts/dict", [f"d[{key}]" for key in ["'a'", "'b'", "1", "'1'", "''", "none", "un", "[]", "{}", "0:1", "1.0", "true", "'a', 'b'", "'get'", "'keys'()", "'items'"]], d=values["d"])
    for value in TYPES:
        recorder.expressions("subscripts/types", [f"{value}[0]", f"{value}['a']", f"{value}[-1]", f"{value}[1:]", f"{value}.a", f"{value}[un]", f"{value}[none]", f"{value}.0", f"{value}.a.b", f"{value}[0][0]"], keep_errors=2)
        recorder.expressions("subscripts/defined", [f"{value}[0] is defined", f"{value}['a'] is defined", f"{value}.a is defined", f"{value}[none] is defined", f"{value}[9] is defined", f"{value}[un] is defined"], per_case=6)
    recorder.expressions("subscripts/call", ["'ab'.upper", "vd.a()", "vs()", "vn()", "vi()", "vl()", "un()", "un.a()", "vd.b()", "vd.b.c()", "vs.nope()", "vs.nope", "vl.nope()", "vn.a()", "vd['get']('a')", "vs['upper']()", "(1,)()", "1()", "''()", "vd.a.b.c", "vl[9].a", "vl[9]()", "'a'()", "vf.a()", "none()", "[]()", "{}()"])


def attributes(recorder):
    keys = {"items": 1, "keys": [2], "values": "v", "get": "g", "update": "u", "pop": "p", "copy": "c", "a-b": "dash", "__class__": "cls", "_x": "under"}
    recorder.expressions(
        "attributes/dict",
        ["d['items']", "d['keys']", "d['values']", "d['get']", "d['update']", "d['copy']", "d['a-b']", "d['_x']", "d['__class__']", "d._x", "d.__class__", "d.items()", "d.keys()", "d.values()",
         "d.get('items')", "d.get('nope')", "d.get('nope', 3)", "d.items", "d.items is defined", "d['items'] is defined", "d.get is callable", "d['get'] is callable", "d.update", "d.update({})", "d.pop('a')", "d['pop']",
         "d | attr('items')", "d | attr('nope')", "d | attr('get') is callable", "d.nope", "d.nope.x", "d['nope']['x']", "d.nope is defined", "(d.items() | list)[0]", "d['items'] + 1", "d.copy() == d", "d.length", "d.a-b"],
        d=keys,
        per_case=4,
    )
    recorder.expressions(
        "attributes/others",
        ["vs.length", "vs['length']", "vl.length", "vl['length']", "vs | attr('upper') is callable", "vs | attr('nope')", "vs | attr('nope') is defined", "vd | attr('a')", "vd | map(attribute='a')", "[vd] | map(attribute='a') | list",
         "[[1, 2]] | map(attribute=0) | list", "[[1, 2]] | map(attribute='0') | list", "[{'a': {'b': 1}}] | map(attribute='a.b') | list", "[{'items': 5}] | map(attribute='items') | list", "vi.real", "vi.imag", "vi.numerator", "vf.real", "vf.imag",
         "vt.real", "vi['real']", "vl.count", "vn.x", "vn['x']", "vs.a", "vs['a']", "un.x", "un['x']", "range(5).start", "range(5).stop", "range(1, 9, 2).step", "range(5).count(3)", "range(5).index(2)", "range(5).index(9)", "vu.upper()", "loop", "loop.index", "self", "self.x", "caller", "caller()", "varargs", "messages", "tools", "documents", "add_generation_prompt", "tools is defined", "messages[0].role"],
    )


def printing(recorder):
    strings = ["", "a'b", 'a"b', "a'b\"c", "a\\b", "a\nb\tc\rd", "\x00\x1f\x7f", "\x80\x9f\xa0\xad", "é", "😀", "\u200b\u200d\ufeff", "\u2028\u2029", "\u0301", "\ue000", "\U000e0001", "\u3000", "\u0378", "<&>'\"", "\x1b[0m", "a b", "ß", "\ufffd\ufffe\uffff", "\U0010ffff", "\u061c\u202e", "\U0001fae8", "\u0b01", "\u1680", "\u180e", "ﬁ", "한"]
    for value in strings:
        recorder.add("printing/repr", "{{ [s] }} {{ (s,) }} {{ {s: s} }} {{ s | pprint }} {{ s | tojson }} {{ [s] | string }} {{ '%r' % s }} {{ '%a' % s }}", s=value)
        recorder.add("printing/format", "{{ '{!r}'.format(s) }} {{ '{!a}'.format(s) }} {{ '{!s:>4}|'.format(s) }} {{ s | length }} {{ s | e }}", s=value)
    values = [None, True, False, 0, -1, 1.0, 1e16, -0.0, "x", [], {}, [[]], [{}], {"a": []}, {"a": {"b": [None, True, 1.5, "é"]}}, [1, [2, [3, [4]]]], {"k": "v'\""}, {"1": 1}]
    for value in values:
        recorder.add("printing/containers", "{{ v }}|{{ [v] }}|{{ {'k': v} }}|{{ (v, v) }}|{{ v ~ '' }}|{{ '' ~ [v] }}|{{ v | string }}|{{ v | tojson }}|{{ v | tojson(indent=2) }}|{{ v | pprint }}", v=value)
    recorder.expressions(
        "printing/special",
        ["un", "[un]", "(un, 1)", "{'a': un}", "[vd.b]", "[un | default]", "un ~ 'x'", "[none]", "range(3)", "[range(3)]", "range(1, 5, 2)", "range(0)", "vd.keys()", "vd.values()", "vd.items()", "[vd.keys()]", "vd0.keys()",
         "namespace()", "namespace(a=1)", "namespace(a='x', b=[1])", "[namespace(a=1)]", "namespace({'a': 1})", "namespace([('a', 1)], b=2)", "('a' | safe)", "['a' | safe]", "('a' | e)", "['<' | e]", "{'a': '<' | safe}", "'é'.encode()", "['é'.encode('utf-16-le')]",
         "vd | items | list", "vd | dictsort", "[1, 2] | batch(1) | list", "(1, (2, (3,)))", "[true, false, none]", "un | string", "un | list", "un | length", "un | upper", "un | tojson", "[un] | tojson", "(1, 2) | tojson", "vd.keys() | tojson", "range(2) | tojson", "namespace() | tojson", "{1: 2} | tojson", "{none: 1, true: 2, 1.5: 3} | tojson", "{(1,): 2} | tojson",
         "1e309 | tojson", "'nan' | float | tojson", "('<' | e) | tojson", f"{BIG} | tojson", "1e16 | tojson", "0.1 | tojson", "-0.0 | tojson"],
        per_case=4,
    )
