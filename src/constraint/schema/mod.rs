//! Converts a caller's JSON Schema to one that llguidance 1.9.1 enforces completely.
//!
//! In: the schema as the caller wrote it, and the policy for keywords that cannot be enforced. Out:
//! a schema with only enforceable keywords, whose references are rewritten to `#/$defs/rN`, or an
//! error with the path and the keyword. Every dropped keyword is reported.

mod disjoint;
mod keywords;
mod recursion;
mod size;

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};

use crate::json_schema::{child, entries, list, resolve};
use disjoint::disjoint;
use keywords::KeywordArgument;
use recursion::EndlessTargets;

use super::with_stack;

/// The maximum number of dropped keywords that a reply reports.
const MAX_RELAXED: usize = 256;
/// The maximum number of characters in a reason.
const MAX_REASON: usize = 200;
/// The maximum number of comparisons between alternatives.
const MAX_COMPARISONS: usize = 1_000_000;

/// What to do with a keyword that cannot be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// The request fails before anything is generated.
    Strict,
    /// The keyword is dropped and reported.
    Relax,
}

/// A keyword that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaxed {
    /// The name of the tool whose arguments the schema describes.
    pub tool: Option<String>,
    /// The path of the schema in the request, and the JSON pointer into the schema:
    /// `tools[1].function.parameters: /properties/a`.
    pub path: String,
    /// The keyword.
    pub keyword: String,
    /// Why it cannot be enforced.
    pub reason: String,
}

/// `{"code","message"}`.
impl From<&Relaxed> for Diagnostic {
    fn from(relaxed: &Relaxed) -> Diagnostic {
        let Relaxed { tool, path, keyword, reason } = relaxed;
        let tool = tool.as_ref().map(|tool| format!(" ({tool})")).unwrap_or_default();
        let message = format!("{path}{tool}: {keyword} is not enforced: {reason}");
        Diagnostic::new("constraint_relaxed", message)
    }
}

/// Collects the dropped keywords of a schema. Knows its path, and the policy for keywords that
/// cannot be enforced.
pub(super) struct SchemaReport<'a> {
    path: String,
    tool: Option<&'a str>,
    policy: Policy,
    relaxed: &'a mut Vec<Relaxed>,
}

impl<'a> SchemaReport<'a> {
    /// Creates a report for the schema at this path of the request.
    pub(super) fn new(
        path: String,
        tool: Option<&'a str>,
        policy: Policy,
        relaxed: &'a mut Vec<Relaxed>,
    ) -> Self {
        SchemaReport { path, tool, policy, relaxed }
    }

    /// Refuses a keyword. Depending on the policy, that is an error or an entry in the report.
    pub(super) fn refuse(&mut self, pointer: &str, keyword: &str, reason: &str) -> Result<()> {
        match self.policy {
            Policy::Strict => Err(self.error(pointer, keyword, reason)),
            Policy::Relax => {
                if self.relaxed.len() < MAX_RELAXED {
                    self.report(pointer, keyword, reason);
                } else if self.relaxed.len() == MAX_RELAXED {
                    self.report("", "", "further keywords are not listed");
                }
                Ok(())
            }
        }
    }

    fn report(&mut self, pointer: &str, keyword: &str, reason: &str) {
        let pointer = if pointer.is_empty() { "/" } else { pointer };
        self.relaxed.push(Relaxed {
            tool: self.tool.map(str::to_owned),
            path: format!("{}: {pointer}", self.path),
            keyword: keyword.to_owned(),
            reason: reason.chars().take(MAX_REASON).collect(),
        });
    }

    /// Refuses a keyword that the model's argument encoding cannot express.
    pub(super) fn refuse_in_encoding(
        &mut self,
        pointer: &str,
        keyword: &str,
        problem: &str,
    ) -> Result<()> {
        self.refuse(pointer, keyword, &format!("{problem} in this model's argument encoding"))
    }

    /// The error for a keyword, regardless of the policy.
    pub(super) fn error(&self, pointer: &str, keyword: &str, reason: &str) -> Error {
        let tool = self.tool.map(|tool| format!(" ({tool})")).unwrap_or_default();
        let path =
            if keyword.is_empty() { pointer.to_owned() } else { format!("{pointer}/{keyword}") };
        let shown = if path.is_empty() { "/" } else { &path };
        let error =
            Error::new(Code::SchemaUnsupported, format!("{}{tool}: {shown}: {reason}", self.path));
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
    /// The targets of `#/$defs/rN`. Each has its pointer in the caller's schema.
    pub(super) targets: Vec<(String, Value)>,
}

impl CheckedSchema {
    /// The schema as JSON for llguidance.
    pub(super) fn json(&self) -> Value {
        self.json_of(&self.root)
    }

    /// A part of the schema as JSON, with the targets of its references.
    pub(super) fn json_of(&self, part: &Value) -> Value {
        let mut schema = match part {
            Value::Object(schema) => schema.clone(),
            // llguidance reads its options from an object, so the schema must not be a boolean.
            Value::Bool(false) => Map::from_iter([("enum".to_owned(), Value::Array(Vec::new()))]),
            _ => Map::new(),
        };
        let used = self.used_by(part);
        if !used.is_empty() {
            let targets = used.into_iter().map(|index| {
                let (_, target) = &self.targets[index];
                (format!("r{index}"), target.clone())
            });
            schema.insert("$defs".into(), Value::Object(targets.collect()));
        }
        Value::Object(schema)
    }

