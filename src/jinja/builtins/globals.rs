//! The global functions.

use std::cell::Cell;
use std::rc::Rc;

use crate::jinja::error::{ErrorKind, Result, TemplateError};
use crate::jinja::value::iterate;
use crate::jinja::value::iterate::MAX_RANGE;
use crate::jinja::value::print;
use crate::jinja::value::runtime::{GlobalFunction, Object};
use crate::jinja::value::text::Text;
use crate::jinja::value::{Namespace, Range, Value};
use crate::jinja::vm::arguments::{Args, integer, string};
use crate::jinja::vm::attribute;
use crate::jinja::vm::interpreter::Interpreter;

const FUNCTIONS: [GlobalFunction; 8] = [
    GlobalFunction::Lipsum,
    GlobalFunction::Range,
    GlobalFunction::Dict,
    GlobalFunction::Namespace,
    GlobalFunction::RaiseException,
    GlobalFunction::StrftimeNow,
    GlobalFunction::Cycler,
    GlobalFunction::Joiner,
];

/// The function of this name.
pub(crate) fn find(name: &str) -> Option<GlobalFunction> {
    FUNCTIONS.into_iter().find(|function| function.name() == name)
}

/// Calls a function.
pub(crate) fn call(
    function: GlobalFunction,
    interpreter: &mut Interpreter<'_>,
    args: Args,
) -> Result<Value> {
    match function {
        GlobalFunction::Lipsum => Err(TemplateError::unsupported(
            "the function 'lipsum' is not supported: renders are reproducible",
        )),
        GlobalFunction::Range => range(args),
        GlobalFunction::Dict => dict(interpreter, args),
        GlobalFunction::Namespace => namespace(interpreter, args),
        GlobalFunction::RaiseException => raise_exception(interpreter, args),
        GlobalFunction::StrftimeNow => strftime_now(interpreter, args),
        GlobalFunction::Cycler => cycler(args),
        GlobalFunction::Joiner => joiner(args),
    }
}

fn raise_exception(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let [message] = args.bind("raise_exception", ["message"], 1)?;
    let message = print::text(&interpreter.budget, &message.unwrap_or(Value::None))?;
    Err(TemplateError::new(ErrorKind::Raised, message.as_str()))
}

fn strftime_now(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let [format] = args.bind("strftime_now", ["format"], 1)?;
    let format = format.unwrap_or(Value::None);
    let format = string(&format, "strftime() argument 1")?;
    // A directive of two characters writes about twenty at most.
    interpreter.budget.can_allocate(format.len().saturating_mul(16))?;
    let text = interpreter.strftime_now(format)?;
    Value::text(&interpreter.budget, text)
}

fn range(args: Args) -> Result<Value> {
    if !args.named.is_empty() {
        return Err(TemplateError::value("range() takes no keyword arguments"));
    }
    let numbers = args.positional.iter().map(integer).collect::<Result<Vec<i64>>>()?;
    let range = match numbers[..] {
        [stop] => Range { start: 0, stop, step: 1 },
        [start, stop] => Range { start, stop, step: 1 },
        [_, _, 0] => return Err(TemplateError::value("range() arg 3 must not be zero")),
        [start, stop, step] => Range { start, stop, step },
        _ => {
            return Err(TemplateError::value(format!(
                "range expected 1 to 3 arguments, got {}",
                numbers.len()
            )));
        }
    };
    if range.len() > MAX_RANGE {
        return Err(TemplateError::limit(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE})."
        )));
    }
    Ok(Value::Range(Rc::new(range)))
}

/// The entries of `dict(…)` or `namespace(…)`.
fn entries(
    interpreter: &mut Interpreter<'_>,
    function: &str,
    args: Args,
) -> Result<Vec<(Value, Value)>> {
    let Args { positional, named } = args;
    let budget = &interpreter.budget;
    let mut entries = Vec::new();
    match positional.as_slice() {
        [] => {}
        [Value::Dict(dict)] => entries.extend(dict.entries().iter().cloned()),
        [pairs] => {
            let items = iterate::items(budget, pairs.defined()?)?;
            let _working_memory = budget.charge_values(3 * items.len())?;
            for pair in items {
                let pair = iterate::items(budget, &pair)?;
                match pair.as_slice() {
                    [key, value] => entries.push((key.clone(), value.clone())),
                    other => {
                        let length = other.len();
                        return Err(TemplateError::value(format!(
                            "dictionary update sequence element #{} has length {length}; 2 is required",
                            entries.len()
                        )));
                    }
                }
            }
        }
        more => {
            return Err(TemplateError::value(format!(
                "{function} expected at most 1 argument, got {}",
                more.len()
            )));
        }
    }
    entries.extend(named.into_iter().map(|(name, value)| (Value::Text(name), value)));
    Ok(entries)
}

fn dict(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let entries = entries(interpreter, "dict", args)?;
    Value::dict(&interpreter.budget, entries)
}

fn namespace(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let entries = entries(interpreter, "namespace", args)?;
    let Value::Dict(dict) = Value::dict(&budget, entries)? else { return Ok(Value::None) };
    let mut attributes = Vec::with_capacity(dict.len());
    for (key, value) in dict.entries() {
        let name = print::text(&budget, key)?;
        attribute::refuse_underscore(&name)?;
        attributes.push((name, value.clone()));
    }
    Ok(Value::Namespace(Rc::new(Namespace::new(&budget, attributes)?)))
}

fn cycler(args: Args) -> Result<Value> {
    if args.positional.is_empty() {
        return Err(TemplateError::value("at least one item has to be provided"));
    }
    Ok(Value::object(Object::Cycler { items: args.positional, at: Cell::new(0) }))
}

fn joiner(args: Args) -> Result<Value> {
    let [separator] = args.bind("joiner", ["sep"], 0)?;
    let separator = separator.unwrap_or_else(|| Value::Text(Text::uncharged(", ", Vec::new())));
    Ok(Value::object(Object::Joiner { separator, used: Cell::new(false) }))
}
