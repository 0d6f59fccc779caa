//! Decides which objects a grammar closes.
//!
//! An object whose schema lists `properties` has no other members, unless `additionalProperties` or
//! `unevaluatedProperties` allows them. A value may have several schemas (`allOf`, `$ref`, `anyOf`,
//! …). The object then has the members that any of them lists, so none of these schemas can close
//! the object alone.
//!
//! In: the caller's schema. Out: where the object is closed, and the names that are allowed there.

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::json_schema::{TypeSet, entries, list, resolve, strings, type_names};

/// The maximum number of names and schemas that are visited to close all objects of a schema.
const MAX_VISITED: usize = 500_000;

/// The names that the schemas of one value list.
#[derive(Debug, Clone, Default)]
pub(super) struct ListedNames {
    /// The names in `properties` and `required`, each with the schema `true`.
    properties: Map<String, Value>,
    /// The patterns in `patternProperties`, each with the schema `true`.
    patterns: Map<String, Value>,
    /// Whether a schema has `properties`.
    lists: bool,
    /// Whether a schema says which other members are allowed, or cannot be read.
    is_decided: bool,
}

impl ListedNames {
    fn is_empty(&self) -> bool {
        !self.lists && self.properties.is_empty() && self.patterns.is_empty()
    }

    fn count(&self) -> usize {
        self.properties.len() + self.patterns.len()
    }

    /// Closes the object in this schema: only these names are allowed.
    pub(super) fn close(self, schema: &mut Map<String, Value>) {
        for (keyword, names) in
            [("properties", self.properties), ("patternProperties", self.patterns)]
        {
            if names.is_empty() {
                continue;
            }
            let listed = schema.entry(keyword).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(listed) = listed {
                for (name, any) in names {
                    listed.entry(name).or_insert(any);
                }
            }
        }
        schema.insert("additionalProperties".into(), Value::Bool(false));
    }
}

/// Which schemas of a value may close it.
#[derive(Debug, Clone)]
pub(super) enum ClosingScope {
    /// This schema. The names are those that the schemas around it list for the same value.
    Closes(Rc<ListedNames>),
    /// Not this schema: one around it closes the object, or it stays open.
    Part,
}

impl ClosingScope {
    /// The scope of a schema that is the only one of its value.
    pub(super) fn whole() -> ClosingScope {
        ClosingScope::Closes(Rc::default())
    }

    /// The schema of a value to which only the schemas around it apply.
    pub(super) fn any_value(&self) -> Value {
        match self {
            ClosingScope::Closes(around) if around.lists => {
                let mut schema = Map::new();
                ListedNames::clone(around).close(&mut schema);
                Value::Object(schema)
            }
            _ => Value::Bool(true),
        }
    }
}

/// How the object that a schema describes is closed.
pub(super) struct Closing {
    /// The names to close the object with, in this schema.
    pub(super) names: Option<ListedNames>,
    /// The scope of the items of `anyOf` and `oneOf`.
    pub(super) alternatives: ClosingScope,
    /// The scope of the items of `allOf`, and of the target of `$ref`.
    pub(super) parts: ClosingScope,
}

impl Closing {
    /// Nothing closes the object here.
    pub(super) const OPEN: Closing =
        Closing { names: None, alternatives: ClosingScope::Part, parts: ClosingScope::Part };
}

/// Plans how the objects of a document are closed.
pub(super) struct ClosingPlanner<'d> {
    document: &'d Value,
    /// How many more names and schemas may be visited.
    remaining: usize,
}

