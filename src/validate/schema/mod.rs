//! Checks one value against one schema: JSON Schema 2020-12, and the spellings of older drafts.
//!
//! Work, depth and the number of problems are bounded, because schemas are untrusted: twenty lines
//! of `allOf` can ask for a million checks of one value. An undecided keyword counts as neither
//! valid nor invalid, wherever it occurs. As in the standard, `format` and the `content…` keywords
//! are annotations. References are followed only inside the schema's own document.

mod array;
mod object;
mod unevaluated;
mod values;

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::pattern::SchemaPattern;
use crate::json_schema::{PointerPath, list, resolve};

/// The steps allowed for all values of a message. They take about 100 ms.
const FUEL: usize = 1_000_000;
/// The steps allowed for all texts of a reply that may be calls or values.
const FUEL_OF_REPLY: usize = 10 * FUEL;
/// The deepest nesting of schemas, including references.
const MAX_DEPTH: usize = 1000;
/// The maximum number of problems to report for one value.
const MAX_PROBLEMS: usize = 16;
/// The cost in steps of a regular expression that cannot be used.
const USELESS_PATTERN: usize = 10_000;
/// The cost in steps of comparing two numbers.
const NUMBERS: usize = 10;
/// The cost in steps of reporting an undecided keyword.
const UNDECIDED: usize = 100;
/// The number of characters that an automaton with one state reads in one step.
const READ_IN_A_STEP: usize = 8;

const TOO_LONG: &str = "takes too long to check";

/// The stack that a level needs, and the size of a new stack segment.
const RED_ZONE: usize = 32 * 1024;
const MORE_STACK: usize = 512 * 1024;

/// A keyword that a value violates, or that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeywordProblem {
    pub(super) unchecked: bool,
    pub(super) path: String,
    pub(super) keyword: String,
    pub(super) reason: String,
}

impl KeywordProblem {
    /// A problem that concerns a text as a whole.
    pub(super) fn of_text(reason: &str) -> KeywordProblem {
        KeywordProblem {
            unchecked: false,
            path: String::new(),
            keyword: String::new(),
            reason: reason.to_owned(),
        }
    }
}

/// The current position of a check in the value and in the schema.
#[derive(Clone, Copy)]
struct Location<'p> {
    value: &'p PointerPath<'p>,
    schema: &'p PointerPath<'p>,
}

/// A keyword, and the position at which it is checked.
#[derive(Clone, Copy)]
struct Keyword<'k, 'd> {
    schema: &'d Map<String, Value>,
    name: &'k str,
    argument: &'d Value,
    at: Location<'k>,
}

impl<'k> Keyword<'k, '_> {
    fn path(&self) -> PointerPath<'k> {
        PointerPath::Key(self.at.schema, self.name)
    }
}

/// Checks values. Each regular expression is compiled only once.
pub(super) struct SchemaChecker {
    fuel: usize,
    /// The steps left for [`check_next`](Self::check_next).
    reserve: usize,
    patterns: HashMap<String, Option<SchemaPattern>>,
}

impl SchemaChecker {
    pub(super) fn new() -> SchemaChecker {
        SchemaChecker { fuel: FUEL, reserve: FUEL_OF_REPLY, patterns: HashMap::new() }
    }

    /// Like [`check`](Self::check), with steps of its own for each value, as long as there are any
    /// for the whole reply.
    pub(super) fn check_next(&mut self, schema: &Value, value: &Value) -> Vec<KeywordProblem> {
        let lent = FUEL.min(self.reserve);
        self.fuel = lent;
        let problems = self.check(schema, value);
        self.reserve -= lent - self.fuel;
        problems
    }

    /// The keywords of the schema that the value violates, and those that could not be checked.
    pub(super) fn check(&mut self, schema: &Value, value: &Value) -> Vec<KeywordProblem> {
        let mut check = ValueCheck {
            checker: self,
            document: schema,
            problems: Vec::new(),
            undecided: 0,
            exhausted: false,
            depth: 0,
            quiet: false,
        };
        let root = Location { value: &PointerPath::Root, schema: &PointerPath::Root };
        check.schema(schema, value, root);
        check.problems
    }
}

struct ValueCheck<'c, 'd> {
    checker: &'c mut SchemaChecker,
    document: &'d Value,
    problems: Vec<KeywordProblem>,
    /// The number of undecided keywords so far.
    undecided: usize,
    /// Whether exhausted fuel was reported.
    exhausted: bool,
    depth: usize,
    /// Whether the check is inside an alternative. Violations are not reported there.
    quiet: bool,
}

/// A member of an object, or an item of an array.
#[derive(Clone, Copy)]
enum Child<'v> {
    Member(&'v str, &'v Value),
    Item(usize, &'v Value),
}

impl<'v> Child<'v> {
    fn value(self) -> &'v Value {
        match self {
            Child::Member(_, value) | Child::Item(_, value) => value,
        }
    }
}

