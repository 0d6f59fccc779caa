//! Converts a checked schema to the possible shapes of a value, for encodings other than JSON.
//!
//! A keyword that no shape can represent is an error, or is dropped and reported.

use serde_json::{Map, Value, json};

use super::schema::{CheckedSchema, SchemaReport, are_further_patterns, with_stack};
use crate::error::Result;
use crate::json_schema::{self, child, entries, is_required, list, strings, type_names};

/// The maximum length of a text that can be counted, in characters. llguidance fails at much larger
/// counts.
const MAX_COUNTED: u64 = 2000;

/// The maximum number of alternatives that are compared to remove duplicates.
const MAX_COMPARED: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValueShape {
    Any,
    /// Exactly this value.
    Constant(Value),
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number that obeys this schema.
    Number(Value),
    String(StringShape),
    Array(ArrayShape),
    Object(ObjectShape),
    /// A value of the definition with this index.
    Reference(usize),
}

impl ValueShape {
    pub(super) fn schema(&self) -> Value {
        match self {
            ValueShape::Any => json!({}),
            ValueShape::Constant(value) => json!({ "const": value }),
            ValueShape::Null => json!({"type": "null"}),
            ValueShape::Boolean => json!({"type": "boolean"}),
            ValueShape::Number(schema) => schema.clone(),
            ValueShape::String(_) => json!({"type": "string"}),
            ValueShape::Array(array) => array.schema.clone(),
            ValueShape::Object(object) => object.schema.clone(),
            ValueShape::Reference(index) => json!({ "$ref": format!("#/$defs/r{index}") }),
        }
    }

    /// Whether every text is a value of this shape.
    pub(super) fn is_free_text(&self) -> bool {
        match self {
            ValueShape::Any => true,
            ValueShape::String(text) => text.is_free(),
            _ => false,
        }
    }

    /// The name of its JSON type; None if the value may have any type.
    pub(super) fn type_name(&self) -> Option<&'static str> {
        match self {
            ValueShape::Any | ValueShape::Reference(_) => None,
            ValueShape::Constant(value) => Some(json_schema::type_name(value)),
            ValueShape::Null => Some("null"),
            ValueShape::Boolean => Some("boolean"),
            ValueShape::Number(_) => Some("number"),
            ValueShape::String(_) => Some("string"),
            ValueShape::Array(_) => Some("array"),
            ValueShape::Object(_) => Some("object"),
        }
    }

    /// Whether every value is a whole number.
    pub(super) fn is_integer(&self) -> bool {
        match self {
            ValueShape::Constant(value) => value.is_i64() || value.is_u64(),
            ValueShape::Number(schema) => schema["type"] == "integer",
            _ => false,
        }
    }
}

/// The schema of a string.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct StringShape {
    /// The regular expressions that the whole text must match.
    pub(super) patterns: Vec<String>,
    /// The minimum number of characters.
    pub(super) least: u64,
    /// The maximum number of characters.
    pub(super) most: Option<u64>,
}

impl StringShape {
    /// Whether any text is allowed.
    pub(super) fn is_free(&self) -> bool {
        self.patterns.is_empty() && self.least == 0 && self.most.is_none()
    }

    /// The terminals for the text, joined by `&`. `allowed` is a regular expression for its
    /// characters.
    pub(super) fn terminal(&self, allowed: &str) -> String {
        let most = self.most.map(|most| most.to_string()).unwrap_or_default();
        let mut body = match (self.least, &self.most) {
            (0, None) => format!("/(?s:{allowed}*)/"),
            (least, _) => format!("/(?s:{allowed}{{{least},{most}}})/"),
        };
        for pattern in &self.patterns {
            body.push_str(&format!(" & /{pattern}/"));
        }
        body
    }
}

/// The schema of an array.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArrayShape {
    /// The pointers and schemas of the first items.
    pub(super) first: Vec<(String, Value)>,
    /// The pointer and the schema of the remaining items. None if no more items are allowed.
    pub(super) rest: Option<(String, Value)>,
    /// The minimum number of items.
    pub(super) least: usize,
    /// The maximum number of items.
    pub(super) most: Option<usize>,
    /// The whole schema.
    pub(super) schema: Value,
}

impl ArrayShape {
    /// The ways to write each of the first items, and each of the remaining ones. `ways` takes the
    /// schema of an item and its pointer.
    pub(super) fn item_ways<W>(
        &self,
        mut ways: impl FnMut(&Value, &str) -> Result<Vec<W>>,
    ) -> Result<(Vec<Vec<W>>, Vec<W>)> {
        let first =
            self.first.iter().map(|(at, schema)| ways(schema, at)).collect::<Result<_>>()?;
        let rest = self.rest.as_ref().map(|(at, schema)| ways(schema, at)).transpose()?;
        Ok((first, rest.unwrap_or_default()))
    }
}

/// The schema of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObjectShape {
    /// The listed properties.
    pub(super) properties: Vec<PropertyShape>,
    /// The pointer and the schema of unlisted properties. None if some properties are listed.
    pub(super) others: Option<(String, Value)>,
    /// The whole schema.
    pub(super) schema: Value,
}

