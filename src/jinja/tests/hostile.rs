//! Templates that try to exhaust time, memory or the stack.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::jinja::budget::thread_time;
use crate::jinja::error::ErrorKind;
use crate::jinja::{Bounds, Budget, Context, Template};

/// The limits of chat templates: `Limits::default()` of `template`.
fn bounds() -> Bounds {
    let time = Duration::from_millis(200);
    Bounds {
        fuel: 50_000_000,
        output_bytes: 16 << 20,
        recursion: 500,
        memory_bytes: 40 << 20,
        time,
    }
}

fn run(source: &str) -> Result<String, crate::jinja::TemplateError> {
    let context = Context { variables: Vec::new(), strftime_now: None, log: None };
    Template::compile(source)?.render(context, &Budget::new(bounds())).map(|rendered| rendered.text)
}

/// Renders a template, which must end soon after the time limit, with any result. If
/// `LLB_HOSTILE_SHOW` is set, prints the time and the memory growth.
#[track_caller]
fn check(source: &str) {
    let started = thread_time();
    let ended = run(source);
    let took = thread_time().saturating_sub(started);
    if std::env::var_os("LLB_HOSTILE_SHOW").is_some() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak =
            status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned();
        let ended = ended.as_ref().map_or_else(
            |error| error.message().chars().take(60).collect(),
            |text| format!("{} bytes", text.len()),
        );
        let cut: String = source.chars().take(110).collect();
        let line = format!("{:>5} ms {peak} {ended} <- {cut}\n", took.as_millis());
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_secs(1), "{took:?}: {source}");
    }
}

/// Renders a template, which must fail with a limit.
#[track_caller]
fn check_limit(source: &str) {
    assert_eq!(run(source).unwrap_err().kind(), ErrorKind::Limit, "{source}");
    check(source);
}

const LONG: &str =
    "{% set a = 'ab' * 4000000 %}{% set u = 'é' * 4000000 %}{% set r = range(99999) %}";

