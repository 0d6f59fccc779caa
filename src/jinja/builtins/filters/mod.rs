//! The filters of Jinja2, and `tojson` of transformers.

mod numbers;
mod selection;
mod sequences;
mod sorting;
mod text;
mod wordwrap;

use super::tojson;
use crate::jinja::error::{Result, unsupported};
use crate::jinja::eval::arguments::Args;
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::syntax::ast::BuiltinId;
use crate::jinja::value::{Value, iterate};

/// A filter: called with the value to its left and the arguments.
pub(crate) type Filter = fn(&mut Interpreter<'_>, Value, Args) -> Result<Value>;

/// All filters by name.
static FILTERS: [(&str, Filter); 54] = [
    ("abs", numbers::abs),
    ("attr", sequences::attr),
    ("batch", sequences::batch),
    ("capitalize", text::capitalize),
    ("center", text::center),
    ("count", length),
    ("d", default),
    ("default", default),
    ("dictsort", sorting::dictsort),
    ("e", text::escape),
    ("escape", text::escape),
    ("filesizeformat", numbers::filesizeformat),
    ("first", sequences::first),
    ("float", numbers::float),
    ("forceescape", text::forceescape),
    ("format", text::format),
    ("groupby", sorting::groupby),
    ("indent", text::indent),
    ("int", numbers::int),
    ("items", sequences::items),
    ("join", text::join),
    ("last", sequences::last),
    ("length", length),
    ("list", sequences::list),
    ("lower", text::lower),
    ("map", selection::map),
    ("max", sequences::max),
    ("min", sequences::min),
    ("pprint", text::pprint),
    ("random", |_, _, _| {
        unsupported("the filter 'random' is not supported: renders are reproducible")
    }),
    ("reject", selection::reject),
    ("rejectattr", selection::rejectattr),
    ("replace", text::replace),
    ("reverse", sequences::reverse),
    ("round", numbers::round),
    ("safe", text::safe),
    ("select", selection::select),
    ("selectattr", selection::selectattr),
    ("slice", sequences::slice),
    ("sort", sorting::sort),
    ("string", text::string),
    ("striptags", text::striptags),
    ("sum", sequences::sum),
    ("title", text::title),
    ("tojson", |interpreter, value, args| tojson::filter(&interpreter.budget, &value, args)),
    ("trim", text::trim),
    ("truncate", text::truncate),
    ("unique", sequences::unique),
    ("upper", text::upper),
    ("urlencode", text::urlencode),
    ("urlize", |_, _, _| {
        unsupported("the filter 'urlize' is not supported: prompts have no links")
    }),
    ("wordcount", text::wordcount),
    ("wordwrap", wordwrap::wordwrap),
    ("xmlattr", text::xmlattr),
];

/// The id of the filter of this name.
pub(crate) fn id(name: &str) -> Option<BuiltinId> {
    let index = FILTERS.iter().position(|(known, _)| *known == name)?;
    u8::try_from(index).ok().map(BuiltinId)
}

#[inline]
pub(crate) fn function(id: BuiltinId) -> Filter {
    FILTERS[usize::from(id.0)].1
}

/// The function of the filter of this name.
pub(crate) fn find(name: &str) -> Option<Filter> {
    id(name).map(function)
}

fn length(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("len")?;
    Ok(Value::count(iterate::length(&interpreter.budget, &value)?))
}

fn default(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [default, boolean] = args.optional("default", ["default_value", "boolean"])?;
    let replaces = value.is_undefined()
        || boolean.is_some_and(|boolean| boolean.is_true()) && !value.is_true();
    match default {
        _ if !replaces => Ok(value),
        Some(default) => Ok(default),
        None => Value::text(&interpreter.budget, ""),
    }
}
