//! Arguments with one element per parameter. Strings are verbatim, and other values are JSON.

use serde_json::{Value, json};

use super::lark::{Lark, Symbol};
use super::members::{self, Member};
use super::raw_text;
use super::schema::{CheckedSchema, SchemaReport};
use super::shape::{ObjectShape, StringShape, ValueShape, resolved};
use crate::error::Result;
use crate::json_schema::type_names;
use crate::output::format::{KindForm, Tagged, ValueKind};

/// The rule for the arguments, followed by `tail`.
pub(super) fn arguments(
    lark: &mut Lark,
    form: &Tagged,
    object: &ObjectShape,
    checked: &CheckedSchema,
    report: &mut SchemaReport,
    tail: &[Symbol],
) -> Result<Symbol> {
    let mut all = Vec::new();
    for property in &object.properties {
        if property.name.contains(['>', '<', '"', '\n']) {
            let problem = "its name cannot be expressed";
            report.refuse_in_encoding(&property.pointer, "", problem)?;
            continue;
        }
        let head = format!("{}{}{}", form.open, property.name, form.after_key);
        let values = values(lark, form, &property.schema, &property.pointer, checked, report)?;
        if values.is_empty() && property.required {
            return Err(report.error(&property.pointer, "", "no value is possible"));
        }
        let head = lark.symbols(&head);
        let ways = values.into_iter().map(|value| [head.clone(), value].concat()).collect();
        all.push(Member { ways, required: property.required });
    }
    let separator = lark.symbols(&form.separator);
    Ok(members::rule(lark, &all, true, &separator, tail))
}

/// The alternatives for a value and its closing tag.
fn values(
    lark: &mut Lark,
    form: &Tagged,
    schema: &Value,
    at: &str,
    checked: &CheckedSchema,
    report: &mut SchemaReport,
) -> Result<Vec<Vec<Symbol>>> {
    let mut texts: Vec<Vec<Symbol>> = Vec::new();
    let mut others: Vec<ValueShape> = Vec::new();
    let mut all = if is_json(schema) { None } else { Some(resolved(schema, at, checked, report)?) };
    if let (Some(shapes), None) = (&mut all, &form.kind)
        && let Some(way) = raw_text::union(lark, shapes, at, report, &form.close, &form.close)?
    {
        return Ok(vec![way]);
    }
    for shape in all.iter().flatten() {
        match shape {
            ValueShape::String(text) => texts.push(raw_text::closed_text(lark, text, &form.close)),
            ValueShape::Constant(Value::String(text)) => {
                texts.extend(raw_text::constant(lark, text, &form.close))
            }
            ValueShape::Any => {
                texts.push(raw_text::closed_text(lark, &StringShape::default(), &form.close));
                others.extend(anything());
            }
            other => others.push(other.clone()),
        }
    }
    let free = all.iter().flatten().any(ValueShape::is_free_text);
    let close = lark.symbols(&form.close);
    let Some(kind) = &form.kind else {
        // Free text already includes every other value.
        if !free {
            let json = others_json(schema, all.is_some(), &others, checked);
            texts.extend(json.map(|json| [vec![lark.json(&json)], close].concat()));
        }
        return Ok(texts);
    };
    let others = if kind.form != KindForm::IsString && all.is_none() {
        resolved(schema, at, checked, report)?
    } else {
        others
    };
    let json = |others: &[ValueShape]| match kind.form {
        KindForm::IsString => others_json(schema, all.is_some(), others, checked),
        KindForm::TypeName | KindForm::SchemaTypeName => others_json(schema, true, others, checked),
    };
    Ok(values_with_kind(lark, kind, texts, &others, &close, json))
}

/// The alternatives, each preceded by its kind: whether it is a string, or the name of its type.
fn values_with_kind(
    lark: &mut Lark,
    kind: &ValueKind,
    texts: Vec<Vec<Symbol>>,
    others: &[ValueShape],
    close: &[Symbol],
    json: impl Fn(&[ValueShape]) -> Option<Value>,
) -> Vec<Vec<Symbol>> {
    let after = kind.after.as_ref();
    let marked = |lark: &Lark, name: &str, value: Vec<Symbol>| {
        [lark.symbols(&format!("{name}{after}")), value].concat()
    };
    let (string, names): (_, &[&str]) = match kind.form {
        KindForm::IsString => ("true", &["false"]),
        KindForm::TypeName => ("string", &["number", "boolean", "object", "array", "null"]),
        KindForm::SchemaTypeName => {
            ("string", &["integer", "number", "boolean", "object", "array", "null"])
        }
    };
    let mut ways: Vec<_> = texts.into_iter().map(|text| marked(lark, string, text)).collect();
    for name in names {
        let of_name = others.iter().filter(|shape| match kind.form {
            KindForm::IsString => true,
            KindForm::TypeName => shape.type_name() == Some(name),
            KindForm::SchemaTypeName if shape.is_integer() => *name == "integer",
            KindForm::SchemaTypeName => shape.type_name() == Some(name),
        });
        let of_name: Vec<_> = of_name.cloned().collect();
        if let Some(json) = json(&of_name) {
            let value = [vec![lark.json(&json)], close.to_vec()].concat();
            ways.push(marked(lark, name, value));
        }
    }
    ways
}

/// The schema of all values that are not strings; None if there are none.
fn others_json(
    schema: &Value,
    by_shape: bool,
    others: &[ValueShape],
    checked: &CheckedSchema,
) -> Option<Value> {
    match (by_shape, others) {
        (false, _) => Some(checked.json_of(schema)),
        (true, []) => None,
        (true, [one]) => Some(checked.json_of(&one.schema())),
        (true, many) => {
            let schemas: Vec<_> = many.iter().map(ValueShape::schema).collect();
            Some(checked.json_of(&json!({ "anyOf": schemas })))
        }
    }
}

/// The shapes of all values that are not strings.
fn anything() -> Vec<ValueShape> {
    let open = |kind: &str| ValueShape::Number(json!({ "type": kind }));
    let any = |kind: &str| json!({ "type": kind });
    let array = super::shape::ArrayShape {
        first: Vec::new(),
        rest: None,
        least: 0,
        most: None,
        schema: any("array"),
    };
    let object = ObjectShape { properties: Vec::new(), others: None, schema: any("object") };
    vec![
        ValueShape::Null,
        ValueShape::Boolean,
        open("number"),
        ValueShape::Array(array),
        ValueShape::Object(object),
    ]
}

/// Whether the schema excludes strings, so that every value is JSON.
fn is_json(schema: &Value) -> bool {
    type_names(schema.get("type")).is_some_and(|names| !names.contains(&"string"))
}
