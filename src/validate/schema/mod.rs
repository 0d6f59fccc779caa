//! One value against one schema: JSON Schema 2020-12, and what older drafts spell differently.
//!
//! Work, depth and findings are bounded, for schemas come from anywhere: twenty lines of `allOf`
//! can ask for a million looks at one value. What is not decided counts as neither valid nor
//! invalid, wherever it stands. `format` and the `content…` keywords are annotations, as in the
//! standard. References lead into the schema's own document, or nowhere.

mod array;
mod covered;
mod object;

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::number::Decimal;
use super::pattern::SchemaPattern;

/// Steps for all the values of a message: some 100 ms.
const FUEL: usize = 1_000_000;
/// Schemas within each other, references followed.
const MAX_DEPTH: usize = 1000;
/// Findings in one value; more say nothing new.
const MAX_BROKEN: usize = 16;
/// What an expression costs that cannot be used.
const USELESS_PATTERN: usize = 10_000;
/// What it costs to compare two numbers.
const NUMBERS: usize = 10;
/// What it costs to say where something was not decided.
const UNDECIDED: usize = 100;
/// Characters that an automaton of one state reads in one step.
const READ_IN_A_STEP: usize = 8;

const TOO_LONG: &str = "takes too long to check";

/// Room for a level, and how much is added where there is less.
const RED_ZONE: usize = 32 * 1024;
const MORE_STACK: usize = 512 * 1024;

/// A keyword that a value breaks, or that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeywordProblem {
    pub(super) unchecked: bool,
    pub(super) path: String,
    pub(super) keyword: String,
    pub(super) reason: String,
}

impl KeywordProblem {
    /// What is wrong with a text as a whole.
    pub(super) fn text(reason: &str) -> KeywordProblem {
        KeywordProblem {
            unchecked: false,
            path: String::new(),
            keyword: String::new(),
            reason: reason.to_owned(),
        }
    }
}

/// A place in a value or a schema.
#[derive(Clone, Copy)]
enum At<'a> {
    Root,
    Key(&'a At<'a>, &'a str),
    Index(&'a At<'a>, usize),
    /// A place that a reference names.
    Pointer(&'a str),
}

impl At<'_> {
    fn pointer(&self) -> String {
        match self {
            At::Root => String::new(),
            At::Key(parent, key) => {
                format!("{}/{}", parent.pointer(), key.replace('~', "~0").replace('/', "~1"))
            }
            At::Index(parent, index) => format!("{}/{index}", parent.pointer()),
            At::Pointer(pointer) => (*pointer).to_owned(),
        }
    }
}

/// Where a check stands: in the value, and in the schema.
#[derive(Clone, Copy)]
struct Location<'p> {
    value: &'p At<'p>,
    schema: &'p At<'p>,
}

/// Checks values; its expressions are compiled once.
pub(super) struct SchemaChecker {
    fuel: usize,
    patterns: HashMap<String, Option<SchemaPattern>>,
}

impl SchemaChecker {
    pub(super) fn new() -> SchemaChecker {
        SchemaChecker { fuel: FUEL, patterns: HashMap::new() }
    }

    /// Where the value breaks the schema, and what could not be checked.
    pub(super) fn check(&mut self, schema: &Value, value: &Value) -> Vec<KeywordProblem> {
        let mut check = ValueCheck {
            checker: self,
            document: schema,
            broken: Vec::new(),
            undecided: 0,
            exhausted: false,
            depth: 0,
            quiet: false,
        };
        let place = Location { value: &At::Root, schema: &At::Root };
        check.schema(schema, value, place);
        check.broken
    }
}

struct ValueCheck<'c, 'd> {
    checker: &'c mut SchemaChecker,
    document: &'d Value,
    broken: Vec<KeywordProblem>,
    /// Keywords that were passed over so far.
    undecided: usize,
    /// That there was no time for all of it has been said.
    exhausted: bool,
    depth: usize,
    /// In an alternative: what it breaks is nobody's concern yet.
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
    fn violation(&mut self, place: Location, keyword: &str, reason: String) -> bool {
        self.note(false, place.value, keyword, reason);
        false
    }

