//! The schema of a tool's arguments -> the types and names it allows for each value.
//!
//! Lookups do not fail: what the schema does not say, or says in an unsupported way, is unknown.
//! `validate` checks values against the rest of the schema.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use super::keywords::{TypeSet, entries, list, strings};
use super::pointer::{child, local_pointer};

/// The maximum length of a pointer to the schema of a member, in bytes. A member with a longer one
/// is unknown, as a name of any length would otherwise be copied for each member below it.
const MAX_POINTER: usize = 4096;
/// The maximum number of schemas that one lookup visits.
const BRANCHES: usize = 64;
/// The letters by which names are alike.
const BEGINNING: usize = 3;
/// The number of names or values that are looked at each time.
const FEW: usize = 16;
/// The keywords that can allow other members than the listed ones.
const OPENING: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// The keywords whose schemas may list more members, and are not followed.
const UNFOLLOWED: [&str; 5] = ["then", "else", "dependentSchemas", "dependencies", "$dynamicRef"];
/// The deepest nesting of `$ref`, `anyOf`, `oneOf` and `allOf`.
const DEPTH: usize = 16;

/// The schemas that apply to one value of the arguments, as JSON pointers into the tool's schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct SchemaPointers(Vec<String>);

impl SchemaPointers {
    /// Whether no schema applies.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What the schemas of an object say about one of its members.
#[derive(Debug, Clone)]
pub(crate) struct SchemaMember {
    pub(crate) pointers: SchemaPointers,
    /// Whether a schema lists names, this one is not among them, and no schema allows others.
    pub(crate) unknown: bool,
}

/// The schema of a tool's arguments. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ArgumentsSchema {
    /// `None` allows anything.
    schema: Option<Arc<Value>>,
    /// The names in `required`, by the pointer of their schema.
    required: Arc<Mutex<HashMap<String, HashSet<String>>>>,
    /// The types of the values in a long `enum`, by its address.
    value_types: Arc<Mutex<HashMap<usize, Option<TypeSet>>>>,
    /// The first letters of the names of the parameters.
    beginnings: Arc<OnceLock<HashSet<String>>>,
}

impl ArgumentsSchema {
    pub(crate) fn new(schema: Option<&Value>) -> ArgumentsSchema {
        let schema = schema.map(|schema| Arc::new(schema.clone()));
        ArgumentsSchema { schema, ..ArgumentsSchema::default() }
    }

    /// The schema of the arguments object.
    pub(crate) fn root(&self) -> SchemaPointers {
        SchemaPointers(if self.schema.is_some() { vec![String::new()] } else { Vec::new() })
    }

    /// What the schema says about a parameter.
    pub(crate) fn parameter(&self, name: &str) -> SchemaMember {
        self.member(&self.root(), name)
    }

