//! A tool's JSON schema -> what it says about the type of a key, and with it raw text -> JSON text.
//!
//! Types only: whether a value keeps the rest of its schema is the verdict's business. Nothing here
//! fails: what a schema does not say, or says in a way not understood, is unknown.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::json_writer::quote;
use super::literal::{Json, JsonType, json};

/// Schemas looked at for one place.
const BRANCHES: usize = 64;
/// Levels of `$ref`, `anyOf`, `oneOf` and `allOf` inside each other.
const DEPTH: usize = 16;

/// A set of JSON types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const STRING: Types = Types(1);
    const INTEGER: Types = Types(2);
    const NUMBER: Types = Types(2 | 4);
    const BOOLEAN: Types = Types(8);
    const NULL: Types = Types(16);
    pub(super) const OBJECT: Types = Types(32);
    pub(super) const ARRAY: Types = Types(64);

    pub(super) fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    fn accepts(self, json_type: JsonType) -> bool {
        self.has(match json_type {
            JsonType::String => Types::STRING,
            JsonType::Integer => Types::INTEGER,
            JsonType::Number => Types(4),
            JsonType::Boolean => Types::BOOLEAN,
            JsonType::Null => Types::NULL,
            JsonType::Object => Types::OBJECT,
            JsonType::Array => Types::ARRAY,
        })
    }

    fn named(name: &str) -> Option<Types> {
        Some(match name.to_ascii_lowercase().as_str() {
            "string" => Types::STRING,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "boolean" => Types::BOOLEAN,
            "null" => Types::NULL,
            "object" => Types::OBJECT,
            "array" => Types::ARRAY,
            _ => return None,
        })
    }

    fn of(value: &Value) -> Types {
        match value {
            Value::String(_) => Types::STRING,
            Value::Number(_) => Types::NUMBER,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Null => Types::NULL,
            Value::Object(_) => Types::OBJECT,
            Value::Array(_) => Types::ARRAY,
        }
    }

    fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
}

/// The schemas in force at one place of the arguments, as JSON pointers; none where nothing is
/// known.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaPointers(Vec<String>);

impl SchemaPointers {
    /// Whether no schema says anything about this place.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a schema says about a key.
#[derive(Debug, Clone)]
pub(super) struct SchemaMember {
    /// Where its value stands.
    pub(super) pointers: SchemaPointers,
    /// The schema lists keys, and this is none of them.
    pub(super) unknown: bool,
}

/// The schema of a tool's arguments, if it has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Schema(Option<Arc<Value>>);

impl Schema {
    pub(super) fn new(schema: Option<&Value>) -> Schema {
        Schema(schema.map(|schema| Arc::new(schema.clone())))
    }

    /// Where the arguments themselves stand.
    pub(super) fn root(&self) -> SchemaPointers {
        SchemaPointers(if self.0.is_some() { vec![String::new()] } else { Vec::new() })
    }

    /// The place of a member.
    pub(super) fn key(&self, at: &SchemaPointers, name: &str) -> SchemaMember {
        let token = name.replace('~', "~0").replace('/', "~1");
        let (mut found, mut further) = (Vec::new(), Vec::new());
        let (mut listed, mut loose) = (false, false);
        for (pointer, schema) in self.branches(at) {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                listed = true;
                if properties.contains_key(name) {
                    found.push(format!("{pointer}/properties/{token}"));
                }
            }
            if schema.get("additionalProperties").is_some_and(Value::is_object) {
                further.push(format!("{pointer}/additionalProperties"));
            }
            loose |= schema.get("patternProperties").is_some();
        }
        let unknown = listed && !loose && found.is_empty() && further.is_empty();
        SchemaMember {
            pointers: SchemaPointers(if found.is_empty() { further } else { found }),
            unknown,
        }
    }

    /// The place of an array's elements.
    pub(super) fn items(&self, at: &SchemaPointers) -> SchemaPointers {
        let with_items = self
            .branches(at)
            .into_iter()
            .filter(|(_, schema)| schema.get("items").is_some_and(Value::is_object));
        SchemaPointers(with_items.map(|(pointer, _)| format!("{pointer}/items")).collect())
    }

    /// The types a value at this place may have; None where nothing says so.
    pub(super) fn types(&self, at: &SchemaPointers) -> Option<Types> {
        let mut budget = BRANCHES;
        let mut all: Option<Types> = None;
        for pointer in &at.0 {
            let types = self.types_at(self.at(pointer)?, 0, &mut budget)?;
            all = Some(all.map_or(types, |all| all.or(types)));
        }
        all
    }

