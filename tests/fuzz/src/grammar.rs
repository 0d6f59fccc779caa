//! Turns bytes into a template that follows Jinja's grammar. Rendering it may fail.
//!
//! This is one file because the word lists are a third of it, and the functions of the grammar call
//! each other.

use arbitrary::{Result, Unstructured};

/// The maximum nesting of blocks and of expressions.
const DEPTH: usize = 5;
const MAX: usize = 6000;

const TEXTS: [&str; 12] = [
    "text",
    " ",
    "\n",
    "\n\n  ",
    "<|im_start|>",
    "é\u{301}🦀",
    "\r\n",
    "}} %} #}",
    "{ \"a\": 1 }",
    "\u{0}\u{7f}\u{2028}",
    "\t\u{a0}",
    "# x",
];
const NAMES: [&str; 24] = [
    "messages",
    "tools",
    "documents",
    "message",
    "m",
    "x",
    "y",
    "ns",
    "n",
    "list",
    "deep",
    "loop",
    "bos_token",
    "eos_token",
    "add_generation_prompt",
    "enable_thinking",
    "reasoning_effort",
    "nothing",
    "f",
    "caller",
    "messages[0]",
    "messages[-1]",
    "tools[0].function.parameters",
    "loop.index0",
];
/// Names that a template may set.
const TARGETS: [&str; 6] = ["x", "y", "n", "list", "message", "m"];
const MEMBERS: [&str; 16] = [
    "role",
    "content",
    "tool_calls",
    "function",
    "arguments",
    "name",
    "index",
    "last",
    "first",
    "previtem",
    "nextitem",
    "a",
    "items",
    "properties",
    "type",
    "n",
];
const STRINGS: [&str; 20] = [
    "''",
    "'user'",
    "'role'",
    "'content'",
    "'text'",
    "\"a\\nb\"",
    "'it\\'s'",
    "'\\\\'",
    "'é🦀ß'",
    "'}} %}'",
    "' a '",
    "'a,b,c'",
    "'%d %s'",
    "'%Y-%m-%d'",
    "'{{ x }}'",
    "'<think>'",
    "'12'",
    "'1.5e3'",
    "'\\u00e9\\x41'",
    "\"#}\"",
];
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "10",
    "100",
    "255",
    "1_000",
    "65536",
    "2147483648",
    "9223372036854775807",
    "18446744073709551615",
    "0.0",
    "1.5",
    "1e3",
    "2.5e-3",
    "1e308",
];
const CONSTANTS: [&str; 6] = ["true", "false", "none", "True", "False", "None"];
const FUNCTIONS: [&str; 8] =
    ["range", "namespace", "dict", "raise_exception", "strftime_now", "f", "caller", "loop"];
const METHODS: [&str; 32] = [
    "items",
    "keys",
    "values",
    "get",
    "split",
    "rsplit",
    "strip",
    "lstrip",
    "rstrip",
    "startswith",
    "endswith",
    "upper",
    "lower",
    "title",
    "capitalize",
    "replace",
    "join",
    "find",
    "rfind",
    "index",
    "count",
    "splitlines",
    "isdigit",
    "isalpha",
    "format",
    "zfill",
    "removeprefix",
    "removesuffix",
    "partition",
    "append",
    "copy",
    "update",
];
const FILTERS: [&str; 50] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "default",
    "d",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
];
const TESTS: [&str; 26] = [
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "integer",
    "float",
    "boolean",
    "mapping",
    "iterable",
    "sequence",
    "odd",
    "even",
    "true",
    "false",
    "lower",
    "upper",
    "callable",
    "divisibleby",
    "eq",
    "equalto",
    "ne",
    "gt",
    "lt",
    "in",
    "sameas",
];
/// From this index on, tests in [`TESTS`] take an argument.
const ARGUMENT_FROM: usize = 18;
const BINARY: [&str; 17] =
    ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "and", "or"];
const KEYWORDS: [&str; 10] = [
    "indent",
    "width",
    "first",
    "attribute",
    "default",
    "case_sensitive",
    "reverse",
    "by",
    "ensure_ascii",
    "maxsplit",
];

struct Writer<'a> {
    bytes: Unstructured<'a>,
    out: String,
    depth: usize,
    /// Whether `break` is allowed here, which is in the body of a loop of the same macro.
    in_loop: bool,
}

/// Makes a template from any bytes. It ends early when the bytes run out.
pub fn template(bytes: &[u8]) -> String {
    let mut writer =
        Writer { bytes: Unstructured::new(bytes), out: String::new(), depth: 0, in_loop: false };
    while !writer.bytes.is_empty() && writer.out.len() < MAX {
        // A statement fails only if the bytes run out. Open blocks are closed in that case too.
        if writer.statement().is_err() {
            break;
        }
    }
    writer.out
}