impl ObjectShape {
    /// A shape that includes all objects of both. A property is required if both require it, and
    /// may have any value if it has two schemas.
    pub(super) fn or(mut self, other: ObjectShape) -> ObjectShape {
        for property in &mut self.properties {
            let same = other.properties.iter().find(|same| same.name == property.name);
            property.required &= same.is_some_and(|same| same.required);
            if same.is_some_and(|same| same.schema != property.schema) {
                property.schema = Value::Bool(true);
            }
        }
        for property in other.properties {
            if !self.properties.iter().any(|same| same.name == property.name) {
                self.properties.push(PropertyShape { required: false, ..property });
            }
        }
        let others = self.others.or(other.others).filter(|_| self.properties.is_empty());
        ObjectShape { others, schema: json!({"type": "object"}), ..self }
    }
}

/// A listed property.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PropertyShape {
    pub(super) name: String,
    /// The pointer of its schema.
    pub(super) pointer: String,
    pub(super) schema: Value,
    pub(super) required: bool,
}

/// The shapes of a value of the schema at this pointer.
pub(super) fn shapes(
    schema: &Value,
    at: &str,
    checked: &CheckedSchema,
    report: &mut SchemaReport,
) -> Result<Vec<ValueShape>> {
    with_stack(|| alternatives(schema, at, checked, report))
}

fn alternatives(
    schema: &Value,
    at: &str,
    checked: &CheckedSchema,
    report: &mut SchemaReport,
) -> Result<Vec<ValueShape>> {
    let members = match schema {
        Value::Object(members) => members,
        Value::Bool(false) => return Ok(Vec::new()),
        _ => return Ok(vec![ValueShape::Any]),
    };
    let types = type_names(members.get("type"));
    let fits = |value: &Value| types.as_ref().is_none_or(|types| has_type(types, value));
    if let Some(value) = members.get("const") {
        return Ok(if fits(value) {
            vec![ValueShape::Constant(value.clone())]
        } else {
            Vec::new()
        });
    }
    if let Some(values) = members.get("enum").and_then(Value::as_array) {
        return Ok(values
            .iter()
            .filter(|value| fits(value))
            .cloned()
            .map(ValueShape::Constant)
            .collect());
    }
    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
        refuse_others(members, "$ref", at, report)?;
        return Ok(checked
            .target(reference)
            .map(|(index, ..)| vec![ValueShape::Reference(index)])
            .unwrap_or_default());
    }
    if members.contains_key("allOf") && !are_further_patterns(members) {
        report.refuse_in_encoding(at, "allOf", "cannot be merged")?;
    }
    if let Some(items) = members.get("anyOf").and_then(Value::as_array) {
        refuse_others(members, "anyOf", at, report)?;
        let mut all = Vec::new();
        for (index, item) in items.iter().enumerate() {
            for shape in shapes(item, &format!("{at}/anyOf/{index}"), checked, report)? {
                if all.len() > MAX_COMPARED || !all.contains(&shape) {
                    all.push(shape);
                }
            }
        }
        return Ok(if all.contains(&ValueShape::Any) { vec![ValueShape::Any] } else { all });
    }
    match types {
        Some(types) => types.iter().map(|kind| typed(kind, members, at, report)).collect(),
        None if members.contains_key("properties") => {
            Ok(vec![typed("object", members, at, report)?])
        }
        None if members.contains_key("items") => Ok(vec![typed("array", members, at, report)?]),
        None if members.contains_key("pattern") => Ok(vec![typed("string", members, at, report)?]),
        None => Ok(vec![ValueShape::Any]),
    }
}

/// The shapes of a value, with references resolved.
pub(super) fn resolved(
    schema: &Value,
    at: &str,
    checked: &CheckedSchema,
    report: &mut SchemaReport,
) -> Result<Vec<ValueShape>> {
    let mut done = Vec::new();
    let mut seen = Vec::new();
    let mut open = shapes(schema, at, checked, report)?;
    while let Some(shape) = open.pop() {
        let ValueShape::Reference(index) = shape else {
            done.push(shape);
            continue;
        };
        if !seen.contains(&index) {
            seen.push(index);
            let (pointer, target) = &checked.targets[index];
            open.extend(shapes(target, pointer, checked, report)?);
        }
    }
    done.reverse();
    Ok(done)
}

/// Refuses keywords next to a keyword that already describes the whole value. Objects with listed
/// properties have no others anyway.
fn refuse_others(
    members: &Map<String, Value>,
    keyword: &str,
    at: &str,
    report: &mut SchemaReport,
) -> Result<()> {
    let is_other = |(other, value): &(&String, &Value)| match other.as_str() {
        "type" => false,
        "additionalProperties" => *value != &Value::Bool(false),
        other => other != keyword,
    };
    for (other, _) in members.iter().filter(is_other) {
        let problem = format!("cannot be enforced next to {keyword}");
        report.refuse_in_encoding(at, other, &problem)?;
    }
    Ok(())
}

