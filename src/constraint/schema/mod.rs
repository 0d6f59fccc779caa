//! A JSON schema, walked before any grammar sees it.
//!
//! In: the schema as the caller wrote it, and what to do with a keyword that cannot be enforced.
//! Out: a schema of nothing but keywords that llguidance 1.9.1 enforces, its references turned into
//! `#/$defs/rN`; or an error that names the place and the keyword. Nothing is left out silently.

mod disjoint;
mod ends;
mod table;

use serde_json::{Map, Value};

use crate::error::{Code, Error, Result};

pub(super) use disjoint::{disjoint, kind};

/// Levels of a schema.
const MAX_DEPTH: usize = 64;
/// Schemas in a schema, the values of its enums counted too.
const MAX_NODES: usize = 20_000;

/// What happens to a keyword that cannot be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// The request fails, before anything is generated.
    Strict,
    /// The keyword is dropped, and listed.
    Relax,
}

/// A keyword that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaxed {
    /// The function whose arguments it is about.
    pub tool: Option<String>,
    /// Where the schema stands in the request, and the JSON pointer in it:
    /// `tools[1].function.parameters: /properties/a`.
    pub path: String,
    /// The keyword.
    pub keyword: String,
    /// Why it cannot be enforced.
    pub reason: String,
}

/// Where a schema stands, what to do with what cannot be enforced, and what was done.
pub(super) struct SchemaReport<'a> {
    place: String,
    tool: Option<&'a str>,
    policy: Policy,
    relaxed: &'a mut Vec<Relaxed>,
}

impl<'a> SchemaReport<'a> {
    /// For the schema at this path of the request.
    pub(super) fn new(
        place: String,
        tool: Option<&'a str>,
        policy: Policy,
        relaxed: &'a mut Vec<Relaxed>,
    ) -> Self {
        SchemaReport { place, tool, policy, relaxed }
    }

    /// A keyword that cannot be enforced: an error, or one more line of the report.
    pub(super) fn refuse(&mut self, pointer: &str, keyword: &str, reason: &str) -> Result<()> {
        match self.policy {
            Policy::Strict => Err(self.error(pointer, keyword, reason)),
            Policy::Relax => {
                self.relaxed.push(Relaxed {
                    tool: self.tool.map(str::to_owned),
                    path: format!(
                        "{}: {}",
                        self.place,
                        if pointer.is_empty() { "/" } else { pointer }
                    ),
                    keyword: keyword.to_owned(),
                    reason: reason.to_owned(),
                });
                Ok(())
            }
        }
    }

    /// The error whatever the policy.
    pub(super) fn error(&self, pointer: &str, keyword: &str, reason: &str) -> Error {
        let tool = self.tool.map(|tool| format!(" ({tool})")).unwrap_or_default();
        let path =
            if keyword.is_empty() { pointer.to_owned() } else { format!("{pointer}/{keyword}") };
        let at = if path.is_empty() { "/" } else { &path };
        let error =
            Error::new(Code::SchemaUnsupported, format!("{}{tool}: {at}: {reason}", self.place));
        let error = match self.tool {
            Some(tool) => error.with("tool", tool),
            None => error,
        };
        error.with("path", path).with("keyword", keyword).with("reason", reason)
    }
}

/// A schema that can be enforced.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CheckedSchema {
    /// The schema, without its definitions.
    pub(super) root: Value,
    /// What `#/$defs/rN` refers to, with the pointer where it stood.
    pub(super) targets: Vec<(String, Value)>,
}

impl CheckedSchema {
    /// The schema as llguidance takes it.
    pub(super) fn json(&self) -> Value {
        self.json_of(&self.root)
    }

    /// A part of the schema, with what it may refer to.
    pub(super) fn json_of(&self, part: &Value) -> Value {
        let mut schema = match part {
            Value::Object(schema) => schema.clone(),
            // llguidance looks for its options in an object.
            Value::Bool(false) => Map::from_iter([("enum".to_owned(), Value::Array(Vec::new()))]),
            _ => Map::new(),
        };
        if !self.targets.is_empty() && refers(part) {
            let targets = self
                .targets
                .iter()
                .enumerate()
                .map(|(index, (_, target))| (format!("r{index}"), target.clone()));
            schema.insert("$defs".into(), Value::Object(targets.collect()));
        }
        Value::Object(schema)
    }

    /// What a checked reference refers to: its number, the pointer where it stood, and the schema.
    pub(super) fn target(&self, reference: &str) -> Option<(usize, &str, &Value)> {
        let index: usize = reference.strip_prefix("#/$defs/r")?.parse().ok()?;
        let (pointer, target) = self.targets.get(index)?;
        Some((index, pointer, target))
    }
}

fn refers(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.contains_key("$ref") || members.values().any(refers),
        Value::Array(items) => items.iter().any(refers),
        _ => false,
    }
}

/// Walks a schema.
pub(super) fn check(schema: &Value, report: &mut SchemaReport) -> Result<CheckedSchema> {
    if let Some(too) = too_large(schema) {
        report.refuse("", "", too)?;
        return Ok(CheckedSchema { root: Value::Object(Map::new()), targets: Vec::new() });
    }
    let mut walk = SchemaWalk { document: schema, report, targets: Vec::new() };
    let root = walk.schema(schema, "")?;
    let mut done = Vec::new();
    while done.len() < walk.targets.len() {
        let pointer = walk.targets[done.len()].clone();
        let target = schema.pointer(&pointer).unwrap_or(&Value::Null);
        let checked = walk.schema(target, &pointer)?;
        done.push((pointer, checked));
    }
    let mut checked = CheckedSchema { root, targets: done };
    while let Some(index) = ends::endless(&checked) {
        let pointer = checked.targets[index].0.clone();
        report.refuse(&pointer, "", "refers to itself, and no value of it can end")?;
        checked.targets[index].1 = Value::Object(Map::new());
    }
    Ok(checked)
}

