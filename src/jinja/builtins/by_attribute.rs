//! Filters that select, map, sort or group items by an attribute, a filter or a test.

use std::rc::Rc;

use crate::jinja::budget::{Budget, Charge};
use crate::jinja::error::{Result, TemplateError, shown, type_error};
use crate::jinja::eval::attribute;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::{Generator, Value, compare, sequence, string_methods};

/// The attributes and indices from an item to a key: `a.b.0`.
pub(super) struct AttributePath {
    parts: Vec<Value>,
    default: Option<Value>,
    /// Whether to compare strings without case.
    fold: bool,
}

impl AttributePath {
    pub(super) fn new(
        budget: &Rc<Budget>,
        attribute: Option<&Value>,
        fold: bool,
    ) -> Result<AttributePath> {
        let parts = match attribute {
            None | Some(Value::None) => Vec::new(),
            Some(Value::Text(text)) => AttributePath::parts(budget, text)?,
            Some(other) => vec![other.clone()],
        };
        Ok(AttributePath { parts, default: None, fold })
    }

    /// Replaces undefined values with a default.
    pub(super) fn with_default(self, default: Option<Value>) -> AttributePath {
        AttributePath { default, ..self }
    }

    fn parts(budget: &Rc<Budget>, path: &str) -> Result<Vec<Value>> {
        budget.step_bytes(path.len())?;
        path.split('.')
            .map(|part| match part.parse() {
                Ok(index) if part.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Ok(Value::int(index))
                }
                _ => Value::text(budget, part),
            })
            .collect()
    }

    pub(super) fn of(&self, interpreter: &mut Interpreter<'_>, item: &Value) -> Result<Value> {
        let mut value = item.clone();
        for part in &self.parts {
            value = attribute::item(interpreter, &value, part)?;
            if let (true, Some(default)) = (value.is_undefined(), &self.default) {
                value = default.clone();
            }
        }
        if self.fold { folded(&interpreter.budget, value) } else { Ok(value) }
    }
}

fn folded(budget: &Rc<Budget>, value: Value) -> Result<Value> {
    match &value {
        Value::Text(text) => {
            let lower = string_methods::changed_case(budget, text, "lower")?;
            Ok(lower.map_or(value, Value::Text))
        }
        _ => Ok(value),
    }
}

pub(super) fn is_set(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// A stable sort by key, in either direction. With `as_items`, compares keys as elements of lists:
/// equality first.
fn sort_by_keys(
    budget: &Rc<Budget>,
    mut keyed: Vec<(Value, Value)>,
    reverse: bool,
    as_items: bool,
) -> Result<Vec<(Value, Value)>> {
    let less = |(a, _): &(Value, Value), (b, _): &(Value, Value)| {
        if as_items && compare::equal(budget, a, b)? {
            Ok(false)
        } else {
            compare::less(budget, a, b)
        }
    };
    if !reverse {
        return compare::sorted(keyed, less);
    }
    // Python reverses before and after sorting, which keeps the order of equal keys.
    keyed.reverse();
    let mut sorted = compare::sorted(keyed, less)?;
    sorted.reverse();
    Ok(sorted)
}

/// Memory for sorting or deduplicating this many items.
pub(super) fn charge_working_memory(budget: &Rc<Budget>, count: usize) -> Result<Charge> {
    budget.charge_values(count.saturating_mul(4))
}

fn keyed(
    interpreter: &mut Interpreter<'_>,
    items: Vec<Value>,
    path: &AttributePath,
) -> Result<Vec<(Value, Value)>> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        interpreter.budget.step(1)?;
        keyed.push((path.of(interpreter, &item)?, item));
    }
    Ok(keyed)
}

