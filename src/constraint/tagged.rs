//! Arguments with one element per parameter. Strings are verbatim, and other values are JSON.

use serde_json::{Value, json};

use super::json_like::JsonLikeWriter;
use super::lark::{Lark, Symbol, merged};
use super::members::{ChainedMembers, Continuation};
use super::nested::NestedWriter;
use super::raw_text::{self, RawValue};
use super::schema::{CheckedSchema, SchemaReport};
use super::shape::{ObjectShape, StringShape, ValueShape, resolved};
use super::syntaxes::EntityJson;
use crate::error::Result;
use crate::json_schema::type_names;
use crate::output::expressible::ExpressibleCalls;
use crate::output::format::{Tagged, ValueKind, with_entities};

/// A value that can be written.
struct TaggedValue {
    /// The word for its type and the text after it. Empty if elements name no types.
    kind: Vec<Symbol>,
    text: ValueText,
}

/// The text of a value.
enum ValueText {
    Raw(RawValue),
    /// Exactly these symbols.
    Exact(Vec<Symbol>),
}

impl ValueText {
    /// The value in an element that names no type.
    fn untyped(self) -> TaggedValue {
        TaggedValue { kind: Vec::new(), text: self }
    }
}

/// Writes the parameters of one tool.
pub(super) struct TaggedWriter<'a, 'r> {
    pub(super) form: &'a Tagged,
    pub(super) expressible: &'a ExpressibleCalls<'a>,
    pub(super) checked: &'a CheckedSchema,
    pub(super) report: &'a mut SchemaReport<'r>,
    /// Writes arrays and objects, if they are not JSON.
    pub(super) nested: Option<NestedWriter<'a>>,
    /// Whether a call can have this value for this parameter.
    pub(super) carries: &'a dyn Fn(&str, &Value) -> bool,
}

impl TaggedWriter<'_, '_> {
    /// The rule for the arguments, followed by `tail`.
    pub(super) fn arguments(
        &mut self,
        lark: &mut Lark,
        object: &ObjectShape,
        tail: &str,
    ) -> Result<Symbol> {
        let form = self.form;
        let mut all = Vec::new();
        for property in &object.properties {
            if !self.expressible.key(&property.name, false) {
                self.report.refuse_key(&property.pointer, &property.name)?;
                continue;
            }
            let values = self.values(lark, &property.name, &property.schema, &property.pointer)?;
            if values.is_empty() && property.required {
                return Err(self.report.error(&property.pointer, "", "no value is possible"));
            }
            let name = Symbol::Text(with_entities(&property.name, form.entities));
            let key = [vec![name], lark.symbols(&form.after_key)].concat();
            all.push((key, values, property.required));
        }
        let ends = self.expressible.prepared.value_ends(form);
        let required: Vec<bool> = all.iter().map(|(_, _, required)| *required).collect();
        let between = format!("{}{}", form.separator, form.open);
        let (between_length, tail_length) = (ends.confirming(&between), ends.confirming(tail));
        let members = ChainedMembers {
            required: &required,
            between: lark.symbols(&between),
            tail: lark.symbols(tail),
        };
        let open = lark.symbols(&form.open);
        // In text with entities, a tag cannot begin.
        let never = if form.entities.is_empty() { None } else { Some('<') };
        let type_is_first = form.kind.as_ref().is_some_and(|kind| kind.before_key);
        let mut member = |lark: &mut Lark, index: usize, continuations: &[Continuation]| {
            let (key, values, _) = &all[index];
            let mut ways = Vec::new();
            for TaggedValue { kind, text: value } in values {
                let head = if type_is_first { [&**kind, key] } else { [key, &**kind] }.concat();
                for Continuation { text, key: next } in continuations {
                    let certain = if next.is_some() { between_length } else { tail_length };
                    let after = merged([lark.symbols(&form.close), text.clone()].concat());
                    let value = match value {
                        ValueText::Exact(symbols) => [symbols.clone(), after].concat(),
                        ValueText::Raw(value) => {
                            let certain = form.close.len() + certain;
                            raw_text::ended(lark, value, &ends, never, &after, certain)
                        }
                    };
                    ways.push([head.clone(), value, next.iter().cloned().collect()].concat());
                }
            }
            ways
        };
        Ok(members.rule(lark, &open, &mut member))
    }