fn too_large(schema: &Value) -> Option<&'static str> {
    let mut nodes = 0;
    let mut open = vec![(schema, 0)];
    while let Some((value, depth)) = open.pop() {
        nodes += 1;
        // A level of a schema is mostly two of JSON: `properties` and a name.
        if depth > 2 * MAX_DEPTH {
            return Some("is nested too deeply");
        }
        if nodes > MAX_NODES {
            return Some("is too large");
        }
        match value {
            Value::Object(members) => open.extend(members.values().map(|value| (value, depth + 1))),
            Value::Array(items) => open.extend(items.iter().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    None
}

struct SchemaWalk<'w, 'a> {
    document: &'w Value,
    report: &'w mut SchemaReport<'a>,
    targets: Vec<String>,
}

impl SchemaWalk<'_, '_> {
    fn schema(&mut self, schema: &Value, at: &str) -> Result<Value> {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => {
                self.report.refuse(at, "", "a schema is an object or a boolean")?;
                return Ok(Value::Bool(true));
            }
        };
        let mut kept = Map::new();
        for (keyword, value) in members {
            if let Some(value) = self.keyword(members, keyword, value, at)? {
                // Drafts before 2020-12 write `prefixItems` and `items` as `items` and
                // `additionalItems`.
                let keyword = match (keyword.as_str(), value.is_array()) {
                    ("items", true) => "prefixItems",
                    ("additionalItems", _) => "items",
                    // Its alternatives exclude each other: that was checked.
                    ("oneOf", _) => "anyOf",
                    (keyword, _) => keyword,
                };
                kept.insert(keyword.to_owned(), value);
            }
        }
        for (least, most) in
            [("minLength", "maxLength"), ("minItems", "maxItems"), ("minimum", "maximum")]
        {
            let number = |keyword| kept.get(keyword).and_then(Value::as_f64);
            if matches!((number(least), number(most)), (Some(least), Some(most)) if least > most) {
                self.report.refuse(at, most, "no value is large enough and small enough")?;
                kept.shift_remove(most);
            }
        }
        Ok(Value::Object(kept))
    }

    /// The keyword as it can be enforced; None leaves it out.
    fn keyword(
        &mut self,
        members: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        at: &str,
    ) -> Result<Option<Value>> {
        if let Some(reason) = table::refused(members, keyword, value) {
            self.report.refuse(at, keyword, reason)?;
            return Ok(None);
        }
        let at = format!("{at}/{}", keyword.replace('~', "~0").replace('/', "~1"));
        Ok(Some(match table::holds(keyword, value) {
            table::Holds::Nothing => return Ok(None),
            table::Holds::Plain => value.clone(),
            table::Holds::Schema => self.schema(value, &at)?,
            table::Holds::List => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.schema(item, &format!("{at}/{index}")));
                let items = items.collect::<Result<Vec<_>>>()?;
                if keyword == "oneOf" && !self.exclusive(&items) {
                    let (at, reason) =
                        (at.trim_end_matches("/oneOf"), "its alternatives may overlap");
                    self.report.refuse(at, keyword, reason)?;
                }
                if matches!(keyword, "oneOf" | "anyOf")
                    && items.iter().all(|item| item == &Value::Bool(false))
                {
                    self.report.refuse(&at, "", "no alternative is possible")?;
                    return Ok(None);
                }
                Value::Array(items)
            }
            table::Holds::Map => {
                let members = value.as_object().into_iter().flatten().map(|(name, schema)| {
                    let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                    Ok((name.clone(), self.schema(schema, &at)?))
                });
                Value::Object(members.collect::<Result<_>>()?)
            }
            table::Holds::Reference => match self.reference(value) {
                Ok(reference) => reference,
                Err(reason) => {
                    self.report.refuse(at.trim_end_matches("/$ref"), keyword, reason)?;
                    return Ok(None);
                }
            },
        }))
    }

    fn exclusive(&self, items: &[Value]) -> bool {
        items
            .iter()
            .enumerate()
            .all(|(index, item)| items[index + 1..].iter().all(|other| disjoint(item, other)))
    }

    fn reference(&mut self, value: &Value) -> Result<Value, &'static str> {
        let pointer = match value.as_str() {
            Some("#" | "#/") => "",
            Some(text) => match text.strip_prefix('#') {
                Some(pointer) if pointer.starts_with('/') => pointer,
                Some(_) => return Err("refers to an anchor; only `#/…` is followed"),
                None => return Err("refers to another document"),
            },
            None => return Err("is not a string"),
        };
        if self.document.pointer(pointer).is_none() {
            return Err("refers to nothing");
        }
        let index = match self.targets.iter().position(|target| target == pointer) {
            Some(index) => index,
            None => {
                self.targets.push(pointer.to_owned());
                self.targets.len() - 1
            }
        };
        Ok(format!("#/$defs/r{index}").into())
    }
}