fn has_type(types: &[&str], value: &Value) -> bool {
    let integer = value.as_number().is_some_and(|number| number.is_i64() || number.is_u64());
    types.contains(&json_schema::type_name(value)) || (integer && types.contains(&"integer"))
}

fn typed(
    kind: &str,
    members: &Map<String, Value>,
    at: &str,
    report: &mut SchemaReport,
) -> Result<ValueShape> {
    Ok(match kind {
        "null" => ValueShape::Null,
        "boolean" => ValueShape::Boolean,
        "string" => ValueShape::String(string(members, at, report)?),
        "array" => ValueShape::Array(array(members, at)),
        "object" => ValueShape::Object(object(members, at)),
        // A number keeps only its bounds.
        _ => {
            let of_numbers =
                ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
            let bounds =
                members.iter().filter(|(keyword, _)| of_numbers.contains(&keyword.as_str()));
            let mut schema = Map::from_iter([("type".to_owned(), Value::from(kind))]);
            schema.extend(bounds.map(|(keyword, value)| (keyword.clone(), value.clone())));
            ValueShape::Number(Value::Object(schema))
        }
    })
}

fn string(
    members: &Map<String, Value>,
    at: &str,
    report: &mut SchemaReport,
) -> Result<StringShape> {
    let mut text = StringShape {
        patterns: Vec::new(),
        least: count(members, "minLength").unwrap_or(0),
        most: count(members, "maxLength"),
    };
    for (keyword, count) in [("minLength", Some(text.least)), ("maxLength", text.most)] {
        if count.is_some_and(|count| count > MAX_COUNTED) {
            report.refuse(
                at,
                keyword,
                &format!("more than {MAX_COUNTED} characters cannot be counted"),
            )?;
            (text.least, text.most) = (0, text.most.filter(|most| *most <= MAX_COUNTED));
        }
    }
    let further = list(members.get("allOf")).iter().filter_map(Value::as_object);
    for members in std::iter::once(members).chain(further) {
        if let Some(pattern) = members.get("pattern").and_then(Value::as_str) {
            match super::pattern::whole(pattern) {
                Ok(pattern) => text.patterns.push(pattern),
                Err(reason) => report.refuse(at, "pattern", reason)?,
            }
        }
        if let Some(format) = members.get("format").and_then(Value::as_str) {
            match format_pattern(format) {
                Some(pattern) => text.patterns.push(pattern),
                None => report.relax_in_encoding(at, "format", "cannot be enforced"),
            }
        }
    }
    Ok(text)
}

fn array(members: &Map<String, Value>, at: &str) -> ArrayShape {
    let items = list(members.get("prefixItems"));
    let most = count(members, "maxItems").map(|most| most as usize);
    let first = items.iter().take(most.unwrap_or(usize::MAX)).enumerate();
    let first: Vec<_> =
        first.map(|(index, item)| (format!("{at}/prefixItems/{index}"), item.clone())).collect();
    let rest = match members.get("items") {
        Some(Value::Bool(false)) => None,
        Some(schema) => Some((format!("{at}/items"), schema.clone())),
        None => Some((at.to_owned(), Value::Bool(true))),
    };
    ArrayShape {
        first,
        rest,
        least: count(members, "minItems").unwrap_or(0) as usize,
        most,
        schema: of_type(members, "array"),
    }
}

fn count(members: &Map<String, Value>, keyword: &str) -> Option<u64> {
    members.get(keyword).and_then(Value::as_u64)
}

fn object(members: &Map<String, Value>, at: &str) -> ObjectShape {
    let mut properties: Vec<_> = entries(members.get("properties"))
        .map(|(name, schema)| PropertyShape {
            name: name.clone(),
            pointer: child(&format!("{at}/properties"), name),
            schema: schema.clone(),
            required: is_required(members, name),
        })
        .collect();
    // A required property must be written, whether it is listed or not.
    let others = match members.get("additionalProperties") {
        Some(schema) => (format!("{at}/additionalProperties"), schema.clone()),
        None => (at.to_owned(), Value::Bool(true)),
    };
    for name in strings(members.get("required")) {
        if !properties.iter().any(|property| property.name == name) {
            let (pointer, schema) = others.clone();
            let name = name.to_owned();
            properties.push(PropertyShape { name, pointer, schema, required: true });
        }
    }
    let free = properties.is_empty() && others.1 != Value::Bool(false);
    ObjectShape { properties, others: free.then_some(others), schema: of_type(members, "object") }
}

fn of_type(members: &Map<String, Value>, kind: &str) -> Value {
    let mut schema = members.clone();
    schema.insert("type".into(), kind.into());
    Value::Object(schema)
}

/// The regular expression of a simple format.
fn format_pattern(format: &str) -> Option<String> {
    const DATE: &str = "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-9]))";
    const TIME: &str =
        "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
    match format {
        "date" => Some(DATE.to_owned()),
        "time" => Some(TIME.to_owned()),
        "date-time" => Some(format!("{DATE}T{TIME}")),
        "uuid" => Some("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".to_owned()),
        _ => None,
    }
}
