//! Compiles and renders one template, within limits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::failure::Failure;
use super::limits::{Limits, SOURCE_BYTES};
use crate::jinja::{Bounds, Budget, Context, Rendered, Template};

/// Compiles a source, as stored in the file.
pub(crate) fn compile(text: &str) -> Result<Template, Failure> {
    if text.len() > SOURCE_BYTES {
        let message = format!("the template has {} bytes, more than {SOURCE_BYTES}", text.len());
        return Err(Failure::limit(message));
    }
    guarded(|| Template::compile(text))
}

/// What a render used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenderCost {
    pub(crate) steps: u64,
    /// Processor time.
    pub(crate) time: Duration,
}

/// Renders a context.
pub(crate) fn render(
    template: &Template,
    context: Context,
    limits: &Limits,
) -> (Result<Rendered, Failure>, RenderCost) {
    let bounds = Bounds {
        fuel: limits.fuel,
        output_bytes: limits.output_bytes,
        recursion: limits.recursion,
        memory_bytes: limits.memory_bytes,
        time: Duration::from_millis(limits.ms),
    };
    let budget = Budget::new(bounds);
    let rendered = guarded(|| template.render(context, &budget));
    (rendered, RenderCost { steps: budget.spent(), time: budget.time() })
}

/// Runs the engine and converts a panic to a failure, because a bug in the engine must not end the
/// host process.
fn guarded<T>(run: impl FnOnce() -> Result<T, crate::jinja::TemplateError>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| Failure::of(&error)),
        Err(payload) => Err(Failure::panicked(&*payload)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::jinja::thread_time;
    use crate::template::clock::LocalTime;

    fn run(source: &str, limits: &Limits) -> Result<String, Failure> {
        let template = compile(source)?;
        let now = LocalTime::parse("2026-01-31T09:30:00").unwrap();
        let context = Context {
            variables: Vec::new(),
            strftime_now: Some(Box::new(move |format| now.strftime(format))),
            log: None,
        };
        render(&template, context, limits).0.map(|rendered| rendered.text)
    }

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(run(source, &Limits::default()).unwrap(), expected);
    }

    #[track_caller]
    fn check_failure(source: &str, limits: &Limits, kind: &str) -> Failure {
        let failure = run(source, limits).unwrap_err();
        assert_eq!(failure.kind.as_str(), kind, "{failure:?}");
        failure
    }

    #[test]
    fn the_environment_of_transformers() {
        check("  {% if true %}\nx\n  {% endif %}\ny\n", "x\ny");
        check(
            "{{ none }}{{ true }}{{ [1.0, 'a'] }}{{ nothing }}{{ '<&>' }}",
            "NoneTrue[1.0, 'a']<&>",
        );
        check(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        );
        check(
            "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}",
            "1False",
        );
        check("{{ strftime_now('%d %b %Y') }}", "31 Jan 2026");
        check("{% set ns = namespace(ids=[]) %}{% set _ = ns.ids.append(1) %}{{ ns.ids }}", "[1]");
        check("{{ {'b': 1, 'a': 2} }}", "{'b': 1, 'a': 2}");
        check(
            "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call m(1) %}c{% endcall %}",
            "12c",
        );
    }

    #[test]
    fn failures_have_a_kind_and_a_line() {
        let limits = Limits::default();
        let raised = check_failure(
            "\n{% macro m() %}{{ raise_exception('no: \"it\\'s\"') }}{% endmacro %}\n{{ m() }}",
            &limits,
            "raised",
        );
        assert_eq!((raised.message.as_str(), raised.line), ("no: \"it's\"", Some(2)));
        assert_eq!(check_failure("a\nb\n{% if %}", &limits, "syntax").line, Some(3));
        assert_eq!(check_failure("a\n{{ x.y.z }}", &limits, "undefined").line, Some(2));
        check_failure("{{ 'a' + none }}", &limits, "type");
        check_failure("{{ 'a'|nothing }}", &limits, "unsupported");
        check_failure("{% include 'x' %}", &limits, "unsupported");
    }

    #[test]
    fn limits_are_enforced() {
        let limits = Limits { fuel: 1000, output_bytes: 100, ..Limits::default() };
        check_failure("{% for i in range(100000) %}{% endfor %}", &limits, "limit");
        check_failure("{{ 'x' * 101 }}", &limits, "limit");
        check_failure("{% for i in range(101) %}x{% endfor %}", &limits, "limit");
        check_failure("{{ range(1000000) }}", &limits, "limit");
        check_failure(&"x".repeat(SOURCE_BYTES + 1), &limits, "limit");
        check_failure(
            &format!("{{{{ {}1{} }}}}", "(".repeat(400), ")".repeat(400)),
            &limits,
            "limit",
        );
    }

    /// Templates that a hostile file could contain. Each of them has crashed some engine.
    #[test]
    fn hostile_templates_exceed_a_limit() {
        let limits = Limits::default();
        for source in [
            "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(100) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
            "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(100) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
            "{{ '%1000000000d'|format(1) }}",
            "{{ '%.1000000000f'|format(1) }}",
            "{{ '{:1000000000}'.format('x') }}",
            "{{ 'x'|center(1000000000) }}{{ 'x'.ljust(10000000000) }}",
            "{{ ('a' * 10000000).split('a') }}",
            "{{ 'a' * 1000000000 }}",
            "{{ [1] * 1000000000 }}",
            "{{ 'x'|indent(1000000000) }}",
            "{{ [1]|tojson(indent=1000000000) }}",
            "{{ 10 ** 1000000 }}",
            "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
            "{% set ns = namespace(x={}) %}{% set nt = namespace(x={}) %}{% for i in range(40000) %}{% set ns.x = {'a': ns.x} %}{% set nt.x = {'a': nt.x} %}{% endfor %}{{ ns.x == nt.x }}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
            "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
            "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = ns.x + [1] %}{% endfor %}",
            "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
            "{% macro m(x) %}{% for i in [1] %}{% if true %}{{ 'a' ~ m(x)|trim }}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}",
            "{% macro m(x) %}{% call m(x) %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}{{ m(1) }}",
            "{% set x = 'a' * 1000000 %}{% for i in range(10000) %}{{ x|replace('a', 'b')|length }}{% endfor %}",
            "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
            "{% for x in range(99999) %}{% macro m() %}{{ x }}{% endmacro %}{% endfor %}{% for x in range(99999) %}{% macro m() %}{{ x }}{% endmacro %}{% endfor %}",
        ] {
            let started = thread_time();
            check_failure(source, &limits, "limit");
            if !cfg!(debug_assertions) {
                let took = thread_time().saturating_sub(started);
                assert!(took < Duration::from_secs(2), "{source} took {took:?}");
            }
        }
    }

    #[test]
    fn deeply_nested_values_are_dropped_without_recursion() {
        // With enough time, each of them finishes or exceeds the memory limit.
        let limits = Limits { ms: 60_000, ..Limits::default() };
        for source in [
            "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}",
            "{% set ns = namespace(x={}) %}{% for i in range(50000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
            "{% set ns = namespace(x=1) %}{% for i in range(50000) %}{% set ns.x = [ns.x].count %}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(20000) %}{% set n = [] %}{% set _ = ns.x.append(n) %}{% set ns.x = n %}{% endfor %}",
            // An undefined value keeps the key of the failed lookup.
            "{% set ns = namespace(x=1) %}{% for i in range(50000) %}{% set ns.x = [][(ns.x,)] %}{% endfor %}{% set y = (ns.x,) %}{% set ns.x = 1 %}",
            "{% set ns = namespace(x=1) %}{% for i in range(50000) %}{% set ns.x = [][(ns.x,)] %}{% endfor %}{% set y = ns.x %}{% set ns.x = 1 %}",
            "{% set ns = namespace(x=1) %}{% for i in range(20000) %}{% set ns.x = {'a': {}[(ns.x,)]} %}{% endfor %}{% set y = [ns.x] %}{% set ns.x = 1 %}",
        ] {
            let small = std::thread::Builder::new().stack_size(1 << 20);
            let ended = small
                .spawn(move || run(source, &limits).map_err(|failure| failure.kind.as_str()))
                .unwrap()
                .join()
                .unwrap();
            assert!(matches!(ended, Ok(_) | Err("limit")), "{ended:?}");
        }
    }

    #[test]
    fn endless_recursion_exceeds_a_limit_on_a_small_stack() {
        let endless = "{% macro m(x) %}{% for i in [1] %}{% if true %}{{ 'a' ~ m(x)|trim }}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}";
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let ended = thread
            .spawn(move || check_failure(endless, &Limits::default(), "limit").kind.as_str())
            .unwrap();
        assert_eq!(ended.join().unwrap(), "limit");
    }
}