    /// The alternatives for a value.
    fn values(
        &mut self,
        lark: &mut Lark,
        key: &str,
        schema: &Value,
        at: &str,
    ) -> Result<Vec<TaggedValue>> {
        let (form, checked) = (self.form, self.checked);
        let mut texts: Vec<ValueText> = Vec::new();
        let mut others: Vec<ValueShape> = Vec::new();
        let mut all =
            if is_json(schema) { None } else { Some(resolved(schema, at, checked, self.report)?) };
        if let (Some(shapes), None) = (&mut all, &form.kind)
            && let Some(value) = raw_text::union(shapes, at, self.report)?
        {
            return Ok(vec![ValueText::Raw(value).untyped()]);
        }
        let raw = |text: StringShape| ValueText::Raw(RawValue { text, others: Vec::new() });
        for shape in all.iter().flatten() {
            match shape {
                ValueShape::String(text) => texts.push(raw(text.clone())),
                ValueShape::Constant(value @ Value::String(text)) => {
                    if (self.carries)(key, value) {
                        let text = with_entities(text, form.entities);
                        texts.push(ValueText::Exact(vec![Symbol::Text(text)]));
                    } else {
                        let problem = format!("the value {value} cannot be expressed");
                        self.report.refuse_in_encoding(at, "enum", &problem)?;
                    }
                }
                ValueShape::Any => {
                    texts.push(raw(StringShape::default()));
                    others.extend(anything());
                }
                other => others.push(other.clone()),
            }
        }
        let free = all.iter().flatten().any(ValueShape::is_free_text);
        let Some(kind) = &form.kind else {
            // Free text already includes every other value.
            if !free {
                let json = self.json(lark, schema, at, all.is_some(), &others)?;
                texts.extend(json.map(|json| ValueText::Exact(vec![json])));
            }
            return Ok(texts.into_iter().map(ValueText::untyped).collect());
        };
        let one_word = kind.words.others().len() == 1;
        let others = if !one_word && all.is_none() {
            resolved(schema, at, checked, self.report)?
        } else {
            others
        };
        let is_container =
            |shape: &ValueShape| matches!(shape, ValueShape::Array(_) | ValueShape::Object(_));
        let (containers, others): (Vec<_>, Vec<_>) = match &self.nested {
            Some(_) => others.into_iter().partition(is_container),
            None => (Vec::new(), others),
        };
        let by_shape = !one_word || all.is_some();
        let json =
            |lark: &mut Lark, others: &[ValueShape]| self.json(lark, schema, at, by_shape, others);
        let mut ways = values_with_kind(lark, kind, texts, &others, json)?;
        for shape in containers {
            if let Some(nested) = &mut self.nested {
                let contents = nested.contents(lark, &shape, self.report)?;
                ways.extend(contents.map(|(word, contents)| TaggedValue {
                    kind: lark.symbols(&format!("{word}{}", kind.after)),
                    text: ValueText::Exact(vec![contents]),
                }));
            }
        }
        Ok(ways)
    }

    /// The symbol for JSON of this schema; None if no value is possible. If `by_shape`, for values
    /// of these shapes only.
    fn json(
        &mut self,
        lark: &mut Lark,
        schema: &Value,
        at: &str,
        by_shape: bool,
        shapes: &[ValueShape],
    ) -> Result<Option<Symbol>> {
        let TaggedWriter { form, expressible, checked, .. } = *self;
        let entities = form.entities_of_json();
        if entities.is_empty() {
            let json = others_json(schema, by_shape, shapes, checked);
            return Ok(json.map(|json| lark.json(&json)));
        }
        let syntax = EntityJson(entities);
        let mut writer = JsonLikeWriter::for_parameter(&syntax, expressible, checked, self.report);
        if !by_shape {
            return writer.value(lark, schema, at);
        }
        let mut ways = Vec::new();
        for shape in shapes {
            ways.extend(writer.ways(lark, shape.clone(), at)?);
        }
        Ok((!ways.is_empty()).then(|| lark.choice_rule(ways)))
    }
}

/// The alternatives, each with the word for its type.
fn values_with_kind(
    lark: &mut Lark,
    kind: &ValueKind,
    texts: Vec<ValueText>,
    others: &[ValueShape],
    mut json: impl FnMut(&mut Lark, &[ValueShape]) -> Result<Option<Symbol>>,
) -> Result<Vec<TaggedValue>> {
    let after = kind.after.as_ref();
    let stated = |lark: &Lark, name: &str| lark.symbols(&format!("{name}{after}"));
    let string = stated(lark, &kind.words.string);
    let of_string = |text| TaggedValue { kind: string.clone(), text };
    let mut ways: Vec<_> = texts.into_iter().map(of_string).collect();
    let words = kind.words.others();
    for word in &words {
        let of_word = others.iter().filter_map(|shape| match words.len() {
            1 => Some(shape.clone()),
            _ => shape_of_word(shape, kind, word),
        });
        let of_word: Vec<_> = of_word.collect();
        if let Some(json) = json(lark, &of_word)? {
            let text = ValueText::Exact(vec![json]);
            ways.push(TaggedValue { kind: stated(lark, word), text });
        }
    }
    Ok(ways)
}

/// The values of a shape whose type has this word; None if there are none.
fn shape_of_word(shape: &ValueShape, kind: &ValueKind, word: &str) -> Option<ValueShape> {
    let words = &kind.words;
    let own = match shape.type_name()? {
        // These nested elements could not be read back, so they are JSON.
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
        rest: Some((String::new(), Value::Bool(true))),
        least: 0,
        most: None,
        schema: any("array"),
    };
    let others = Some((String::new(), Value::Bool(true)));
    let object = ObjectShape { properties: Vec::new(), others, schema: any("object") };
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