#[test]
fn time_is_limited() {
    for body in [
        "{{ u|upper|length }}{{ u|title|length }}{{ u|lower|length }}",
        "{% for i in r %}{% set x = u|length %}{% endfor %}",
        "{% for i in r %}{% set x = u[3999999] %}{% endfor %}",
        "{% for i in r %}{% set x = u[5:3999999] %}{% endfor %}",
        "{% for i in r %}{% set x = u.find('x', 3999990) %}{% endfor %}",
        "{% set b = 'ab' * 4000000 %}{% for i in r %}{% set x = a == b %}{% endfor %}",
        "{% set b = 'ab' * 4000000 %}{% for i in r %}{% set x = a < b %}{% endfor %}",
        "{% for i in r %}{% set x = 'x' in a %}{% endfor %}",
        "{% for i in r %}{% set x = {a: 1} %}{% endfor %}",
        "{% set d = {1: 1} %}{% for i in r %}{% set x = d[a] %}{% endfor %}",
        "{{ a.strip('b' ~ a)|length }}",
        "{{ ('x' * 4000000 ~ 'y').strip('abcdefghijklmnopqrstuvwx' * 100000)|length }}",
        "{{ a.replace('', 'x')|length }}",
        "{{ a.split('b')|length }}{{ a|list|length }}",
        "{{ (' ' * 4000000)|wordwrap(1)|length }}",
        "{{ ('x' * 4000000)|wordwrap(1)|length }}",
        "{{ ('x-' * 2000000)|wordwrap(3)|length }}",
        "{{ ('\n' * 8000000)|indent|length }}{{ ('\n' * 8000000)|wordwrap|length }}",
        "{{ ('&' * 8000000)|striptags|length }}",
        "{{ ('<' * 8000000)|striptags|length }}{{ ('<!--' * 2000000)|striptags|length }}",
        "{{ ('a b ' * 100000)|pprint|length }}{{ (r|list)|pprint|length }}",
        "{{ 'x' * 16000000 }}{{ '%16000000s' % 'x' }}",
        "{{ '%.9999f' % 1e300 }}{{ '%.16000000d' % 1 }}{{ '{:016000000,}'.format(1) }}",
        "{{ ('{}' * 1000000).format(*r)|length }}",
        "{{ ('{a}' * 1000000).format(a=1)|length }}{{ ('%s' * 90000)|format(*r)|length }}",
        "{% set d = dict.fromkeys(r|map('string'), 1) %}{{ ('{7}' * 100000).format_map(d) }}",
        "{% set d = dict.fromkeys(r|map('string'), 1) %}{% macro m() %}{{ kwargs|length }}{% endmacro %}{{ m(**d) }}{{ namespace(**d) }}",
        "{% set d = dict.fromkeys(r|map('string'), 1) %}{% set n = namespace(**d) %}{% for i in r %}{% set x = n.zz %}{% endfor %}",
        "{% set d = dict.fromkeys([1] * 500000, 1) %}{{ d }}{{ dict.fromkeys(r, 1)|length }}",
        "{{ r|sort|length }}{{ r|sort(reverse=true)|length }}{{ r|map('string')|sort|length }}",
        "{{ ((r|list) * 4)|sort|length }}",
        "{{ (r|list)|unique|list|length }}{{ (r|map('string'))|unique|list|length }}",
        "{{ (r|list)|groupby('real')|length }}",
        "{{ r|join(',')|length }}{{ r|join|length }}{{ ((r|list) * 4)|join(a)|length }}",
        "{{ r|batch(1)|list|length }}{{ r|slice(99999)|list|length }}{{ [1]|batch(400000, 0)|list|length }}",
        "{% set l = r|list %}{% for i in r %}{% set x = l.index(99998) %}{% endfor %}",
        "{% set l = r|list %}{% for i in r %}{% set x = l.count(1) %}{% endfor %}",
        "{% set l = r|list %}{% for i in r %}{% set x = l.insert(0, 1) %}{% set x = l.pop(0) %}{% endfor %}",
        "{% set l = (r|list) * 4 %}{% for i in r %}{% set x = l|first %}{% set x = l|length %}{% endfor %}",
        "{% set l = (r|list) * 4 %}{% for i in r %}{% for x in l %}{% break %}{% endfor %}{% endfor %}",
        "{% set l = r|map('string')|list %}{% for i in r %}{% set x = l == l.copy() %}{% endfor %}",
        "{% for i in r %}{% set x = loop.changed(a ~ i) %}{% endfor %}",
        "{% for i in r %}{% for j in r if false %}{% endfor %}{% endfor %}",
        "{% for i in r if i is divisibleby 3 %}{{ loop.last }}{{ loop.length }}{% endfor %}",
        "{% set n = 2 ** 65000 %}{% for i in r %}{% set x = n * n // n %}{% endfor %}",
        "{% set n = 2 ** 60000 %}{% set m = 3 ** 18000 %}{% for i in r %}{% set x = n % m %}{% endfor %}",
        "{% set n = 10 ** 4299 %}{% for i in r %}{% set x = n|string %}{% endfor %}",
        "{% for i in r %}{% set x = 3 ** 40000 %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% set _ = o.append(cycler(i)) %}{% endfor %}{{ dict.fromkeys(o, 1)|length }}{{ o|unique|list|length }}",
        "{% for c in 'é' * 2000000 %}{{ c|urlencode }}{% endfor %}",
        "{{ a|list|tojson|length }}{{ a|tojson|tojson|tojson|length }}",
        "{{ a.expandtabs(9999999) }}{{ ('\t' * 1000)|string }}{{ ('\t' * 9).expandtabs(9000000)|length }}",
        "{{ ('a.' * 1000000).title()|length }}{{ ('Σ.' * 100000).lower()|length }}",
        "{{ ('Σ' ~ '.' * 100000) * 40 }}{{ (('.' * 1000 ~ 'Σ') * 4000).lower()|length }}",
        "{{ ('Σ' ~ '.' * 2000000 ~ 'Σ').lower()|length }}{{ ('Σ..' * 1000000).lower()|length }}",
        "{% for i in r %}{% set x = 'a'.find(a) %}{% set x = 'a'|replace(a, '') %}{% endfor %}",
        "{% for i in r %}{% set x = a is lower %}{% set x = u is upper %}{% endfor %}",
        "{% for i in r %}{% set x = a|forceescape %}{% set x = u|center(1) %}{% endfor %}",
        "{% for i in r %}{% set x = u.isprintable() %}{% endfor %}",
        "{{ a.startswith((a ~ 'b',) * 100000) }}{{ ([a] * 100000)|map('filesizeformat')|list }}",
        "{% set d = {a: none} %}{% for i in r %}{% set x = d|xmlattr %}{% endfor %}",
        "{% set c = cycler(*r) %}{% for i in r %}{% set x = c.items %}{% endfor %}",
        "{% set k = ([[1|attr(a)]] * 3000)|map('map', 'abs')|list %}",
    ] {
        check(&format!("{LONG}{body}"));
    }
}

