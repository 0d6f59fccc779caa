//! The arguments of keywords, as lists and maps, and sets of JSON types.
//!
//! Each function takes the result of a lookup. An absent argument, or one of another type, is
//! empty.

use serde_json::{Map, Value};

/// The elements of an array.
pub(crate) fn list(argument: Option<&Value>) -> &[Value] {
    argument.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The strings of an array; other elements are skipped.
pub(crate) fn strings(argument: Option<&Value>) -> impl Iterator<Item = &str> {
    list(argument).iter().filter_map(Value::as_str)
}

/// The members of an object.
pub(crate) fn entries(argument: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    argument.and_then(Value::as_object).into_iter().flatten()
}

/// Whether `required` lists this name.
pub(crate) fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    strings(schema.get("required")).any(|required| required == name)
}

/// The names in `type`. A single string counts as a list of one. `None` unless it is a string or a
/// list of strings.
pub(crate) fn type_names(argument: Option<&Value>) -> Option<Vec<&str>> {
    match argument? {
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        name => name.as_str().map(|name| vec![name]),
    }
}

/// The only values that `const` or `enum` allow; None without either.
pub(crate) fn allowed_values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

/// Whether `enum` has values, but none of a type that the schema allows, so that nothing is valid.
/// Often the values are those of an array's items, and `enum` belongs into `items`.
pub(crate) fn has_values_of_other_types(schema: &Map<String, Value>) -> bool {
    let values = list(schema.get("enum"));
    let names = type_names(schema.get("type")).unwrap_or_default();
    let types = TypeSet::union(names.into_iter().map(TypeSet::named));
    let is_fit = |types: TypeSet| values.iter().any(|value| types.has(TypeSet::of(value)));
    !values.is_empty() && types.is_some_and(|types| !is_fit(types))
}

/// A set of JSON types. `number` includes `integer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeSet(u8);

impl TypeSet {
    pub(crate) const STRING: TypeSet = TypeSet(1);
    /// Numbers without a fraction: `1`, `1.0`.
    pub(crate) const INTEGER: TypeSet = TypeSet(2);
    /// Numbers with a fraction.
    pub(crate) const FRACTION: TypeSet = TypeSet(4);
    const NUMBER: TypeSet = TypeSet(2 | 4);
    pub(crate) const BOOLEAN: TypeSet = TypeSet(8);
    pub(crate) const NULL: TypeSet = TypeSet(16);
    pub(crate) const OBJECT: TypeSet = TypeSet(32);
    pub(crate) const ARRAY: TypeSet = TypeSet(64);

    /// The set that the `type` keyword means by this name.
    pub(crate) fn named(name: &str) -> Option<TypeSet> {
        Some(match name {
            "string" => TypeSet::STRING,
            "integer" => TypeSet::INTEGER,
            "number" => TypeSet::NUMBER,
            "boolean" => TypeSet::BOOLEAN,
            "null" => TypeSet::NULL,
            "object" => TypeSet::OBJECT,
            "array" => TypeSet::ARRAY,
            _ => return None,
        })
    }

    /// The set of this value's type. Every number is `NUMBER`.
    pub(crate) fn of(value: &Value) -> TypeSet {
        match value {
            Value::String(_) => TypeSet::STRING,
            Value::Number(_) => TypeSet::NUMBER,
            Value::Bool(_) => TypeSet::BOOLEAN,
            Value::Null => TypeSet::NULL,
            Value::Object(_) => TypeSet::OBJECT,
            Value::Array(_) => TypeSet::ARRAY,
        }
    }

    /// The union of these sets; `None` if one of them is unknown, or if there are no sets.
    pub(crate) fn union(sets: impl Iterator<Item = Option<TypeSet>>) -> Option<TypeSet> {
        sets.reduce(|all, types| Some(all?.or(types?)))?
    }

    /// The intersection of two sets, where `None` means unknown. If they have nothing in common,
    /// the first set is returned.
    pub(super) fn meet(types: Option<TypeSet>, other: Option<TypeSet>) -> Option<TypeSet> {
        let (Some(a), Some(b)) = (types, other) else { return types.or(other) };
        Some(if a.has(b) { TypeSet(a.0 & b.0) } else { a })
    }

    /// Whether the two sets have a type in common.
    pub(crate) fn has(self, other: TypeSet) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn or(self, other: TypeSet) -> TypeSet {
        TypeSet(self.0 | other.0)
    }
}

/// The name of a value's type. Every number is `number`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