    /// The parameter that a value without a name must mean: the only required one, or the only one.
    pub(super) fn only_parameter(&self) -> Option<String> {
        let (mut required, mut properties) = (Vec::new(), Vec::new());
        for (_, schema) in self.branches(&self.root()) {
            let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            required.extend(names.filter_map(Value::as_str));
            properties.extend(
                schema
                    .get("properties")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flat_map(|map| map.keys()),
            );
        }
        match (required.as_slice(), properties.as_slice()) {
            ([name], _) => Some((*name).to_owned()),
            ([], [name]) => Some((*name).clone()),
            _ => None,
        }
    }

    fn at(&self, pointer: &str) -> Option<&Value> {
        self.0.as_deref()?.pointer(pointer)
    }

    /// The schemas of a place, with those they refer to and are made of.
    fn branches(&self, at: &SchemaPointers) -> Vec<(String, &Value)> {
        let mut waiting: Vec<String> = at.0.iter().rev().cloned().collect();
        let mut seen = HashSet::new();
        let mut branches = Vec::new();
        while let Some(pointer) = waiting.pop() {
            if seen.len() == BRANCHES || !seen.insert(pointer.clone()) {
                continue;
            }
            let Some(schema) = self.at(&pointer) else { continue };
            for word in ["allOf", "oneOf", "anyOf"] {
                let count = schema
                    .get(word)
                    .and_then(Value::as_array)
                    .map_or(0, |list| list.len().min(BRANCHES));
                waiting.extend((0..count).rev().map(|index| format!("{pointer}/{word}/{index}")));
            }
            waiting.extend(referred(schema).map(str::to_owned));
            branches.push((pointer, schema));
        }
        branches
    }

    fn types_at(&self, schema: &Value, depth: usize, budget: &mut usize) -> Option<Types> {
        if depth == DEPTH || *budget == 0 {
            return None;
        }
        *budget -= 1;
        let mut types = None;
        match schema.get("type") {
            Some(Value::String(name)) => types = Types::named(name),
            Some(Value::Array(names)) => {
                let named = names.iter().map(|name| Types::named(name.as_str()?));
                types = union(named);
            }
            _ => {}
        }
        if let Some(value) = schema.get("const") {
            types = meet(types, Some(Types::of(value)));
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            types = meet(types, union(values.iter().map(|value| Some(Types::of(value)))));
        }
        if let Some(target) = referred(schema).and_then(|pointer| self.at(pointer)) {
            types = meet(types, self.types_at(target, depth + 1, budget));
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(list) = schema.get(word).and_then(Value::as_array) {
                types = meet(
                    types,
                    union(list.iter().map(|branch| self.types_at(branch, depth + 1, budget))),
                );
            }
        }
        for branch in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            types = meet(types, self.types_at(branch, depth + 1, budget));
        }
        let nullable = schema.get("nullable").is_some_and(|value| value == &Value::Bool(true));
        if nullable { types.map(|types| types.or(Types::NULL)) } else { types }
    }
}

/// The pointer of a local `$ref`.
fn referred(schema: &Value) -> Option<&str> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
}

/// Any of these; nothing is known as soon as one of them is not.
fn union(types: impl Iterator<Item = Option<Types>>) -> Option<Types> {
    types.reduce(|all, types| Some(all?.or(types?)))?
}

/// All of these; where they contradict each other, the first.
fn meet(types: Option<Types>, other: Option<Types>) -> Option<Types> {
    let (Some(Types(types)), Some(Types(other))) = (types, other) else { return types.or(other) };
    Some(Types(if types & other == 0 { types } else { types & other }))
}

/// Whether a raw value is a string whatever its text, so that it can be given out before its end.
/// `said_string` is what the value's own markup says.
pub(super) fn is_text(types: Option<Types>, said_string: Option<bool>) -> bool {
    match said_string {
        Some(true) => types.is_none_or(|types| types.has(Types::STRING)),
        Some(false) => false,
        None => types == Some(Types::STRING),
    }
}