#[test]
fn memory_is_limited() {
    for body in [
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append(i|string) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append(2 ** 60000) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append(nothing) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append(range(i)) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append(namespace(a=1)) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append([1]|select) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append({'a': 1}) %}{% endfor %}{% endfor %}",
        "{% set o = [] %}{% for i in r %}{% for j in range(9) %}{% set _ = o.append({'a': 1}.items()) %}{% endfor %}{% endfor %}",
        "{% for i in r %}{% for j in range(9) %}{% set n = namespace(a=[]) %}{% set n.a = [n] %}{% endfor %}{% endfor %}",
        "{% set l = (r|list) * 5 %}{% set m = l|sort %}{% set k = l|unique|list %}",
        "{% set l = r|list %}{% set x = l|map('list') %}{% set g = l|batch(1)|list %}{% set h = g|map('first')|list %}",
        "{% set l = r|list %}{% set o = namespace(l=l) %}{% for i in range(20) %}{% set o.l = o.l + o.l %}{% endfor %}",
        "{% set o = namespace(l='ab') %}{% for i in range(40) %}{% set o.l = o.l ~ o.l %}{% endfor %}",
        "{% set o = namespace(l='ab') %}{% for i in range(40) %}{% set o.l = [o.l, o.l]|join('') %}{% endfor %}",
        "{% set o = namespace(l='ab') %}{% for i in range(40) %}{% set o.l = o.l|replace('b', 'bb') %}{% endfor %}",
    ] {
        check(&format!("{{% set r = range(99999) %}}{body}"));
    }
}

#[test]
fn compiling_is_limited() {
    check_limit(&format!("{{{{ [{}] }}}}", "1,".repeat(500_000)));
    check(&format!("{{{{ [{}] }}}}", "1,".repeat(120_000)));
    let names = |count: u32| (0..count).map(|number| format!("a{number},")).collect::<String>();
    check(&format!(
        "{{% macro m({}) %}}{{% endmacro %}}{{{{ m() }}}}",
        names(100_000).trim_end_matches(',')
    ));
    let given: String = (0..60_000).map(|number| format!("a{number}=1,")).collect();
    check(&format!("{{{{ namespace({given})|length }}}}"));
    check(&(0..40_000).map(|number| format!("{{% set a{number}=1 %}}")).collect::<String>());
    check(&format!("{{{{ {}[{}]{} }}}}", "(".repeat(140), "1,".repeat(100_000), ")".repeat(140)));
}

/// Renders on a stack of 256 KiB.
#[track_caller]
fn on_a_small_stack(source: String) {
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(move || check(&source)).unwrap().join().unwrap();
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let ifs = |count: usize, inside: &str| {
        format!("{}{inside}{}", "{% if 1 %}".repeat(count), "{% endif %}".repeat(count))
    };
    let brackets =
        |count: usize, inside: &str| format!("{}{inside}{}", "[".repeat(count), "]".repeat(count));
    on_a_small_stack(ifs(149, "x"));
    on_a_small_stack(format!("{{{{ {} }}}}", brackets(148, "1")));
    on_a_small_stack(format!("{{{{ {}1{} }}}}", "(".repeat(148), ")".repeat(148)));
    on_a_small_stack(format!("{{{{ {}1 }}}}", "not ".repeat(148)));
    on_a_small_stack(format!("{{{{ 1{} }}}}", "|abs".repeat(390)));
    let deep = brackets(70, "m(1)");
    on_a_small_stack(format!(
        "{{% macro m(x) %}}{}{{% endmacro %}}{{{{ m(1) }}}}",
        ifs(70, &format!("{{{{ {deep} }}}}"))
    ));
    on_a_small_stack(format!(
        "{{% macro m(x) %}}{}{{% endmacro %}}{{{{ m(1) }}}}",
        ifs(140, "{{ m(1) }}")
    ));
    // Nested filters on nested lists.
    let lists =
        "{% set n = namespace(x=[]) %}{% for i in range(30000) %}{% set n.x = [n.x] %}{% endfor %}";
    on_a_small_stack(format!("{lists}{{{{ n.x|map({})|list|length }}}}", "'map',".repeat(20_000)));
    on_a_small_stack(format!("{lists}{{{{ n.x }}}}"));
}

