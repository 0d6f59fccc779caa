//! Which members and items a schema has spoken of: what `unevaluatedProperties` and
//! `unevaluatedItems` leave alone.

use serde_json::{Map, Value};

use super::{Child, Location, MAX_DEPTH, MORE_STACK, RED_ZONE, ValueCheck};

impl<'d> ValueCheck<'_, 'd> {
    /// Whether a keyword of the schema, or of one that holds at the same place, speaks of this
    /// child; None if not known.
    pub(super) fn covers(
        &mut self,
        members: &'d Map<String, Value>,
        child: Child,
        value: &Value,
        place: Location,
    ) -> Option<bool> {
        if !self.spend(1) || self.depth >= MAX_DEPTH {
            return None;
        }
        let items = members.get("items");
        let own = match child {
            Child::Member(name, _) => {
                self.named(members, name).ok()? || members.contains_key("additionalProperties")
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
                (Child::Item(..), Some(contains)) => self.holds(contains, child.value(), place)?,
                _ => false,
            };
        if own {
            return Some(true);
        }
        self.depth += 1;
        let found = stacker::maybe_grow(RED_ZONE, MORE_STACK, || {
            self.covers_beside(members, child, value, place)
        });
        self.depth -= 1;
        found
    }

    pub(super) fn covers_beside(
        &mut self,
        members: &'d Map<String, Value>,
        child: Child,
        value: &Value,
        place: Location,
    ) -> Option<bool> {
        let mut open = false;
        for (keyword, argument) in members {
            let beside: Vec<&'d Value> = match keyword.as_str() {
                "$ref" => {
                    self.target(argument).ok().map(|(_, target)| target).into_iter().collect()
                }
                "$dynamicRef" | "$recursiveRef" => return None,
                "allOf" | "anyOf" | "oneOf" => argument.as_array().into_iter().flatten().collect(),
                "if" => {
                    let branch = if self.holds(argument, value, place)? { "then" } else { "else" };
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
            for schema in beside {
                let Value::Object(inner) = schema else { continue };
                let speaks = match self.holds(schema, value, place) {
                    Some(true) => self.covers_inner(inner, child, value, place),
                    Some(false) => Some(false),
                    None => None,
                };
                match speaks {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => open = true,
                }
            }
        }
        (!open).then_some(false)
    }

    /// As `covers`, of a schema beside the one that asks: what it says of unevaluated children
    /// counts too.
    pub(super) fn covers_inner(
        &mut self,
        inner: &'d Map<String, Value>,
        child: Child,
        value: &Value,
        place: Location,
    ) -> Option<bool> {
        let unevaluated = match child {
            Child::Member(..) => "unevaluatedProperties",
            Child::Item(..) => "unevaluatedItems",
        };
        if inner.contains_key(unevaluated) {
            Some(true)
        } else {
            self.covers(inner, child, value, place)
        }
    }
}
