//! Filters and tests whose answers differ between the engine and Jinja2, as Jinja2 gives them.

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use super::{methods, probe, tojson, value};

/// Replaces the engine's own.
pub(crate) fn install(env: &mut Environment<'_>) {
    env.add_filter("tojson", tojson::filter);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("title", title);
    env.add_filter("indent", indent);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("items", items);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    env.add_test("callable", is_callable);
}

fn string(value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    probe::touch(value);
    value::print(value).map(Value::from)
}

fn text_of(value: &Value) -> Result<String, Error> {
    value::print(value)
}

fn trim(value: &Value, chars: Option<String>) -> Result<Value, Error> {
    Ok(Value::from(methods::trim(&text_of(value)?, chars.as_deref(), true, true)))
}

/// Unlike `str.title`, the filter starts words only after white space and `-({[<`.
fn title(value: &Value) -> Result<Value, Error> {
    let mut starts = true;
    let mut out = String::new();
    for c in text_of(value)?.chars() {
        if starts {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        starts = methods::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    }
    Ok(Value::from(out))
}

/// `indent(width=4, first=false, blank=false)`; the width is a number or the text itself.
fn indent(value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        match positional.get(index) {
            Some(given) => Ok(Some(given.clone())),
            None => kwargs.get::<Option<Value>>(name),
        }
    };
    let margin = match argument(0, "width")? {
        None => "    ".to_owned(),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(width)?.clamp(0, 1000)).unwrap_or(0)),
        },
    };
    let first = argument(1, "first")?.is_some_and(|flag| flag.is_true());
    let blank = argument(2, "blank")?.is_some_and(|flag| flag.is_true());
    kwargs.assert_all_used()?;
    let text = text_of(value)? + "\n";
    let mut out = String::with_capacity(text.len());
    for (index, line) in methods::lines(&text, false).into_iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if (index > 0 && (blank || !line.is_empty())) || (index == 0 && first) {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn length(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(0)),
        kind => value
            .len()
            .map(Value::from)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("a value of kind {kind} has no length"))),
    }
}

fn items(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                let member = value.get_item(&key)?;
                pairs.push(Value::from(Tuple::from([key, member])));
            }
            Ok(Value::from(pairs))
        }
        _ => Err(Error::new(ErrorKind::InvalidOperation, "can only get item pairs from a mapping")),
    }
}

fn int(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let base = kwargs.get::<Option<u32>>("base")?.filter(|base| (2..=36).contains(base)).unwrap_or(10);
    let default = match default {
        Some(default) => default,
        None => kwargs.get::<Option<Value>>("default")?.unwrap_or_else(|| Value::from(0)),
    };
    kwargs.assert_all_used()?;
    let number = match value.kind() {
        ValueKind::Bool => Some(Value::from(i64::from(value.is_true()))),
        ValueKind::Number if value.is_integer() => Some(value.clone()),
        ValueKind::Number => f64::try_from(value.clone()).ok().and_then(whole),
        ValueKind::String => {
            let text = methods::trim(value.as_str().unwrap_or_default(), None, true, true).replace('_', "");
            match i128::from_str_radix(&text, base) {
                Ok(integer) => Some(Value::from(integer)),
                Err(_) => text.parse::<f64>().ok().and_then(whole),
            }
        }
        _ => None,
    };
    Ok(number.unwrap_or(default))
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn whole(number: f64) -> Option<Value> {
    (number.is_finite() && number.abs() < 1e18).then(|| Value::from(number.trunc() as i64))
}

fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = match default {
        Some(default) => default,
        None => kwargs.get::<Option<Value>>("default")?.unwrap_or_else(|| Value::from(0.0)),
    };
    kwargs.assert_all_used()?;
    let number = match value.kind() {
        ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        ValueKind::String => methods::trim(value.as_str().unwrap_or_default(), None, true, true).parse().ok(),
        _ => None,
    };
    Ok(number.map_or(default, Value::from))
}

/// What has a length and can be indexed, in Python: strings and mappings too.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Functions, macros and loops print themselves in angle brackets or not at all; data never is of that kind.
fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: &str) {
        let mut env = Environment::new();
        install(&mut env);
        assert_eq!(env.render_str(&format!("{{{{ {expression} }}}}"), ()).unwrap(), expected);
    }

    #[test]
    fn texts() {
        check("none|trim ~ 1|trim ~ ' a\\u001c'|trim ~ 'xax'|trim('x')", "None1aa");
        check("1e-05|string ~ [1.0]|string", "1e-05[1.0]");
        check("\"they're (so) x-y\"|title", "They're (So) X-Y");
        check("'a\\n\\nb\\n'|indent(2)", "a\n\n  b\n");
        check("'a\\n\\nb'|indent('> ', true, blank=true)", "> a\n> \n> b");
    }

    #[test]
    fn numbers() {
        check("'12'|int + ' 3.9 '|int + 'x'|int(7) + none|int + true|int", "23");
        check("'ff'|int(base=16)", "255");
        check("'x'|float ~ '1e3'|float", "0.01000.0");
        check("nothing|length ~ 'é'|length ~ [1]|count", "011");
        check("nothing|items|list ~ {'a': 1}|items|list", "[][('a', 1)]");
    }

    #[test]
    fn tests_follow_python() {
        check(
            "['a' is sequence, {} is sequence, nothing is sequence, 1 is sequence, range(2) is sequence]",
            "[True, True, True, False, True]",
        );
        check(
            "['a' is iterable, none is iterable, 1 is iterable, nothing is iterable, [] is iterable]",
            "[True, False, False, True, True]",
        );
        check("[range is callable, 'a' is callable]", "[True, False]");
    }
}
