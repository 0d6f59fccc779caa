//! Reading a text costs steps in proportion to its length, whichever operand it is. Messages are
//! short, and what errors and objects keep is accounted.

use std::time::Duration;

use crate::jinja::error::ErrorKind;
use crate::jinja::{Bounds, Budget, Context, Template, Text, Value};

const LONG: usize = 1 << 20;
/// The steps for reading a long text, less some that a template may not need.
const MAX: u64 = LONG as u64 / 256 - 64;

/// Renders a template with the caller's texts `b`, `d` and `u` of this length. Returns the result
/// and the steps.
fn render(source: &str, length: usize) -> (Result<String, (ErrorKind, String)>, u64) {
    let text = |text: String| Value::Text(Text::uncharged(&text, Vec::new()));
    let variables = vec![
        ("b".into(), text("x".repeat(length))),
        ("d".into(), text("1".repeat(length))),
        ("u".into(), text("é".repeat(length / 2))),
        ("a".into(), text("a".to_owned())),
    ];
    let strftime_now: Box<dyn Fn(&str) -> String> = Box::new(|_| String::new());
    let context = Context { variables, strftime_now: Some(strftime_now), log: None };
    let budget = Budget::new(Bounds {
        fuel: 50_000_000,
        output_bytes: 1 << 30,
        recursion: 500,
        memory_bytes: 1 << 30,
        time: Duration::from_secs(3600),
    });
    let ended = Template::compile(source).and_then(|template| template.render(context, &budget));
    let ended = ended.map(|rendered| rendered.text);
    (ended.map_err(|error| (error.kind(), error.message().to_owned())), budget.spent())
}

/// An expression with a long text costs steps, and with short texts next to none.
#[track_caller]
fn check(expression: &str) {
    let source = format!("{{% set q = {expression} %}}");
    let (_, steps) = render(&source, LONG);
    assert!(steps >= MAX, "{expression}: {steps} steps");
    let (_, steps) = render(&source, 4);
    assert!(steps < 64, "{expression}: {steps} steps for short texts");
}

#[test]
fn arguments_cost_steps() {
    for expression in [
        "'a'.find(b)",
        "'a'.rfind(b)",
        "'a'.index(b)",
        "'a'.count(b)",
        "'a'.split(b)",
        "'a'.rsplit(b)",
        "'a'.partition(b)",
        "'a'.rpartition(b)",
        "'a'.replace(b, '')",
        "'a'.replace('x', b)",
        "'a'.strip(b)",
        "'a'.removeprefix(b)",
        "'a'.removesuffix(b)",
        "'a'.startswith(b)",
        "'a'.endswith(('x', b))",
        "'a'.center(9, b)",
        "'a'|replace(b, '')",
        "'a'|replace('x', b)",
        "'a'|trim(b)",
        "'abc'|truncate(1, true, b)",
        "['a']|join(b)",
        "['a']|groupby(b)",
        "[1]|map(attribute=b)|list",
        "[{}]|selectattr(b)|list",
        "1|attr(b)",
        "b in 'a'",
        "'a' in b",
        "{}[b]",
        "[1][b]",
        "namespace()[b]",
        "{b: none}|xmlattr",
        "strftime_now(b)",
        "'%(a)s' % {'a': b}",
        "'{}'.format(b)",
        "'{:.1}'.format(b)",
        "b ~ a",
        "raise_exception(b)",
    ] {
        // The longest format of a time is shorter.
        if expression == "strftime_now(b)" {
            assert_eq!(render("{{ strftime_now(b) }}", LONG).0.unwrap_err().0, ErrorKind::Limit);
            assert!(render("{{ strftime_now(b) }}", 60_000).1 > 60_000);
            continue;
        }
        check(expression);
    }
}

#[test]
fn subjects_cost_steps() {
    for filter in [
        "capitalize",
        "center",
        "count",
        "e",
        "escape",
        "filesizeformat",
        "float",
        "forceescape",
        "format",
        "indent",
        "int",
        "length",
        "list",
        "lower",
        "pprint",
        "replace('y', 'z')",
        "reverse",
        "safe",
        "string",
        "striptags",
        "title",
        "tojson",
        "trim",
        "truncate",
        "upper",
        "urlencode",
        "wordcount",
        "wordwrap",
    ] {
        check(&format!("d|{filter}"));
        check(&format!("u|{filter}"));
    }
    for test in ["lower", "upper", "filter", "test", "in 'a'", "eq(d ~ '')", "lt(d ~ '')"] {
        check(&format!("d is {test}"));
    }
    for method in ["find('y')", "isprintable()", "islower()", "splitlines()", "zfill(1)"] {
        check(&format!("u.{method}"));
    }
    for expression in ["d[5]", "d[::-1]", "{d: 1}", "d * 1 == d", "d|safe ~ a", "d|safe + '<'"] {
        check(expression);
    }
    let (_, steps) =
        render("{% autoescape true %}{{ d }}{{ [d, d]|join }}{% endautoescape %}", LONG);
    assert!(steps > 6 * MAX, "{steps} steps");
}

