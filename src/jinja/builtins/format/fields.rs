//! `template.format(…)`: replacement fields and the values they name.

use std::rc::Rc;

use super::repr;
use super::spec::write_value;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::eval::attribute;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::quote::quoted_string;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, markup, print};

/// `template.format(*positional, **named)`
pub(crate) fn format(
    interpreter: &mut Interpreter<'_>,
    template: &Text,
    positional: Vec<Value>,
    named: Value,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let mut out = TextBuilder::new(&budget);
    let mut arguments =
        FormatArguments { positional, named, next: Some(0), safe: template.is_safe() };
    write_format(interpreter, &mut out, template, &mut arguments, 2)?;
    Ok(Value::Text(out.finish()?.with_safe(template.is_safe())))
}

/// The arguments of a format call, and the state of field numbering.
struct FormatArguments {
    positional: Vec<Value>,
    /// A dict.
    named: Value,
    /// The next automatic number. None after a manual number.
    next: Option<usize>,
    safe: bool,
}

fn write_format(
    interpreter: &mut Interpreter<'_>,
    out: &mut TextBuilder,
    template: &Text,
    arguments: &mut FormatArguments,
    depth: usize,
) -> Result<()> {
    if depth == 0 {
        return type_error("Max string recursion exceeded");
    }
    let source = template.as_str();
    let mut at = 0;
    while let Some(found) = source[at..].find(['{', '}']) {
        out.push_text(&template.slice(at..at + found))?;
        at += found;
        let brace = &source[at..=at];
        if source[at + 1..].starts_with(brace) {
            out.push_from(brace, template.slice(at..at + 2).first_origin())?;
            at += 2;
            continue;
        }
        if brace == "}" {
            return type_error("Single '}' encountered in format string");
        }
        let field_start = at + 1;
        let mut open = 1usize;
        let end = source[field_start..].char_indices().find(|(_, c)| {
            match c {
                '{' => open += 1,
                '}' => open -= 1,
                _ => {}
            }
            open == 0
        });
        let Some((length, _)) = end else {
            let message = if source[field_start..].is_empty() {
                "Single '{' encountered in format string"
            } else {
                "expected '}' before end of string"
            };
            return type_error(message);
        };
        let field = template.slice(field_start..field_start + length);
        at = field_start + length + 1;
        write_field(interpreter, out, &field, arguments, depth)?;
    }
    out.push_text(&template.slice(at..source.len()))
}

fn write_field(
    interpreter: &mut Interpreter<'_>,
    out: &mut TextBuilder,
    field: &Text,
    arguments: &mut FormatArguments,
    depth: usize,
) -> Result<()> {
    let budget = Rc::clone(&interpreter.budget);
    let source = field.as_str();
    let name_end = source.find(['!', ':']).unwrap_or(source.len());
    let (name, rest) = source.split_at(name_end);
    let (conversion, spec) = match rest.strip_prefix('!') {
        Some(rest) => {
            let mut chars = rest.chars();
            let Some(conversion) = chars.next() else {
                return type_error("end of string while looking for conversion specifier");
            };
            let spec = chars.as_str();
            match spec.strip_prefix(':') {
                Some(spec) => (Some(conversion), spec),
                None if spec.is_empty() => (Some(conversion), spec),
                None => return type_error("expected ':' after conversion specifier"),
            }
        }
        None => (None, rest.strip_prefix(':').unwrap_or(rest)),
    };
    let value = lookup(interpreter, name, arguments)?;
    let value = match conversion {
        None => value,
        Some('s') => Value::Text(print::text(&budget, &value)?),
        Some(kind @ ('r' | 'a')) => Value::Text(repr(&budget, &value, kind == 'a')?),
        Some(other) => {
            return type_error(format!("Unknown conversion specifier '{other}'"));
        }
    };
    let spec_text = if spec.contains(['{', '}']) {
        let mut expanded = TextBuilder::new(&budget);
        write_format(interpreter, &mut expanded, &field.part(spec), arguments, depth - 1)?;
        expanded.finish()?
    } else {
        field.part(spec)
    };
    if arguments.safe {
        let mut plain = TextBuilder::new(&budget);
        write_value(&mut plain, &budget, &value, &spec_text)?;
        let plain = plain.finish()?.with_safe(value.as_text().is_some_and(Text::is_safe));
        return out.push_text(&markup::escape_text(&budget, &plain)?);
    }
    write_value(out, &budget, &value, &spec_text)
}

/// The value that a field names: `0`, `name`, `name.attribute`, `name[element]`.
fn lookup(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    arguments: &mut FormatArguments,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let first_end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, rest) = name.split_at(first_end);
    // Only a bare number switches to manual numbering.
    let index = if name.is_empty() {
        let Some(next) = arguments.next else {
            return type_error(
                "cannot switch from manual field specification to automatic field numbering",
            );
        };
        arguments.next = Some(next + 1);
        Some(next)
    } else if !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit()) {
        if rest.is_empty() {
            if arguments.next.is_some_and(|next| next > 0) {
                return type_error(
                    "cannot switch from automatic field numbering to manual field specification",
                );
            }
            arguments.next = None;
        }
        Some(
            first
                .parse()
                .map_err(|_| TemplateError::value("Too many decimal digits in format string"))?,
        )
    } else {
        None
    };
    let value = match index {
        Some(index) => {
            let message =
                || format!("Replacement index {index} out of range for positional args tuple");
            arguments
                .positional
                .get(index)
                .cloned()
                .ok_or_else(|| TemplateError::value(message()))?
        }
        None => {
            budget.step_bytes(first.len())?;
            let found = match &arguments.named {
                Value::Dict(dict) => dict.get_name(first).cloned(),
                _ => None,
            };
            found.ok_or_else(|| TemplateError::value(quoted_string(first)))?
        }
    };
    follow(interpreter, value, rest)
}

/// Resolves the attributes and elements after the first name of a field.
fn follow(interpreter: &mut Interpreter<'_>, mut value: Value, mut rest: &str) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() {
                return type_error("Empty attribute in format string");
            }
            let name = Text::plain(&budget, name)?;
            value = attribute::attribute(interpreter, &value, &name, |_| name.clone())?;
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some((key, after)) = after.split_once(']') else {
                return type_error("Missing ']' in format string");
            };
            if key.is_empty() {
                return type_error("Empty attribute in format string");
            }
            let key = match key.parse::<i64>() {
                Ok(index) if key.bytes().all(|byte| byte.is_ascii_digit()) => Value::int(index),
                _ => Value::text(&budget, key)?,
            };
            value = attribute::item(interpreter, &value, &key)?;
            if !after.is_empty() && !after.starts_with(['.', '[']) {
                return type_error("Only '.' or '[' may follow ']' in format field specifier");
            }
            rest = after;
        } else {
            return type_error("Only '.' or '[' may follow ']' in format field specifier");
        }
    }
    Ok(value)
}