impl Writer<'_> {
    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        self.bytes.choose(words).copied().unwrap_or(words[0])
    }

    fn number(&mut self, most: usize) -> usize {
        self.bytes.int_in_range(0..=most).unwrap_or(0)
    }

    fn chance(&mut self, of: u8) -> bool {
        self.bytes.ratio(1, of).unwrap_or(false)
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn tag(&mut self, inside: impl FnOnce(&mut Self)) {
        let (open, close) =
            (self.one_of(&["{% ", "{%- ", "{%+ "]), self.one_of(&[" %}", " -%}", "\n%}"]));
        self.put(open);
        inside(self);
        self.put(close);
    }

    fn end(&mut self, name: &str) {
        self.tag(|w| w.put(name));
    }

    fn body(&mut self, in_loop: bool) {
        let before = std::mem::replace(&mut self.in_loop, in_loop);
        self.depth += 1;
        for _ in 0..=self.number(2) {
            if self.depth > DEPTH || self.out.len() > MAX || self.statement().is_err() {
                break;
            }
        }
        self.depth -= 1;
        self.in_loop = before;
    }

    fn statement(&mut self) -> Result<()> {
        match self.bytes.int_in_range(0..=21)? {
            0 | 1 => {
                let text = self.one_of(&TEXTS);
                self.put(text);
            }
            2..=6 => {
                let (open, close) =
                    (self.one_of(&["{{ ", "{{- "]), self.one_of(&[" }}", " -}}", "\n}}"]));
                self.put(open);
                self.expression();
                self.put(close);
            }
            7..=9 => {
                self.tag(|w| {
                    w.put("if ");
                    w.expression();
                });
                self.body(self.in_loop);
                if self.chance(3) {
                    self.tag(|w| {
                        w.put("elif ");
                        w.expression();
                    });
                    self.body(self.in_loop);
                }
                if self.chance(2) {
                    self.end("else");
                    self.body(self.in_loop);
                }
                self.end("endif");
            }
            10..=12 => self.for_loop(),
            13 | 14 => self.tag(|w| {
                w.put("set ");
                match w.number(5) {
                    0 => w.put("ns.n"),
                    1 => w.put("x, y"),
                    _ => {
                        let name = w.one_of(&TARGETS);
                        w.put(name);
                    }
                }
                w.put(" = ");
                w.expression();
            }),
            15 => {
                self.tag(|w| {
                    let name = w.one_of(&TARGETS);
                    w.put("set ");
                    w.put(name);
                    if w.chance(3) {
                        w.filter();
                    }
                });
                self.body(false);
                self.end("endset");
            }
            16 => {
                self.tag(|w| {
                    let parameters = w.one_of(&["()", "(x)", "(x, y=1)", "(x=[], y=none)"]);
                    w.put("macro f");
                    w.put(parameters);
                });
                self.body(false);
                self.end("endmacro");
            }
            17 => {
                self.tag(|w| {
                    let parameters = w.one_of(&["call f(", "call(y) f("]);
                    w.put(parameters);
                    w.arguments();
                    w.put(")");
                });
                self.body(false);
                self.end("endcall");
            }
            18 => {
                self.tag(|w| {
                    w.put("filter ");
                    w.filter_name();
                });
                self.body(false);
                self.end("endfilter");
            }
            19 => {
                let text = self.one_of(&[
                    "{# a {{ comment }} #}",
                    "{#- x -#}",
                    "{% raw %}{{ x }}{% if %}{% endraw %}",
                    "{%- raw -%} {# {%- endraw -%}",
                ]);
                self.put(text);
            }
            20 => {
                self.end("generation");
                self.body(false);
                self.end("endgeneration");
            }
            _ if self.in_loop => {
                let name = self.one_of(&["break", "continue"]);
                self.end(name);
            }
            _ => self.put("{% set ns = namespace(n=0, a=[]) %}"),
        }
        Ok(())
    }

    fn for_loop(&mut self) {
        self.tag(|w| {
            let target = w.one_of(&["message", "x", "m", "x, y", "x, (y, m)"]);
            w.put("for ");
            w.put(target);
            w.put(" in ");
            w.operand();
            if w.chance(4) {
                w.put(" if ");
                w.operand();
            }
            if w.chance(8) {
                w.put(" recursive");
            }
        });
        self.body(true);
        if self.chance(4) {
            self.end("else");
            self.body(false);
        }
        self.end("endfor");
    }

    fn expression(&mut self) {
        if self.depth >= DEPTH || self.bytes.is_empty() {
            return self.atom();
        }
        self.depth += 1;
        match self.number(13) {
            0..=2 => self.atom(),
            3..=5 => self.postfix(),
            6..=7 => {
                self.operand();
                self.filter();
                if self.chance(3) {
                    self.filter();
                }
            }
            8 => {
                self.operand();
                self.test();
            }
            9..=10 => {
                self.operand();
                let operator = self.one_of(&BINARY);
                self.put(" ");
                self.put(operator);
                self.put(" ");
                self.operand();
            }
            11 => {
                let operator = self.one_of(&["not ", "-", "+"]);
                self.put(operator);
                self.operand();
            }
            // The expression is in parentheses, because `{% if a if b else c %}` and `{% for x in a
            // if b else c %}` are not allowed.
            12 => {
                self.put("(");
                self.operand();
                self.put(" if ");
                self.operand();
                if self.chance(2) {
                    self.put(" else ");
                    self.operand();
                }
                self.put(")");
            }
            _ => {
                self.operand();
                for _ in 0..=self.number(2) {
                    let operator = self.one_of(&[" < ", " == ", " not in ", " >= "]);
                    self.put(operator);
                    self.operand();
                }
            }
        }
        self.depth -= 1;
    }

    /// An operand for any operator: an atom, or an expression in parentheses.
    fn operand(&mut self) {
        if self.depth < DEPTH && self.chance(3) {
            self.put("(");
            self.expression();
            self.put(")");
        } else {
            self.atom();
        }
    }

    fn atom(&mut self) {
        let word = match self.number(11) {
            0..=4 => self.one_of(&NAMES),
            5 | 6 => self.one_of(&STRINGS),
            7 => self.one_of(&NUMBERS),
            8 => self.one_of(&CONSTANTS),
            9 if self.depth < DEPTH => return self.list("[", "]"),
            10 if self.depth < DEPTH => return self.dict(),
            11 if self.depth < DEPTH => return self.list("(", ",)"),
            _ => "x",
        };
        self.put(word);
    }

    fn list(&mut self, open: &str, close: &str) {
        self.depth += 1;
        self.put(open);
        let length = self.number(3).max(usize::from(open == "("));
        for index in 0..length {
            self.put(if index > 0 { ", " } else { "" });
            self.expression();
        }
        self.put(close);
        self.depth -= 1;
    }

    fn dict(&mut self) {
        self.depth += 1;
        self.put("{");
        for index in 0..self.number(3) {
            let key = self.one_of(&STRINGS);
            self.put(if index > 0 { ", " } else { "" });
            self.put(key);
            self.put(": ");
            self.expression();
        }
        self.put(" }");
        self.depth -= 1;
    }

    fn postfix(&mut self) {
        match self.number(5) {
            0 => {
                let name = self.one_of(&FUNCTIONS);
                self.put(name);
                self.call();
            }
            1 => {
                self.put("(");
                self.expression();
                self.put(")");
            }
            _ => {
                let name = self.one_of(&NAMES);
                self.put(name);
            }
        }
        for _ in 0..=self.number(2) {
            match self.number(4) {
                0 | 1 => {
                    let member = self.one_of(&MEMBERS);
                    self.put(".");
                    self.put(member);
                }
                2 => {
                    self.put("[");
                    self.expression();
                    self.put("]");
                }
                3 => {
                    self.put("[");
                    for part in 0..=self.number(2).max(1) {
                        self.put(if part > 0 { ":" } else { "" });
                        if self.chance(2) {
                            let bound =
                                self.one_of(&["0", "1", "-1", "2", "-2", "n", "100", "none"]);
                            self.put(bound);
                        }
                    }
                    self.put("]");
                }
                _ => {
                    let method = self.one_of(&METHODS);
                    self.put(".");
                    self.put(method);
                    self.call();
                }
            }
        }
    }

    fn call(&mut self) {
        self.put("(");
        self.arguments();
        self.put(")");
    }

    fn arguments(&mut self) {
        self.depth += 1;
        let length = self.number(2);
        for index in 0..length {
            self.put(if index > 0 { ", " } else { "" });
            self.expression();
        }
        if self.chance(4) {
            let keyword = self.one_of(&KEYWORDS);
            self.put(if length > 0 { ", " } else { "" });
            self.put(keyword);
            self.put("=");
            self.expression();
        }
        self.depth -= 1;
    }

    fn filter(&mut self) {
        self.put(" | ");
        self.filter_name();
    }

    fn filter_name(&mut self) {
        let name = self.one_of(&FILTERS);
        self.put(name);
        if self.chance(2) {
            self.call();
        }
    }

    fn test(&mut self) {
        let which = self.number(TESTS.len() - 1);
        let negated = self.chance(3);
        self.put(if negated { " is not " } else { " is " });
        self.put(TESTS[which]);
        if which >= ARGUMENT_FROM {
            self.put("(");
            self.expression();
            self.put(")");
        }
    }
}