/// A raw value as JSON text, and the code of what was wrong with it. There is room for so many
/// levels of nesting.
pub(super) fn typed(
    raw: &str,
    types: Option<Types>,
    said_string: Option<bool>,
    room: usize,
) -> (String, Option<&'static str>) {
    let as_text = |note| {
        let mut text = String::with_capacity(raw.len() + 2);
        quote(raw, &mut text);
        (text, note)
    };
    if is_text(types, said_string) {
        return as_text(None);
    }
    let takes_strings = types.is_some_and(|types| types.has(Types::STRING));
    let (text, json_type, python) = match json(raw, room) {
        Json::Value { text, json_type, python } => (text, json_type, python),
        Json::TooDeep => return as_text(Some("arguments_too_deep")),
        Json::No if takes_strings || types.is_none() && said_string.is_none() => {
            return as_text(None);
        }
        Json::No => return as_text(Some("arg_type_mismatch")),
    };
    let fits = types.is_none_or(|types| types.accepts(json_type));
    match (said_string, types) {
        (Some(true), _) => (text, Some("arg_coerced")),
        (None, None) if python => as_text(None),
        (None, Some(_)) if takes_strings && (python || !fits || json_type == JsonType::String) => {
            as_text(None)
        }
        _ if fits => (text, None),
        _ => (text, Some("arg_type_mismatch")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: Value, said_string: Option<bool>, raw: &str, want: &str, note: Option<&str>) {
        let whole = json!({"type": "object", "properties": {"a": schema}, "$defs": {"s": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}});
        let schema = Schema::new(Some(&whole));
        let types = schema.types(&schema.key(&schema.root(), "a").pointers);
        let got = typed(raw, types, said_string, 100);
        assert_eq!((got.0.as_str(), got.1), (want, note));
    }

    #[test]
    fn raw_text_takes_the_type_of_its_key() {
        let mismatch = Some("arg_type_mismatch");
        check(json!({"type": "string"}), None, " 1 ", "\" 1 \"", None);
        check(json!({"type": "integer"}), None, " 1\n", "1", None);
        check(json!({"type": "integer"}), None, "1.0", "1.0", None);
        check(json!({"type": "integer"}), None, "abc", "\"abc\"", mismatch);
        check(json!({"type": "integer"}), None, "1.5", "1.5", mismatch);
        check(json!({"type": "boolean"}), None, "True", "true", None);
        check(json!({"type": "array"}), None, "['x', None]", "[\"x\", null]", None);
        check(json!({"type": ["string", "null"]}), None, "null", "null", None);
        check(json!({"type": ["string", "null"]}), None, "1", "\"1\"", None);
        check(json!({"type": "string", "nullable": true}), None, "null", "null", None);
        check(
            json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
            None,
            "{\"a\": 1}",
            "{\"a\": 1}",
            None,
        );
        check(
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            None,
            "123 Main St",
            "\"123 Main St\"",
            None,
        );
        check(json!({"anyOf": [{"type": "string"}, {}]}), None, "1", "1", None);
        check(json!({}), None, "1.50", "1.50", None);
        check(json!({}), None, "None", "\"None\"", None);
        check(json!({"enum": ["1", "2"]}), None, "1", "\"1\"", None);
        check(json!({"const": 1}), None, "1", "1", None);
        check(json!({"$ref": "#/$defs/s"}), None, "1", "\"1\"", None);
        check(json!({"$ref": "#/$defs/loop"}), None, "1", "1", None);
        check(
            json!({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]}),
            None,
            "1",
            "\"1\"",
            None,
        );
        check(json!({"type": "STRING"}), None, "1", "\"1\"", None);
    }

    #[test]
    fn what_the_markup_says_wins() {
        check(json!({"type": "integer"}), Some(true), "1", "1", Some("arg_coerced"));
        check(json!({"type": "integer"}), Some(true), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({}), Some(true), "1", "\"1\"", None);
        check(json!({"type": ["string", "integer"]}), Some(true), "1", "\"1\"", None);
        check(json!({"type": "integer"}), Some(false), "1", "1", None);
        check(json!({}), Some(false), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({"type": "string"}), Some(false), "one", "\"one\"", None);
    }

    #[test]
    fn keys_that_are_not_listed() {
        let unknown = |schema: Value| {
            let schema = Schema::new(Some(&schema));
            schema.key(&schema.root(), "b").unknown
        };
        assert!(unknown(json!({"properties": {"a": {}}})));
        assert!(unknown(json!({"properties": {"a": {}}, "additionalProperties": true})));
        assert!(!unknown(
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}})
        ));
        assert!(!unknown(json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]})));
        assert!(!unknown(json!({"type": "object"})));
        assert!(!unknown(json!(true)));
    }

    #[test]
    fn a_schema_that_explodes_is_left() {
        let mut schema = json!({"type": "string"});
        for _ in 0..60 {
            schema = json!({"anyOf": [schema.clone(), {"$ref": "#"}, {"$ref": "#/anyOf/0"}]});
        }
        let schema = Schema::new(Some(&schema));
        schema.types(&schema.root());
        schema.key(&schema.root(), "a");
    }
}