    pub(crate) fn member(&self, at: &SchemaPointers, name: &str) -> SchemaMember {
        let (mut found, mut further) = (Vec::new(), Vec::new());
        let (mut listed, mut open) = (false, false);
        for (pointer, schema) in self.branches(at) {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                listed = true;
                if pointer.len() + name.len() > MAX_POINTER {
                    open = true;
                } else if properties.contains_key(name) {
                    found.push(child(&format!("{pointer}/properties"), name));
                }
            }
            if schema.get("additionalProperties").is_some_and(Value::is_object) {
                further.push(format!("{pointer}/additionalProperties"));
            }
            open |= schema.get("patternProperties").is_some()
                || OPENING.iter().any(|keyword| {
                    schema.get(*keyword).is_some_and(|others| others != &Value::Bool(false))
                });
            open |= self.requires(&pointer, schema, name);
            open |= UNFOLLOWED.iter().any(|keyword| schema.get(*keyword).is_some());
            open |= schema.get("$ref").is_some() && reference(schema).is_none();
        }
        let unknown = listed && !open && found.is_empty() && further.is_empty();
        SchemaMember {
            pointers: SchemaPointers(if found.is_empty() { further } else { found }),
            unknown,
        }
    }

    /// The schemas of an array's items.
    pub(crate) fn items(&self, at: &SchemaPointers) -> SchemaPointers {
        let with_items = self
            .branches(at)
            .into_iter()
            .filter(|(_, schema)| schema.get("items").is_some_and(Value::is_object));
        SchemaPointers(with_items.map(|(pointer, _)| format!("{pointer}/items")).collect())
    }

    /// The types that these schemas allow; None if unknown.
    pub(crate) fn types(&self, at: &SchemaPointers) -> Option<TypeSet> {
        let mut budget = BRANCHES;
        let mut all: Option<TypeSet> = None;
        for pointer in &at.0 {
            let types = self.types_of(self.schema_at(pointer)?, 0, &mut budget)?;
            all = Some(all.map_or(types, |all| all.or(types)));
        }
        all
    }

    /// The names of the required parameters.
    pub(crate) fn required(&self) -> Vec<String> {
        let branches = self.branches(&self.root());
        let required = branches.iter().flat_map(|(_, schema)| strings(schema.get("required")));
        required.map(str::to_owned).collect()
    }

    /// Whether the name of a parameter begins with the same letters as this one, as many as
    /// [`BEGINNING`]. The names are read once.
    pub(crate) fn has_parameter_like(&self, name: &str) -> bool {
        let beginning = |name: &str| name.chars().take(BEGINNING).collect::<String>();
        let beginnings = self.beginnings.get_or_init(|| {
            let branches = self.branches(&self.root());
            let names = branches.iter().flat_map(|(_, schema)| entries(schema.get("properties")));
            names.map(|(name, _)| beginning(name)).collect()
        });
        beginnings.contains(&beginning(name))
    }

    /// The parameter that a value without a name is assigned to: the only required one, or the only
    /// one.
    pub(crate) fn only_parameter(&self) -> Option<String> {
        let (mut required, mut properties) = (Vec::new(), Vec::new());
        for (_, schema) in self.branches(&self.root()) {
            required.extend(strings(schema.get("required")));
            properties.extend(entries(schema.get("properties")).map(|(name, _)| name));
        }
        match (required.as_slice(), properties.as_slice()) {
            ([name], _) => Some((*name).to_owned()),
            ([], [name]) => Some((*name).clone()),
            _ => None,
        }
    }

    /// Whether the schema at a pointer requires this name. The names are read once.
    fn requires(&self, pointer: &str, schema: &Value, name: &str) -> bool {
        let names = list(schema.get("required"));
        if names.len() <= FEW {
            return names.iter().any(|required| required == name);
        }
        let mut all = self.required.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(pointer) {
            let names = strings(schema.get("required")).map(str::to_owned).collect();
            all.insert(pointer.to_owned(), names);
        }
        all.get(pointer).is_some_and(|names| names.contains(name))
    }

    fn schema_at(&self, pointer: &str) -> Option<&Value> {
        self.schema.as_deref()?.pointer(pointer)
    }

    /// These schemas, and the schemas that they refer to or combine.
    fn branches(&self, at: &SchemaPointers) -> Vec<(String, &Value)> {
        let mut pending: Vec<String> = at.0.iter().rev().cloned().collect();
        let mut seen = HashSet::new();
        let mut branches = Vec::new();
        while let Some(pointer) = pending.pop() {
            if seen.len() == BRANCHES || !seen.insert(pointer.clone()) {
                continue;
            }
            let Some(schema) = self.schema_at(&pointer) else { continue };
            for keyword in ["allOf", "oneOf", "anyOf"] {
                let count = list(schema.get(keyword)).len().min(BRANCHES);
                pending
                    .extend((0..count).rev().map(|index| format!("{pointer}/{keyword}/{index}")));
            }
            pending.extend(reference(schema).map(str::to_owned));
            branches.push((pointer, schema));
        }
        branches
    }

    /// The types of the values of an `enum`. Those of many values are found once.
    fn types_of_values(&self, values: &[Value]) -> Option<TypeSet> {
        let types = || TypeSet::union(values.iter().map(|value| Some(TypeSet::of(value))));
        if values.len() <= FEW {
            return types();
        }
        let mut all = self.value_types.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(values.as_ptr().addr()).or_insert_with(types)
    }

    fn types_of(&self, schema: &Value, depth: usize, budget: &mut usize) -> Option<TypeSet> {
        if depth == DEPTH || *budget == 0 {
            return None;
        }
        *budget -= 1;
        // Some callers write `"STRING"`.
        let named = |name: &str| TypeSet::named(&name.to_ascii_lowercase());
        let mut types = match schema.get("type") {
            Some(Value::String(name)) => named(name),
            names => TypeSet::union(list(names).iter().map(|name| named(name.as_str()?))),
        };
        let mut restrict = |other| types = TypeSet::meet(types, other);
        if let Some(value) = schema.get("const") {
            restrict(Some(TypeSet::of(value)));
        }
        restrict(self.types_of_values(list(schema.get("enum"))));
        if let Some(target) = reference(schema).and_then(|pointer| self.schema_at(pointer)) {
            restrict(self.types_of(target, depth + 1, budget));
        }
        for keyword in ["anyOf", "oneOf"] {
            let branches = list(schema.get(keyword)).iter();
            restrict(TypeSet::union(
                branches.map(|branch| self.types_of(branch, depth + 1, budget)),
            ));
        }
        for branch in list(schema.get("allOf")) {
            restrict(self.types_of(branch, depth + 1, budget));
        }
        let nullable = schema.get("nullable").is_some_and(|value| value == &Value::Bool(true));
        if nullable { types.map(|types| types.or(TypeSet::NULL)) } else { types }
    }
}

/// The pointer of a local `$ref`.
fn reference(schema: &Value) -> Option<&str> {
    local_pointer(schema.get("$ref")?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_outside_the_list() {
        let unknown = |schema: Value| {
            let schema = ArgumentsSchema::new(Some(&schema));
            schema.member(&schema.root(), "b").unknown
        };
        assert!(unknown(json!({"properties": {"a": {}}})));
        assert!(unknown(json!({"properties": {"a": {}}, "additionalProperties": false})));
        assert!(!unknown(json!({"properties": {"a": {}}, "additionalProperties": true})));
        assert!(!unknown(json!({"properties": {"a": {}}, "unevaluatedProperties": {}})));
        assert!(!unknown(json!({"properties": {"a": {}}, "required": ["b"]})));
        assert!(!unknown(
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}})
        ));
        assert!(!unknown(json!({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]})));
        assert!(!unknown(json!({"properties": {"a": {}}, "then": {"properties": {"b": {}}}})));
        assert!(!unknown(json!({"properties": {"a": {}}, "$ref": "https://example.com/"})));
        assert!(!unknown(json!({"type": "object"})));
        assert!(!unknown(json!(true)));
    }

    #[test]
    fn the_work_for_a_recursive_schema_is_bounded() {
        let mut schema = json!({"type": "string"});
        for _ in 0..60 {
            schema = json!({"anyOf": [schema.clone(), {"$ref": "#"}, {"$ref": "#/anyOf/0"}]});
        }
        let schema = ArgumentsSchema::new(Some(&schema));
        schema.types(&schema.root());
        schema.member(&schema.root(), "a");
    }
}