impl<'d> ValueCheck<'_, 'd> {
    /// Reports a violation. Always returns false.
    fn violation(&mut self, k: Keyword<'_, 'd>, reason: impl Into<String>) -> bool {
        self.report(false, k.at.value, k.name, reason.into());
        false
    }

    /// Reports an undecided keyword. Always returns true, because it counts as valid.
    fn undecided(&mut self, k: Keyword<'_, 'd>, reason: &str) -> bool {
        self.undecided_at(k.at, k.name, reason)
    }

    fn undecided_at(&mut self, at: Location, keyword: &str, reason: &str) -> bool {
        self.undecided += 1;
        if !self.spend(UNDECIDED) && std::mem::replace(&mut self.exhausted, true) {
            return true;
        }
        let same = |problem: &KeywordProblem| {
            problem.unchecked && problem.keyword == keyword && problem.reason == reason
        };
        let (quiet, path) = (std::mem::take(&mut self.quiet), at.schema.pointer());
        if !self.problems.iter().any(|problem| same(problem) && problem.path == path) {
            self.report(true, at.schema, keyword, reason.to_owned());
        }
        self.quiet = quiet;
        true
    }

    fn report(&mut self, unchecked: bool, path: &PointerPath, keyword: &str, reason: String) {
        if !self.quiet && self.problems.len() < MAX_PROBLEMS {
            self.problems.push(KeywordProblem {
                unchecked,
                path: path.pointer(),
                keyword: keyword.to_owned(),
                reason,
            });
        }
    }

    fn too_long(&mut self, at: Location) -> bool {
        self.undecided_at(Location { schema: &PointerPath::Root, ..at }, "", TOO_LONG)
    }

    fn spend(&mut self, steps: usize) -> bool {
        let enough = self.checker.fuel >= steps;
        self.checker.fuel = self.checker.fuel.saturating_sub(steps);
        enough
    }

    /// Whether the value conforms to the schema. Reports every violation unless quiet.
    fn schema(&mut self, schema: &'d Value, value: &Value, at: Location) -> bool {
        if !self.spend(1) {
            return self.too_long(at);
        }
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(true) => return true,
            Value::Bool(false) => {
                self.report(false, at.value, "", "no value is allowed here".to_owned());
                return false;
            }
            _ => return self.undecided_at(at, "", "a schema is an object or a boolean"),
        };
        if self.depth >= MAX_DEPTH {
            return self.undecided_at(at, "", "refers to itself, or is nested too deeply");
        }
        self.depth += 1;
        let valid = stacker::maybe_grow(RED_ZONE, MORE_STACK, || self.members(members, value, at));
        self.depth -= 1;
        valid
    }

    /// Like `schema`, but without reports. `None` if undecided.
    fn holds(&mut self, schema: &'d Value, value: &Value, at: Location) -> Option<bool> {
        let (quiet, before) = (std::mem::replace(&mut self.quiet, true), self.undecided);
        let valid = self.schema(schema, value, at);
        self.quiet = quiet;
        (!valid || self.undecided == before).then_some(valid)
    }

    fn members(&mut self, schema: &'d Map<String, Value>, value: &Value, at: Location) -> bool {
        let mut valid = true;
        for (name, argument) in schema {
            if !self.spend(1) {
                return self.too_long(at);
            }
            valid &= self.keyword(Keyword { schema, name, argument, at }, value);
            if !valid && self.quiet {
                return false;
            }
        }
        valid
    }

    fn keyword(&mut self, k: Keyword<'_, 'd>, value: &Value) -> bool {
        let inside = Location { schema: &k.path(), ..k.at };
        match (k.name, value) {
            ("$ref", _) => self.reference(k, value),
            ("$dynamicRef" | "$recursiveRef", _) => self.undecided(k, "is not followed"),
            ("type", _) => self.type_keyword(k, value),
            ("enum", _) => self.enumeration(k, value),
            ("const", _) => match self.equal(k.argument, value) {
                Some(true) => true,
                Some(false) => self.violation(k, "it is not the required value"),
                None => self.undecided(k, "cannot be compared"),
            },
            ("allOf" | "anyOf" | "oneOf", _) => self.combination(k, value),
            ("not", _) => match self.holds(k.argument, value, inside) {
                Some(true) => self.violation(k, "it fits the schema it must not fit"),
                _ => true,
            },
            ("if", _) => match self.holds(k.argument, value, inside) {
                Some(condition) => {
                    let branch = if condition { "then" } else { "else" };
                    let schema = &PointerPath::Key(k.at.schema, branch);
                    let branch = k.schema.get(branch);
                    branch.is_none_or(|branch| {
                        self.schema(branch, value, Location { schema, ..k.at })
                    })
                }
                None => true,
            },
            (_, Value::Number(number)) => self.number(k, number),
            (_, Value::String(text)) => self.string(k, text),
            (_, Value::Array(_)) => self.array(k, value),
            (_, Value::Object(object)) => self.object(k, object, value),
            _ => true,
        }
    }

    fn reference(&mut self, k: Keyword<'_, 'd>, value: &Value) -> bool {
        if !self.spend(k.argument.as_str().map_or(0, str::len) / 16) {
            return self.too_long(k.at);
        }
        match resolve(self.document, k.argument) {
            Ok((pointer, target)) => {
                let schema = &PointerPath::Spelled(pointer);
                self.schema(target, value, Location { schema, ..k.at })
            }
            Err(reason) => self.undecided(k, reason),
        }
    }

    fn combination(&mut self, k: Keyword<'_, 'd>, value: &Value) -> bool {
        if !k.argument.is_array() {
            return self.undecided(k, "is not an array");
        }
        let path = k.path();
        let mut matches = 0;
        let mut open = false;
        let mut valid = true;
        for (index, schema) in list(Some(k.argument)).iter().enumerate() {
            let inside = Location { schema: &PointerPath::Index(&path, index), ..k.at };
            if k.name == "allOf" {
                valid &= self.schema(schema, value, inside);
                continue;
            }
            match self.holds(schema, value, inside) {
                Some(true) if k.name == "anyOf" => return true,
                Some(matched) => matches += usize::from(matched),
                None => open = true,
            }
        }
        match (k.name, matches) {
            ("allOf", _) => valid,
            (_, 0) if open => true,
            (_, 0) => self.violation(k, "it fits none of the alternatives"),
            (_, 1) => true,
            _ => self.violation(k, "it fits more than one alternative"),
        }
    }
}
