//! Filters that apply another filter or a test to each item.

use std::rc::Rc;

use super::sequences::generator;
use super::sorting::AttributePath;
use crate::jinja::builtins::{filters, is_tests};
use crate::jinja::error::{Result, TemplateError, shown, type_error};
use crate::jinja::eval::arguments::Args;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::value::{Value, iterate};

/// Applies a function to each item and stops at the first error. `arguments` is the number of
/// argument values that each call clones.
fn apply_to_each(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: usize,
    mut apply: impl FnMut(&mut Interpreter<'_>, Value) -> Result<Option<Value>>,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    if !value.is_true() {
        return generator(&budget, Vec::new(), None);
    }
    let items = match iterate::items(&budget, value) {
        Ok(items) => items,
        Err(error) => return generator(&budget, Vec::new(), Some(error)),
    };
    let _working_memory = budget.charge_values(items.len().saturating_add(2 * arguments))?;
    budget.nested(|| {
        let mut out = Vec::new();
        for item in items {
            budget.step(1 + arguments as u64)?;
            match apply(interpreter, item) {
                Ok(item) => out.extend(item),
                Err(error) => return generator(&budget, out, Some(error)),
            }
        }
        generator(&budget, out, None)
    })
}

pub(super) fn map(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    mut args: Args,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let take = |args: &mut Args, name: &str| -> Option<Value> {
        let position = args.named.iter().position(|(known, _)| known.as_str() == name)?;
        Some(args.named.remove(position).1)
    };
    if args.positional.is_empty()
        && let Some(attribute) = take(&mut args, "attribute")
    {
        let default = take(&mut args, "default").filter(|default| !default.is_none());
        if let Some((name, _)) = args.named.first() {
            return type_error(format!("Unexpected keyword argument '{}'", shown(name)));
        }
        let path = AttributePath::new(&budget, Some(&attribute), false)?.with_default(default);
        return apply_to_each(interpreter, &value, 0, |interpreter, item| {
            path.of(interpreter, &item).map(Some)
        });
    }
    if args.positional.is_empty() {
        return generator(
            &budget,
            Vec::new(),
            Some(TemplateError::value("map requires a filter argument")),
        );
    }
    let name = args.positional.remove(0);
    let arguments = args.positional.len() + args.named.len();
    apply_to_each(interpreter, &value, arguments, |interpreter, item| {
        let filter = name
            .as_str()
            .and_then(filters::find)
            .ok_or_else(|| TemplateError::unsupported(format!("No filter named {name:?}.")))?;
        filter(interpreter, item, args.clone()).map(Some)
    })
}

pub(super) fn select(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    select_items(interpreter, &value, args, false, true)
}

pub(super) fn reject(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    select_items(interpreter, &value, args, false, false)
}

pub(super) fn selectattr(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    select_items(interpreter, &value, args, true, true)
}

pub(super) fn rejectattr(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    select_items(interpreter, &value, args, true, false)
}

fn select_items(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    mut args: Args,
    by_attribute: bool,
    wanted: bool,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let path = if by_attribute {
        if args.positional.is_empty() {
            return generator(
                &budget,
                Vec::new(),
                Some(TemplateError::value("Missing parameter for attribute name")),
            );
        }
        AttributePath::new(&budget, Some(&args.positional.remove(0)), false)?
    } else {
        AttributePath::new(&budget, None, false)?
    };
    let test: Option<Value> = (!args.positional.is_empty()).then(|| args.positional.remove(0));
    let arguments = args.positional.len() + args.named.len();
    apply_to_each(interpreter, value, arguments, |interpreter, item| {
        let subject = path.of(interpreter, &item)?;
        let holds = match &test {
            None => subject.is_true(),
            Some(name) => {
                let test = name.as_str().and_then(is_tests::find);
                let test = test.ok_or_else(|| {
                    TemplateError::unsupported(format!("No test named {name:?}."))
                })?;
                test(interpreter, &subject, args.clone())?
            }
        };
        Ok((holds == wanted).then_some(item))
    })
}