    /// The targets that a part reaches, in order of their index.
    fn used_by(&self, part: &Value) -> BTreeSet<usize> {
        let mut used = BTreeSet::new();
        if self.targets.is_empty() {
            return used;
        }
        let mut open = vec![part];
        while let Some(schema) = open.pop() {
            match schema {
                Value::Object(members) => {
                    let reference = members.get("$ref").and_then(Value::as_str);
                    if let Some((index, _, target)) = reference.and_then(|text| self.target(text))
                        && used.insert(index)
                    {
                        open.push(target);
                    }
                    open.extend(members.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        used
    }

    /// The target of a checked reference: its index, its pointer, and its schema.
    pub(super) fn target(&self, reference: &str) -> Option<(usize, &str, &Value)> {
        let index: usize = reference.strip_prefix("#/$defs/r")?.parse().ok()?;
        let (pointer, target) = self.targets.get(index)?;
        Some((index, pointer, target))
    }
}

/// Checks a schema, keyword by keyword.
pub(super) fn check(schema: &Value, report: &mut SchemaReport) -> Result<CheckedSchema> {
    if let Some((pointer, excess)) = size::excess(schema) {
        report.refuse(&pointer, "", &excess)?;
        return Ok(CheckedSchema { root: Value::Object(Map::new()), targets: Vec::new() });
    }
    let mut walk = SchemaWalk {
        document: schema,
        report,
        targets: Vec::new(),
        indices: HashMap::new(),
        comparisons: MAX_COMPARISONS,
    };
    let root = walk.schema(schema, "")?;
    let mut done = Vec::new();
    while done.len() < walk.targets.len() {
        let pointer = walk.targets[done.len()].clone();
        let target = schema.pointer(&pointer).unwrap_or(&Value::Null);
        let checked = walk.schema(target, &pointer)?;
        done.push((pointer, checked));
    }
    let mut checked = CheckedSchema { root, targets: done };
    let mut endless = EndlessTargets::new(&checked);
    while let Some(index) = endless.next() {
        let pointer = checked.targets[index].0.clone();
        report.refuse(&pointer, "", "refers to itself, and has no finite value")?;
        checked.targets[index].1 = Value::Object(Map::new());
    }
    Ok(checked)
}

struct SchemaWalk<'w, 'a> {
    document: &'w Value,
    report: &'w mut SchemaReport<'a>,
    targets: Vec<String>,
    /// The index of each target, by pointer.
    indices: HashMap<String, usize>,
    /// How many comparisons of alternatives are left.
    comparisons: usize,
}

impl SchemaWalk<'_, '_> {
    fn schema(&mut self, schema: &Value, at: &str) -> Result<Value> {
        with_stack(|| self.checked(schema, at))
    }

    fn checked(&mut self, schema: &Value, at: &str) -> Result<Value> {
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
                // Before draft 2020-12, `prefixItems` and `items` were called `items` and
                // `additionalItems`.
                let keyword = match (keyword.as_str(), value.is_array()) {
                    ("items", true) => "prefixItems",
                    ("additionalItems", _) => "items",
                    // The alternatives exclude each other, which is checked below.
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
                self.report.refuse(at, most, "contradicts the lower bound")?;
                kept.shift_remove(most);
            }
        }
        Ok(Value::Object(kept))
    }

    /// The enforceable argument of a keyword; None drops the keyword.
    fn keyword(
        &mut self,
        members: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        at: &str,
    ) -> Result<Option<Value>> {
        if let Some(reason) = keywords::refusal(members, keyword, value) {
            self.report.refuse(at, keyword, reason)?;
            return Ok(None);
        }
        let at = child(at, keyword);
        Ok(Some(match keywords::argument_of(keyword, value) {
            KeywordArgument::Ignored => return Ok(None),
            KeywordArgument::Plain => value.clone(),
            KeywordArgument::Schema => self.schema(value, &at)?,
            KeywordArgument::List => {
                let items = list(Some(value)).iter().enumerate();
                let items = items
                    .map(|(index, item)| self.schema(item, &format!("{at}/{index}")))
                    .collect::<Result<Vec<_>>>()?;
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
            KeywordArgument::Map => {
                let members = entries(Some(value)).map(|(name, schema)| {
                    Ok((name.clone(), self.schema(schema, &child(&at, name))?))
                });
                Value::Object(members.collect::<Result<_>>()?)
            }
            KeywordArgument::Reference => match self.reference(value) {
                Ok(reference) => reference,
                Err(reason) => {
                    self.report.refuse(at.trim_end_matches("/$ref"), keyword, reason)?;
                    return Ok(None);
                }
            },
        }))
    }

    fn exclusive(&mut self, items: &[Value]) -> bool {
        let comparisons = &mut self.comparisons;
        let mut items = items.iter();
        while let Some(item) = items.next() {
            if !items.as_slice().iter().all(|other| disjoint(item, other, comparisons)) {
                return false;
            }
        }
        true
    }

    fn reference(&mut self, value: &Value) -> Result<Value, &'static str> {
        let (pointer, _) = resolve(self.document, value)?;
        let index = match self.indices.get(pointer) {
            Some(index) => *index,
            None => {
                self.targets.push(pointer.to_owned());
                self.indices.insert(pointer.to_owned(), self.targets.len() - 1);
                self.targets.len() - 1
            }
        };
        Ok(format!("#/$defs/r{index}").into())
    }
}