#[test]
fn containers_cost_steps() {
    for expression in [
        "cycler(*range(5000)).items",
        "dict.fromkeys(range(5000))|xmlattr",
        "dict.fromkeys(range(5000)).keys()|first",
    ] {
        let (_, steps) = render(&format!("{{% set q = {expression} %}}"), 4);
        assert!(steps >= 5000, "{expression}: {steps} steps");
    }
    let names: Vec<String> = (0..5000).map(|number| format!("a{number}")).collect();
    let source = format!("{{% macro m({}) %}}{{% endmacro %}}", names.join(","));
    let (_, steps) = render(&(source + "{% set q = m.arguments %}"), 4);
    assert!(steps >= 5000, "{steps} steps");
}

/// A long name in the source is read at every access.
#[test]
fn names_cost_steps() {
    let name = "n".repeat(100_000);
    for access in [format!("o.{name}"), format!("o['{name}']"), format!("o['{name}'] is none")] {
        let source = format!("{{% set o = {{'a': 1}} %}}{{% set q = {access} %}}");
        let (_, steps) = render(&source, 4);
        assert!(steps >= 390, "{steps} steps");
    }
}

/// A needle that is longer than the text is not found, as in Python.
#[test]
fn longer_needles_are_not_found() {
    let source = "{{ ['a'.find('ab'), 'a'.rfind('ab'), 'a'.count('ab'), 'a'.split('ab'), \
                  'a'.rsplit('ab', 0), 'a'.partition('ab'), 'a'.rpartition('ab'), \
                  'a'.replace('ab', 'c'), 'a'|replace('ab', 'c'), 'ab' in 'a', ''.find(''), \
                  ''.count(''), 'ab'.find('b', 5)] }}";
    let expected = "[-1, -1, 0, ['a'], ['a'], ('a', '', ''), ('', '', 'a'), 'a', 'a', False, 0, 1, \
                    -1]";
    assert_eq!(render(source, 4).0.unwrap(), expected);
}

#[test]
fn messages_are_short() {
    for expression in [
        "(1|attr(b)) + 1",
        "{}[b] + 1",
        "[1]|map(b)|list",
        "raise_exception(b)",
        "raise_exception(u)",
        "dict(1, **{b: 1})",
        "'a'|trim(**{b: 1})",
        "'{' ~ b ~ '}'",
        "('{' ~ b ~ '}').format(a=1)",
        "('%(' ~ b ~ ')s') % {'a': 1}",
        "[1].index(b)",
        "b|filesizeformat",
        "namespace(**{'_' ~ b: 1})",
        "1|abs(**{b: 1})",
        "[1]|map(attribute='a', **{b: 1})",
    ] {
        let Err((kind, message)) = render(&format!("{{{{ {expression} }}}}"), LONG).0 else {
            continue;
        };
        assert_ne!(kind, ErrorKind::Limit, "{expression}");
        assert!(message.len() <= 4096, "{expression}: {} bytes", message.len());
    }
    let (unknown, _) = render("{% set k = ([1] * 9000)|map(b)|list %}", 5000);
    assert_eq!(unknown.map_err(|(kind, _)| kind), Err(ErrorKind::Unsupported));
    let (raised, _) = render("{{ raise_exception(b) }}", 4096);
    assert_eq!(raised.unwrap_err().1, "x".repeat(4096));
    let (raised, _) = render("{{ raise_exception(b) }}", 4097);
    assert_eq!(raised.unwrap_err().1, "x".repeat(4093) + "…");
    let (undefined, _) = render(&format!("{{{{ {}.a }}}}", "n".repeat(600)), 4);
    assert_eq!(undefined.unwrap_err().1, format!("'{}' is undefined", "n".repeat(512)));
}

/// Generators keep the errors of their items, and cyclers their items.
#[test]
fn kept_errors_and_items_use_memory() {
    for body in [
        "{% set k = ([[1|attr(b)]] * 90000)|map('map', 'abs')|list %}",
        "{% set k = [] %}{% for i in range(1000) %}{% set q = k.append(cycler(*range(9000))) %}{% endfor %}",
    ] {
        let text = Value::Text(Text::uncharged(&"x".repeat(5000), Vec::new()));
        let variables = vec![("b".into(), text)];
        let context = Context { variables, strftime_now: None, log: None };
        let budget = Budget::new(Bounds {
            fuel: 50_000_000,
            output_bytes: 1 << 20,
            recursion: 500,
            memory_bytes: 32 << 20,
            time: Duration::from_secs(3600),
        });
        let ended = Template::compile(body).and_then(|template| template.render(context, &budget));
        let kind = ended.map(|rendered| rendered.text).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Limit), "{body}");
    }
}
