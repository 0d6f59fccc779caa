//! What a template can call by name: filters, tests and global functions. The filters are those of
//! Jinja2, and `tojson` of transformers.

mod by_attribute;
mod globals;
mod is_tests;
mod layout;
mod numbers;
mod sequences;
mod text;
mod tojson;

use crate::jinja::error::{Result, unsupported};
use crate::jinja::eval::attribute;
use crate::jinja::eval::interpreter::{Builtins, Filter, Interpreter, id};
use crate::jinja::syntax::ast::BuiltinNames;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::{Value, sequence};

/// The functions, for the interpreter.
pub(crate) static BUILTINS: Builtins =
    Builtins { filters: &FILTERS, tests: &is_tests::TESTS, globals: &globals::GLOBALS };

/// Lets the parser recognize builtins.
pub(crate) const NAMES: BuiltinNames = BuiltinNames {
    filter: |name| id(&FILTERS, name),
    test: |name| id(&is_tests::TESTS, name),
    is_global: |name| id(&globals::GLOBALS, name).is_some(),
    is_member: attribute::is_member,
};

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
    ("dictsort", by_attribute::dictsort),
    ("e", text::escape),
    ("escape", text::escape),
    ("filesizeformat", numbers::filesizeformat),
    ("first", sequences::first),
    ("float", numbers::float),
    ("forceescape", text::forceescape),
    ("format", text::format),
    ("groupby", by_attribute::groupby),
    ("indent", text::indent),
    ("int", numbers::int),
    ("items", sequences::items),
    ("join", text::join),
    ("last", sequences::last),
    ("length", length),
    ("list", sequences::list),
    ("lower", text::lower),
    ("map", by_attribute::map),
    ("max", sequences::max),
    ("min", sequences::min),
    ("pprint", layout::pprint),
    ("random", |_, _, _| {
        unsupported("the filter 'random' is not supported: renders are reproducible")
    }),
    ("reject", by_attribute::reject),
    ("rejectattr", by_attribute::rejectattr),
    ("replace", text::replace),
    ("reverse", sequences::reverse),
    ("round", numbers::round),
    ("safe", text::safe),
    ("select", by_attribute::select),
    ("selectattr", by_attribute::selectattr),
    ("slice", sequences::slice),
    ("sort", by_attribute::sort),
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
    ("wordwrap", layout::wordwrap),
    ("xmlattr", text::xmlattr),
];

fn length(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("len")?;
    Ok(Value::count(sequence::length(&interpreter.budget, &value)?))
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