pub(super) fn sort(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [reverse, case_sensitive, attribute] =
        args.optional("sort", ["reverse", "case_sensitive", "attribute"])?;
    let budget = Rc::clone(&interpreter.budget);
    let fold = !is_set(case_sensitive);
    let items = sequence::items(&budget, &value)?;
    let _working_memory = charge_working_memory(&budget, items.len())?;
    let sorted = match &attribute {
        Some(Value::Text(names)) if names.contains(',') => {
            let mut paths = Vec::new();
            for name in names.split(',') {
                paths.push(AttributePath {
                    parts: AttributePath::parts(&budget, name)?,
                    default: None,
                    fold,
                });
            }
            let mut sorted = Vec::with_capacity(items.len());
            for item in items {
                let keys = paths
                    .iter()
                    .map(|path| path.of(interpreter, &item))
                    .collect::<Result<Vec<_>>>()?;
                sorted.push((Value::list(&budget, keys)?, item));
            }
            sorted
        }
        attribute => {
            let path = AttributePath::new(&budget, attribute.as_ref(), fold)?;
            keyed(interpreter, items, &path)?
        }
    };
    let sorted = sort_by_keys(&budget, sorted, is_set(reverse), true)?;
    Value::list(&budget, sorted.into_iter().map(|(_, item)| item).collect())
}

pub(super) fn dictsort(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [case_sensitive, by, reverse] =
        args.optional("dictsort", ["case_sensitive", "by", "reverse"])?;
    let budget = Rc::clone(&interpreter.budget);
    let by_value = match by.as_ref().map_or(Some("key"), Value::as_str) {
        Some("key") => false,
        Some("value") => true,
        _ => return type_error("You can only sort by either \"key\" or \"value\""),
    };
    let Value::Dict(dict) = value.defined()? else {
        return Err(TemplateError::undefined(format!(
            "'{}' has no attribute 'items'",
            value.owner_name()
        )));
    };
    let fold = !is_set(case_sensitive);
    let _working_memory = charge_working_memory(&budget, dict.len())?;
    let mut sorted = Vec::with_capacity(dict.len());
    for ((key, member), pair) in dict.entries().iter().zip(sequence::pairs(&budget, dict)?) {
        let by = if by_value { member.clone() } else { key.clone() };
        sorted.push((if fold { folded(&budget, by)? } else { by }, pair));
    }
    let sorted = sort_by_keys(&budget, sorted, is_set(reverse), false)?;
    Value::list(&budget, sorted.into_iter().map(|(_, pair)| pair).collect())
}

pub(super) fn groupby(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let ([attribute], [default, case_sensitive]) =
        args.bind("groupby", ["attribute"], ["default", "case_sensitive"])?;
    let budget = Rc::clone(&interpreter.budget);
    let default = default.filter(|default| !default.is_none());
    let fold = !is_set(case_sensitive);
    let path = AttributePath::new(&budget, Some(&attribute), fold)?.with_default(default.clone());
    let plain = AttributePath::new(&budget, Some(&attribute), false)?.with_default(default);
    let items = sequence::items(&budget, &value)?;
    let _working_memory = charge_working_memory(&budget, items.len())?;
    let sorted = sort_by_keys(&budget, keyed(interpreter, items, &path)?, false, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (key, item) in sorted {
        match groups.last_mut() {
            Some((last, items)) if compare::equal(&budget, last, &key)? => items.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for (_, items) in groups {
        let key = plain.of(interpreter, &items[0])?;
        let items = Value::list(&budget, items)?;
        out.push(Value::group(&budget, key, items)?);
    }
    Value::list(&budget, out)
}

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
        return Generator::value(&budget, Vec::new(), None);
    }
    let items = match sequence::items(&budget, value) {
        Ok(items) => items,
        Err(error) => return Generator::value(&budget, Vec::new(), Some(error)),
    };
    let _working_memory = budget.charge_values(items.len().saturating_add(2 * arguments))?;
    budget.nested(|| {
        let mut out = Vec::new();
        for item in items {
            budget.step(1 + arguments as u64)?;
            match apply(interpreter, item) {
                Ok(item) => out.extend(item),
                Err(error) => return Generator::value(&budget, out, Some(error)),
            }
        }
        Generator::value(&budget, out, None)
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
        return Generator::value(
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
            .and_then(|name| interpreter.builtins.filter(name))
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
            return Generator::value(
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
                let test = name.as_str().and_then(|name| interpreter.builtins.test(name));
                let test = test.ok_or_else(|| {
                    TemplateError::unsupported(format!("No test named {name:?}."))
                })?;
                test(interpreter, &subject, args.clone())?
            }
        };
        Ok((holds == wanted).then_some(item))
    })
}
