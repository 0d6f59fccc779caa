//! Determines which members and items a schema evaluates. `unevaluatedProperties` and
//! `unevaluatedItems` apply to the rest.

use serde_json::{Map, Value};

use super::{Child, Location, MAX_DEPTH, MORE_STACK, RED_ZONE, ValueCheck};
use crate::json_schema::{list, resolve};

/// The reason why an `unevaluated…` keyword is undecided.
pub(super) const UNKNOWN: &str = "what it applies to is unknown";

impl<'d> ValueCheck<'_, 'd> {
    /// Whether a keyword of the schema, or of a subschema that applies at the same position,
    /// evaluates this child. `None` if undecided.
    pub(super) fn evaluates(
        &mut self,
        members: &'d Map<String, Value>,
        child: Child,
        value: &Value,
        at: Location,
    ) -> Option<bool> {
        if !self.spend(1) || self.depth >= MAX_DEPTH {
            return None;
        }
        let items = members.get("items");
        let own = match child {
            Child::Member(name, _) => {
                self.is_listed(members, name).ok()? || members.contains_key("additionalProperties")
            }
            Child::Item(index, _) => {
                match members.get("prefixItems").or(items.filter(|items| items.is_array())) {
                    Some(Value::Array(first)) if index < first.len() => true,
                    Some(_) => {
                        members.contains_key("additionalItems")
                            || items.is_some_and(|items| !items.is_array())
                    }
                    None => items.is_some(),
                }
            }
        };
        let own = own
            || match (child, members.get("contains")) {
                (Child::Item(..), Some(contains)) => self.holds(contains, child.value(), at)?,
                _ => false,
            };
        if own {
            return Some(true);
        }
        self.depth += 1;
        let found = stacker::maybe_grow(RED_ZONE, MORE_STACK, || {
            self.subschemas_evaluate(members, child, value, at)
        });
        self.depth -= 1;
        found
    }

    /// Like `evaluates`, for the subschemas that apply to the same value.
    fn subschemas_evaluate(
        &mut self,
        members: &'d Map<String, Value>,
        child: Child,
        value: &Value,
        at: Location,
    ) -> Option<bool> {
        let mut open = false;
        for (keyword, argument) in members {
            let subschemas: Vec<&'d Value> = match keyword.as_str() {
                "$ref" => resolve(self.document, argument)
                    .ok()
                    .map(|(_, target)| target)
                    .into_iter()
                    .collect(),
                "$dynamicRef" | "$recursiveRef" => return None,
                "allOf" | "anyOf" | "oneOf" => list(Some(argument)).iter().collect(),
                "if" => {
                    let branch = if self.holds(argument, value, at)? { "then" } else { "else" };
                    Some(argument).into_iter().chain(members.get(branch)).collect()
                }
                "dependentSchemas" => {
                    let schemas = argument.as_object().into_iter().flatten();
                    schemas
                        .filter(|(name, _)| value.get(name).is_some())
                        .map(|(_, schema)| schema)
                        .collect()
                }
                _ => continue,
            };
            for schema in subschemas {
                let Value::Object(inner) = schema else { continue };
                let evaluates = match self.holds(schema, value, at) {
                    Some(true) => self.subschema_evaluates(inner, child, value, at),
                    Some(false) => Some(false),
                    None => None,
                };
                match evaluates {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => open = true,
                }
            }
        }
        (!open).then_some(false)
    }

    /// Like `evaluates`, for one subschema. Its own `unevaluated…` keyword evaluates every child.
    fn subschema_evaluates(
        &mut self,
        inner: &'d Map<String, Value>,
        child: Child,
        value: &Value,
        at: Location,
    ) -> Option<bool> {
        let unevaluated = match child {
            Child::Member(..) => "unevaluatedProperties",
            Child::Item(..) => "unevaluatedItems",
        };
        if inner.contains_key(unevaluated) {
            Some(true)
        } else {
            self.evaluates(inner, child, value, at)
        }
    }
}
