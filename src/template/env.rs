//! The Jinja environment as transformers sets it up, on minijinja.

use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

use super::clock::LocalTime;
use super::failure::{Failure, Raised};
use super::limits::{BoundedText, Exceeded, Limits, SOURCE_BYTES};
use super::{filters, methods, namespace, source, value};

/// An environment without templates.
pub(crate) fn environment(limits: &Limits) -> Environment<'static> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false).build();
    env.set_syntax(syntax.expect("the standard delimiters are valid"));
    // The engine would otherwise decide by the template's name.
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_fuel(Some(limits.fuel));
    env.set_recursion_limit(limits.recursion);
    env.set_formatter(format);
    env.set_unknown_method_callback(methods::call);
    filters::install(&mut env);
    env.add_function("raise_exception", raise_exception);
    env.add_function("namespace", namespace::namespace);
    env.remove_global("debug");
    env
}

/// Compiles a source, as stored in the file, under this name.
pub(crate) fn add(env: &mut Environment<'static>, name: &'static str, text: &str) -> Result<(), Failure> {
    if text.len() > SOURCE_BYTES {
        let message = format!("the template has {} bytes, more than {SOURCE_BYTES}", text.len());
        return Err(Failure { kind: "limit", message, line: None });
    }
    let text = source::normalise(text)?;
    let added = catch_unwind(AssertUnwindSafe(|| env.add_template_owned(name, text)));
    match added {
        Ok(added) => added.map_err(|error| Failure::of(&error)),
        Err(payload) => Err(Failure::panicked(&*payload)),
    }
}

/// Renders a compiled template over a root context, within the output limit.
pub(crate) fn render(env: &Environment<'_>, name: &str, root: Value, limits: &Limits) -> Result<String, Failure> {
    let rendered = catch_unwind(AssertUnwindSafe(|| {
        let mut text = BoundedText::new(limits.output_bytes);
        match env.get_template(name)?.render_captured_to(root, &mut text) {
            Ok(_) => {}
            Err(error) if text.full => return Err(too_long(limits).with_source(error)),
            Err(error) => return Err(error),
        }
        String::from_utf8(text.into_bytes())
            .map_err(|error| Error::new(ErrorKind::WriteFailure, "output is not UTF-8").with_source(error))
    }));
    match rendered {
        Ok(Err(error)) if error.kind() == ErrorKind::WriteFailure => Err(Failure {
            kind: "limit",
            message: format!("the prompt is longer than {} bytes", limits.output_bytes),
            line: error.line(),
        }),
        Ok(rendered) => rendered.map_err(|error| Failure::of(&error)),
        Err(payload) => Err(Failure::panicked(&*payload)),
    }
}

fn too_long(limits: &Limits) -> Error {
    let problem = format!("the prompt is longer than {} bytes", limits.output_bytes);
    Error::new(ErrorKind::WriteFailure, problem.clone()).with_source(Exceeded(problem))
}

/// `strftime_now(format)` at this time.
pub(crate) fn strftime_now(now: LocalTime) -> Value {
    Value::from_function(move |format: &str| now.strftime(format))
}

fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if *state.auto_escape() != AutoEscape::None {
        return minijinja::escape_formatter(out, state, value);
    }
    match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&value::print(value)?),
    }
    .map_err(Error::from)
}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let message = value::print(&message)?;
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn run(source: &str, limits: &Limits) -> Result<String, Failure> {
        let mut env = environment(limits);
        add(&mut env, "default", source)?;
        let root = Value::from_pairs([("strftime_now", strftime_now(LocalTime::parse("2026-01-31T09:30:00").unwrap()))]);
        render(&env, "default", root, limits)
    }

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(run(source, &Limits::default()).unwrap(), expected);
    }

    #[track_caller]
    fn check_failure(source: &str, limits: &Limits, kind: &str) -> Failure {
        let failure = run(source, limits).unwrap_err();
        assert_eq!(failure.kind, kind, "{failure:?}");
        failure
    }

    #[test]
    fn the_environment_of_transformers() {
        check("  {% if true %}\nx\n  {% endif %}\ny\n", "x\ny");
        check("{{ none }}{{ true }}{{ [1.0, 'a'] }}{{ nothing }}{{ '<&>' }}", "NoneTrue[1.0, 'a']<&>");
        check(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        );
        check("{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}", "1False");
        check("{{ strftime_now('%d %b %Y') }}", "31 Jan 2026");
        check("{% set ns = namespace(ids=[]) %}{% set _ = ns.ids.append(1) %}{{ ns.ids }}", "[1]");
        check("{{ {'b': 1, 'a': 2} }}", "{'b': 1, 'a': 2}");
        check("{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call m(1) %}c{% endcall %}", "12c");
    }

    #[test]
    fn failures_have_a_kind_and_a_line() {
        let limits = Limits::default();
        let raised = check_failure(
            "\n{% macro m() %}{{ raise_exception('no: \"it\\'s\"') }}{% endmacro %}\n{{ m() }}",
            &limits,
            "raised",
        );
        assert_eq!(raised.message, "no: \"it's\"");
        assert_eq!(check_failure("a\nb\n{% if %}", &limits, "syntax").line, Some(3));
        assert_eq!(check_failure("a\n{{ x.y.z }}", &limits, "undefined").line, Some(2));
        check_failure("{{ 'a' + none }}", &limits, "type");
        check_failure("{{ 'a'|nothing }}", &limits, "unsupported");
        check_failure("{% include 'x' %}", &limits, "unsupported");
        check_failure("{{ [][::-1] }}", &limits, "engine");
    }

    #[test]
    fn limits_hold() {
        let limits = Limits { fuel: 1000, output_bytes: 100, recursion: 500 };
        check_failure("{% for i in range(100000) %}{% endfor %}", &limits, "limit");
        check_failure("{{ 'x' * 101 }}", &limits, "limit");
        check_failure("{% for i in range(101) %}x{% endfor %}", &limits, "limit");
        check_failure("{{ range(1000000) }}", &limits, "limit");
        check_failure(&"x".repeat(SOURCE_BYTES + 1), &limits, "limit");
        check_failure(&format!("{{{{ {}1{} }}}}", "(".repeat(400), ")".repeat(400)), &limits, "syntax");
    }

    #[test]
    fn endless_recursion_ends_in_a_limit_within_a_small_stack() {
        let endless = "{% macro m(x) %}{% for i in [1] %}{% if true %}{{ 'a' ~ m(x)|trim }}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}";
        let stack = if cfg!(debug_assertions) { 2 << 20 } else { 512 << 10 };
        let thread = std::thread::Builder::new().stack_size(stack);
        let ended = thread.spawn(move || check_failure(endless, &Limits::default(), "limit").kind).unwrap();
        assert_eq!(ended.join().unwrap(), "limit");
    }
}