impl<'d> ClosingPlanner<'d> {
    pub(super) fn new(document: &'d Value) -> ClosingPlanner<'d> {
        ClosingPlanner { document, remaining: MAX_VISITED }
    }

    /// The plan for a schema. None if too many names are listed; the object then stays open.
    pub(super) fn plan(
        &mut self,
        schema: &'d Map<String, Value>,
        scope: &ClosingScope,
    ) -> Option<Closing> {
        let ClosingScope::Closes(around) = scope else { return Some(Closing::OPEN) };
        if !may_be_open(schema) || decides_others(schema) {
            return Some(Closing::OPEN);
        }
        let lists_names = LISTING.iter().any(|keyword| schema.contains_key(*keyword));
        let groups = ALTERNATIVES.iter().filter(|keyword| schema.contains_key(**keyword)).count();
        let parts = list(schema.get("allOf")).len();
        let is_reference = schema.contains_key("$ref");
        // A schema that only refers to another one leaves the decision to it.
        match (lists_names, groups, parts, is_reference) {
            (false, 0, 0, false) if around.is_empty() => return Some(Closing::OPEN),
            (false, 1, 0, false) => {
                return Some(Closing { alternatives: scope.clone(), ..Closing::OPEN });
            }
            (false, 0, 1, false) => return Some(Closing { parts: scope.clone(), ..Closing::OPEN }),
            (false, 0, 0, true) if around.is_empty() => {
                return Some(Closing { parts: scope.clone(), ..Closing::OPEN });
            }
            _ => {}
        }
        let mut fixed = ListedNames::clone(around);
        self.collect(schema, false, &mut fixed)?;
        if fixed.is_decided {
            return Some(Closing::OPEN);
        }
        if groups == 0 {
            return Some(Closing {
                names: Some(fixed).filter(|names| names.lists),
                ..Closing::OPEN
            });
        }
        let mut all = fixed.clone();
        for item in ALTERNATIVES.iter().flat_map(|keyword| list(schema.get(*keyword))) {
            self.collect_all(item, &mut all)?;
        }
        if groups > 1 {
            let closes = all.lists && !all.is_decided;
            return Some(Closing { names: closes.then_some(all), ..Closing::OPEN });
        }
        if fixed.lists && !all.is_decided && all.count() == fixed.count() {
            return Some(Closing { names: Some(fixed), ..Closing::OPEN });
        }
        // Each alternative has its own names.
        Some(Closing { alternatives: ClosingScope::Closes(Rc::new(fixed)), ..Closing::OPEN })
    }

    fn collect_all(&mut self, schema: &'d Value, found: &mut ListedNames) -> Option<()> {
        schema.as_object().map_or(Some(()), |schema| self.collect(schema, true, found))
    }

    /// Adds the names that this schema lists, and all schemas that apply to the same value. Without
    /// `alternatives`, its own `anyOf` and `oneOf` are left out. None if there are too many.
    fn collect(
        &mut self,
        schema: &'d Map<String, Value>,
        alternatives: bool,
        found: &mut ListedNames,
    ) -> Option<()> {
        let mut followed = HashSet::new();
        let mut pending = vec![schema];
        let mut is_first = true;
        while let Some(schema) = pending.pop() {
            let with_alternatives = alternatives || !std::mem::take(&mut is_first);
            found.lists |= schema.contains_key("properties")
                || schema.get("unevaluatedProperties") == Some(&Value::Bool(false));
            found.is_decided |= decides_others(schema);
            let before = found.count();
            self.names(schema, found)?;
            self.spend(1 + found.count() - before)?;
            let mut inner: Vec<&'d Value> = Vec::new();
            if let Some(reference) = schema.get("$ref") {
                match resolve(self.document, reference) {
                    Ok((pointer, target)) if followed.insert(pointer) => inner.push(target),
                    Ok(_) => {}
                    Err(_) => found.is_decided = true,
                }
            }
            found.is_decided |= ["$dynamicRef", "$recursiveRef"]
                .iter()
                .any(|reference| schema.contains_key(*reference));
            inner.extend(list(schema.get("allOf")));
            if with_alternatives {
                inner.extend(ALTERNATIVES.iter().flat_map(|keyword| list(schema.get(*keyword))));
            }
            inner.extend(CONDITIONS.iter().filter_map(|keyword| schema.get(*keyword)));
            let dependent = DEPENDENCIES.iter().flat_map(|keyword| entries(schema.get(*keyword)));
            inner.extend(dependent.map(|(_, schema)| schema));
            pending.extend(inner.into_iter().rev().filter_map(Value::as_object));
        }
        Some(())
    }

    /// Adds the names that this schema lists itself.
    fn names(&mut self, schema: &Map<String, Value>, found: &mut ListedNames) -> Option<()> {
        let dependent = DEPENDENCIES.iter().flat_map(|keyword| entries(schema.get(*keyword)));
        let dependent = dependent.flat_map(|(_, names)| strings(Some(names)));
        let names = entries(schema.get("properties")).map(|(name, _)| name.as_str());
        for name in names.chain(strings(schema.get("required"))).chain(dependent) {
            self.spend(1)?;
            found.properties.entry(name).or_insert(Value::Bool(true));
        }
        for (pattern, _) in entries(schema.get("patternProperties")) {
            self.spend(1)?;
            found.patterns.entry(pattern).or_insert(Value::Bool(true));
        }
        Some(())
    }

    fn spend(&mut self, count: usize) -> Option<()> {
        self.remaining = self.remaining.checked_sub(count)?;
        Some(())
    }
}

/// The keywords whose schemas are alternatives.
const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];
/// The keywords whose schema applies to the same value under a condition.
const CONDITIONS: [&str; 3] = ["if", "then", "else"];
/// The keywords whose schemas or names depend on a member of the same value.
const DEPENDENCIES: [&str; 3] = ["dependentSchemas", "dependentRequired", "dependencies"];
/// The keywords that list names, or that close the object themselves.
const LISTING: [&str; 10] = [
    "properties",
    "required",
    "patternProperties",
    "unevaluatedProperties",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
];

/// Whether the schema says which members that it does not list are allowed.
fn decides_others(schema: &Map<String, Value>) -> bool {
    schema.contains_key("additionalProperties")
        || schema.get("unevaluatedProperties").is_some_and(|others| others != &Value::Bool(false))
}

/// Whether a value of this schema may be an object with members that the schema does not spell out.
fn may_be_open(schema: &Map<String, Value>) -> bool {
    let is_object = |names: Vec<&str>| {
        names.into_iter().any(|name| TypeSet::named(name) == Some(TypeSet::OBJECT))
    };
    type_names(schema.get("type")).is_none_or(is_object)
        && !schema.contains_key("const")
        && !schema.contains_key("enum")
}
