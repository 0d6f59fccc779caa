//! Arguments with one element per parameter. Strings are verbatim, and other values are JSON.

use serde_json::{Value, json};

use super::lark::{Lark, Symbol};
use super::members::{self, Member};
use super::raw_text;
use super::schema::{CheckedSchema, SchemaReport};
use super::shape::{ObjectShape, StringShape, ValueShape, resolved};
use crate::error::Result;
use crate::json_schema::type_names;
use crate::output::format::{Tagged, ValueKind, with_entities};

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
        let escaped = |c: char| form.entities.iter().any(|(special, _)| *special == c);
        if property.name.contains(|c: char| c == '\n' || "<>\"".contains(c) && !escaped(c)) {
            let problem = "its name cannot be expressed";
            report.refuse_in_encoding(&property.pointer, "", problem)?;
            continue;
        }
        let name = with_entities(&property.name, form.entities);
        let head = format!("{}{name}{}", form.open, form.after_key);
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
    // In text with entities, a tag cannot begin.
    let forbidden = if form.entities.is_empty() { &*form.close } else { "<" };
    let text_way = |lark: &mut Lark, text: &StringShape| {
        raw_text::text_or_values(lark, text, &[], forbidden, &form.close)
    };
    if let (Some(shapes), None) = (&mut all, &form.kind)
        && let Some(way) = raw_text::union(lark, shapes, at, report, forbidden, &form.close)?
    {
        return Ok(vec![way]);
    }
    for shape in all.iter().flatten() {
        match shape {
            ValueShape::String(text) => texts.push(text_way(lark, text)),
            ValueShape::Constant(Value::String(text)) => {
                let text = with_entities(text, form.entities);
                texts.extend(raw_text::constant(lark, &text, &form.close))
            }
            ValueShape::Any => {
                texts.push(text_way(lark, &StringShape::default()));
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
    let one_word = kind.words.others().len() == 1;
    let others =
        if !one_word && all.is_none() { resolved(schema, at, checked, report)? } else { others };
    let json =
        |others: &[ValueShape]| others_json(schema, !one_word || all.is_some(), others, checked);
    Ok(values_with_kind(lark, kind, texts, &others, &close, json))
}

/// The alternatives, each preceded by the word for its type.
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
    let string = &*kind.words.string;
    let mut ways: Vec<_> = texts.into_iter().map(|text| marked(lark, string, text)).collect();
    let words = kind.words.others();
    for word in &words {
        let of_word = others.iter().filter_map(|shape| match words.len() {
            1 => Some(shape.clone()),
            _ => shape_of_word(shape, kind, word),
        });
        let of_word: Vec<_> = of_word.collect();
        if let Some(json) = json(&of_word) {
            let value = [vec![lark.json(&json)], close.to_vec()].concat();
            ways.push(marked(lark, word, value));
        }
    }
    ways
}

/// The values of a shape whose type has this word; None if there are none.
fn shape_of_word(shape: &ValueShape, kind: &ValueKind, word: &str) -> Option<ValueShape> {
    let words = &kind.words;
    let own = match shape.type_name()? {
        // The grammar has no nested elements, so these are JSON.
        "array" | "object" if kind.item.is_some() => &words.number,
        "null" => &words.null,
        "boolean" => &words.boolean,
        "array" => &words.array,
        "object" => &words.object,
        "number" if shape.is_integer() => &words.integer,
        "number" => &words.number,
        _ => return None,
    };
    if &**own == word {
        return Some(shape.clone());
    }
    // A number may be whole.
    match shape {
        ValueShape::Number(schema) if !shape.is_integer() && &*words.integer == word => {
            let mut schema = schema.clone();
            schema["type"] = "integer".into();
            Some(ValueShape::Number(schema))
        }
        _ => None,
    }
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
