//! A checked schema, and the report of the keywords that it lost.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};

/// The maximum number of dropped keywords that a reply reports.
const MAX_RELAXED: usize = 256;
/// The maximum number of characters in a reason.
const MAX_REASON: usize = 200;

/// What to do with a keyword that cannot be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::constraint) enum Policy {
    /// The request fails before anything is generated.
    Strict,
    /// The keyword is dropped and reported.
    Relax,
}

impl Policy {
    /// The policy for a schema with this `strict`.
    pub(in crate::constraint) fn of(strict: bool) -> Policy {
        if strict { Policy::Strict } else { Policy::Relax }
    }
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
        let message = match keyword.as_str() {
            "" => format!("{path}{tool}: not enforced: {reason}"),
            keyword => format!("{path}{tool}: {keyword} is not enforced: {reason}"),
        };
        Diagnostic::new("constraint_relaxed", message)
    }
}

/// Collects the dropped keywords of a schema. Knows its path, and the policy for keywords that
/// cannot be enforced.
pub(in crate::constraint) struct SchemaReport<'a> {
    path: String,
    tool: Option<&'a str>,
    policy: Policy,
    relaxed: &'a mut Vec<Relaxed>,
}

impl<'a> SchemaReport<'a> {
    /// Creates a report for the schema at this path of the request.
    pub(in crate::constraint) fn new(
        path: String,
        tool: Option<&'a str>,
        policy: Policy,
        relaxed: &'a mut Vec<Relaxed>,
    ) -> Self {
        SchemaReport { path, tool, policy, relaxed }
    }

    /// Refuses a keyword. Depending on the policy, that is an error or an entry in the report.
    pub(in crate::constraint) fn refuse(
        &mut self,
        pointer: &str,
        keyword: &str,
        reason: &str,
    ) -> Result<()> {
        match self.policy {
            Policy::Strict => Err(self.error(pointer, keyword, reason)),
            Policy::Relax => {
                self.relax(pointer, keyword, reason);
                Ok(())
            }
        }
    }

    /// Reports that a keyword is dropped, regardless of the policy.
    pub(in crate::constraint) fn relax(&mut self, pointer: &str, keyword: &str, reason: &str) {
        if self.relaxed.len() < MAX_RELAXED {
            self.report(pointer, keyword, reason);
        } else if self.relaxed.len() == MAX_RELAXED {
            self.report("", "", "further keywords are not listed");
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
    pub(in crate::constraint) fn refuse_in_encoding(
        &mut self,
        pointer: &str,
        keyword: &str,
        problem: &str,
    ) -> Result<()> {
        self.refuse(pointer, keyword, &in_encoding(problem))
    }

    /// Reports that an annotation is dropped, because the model's argument encoding cannot express
    /// it.
    pub(in crate::constraint) fn relax_in_encoding(
        &mut self,
        pointer: &str,
        keyword: &str,
        problem: &str,
    ) {
        self.relax(pointer, keyword, &in_encoding(problem));
    }

    /// Refuses a property whose key the format cannot carry.
    pub(in crate::constraint) fn refuse_key(&mut self, pointer: &str, key: &str) -> Result<()> {
        let problem = format!("the key {key:?} cannot be written in this model's call format");
        self.refuse(pointer, "", &format!("{problem}; rename it"))
    }

    /// The error for a keyword, regardless of the policy.
    pub(in crate::constraint) fn error(&self, pointer: &str, keyword: &str, reason: &str) -> Error {
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

fn in_encoding(problem: &str) -> String {
    format!("{problem} in this model's argument encoding")
}

/// A schema that can be enforced.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::constraint) struct CheckedSchema {
    /// The schema, without its definitions.
    pub(in crate::constraint) root: Value,
    /// The targets of `#/$defs/rN`. Each has its pointer in the caller's schema.
    pub(in crate::constraint) targets: Vec<(String, Value)>,
}

impl CheckedSchema {
    /// The schema as JSON for llguidance.
    pub(in crate::constraint) fn json(&self) -> Value {
        self.json_of(&self.root)
    }

    /// A part of the schema as JSON, with the targets of its references.
    pub(in crate::constraint) fn json_of(&self, part: &Value) -> Value {
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
    pub(in crate::constraint) fn target(&self, reference: &str) -> Option<(usize, &str, &Value)> {
        let index: usize = reference.strip_prefix("#/$defs/r")?.parse().ok()?;
        let (pointer, target) = self.targets.get(index)?;
        Some((index, pointer, target))
    }
}

/// Runs a function that recurses with the nesting of a schema. A host's thread may have only 64 KiB
/// of stack, and a chain of references can be as long as the schema.
pub(in crate::constraint) fn with_stack<T>(run: impl FnOnce() -> T) -> T {
    /// If less stack than this is left, `run` gets a new stack.
    const RED_ZONE: usize = 128 << 10;
    const MORE_STACK: usize = 1 << 20;
    stacker::maybe_grow(RED_ZONE, MORE_STACK, run)
}
