//! The global functions.

use std::cell::Cell;
use std::rc::Rc;

use crate::jinja::error::{Result, TemplateError, limit_error, type_error, unsupported};
use crate::jinja::eval::attribute;
use crate::jinja::eval::interpreter::{Global, Interpreter};
use crate::jinja::value::arguments::{Args, integer, string};
use crate::jinja::value::sequence::MAX_RANGE;
use crate::jinja::value::text::Text;
use crate::jinja::value::{Namespace, Object, Range, Value, print, sequence};

/// The longest format of `strftime_now`, in bytes.
const MAX_TIME_FORMAT: usize = 64 << 10;

/// All global functions by name.
pub(super) static GLOBALS: [(&str, Global); 8] = [
    ("lipsum", |_, _| {
        unsupported("the function 'lipsum' is not supported: renders are reproducible")
    }),
    ("range", range),
    ("dict", dict),
    ("namespace", namespace),
    ("raise_exception", raise_exception),
    ("strftime_now", strftime_now),
    ("cycler", cycler),
    ("joiner", joiner),
];

fn raise_exception(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let [message] = args.required("raise_exception", ["message"])?;
    let message = print::text(&interpreter.budget, &message)?;
    Err(TemplateError::raised(&message))
}

fn strftime_now(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let [format] = args.required("strftime_now", ["format"])?;
    let format = string(&interpreter.budget, &format, "strftime() argument 1")?;
    if format.len() > MAX_TIME_FORMAT {
        return limit_error(format!("a format of the time is longer than {MAX_TIME_FORMAT} bytes"));
    }
    // A directive of two characters writes about twenty at most. It may also write nothing.
    interpreter.budget.can_allocate(format.len() * 16)?;
    interpreter.budget.step(format.len() as u64)?;
    let text = interpreter.strftime_now(format)?;
    Ok(Value::Text(Text::with_origin(&interpreter.budget, &text, format.first_origin())?))
}

fn range(_: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    if !args.named.is_empty() {
        return type_error("range() takes no keyword arguments");
    }
    let numbers = args.positional.iter().map(integer).collect::<Result<Vec<i64>>>()?;
    let range = match numbers[..] {
        [stop] => Range { start: 0, stop, step: 1 },
        [start, stop] => Range { start, stop, step: 1 },
        [_, _, 0] => return type_error("range() arg 3 must not be zero"),
        [start, stop, step] => Range { start, stop, step },
        _ => {
            return type_error(format!("range expected 1 to 3 arguments, got {}", numbers.len()));
        }
    };
    if range.len() > MAX_RANGE {
        return limit_error(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE})."
        ));
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
            let items = sequence::items(budget, pairs.defined()?)?;
            let _working_memory = budget.charge_values(3 * items.len())?;
            for pair in items {
                let pair = sequence::items(budget, &pair)?;
                match pair.as_slice() {
                    [key, value] => entries.push((key.clone(), value.clone())),
                    other => {
                        let length = other.len();
                        return type_error(format!(
                            "dictionary update sequence element #{} has length {length}; 2 is required",
                            entries.len()
                        ));
                    }
                }
            }
        }
        more => {
            return type_error(format!(
                "{function} expected at most 1 argument, got {}",
                more.len()
            ));
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

fn cycler(interpreter: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    if args.positional.is_empty() {
        return type_error("at least one item has to be provided");
    }
    let items = args.positional;
    // Includes the cycler itself.
    let charge = interpreter.budget.charge_values(items.capacity() + 8)?;
    Ok(Value::object(Object::Cycler { items, at: Cell::new(0), _charge: charge }))
}

fn joiner(_: &mut Interpreter<'_>, args: Args) -> Result<Value> {
    let [separator] = args.optional("joiner", ["sep"])?;
    let separator = separator.unwrap_or_else(|| Value::Text(Text::uncharged(", ", Vec::new())));
    Ok(Value::object(Object::Joiner { separator, used: Cell::new(false) }))
}