    /// Counts as valid, and is remembered.
    fn undecided(&mut self, place: Location, keyword: &str, reason: &str) -> bool {
        self.undecided += 1;
        if !self.spend(UNDECIDED) && std::mem::replace(&mut self.exhausted, true) {
            return true;
        }
        let known = |broken: &KeywordProblem| {
            broken.unchecked && broken.keyword == keyword && broken.reason == reason
        };
        let (quiet, path) = (std::mem::take(&mut self.quiet), place.schema.pointer());
        if !self.broken.iter().any(|broken| known(broken) && broken.path == path) {
            self.note(true, place.schema, keyword, reason.to_owned());
        }
        self.quiet = quiet;
        true
    }

    fn note(&mut self, unchecked: bool, at: &At, keyword: &str, reason: String) {
        if !self.quiet && self.broken.len() < MAX_BROKEN {
            self.broken.push(KeywordProblem {
                unchecked,
                path: at.pointer(),
                keyword: keyword.to_owned(),
                reason,
            });
        }
    }

    fn too_long(&mut self, place: Location) -> bool {
        self.undecided(Location { schema: &At::Root, ..place }, "", TOO_LONG)
    }

    fn spend(&mut self, steps: usize) -> bool {
        let enough = self.checker.fuel >= steps;
        self.checker.fuel = self.checker.fuel.saturating_sub(steps);
        enough
    }