#[test]
fn extreme_numbers() {
    for body in [
        "range(9)[::9223372036854775807]",
        "range(9)[::-9223372036854775808]",
        "[1, 2][::-9223372036854775808]",
        "'ab'[-9223372036854775808:9223372036854775807:9223372036854775807]",
        "range(9223372036854775800, 9223372036854775807)[::-1]|list",
        "range(9223372036854775800, 9223372036854775807, 5)[::2]",
        "range(-9223372036854775808, 9223372036854775807, 9223372036854775807)|list",
        "5|round(-9223372036854775808)",
        "5.5|round(-9223372036854775808)",
        "5.5|round(9223372036854775807)",
        "-9223372036854775808 // -1",
        "-9223372036854775808 % -1",
        "9223372036854775807 * 9223372036854775807",
        "'abc'|truncate(9223372036854775807, leeway=9223372036854775807)",
        "'a'.center(9223372036854775807)",
        "'a'.zfill(9223372036854775807)",
        "'a\tb'.expandtabs(9223372036854775807)",
        "'a'|indent(9223372036854775807)",
        "[1]|batch(9223372036854775807, 1)|list",
        "[1]|slice(9223372036854775807)|list",
        "[1]|batch(-9223372036854775808, 1)|list",
        "'%*d' % (-9223372036854775808, 1)",
        "'%.*f' % (9223372036854775807, 1.5)",
        "'{:.99999999999999999999}'.format('a')",
        "'{:99999999999999999999}'.format('a')",
        "'abc'.find('c', -9223372036854775808, 9223372036854775807)",
        "[1, 2].index(2, -9223372036854775808, 9223372036854775807)",
        "'a' * -9223372036854775808",
        "[1] * 9223372036854775807",
        "'a b'.split(' ', 9223372036854775807)",
        "'aa'.replace('a', 'b', 9223372036854775807)",
        "[0.0, 1.0, 'nan'|float, 0.5, 'nan'|float, 3.0, -1.0]|sort",
        "([1.5, 'x'|float, 'nan'|float] * 40)|sort",
        "[1, 'a', none]|sort",
        "(0.0, 1e308 * 10, -1e308 * 10)|map('int')|list",
        "1e308|filesizeformat",
        "(10 ** 4000)|filesizeformat",
    ] {
        check(&format!("{{{{ {body} }}}}"));
    }
}

#[test]
fn lists_may_change_during_iteration() {
    for (source, expected) in [
        (
            "{% set l = [1, 2] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}{{ l }}",
            "[1, 2, 1, 2]",
        ),
        ("{% set l = [1] %}{% set _ = l.extend(l) %}{{ l }}", "[1, 1]"),
        (
            "{% set l = [3, 1] %}{{ l|sort }}{% set _ = l.insert(0, l|length) %}{{ l }}",
            "[1, 3][2, 3, 1]",
        ),
        (
            "{% set ns = namespace(a=1) %}{% for x in [1, 2] if ns.a < 2 %}{% set ns.a = 2 %}{{ x }}{% endfor %}",
            "1",
        ),
        (
            "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}",
            "1",
        ),
    ] {
        assert_eq!(run(source).unwrap(), expected, "{source}");
    }
    let late = "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor %}{{ ns.l([1]) }}";
    assert_eq!(run(late).unwrap_err().kind(), ErrorKind::Unsupported);
}
