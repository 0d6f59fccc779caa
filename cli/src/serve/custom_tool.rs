//! Custom tools, whose input is one text, as functions with one parameter.

use serde_json::{Value, json};

use super::fields::brief;
use super::lark;
use super::left_out::{LeftOut, Reason};

/// The parameter with the text.
const INPUT: &str = "input";

/// The parameters of the function.
pub(crate) fn parameters() -> Value {
    json!({ "type": "object", "properties": { INPUT: { "type": "string" } }, "required": [INPUT] })
}

/// The arguments of the function for an input.
pub(crate) fn arguments(input: &str) -> String {
    json!({ INPUT: input }).to_string()
}

/// The input in the arguments that the model wrote. A call that was cut off is no JSON.
pub(crate) fn input(arguments: &str) -> String {
    let parsed: Value = crate::json::value(arguments).unwrap_or_default();
    parsed[INPUT].as_str().unwrap_or(arguments).to_owned()
}

/// Adds the grammar of the input to the function. The model is told of it, and one that is a regular
/// expression is enforced.
pub(crate) fn add_grammar(
    grammar: &Value,
    function: &mut Value,
    path: &str,
    left_out: &mut LeftOut,
) {
    let definition = grammar["definition"].as_str().unwrap_or_default();
    if definition.is_empty() {
        return;
    }
    let syntax = grammar["syntax"].as_str().unwrap_or_default();
    let input = &mut function["parameters"]["properties"][INPUT];
    input["description"] =
        format!("A text of this grammar ({}):\n{definition}", brief(syntax)).into();
    let expression = match syntax {
        "regex" => Ok(definition.to_owned()),
        "lark" => lark::expression(definition),
        _ => Err("its syntax is unknown"),
    };
    match expression {
        Ok(expression) => input["pattern"] = format!("^(?:{expression})$").into(),
        Err(reason) => {
            let message = format!("this grammar is shown to the model, but not enforced: {reason}");
            left_out.note(Reason::Format, path, message);
        }
    }
}