    /// Whether the value obeys; everything that it breaks is noted, but in quiet.
    fn schema(&mut self, schema: &'d Value, value: &Value, place: Location) -> bool {
        if !self.spend(1) {
            return self.too_long(place);
        }
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(true) => return true,
            Value::Bool(false) => {
                return self.violation(place, "", "no value is allowed here".to_owned());
            }
            _ => return self.undecided(place, "", "a schema is an object or a boolean"),
        };
        if self.depth >= MAX_DEPTH {
            return self.undecided(place, "", "refers to itself, or is nested too deeply");
        }
        self.depth += 1;
        let valid =
            stacker::maybe_grow(RED_ZONE, MORE_STACK, || self.members(members, value, place));
        self.depth -= 1;
        valid
    }

    /// As `schema`, for an alternative: None where it is not decided.
    fn holds(&mut self, schema: &'d Value, value: &Value, place: Location) -> Option<bool> {
        let (quiet, before) = (std::mem::replace(&mut self.quiet, true), self.undecided);
        let valid = self.schema(schema, value, place);
        self.quiet = quiet;
        (!valid || self.undecided == before).then_some(valid)
    }

    fn members(&mut self, members: &'d Map<String, Value>, value: &Value, place: Location) -> bool {
        let mut valid = true;
        for (keyword, argument) in members {
            if !self.spend(1) {
                return self.too_long(place);
            }
            valid &= self.keyword(members, keyword, argument, value, place);
            if !valid && self.quiet {
                return false;
            }
        }
        valid
    }

    fn keyword(
        &mut self,
        members: &'d Map<String, Value>,
        keyword: &str,
        argument: &'d Value,
        value: &Value,
        place: Location,
    ) -> bool {
        let schema = &At::Key(place.schema, keyword);
        let inside = Location { schema, ..place };
        match (keyword, value) {
            ("$ref", _) if !self.spend(argument.as_str().map_or(0, str::len) / 16) => {
                self.too_long(place)
            }
            ("$ref", _) => match self.target(argument) {
                Ok((pointer, target)) => {
                    self.schema(target, value, Location { schema: &At::Pointer(pointer), ..place })
                }
                Err(reason) => self.undecided(place, keyword, reason),
            },
            ("$dynamicRef" | "$recursiveRef", _) => {
                self.undecided(place, keyword, "is not followed")
            }
            ("type", _) => self.kind(argument, value, place),
            ("enum", _) => {
                let Some(values) = argument.as_array() else {
                    return self.undecided(place, keyword, "is not an array");
                };
                for allowed in values {
                    match self.equal(allowed, value) {
                        Some(true) => return true,
                        Some(false) => {}
                        None => return self.undecided(place, keyword, "cannot be compared"),
                    }
                }
                self.violation(place, keyword, "it is none of the values".to_owned())
            }
            ("const", _) => match self.equal(argument, value) {
                Some(true) => true,
                Some(false) => self.violation(place, keyword, "it is another value".to_owned()),
                None => self.undecided(place, keyword, "cannot be compared"),
            },
            ("allOf" | "anyOf" | "oneOf", _) => {
                self.combination(keyword, argument, value, inside, place)
            }
            ("not", _) => match self.holds(argument, value, inside) {
                Some(true) => {
                    self.violation(place, keyword, "it is what it must not be".to_owned())
                }
                _ => true,
            },
            ("if", _) => match self.holds(argument, value, inside) {
                Some(condition) => {
                    let branch = if condition { "then" } else { "else" };
                    let Some(schema) = members.get(branch) else { return true };
                    self.schema(
                        schema,
                        value,
                        Location { schema: &At::Key(place.schema, branch), ..place },
                    )
                }
                None => true,
            },
            (_, Value::Number(number)) => self.number(members, keyword, argument, number, place),
            (_, Value::String(text)) => self.string(keyword, argument, text, place),
            (_, Value::Array(_)) => self.array(members, keyword, argument, value, place),
            (_, Value::Object(object)) => {
                self.object(members, keyword, argument, object, value, place)
            }
            _ => true,
        }
    }

    fn kind(&mut self, argument: &'d Value, value: &Value, place: Location) -> bool {
        let names: Vec<&str> = match argument {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !self.spend(names.len()) {
            return self.too_long(place);
        }
        const KNOWN: [&str; 7] =
            ["null", "boolean", "object", "array", "number", "integer", "string"];
        if names.is_empty() || !names.iter().all(|name| KNOWN.contains(name)) {
            return self.undecided(place, "type", "is no type of JSON");
        }
        for name in &names {
            let is = match (*name, value) {
                ("null", Value::Null)
                | ("boolean", Value::Bool(_))
                | ("object", Value::Object(_))
                | ("array", Value::Array(_))
                | ("number", Value::Number(_))
                | ("string", Value::String(_)) => true,
                ("integer", Value::Number(number)) => match Decimal::of(number) {
                    Some(number) => number.is_integer(),
                    None => return self.undecided(place, "type", "the number is too large"),
                },
                _ => false,
            };
            if is {
                return true;
            }
        }
        self.violation(place, "type", format!("it is not of type {}", names.join(" or ")))
    }

    fn combination(
        &mut self,
        keyword: &str,
        argument: &'d Value,
        value: &Value,
        inside: Location,
        place: Location,
    ) -> bool {
        let Some(schemas) = argument.as_array() else {
            return self.undecided(place, keyword, "is not an array");
        };
        let mut matches = 0;
        let mut open = false;
        let mut valid = true;
        for (index, schema) in schemas.iter().enumerate() {
            let inside = Location { schema: &At::Index(inside.schema, index), ..inside };
            if keyword == "allOf" {
                valid &= self.schema(schema, value, inside);
                continue;
            }
            match self.holds(schema, value, inside) {
                Some(true) if keyword == "anyOf" => return true,
                Some(matched) => matches += usize::from(matched),
                None => open = true,
            }
        }
        match (keyword, matches) {
            ("allOf", _) => valid,
            (_, 0) if open => true,
            (_, 0) => self.violation(place, keyword, "it fits no alternative".to_owned()),
            (_, 1) => true,
            _ => self.violation(place, keyword, "it fits more than one alternative".to_owned()),
        }
    }

    fn number(
        &mut self,
        members: &'d Map<String, Value>,
        keyword: &str,
        argument: &'d Value,
        value: &serde_json::Number,
        place: Location,
    ) -> bool {
        let limit = match (keyword, argument) {
            (
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf",
                Value::Number(limit),
            ) => limit,
            // Draft 4.
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => return true,
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", _) => {
                return self.undecided(place, keyword, "is not a number");
            }
            _ => return true,
        };
        if !self.spend(NUMBERS) {
            return self.too_long(place);
        }
        let (Some(number), Some(limit)) = (Decimal::of(value), Decimal::of(limit)) else {
            return self.undecided(place, keyword, "the number is too large");
        };
        if keyword == "multipleOf" {
            return match number.is_multiple_of(&limit) {
                Some(true) => true,
                Some(false) => self.violation(place, keyword, "it is not a multiple".to_owned()),
                None => self.undecided(place, keyword, "is not above zero"),
            };
        }
        let exclusive = |keyword| members.get(keyword) == Some(&Value::Bool(true));
        let order = number.compare(&limit);
        let (within, words) = match keyword {
            "minimum" if exclusive("exclusiveMinimum") => {
                (order == Ordering::Greater, "it is too small")
            }
            "minimum" => (order != Ordering::Less, "it is too small"),
            "exclusiveMinimum" => (order == Ordering::Greater, "it is too small"),
            "maximum" if exclusive("exclusiveMaximum") => {
                (order == Ordering::Less, "it is too large")
            }
            "maximum" => (order != Ordering::Greater, "it is too large"),
            _ => (order == Ordering::Less, "it is too large"),
        };
        within || self.violation(place, keyword, words.to_owned())
    }

    /// Whether a count is at least or at most what the keyword says.
    fn count(&mut self, keyword: &str, argument: &Value, count: usize, place: Location) -> bool {
        let limit = argument.as_f64().filter(|limit| *limit >= 0.0 && limit.fract() == 0.0);
        let Some(limit) = limit else {
            return self.undecided(place, keyword, "is not a whole number");
        };
        let (within, words) = if keyword.starts_with("min") {
            (count as f64 >= limit, format!("it has {count}, which is too few"))
        } else {
            (count as f64 <= limit, format!("it has {count}, which is too many"))
        };
        within || self.violation(place, keyword, words)
    }

    fn string(&mut self, keyword: &str, argument: &'d Value, text: &str, place: Location) -> bool {
        match keyword {
            "minLength" | "maxLength" if !self.spend(text.len() / 64) => self.too_long(place),
            "minLength" | "maxLength" => self.count(keyword, argument, text.chars().count(), place),
            "pattern" => {
                let Some(pattern) = argument.as_str() else {
                    return self.undecided(place, keyword, "is not a string");
                };
                match self.matches(pattern, text) {
                    Ok(true) => true,
                    Ok(false) => self.violation(place, keyword, "it does not match".to_owned()),
                    Err(reason) => self.undecided(place, keyword, reason),
                }
            }
            _ => true,
        }
    }

    fn matches(&mut self, pattern: &str, text: &str) -> Result<bool, &'static str> {
        if !self.checker.patterns.contains_key(pattern) {
            let compiled = if self.spend(pattern.len()) {
                SchemaPattern::new(pattern)
            } else {
                return Err(TOO_LONG);
            };
            if !self.spend(compiled.as_ref().map_or(USELESS_PATTERN, SchemaPattern::states)) {
                return Err(TOO_LONG);
            }
            self.checker.patterns.insert(pattern.to_owned(), compiled);
        }
        let states =
            self.checker.patterns.get(pattern).and_then(Option::as_ref).map(SchemaPattern::states);
        let steps = states.unwrap_or_default().saturating_mul(text.len() + 1) / READ_IN_A_STEP;
        if !self.spend(steps) {
            return Err(TOO_LONG);
        }
        match self.checker.patterns.get_mut(pattern) {
            Some(Some(pattern)) => Ok(pattern.matches(text)),
            _ => Err("is not an expression that can be followed"),
        }
    }

    /// Where a reference leads.
    fn target(&self, reference: &'d Value) -> Result<(&'d str, &'d Value), &'static str> {
        let pointer = match reference.as_str() {
            Some("#" | "#/") => "",
            Some(text) => match text.strip_prefix('#') {
                Some(pointer) if pointer.starts_with('/') => pointer,
                Some(_) => return Err("refers to an anchor; only `#/…` is followed"),
                None => return Err("refers to another document"),
            },
            None => return Err("is not a string"),
        };
        self.document.pointer(pointer).map(|target| (pointer, target)).ok_or("refers to nothing")
    }

    /// Whether two values are the same: numbers by what they are, objects in any order. None where
    /// that is not known.
    fn equal(&mut self, a: &Value, b: &Value) -> Option<bool> {
        if !self.spend(1) {
            return None;
        }
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => {
                if a == b {
                    return Some(true);
                }
                if !self.spend(NUMBERS) {
                    return None;
                }
                Some(Decimal::of(a)?.compare(&Decimal::of(b)?) == Ordering::Equal)
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (a, b) in a.iter().zip(b) {
                    if !self.equal(a, b)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                for (name, a) in a {
                    match b.get(name) {
                        Some(b) if self.equal(a, b)? => {}
                        _ => return Some(false),
                    }
                }
                Some(true)
            }
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
                Some(false)
            }
            (Value::String(a), Value::String(b)) => {
                (self.spend(a.len().min(b.len()) / 64)).then_some(a == b)
            }
            (a, b) => Some(a == b),
        }
    }
}
