//! The keywords of single values: `type`, `enum`, numbers and strings.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::{
    Keyword, NUMBERS, READ_IN_A_STEP, SchemaPattern, TOO_LONG, USELESS_PATTERN, ValueCheck,
};
use crate::json_schema::{TypeSet, has_values_of_other_types, type_name};
use crate::validate::number::Decimal;

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn type_keyword(&mut self, k: Keyword<'_, 'd>, value: &Value) -> bool {
        let names: Vec<&str> = match k.argument {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !self.spend(names.len()) {
            return self.too_long(k.at);
        }
        if names.is_empty() || names.iter().any(|name| TypeSet::named(name).is_none()) {
            return self.undecided(k, "is not a JSON type");
        }
        for name in &names {
            let is = match (*name, value) {
                ("integer", Value::Number(number)) => match Decimal::of(number) {
                    Some(number) => number.is_integer(),
                    None => return self.undecided(k, "the number is too large"),
                },
                (name, value) => name == type_name(value),
            };
            if is {
                return true;
            }
        }
        self.violation(k, format!("it is not of type {}", names.join(" or ")))
    }

    pub(super) fn enumeration(&mut self, k: Keyword<'_, 'd>, value: &Value) -> bool {
        let Some(values) = k.argument.as_array() else {
            return self.undecided(k, "is not an array");
        };
        if has_values_of_other_types(k.schema) {
            return self.undecided(k, "none of its values has the schema's type");
        }
        for allowed in values {
            match self.equal(allowed, value) {
                Some(true) => return true,
                Some(false) => {}
                None => return self.undecided(k, "cannot be compared"),
            }
        }
        self.violation(k, "it is not one of the allowed values")
    }

    pub(super) fn number(&mut self, k: Keyword<'_, 'd>, value: &Number) -> bool {
        let limit = match (k.name, k.argument) {
            (
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf",
                Value::Number(limit),
            ) => limit,
            // The boolean form of draft 4.
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => return true,
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", _) => {
                return self.undecided(k, "is not a number");
            }
            _ => return true,
        };
        if !self.spend(NUMBERS) {
            return self.too_long(k.at);
        }
        let (Some(number), Some(limit)) = (Decimal::of(value), Decimal::of(limit)) else {
            return self.undecided(k, "the number is too large");
        };
        if k.name == "multipleOf" {
            return match number.is_multiple_of(&limit) {
                Some(true) => true,
                Some(false) => self.violation(k, "it is not a multiple"),
                None => self.undecided(k, "is not above zero"),
            };
        }
        let exclusive = |name| k.schema.get(name) == Some(&Value::Bool(true));
        let order = number.compare(&limit);
        let (within, reason) = match k.name {
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
        within || self.violation(k, reason)
    }

    /// Compares a count with the limit of a `min…` or `max…` keyword.
    pub(super) fn count(&mut self, k: Keyword<'_, 'd>, count: usize) -> bool {
        let limit = k.argument.as_f64().filter(|limit| *limit >= 0.0 && limit.fract() == 0.0);
        let Some(limit) = limit else {
            return self.undecided(k, "is not a whole number");
        };
        let (within, problem) = if k.name.starts_with("min") {
            (count as f64 >= limit, "too few")
        } else {
            (count as f64 <= limit, "too many")
        };
        within || self.violation(k, format!("it has {count}, which is {problem}"))
    }

    pub(super) fn string(&mut self, k: Keyword<'_, 'd>, text: &str) -> bool {
        match k.name {
            "minLength" | "maxLength" if !self.spend(text.len() / 64) => self.too_long(k.at),
            "minLength" | "maxLength" => self.count(k, text.chars().count()),
            "pattern" => {
                let Some(pattern) = k.argument.as_str() else {
                    return self.undecided(k, "is not a string");
                };
                match self.matches(pattern, text) {
                    Ok(true) => true,
                    Ok(false) => self.violation(k, "it does not match"),
                    Err(reason) => self.undecided(k, reason),
                }
            }
            _ => true,
        }
    }

    /// Whether the regular expression matches a part of the text. The error says why this is
    /// undecided.
    pub(super) fn matches(&mut self, pattern: &str, text: &str) -> Result<bool, &'static str> {
        if !self.checker.patterns.contains_key(pattern) {
            if !self.spend(pattern.len()) {
                return Err(TOO_LONG);
            }
            let compiled = SchemaPattern::new(pattern);
            if !self.spend(compiled.as_ref().map_or(USELESS_PATTERN, SchemaPattern::states)) {
                return Err(TOO_LONG);
            }
            self.checker.patterns.insert(pattern.to_owned(), compiled);
        }
        let compiled = self.checker.patterns.get(pattern).and_then(Option::as_ref);
        let states = compiled.map_or(0, SchemaPattern::states);
        if !self.spend(states.saturating_mul(text.len() + 1) / READ_IN_A_STEP) {
            return Err(TOO_LONG);
        }
        match self.checker.patterns.get_mut(pattern) {
            Some(Some(pattern)) => Ok(pattern.matches(text)),
            _ => Err("is not a supported regular expression"),
        }
    }

    /// Whether two values are equal. Numbers are compared by value, and the order of members does
    /// not matter. `None` if undecided.
    pub(super) fn equal(&mut self, a: &Value, b: &Value) -> Option<bool> {
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
