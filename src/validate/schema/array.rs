//! The keywords of arrays.

use serde_json::{Map, Value};

use super::{Child, Location, ValueCheck};
use crate::json_schema::{PointerPath, list};

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn array(
        &mut self,
        members: &'d Map<String, Value>,
        keyword: &str,
        argument: &'d Value,
        value: &Value,
        at: Location,
    ) -> bool {
        let items = list(Some(value));
        // Drafts before 2020-12 write `prefixItems` and `items` as `items` and `additionalItems`.
        let tuple = |name| members.get(name).and_then(Value::as_array).map(Vec::len);
        let path = PointerPath::Key(at.schema, keyword);
        match keyword {
            "minItems" | "maxItems" => self.count(keyword, argument, items.len(), at),
            "uniqueItems" if argument == &Value::Bool(true) => self.unique_items(items, at),
            "prefixItems" | "items" if argument.is_array() => {
                let mut valid = true;
                for (index, (schema, item)) in list(Some(argument)).iter().zip(items).enumerate() {
                    let at = Location {
                        value: &PointerPath::Index(at.value, index),
                        schema: &PointerPath::Index(&path, index),
                    };
                    valid &= self.schema(schema, item, at);
                }
                valid
            }
            "items" => {
                self.items_from(tuple("prefixItems").unwrap_or(0), items, argument, &path, at)
            }
            "additionalItems" => tuple("items")
                .is_none_or(|first| self.items_from(first, items, argument, &path, at)),
            "contains" => self.contains(members, argument, items, &path, at),
            "unevaluatedItems" => {
                let mut valid = true;
                for (index, item) in items.iter().enumerate() {
                    let value_at = &PointerPath::Index(at.value, index);
                    valid &= match self.evaluates(members, Child::Item(index, item), value, at) {
                        Some(true) => true,
                        Some(false) => {
                            self.schema(argument, item, Location { value: value_at, schema: &path })
                        }
                        None => self.undecided(at, keyword, super::unevaluated::UNKNOWN),
                    };
                }
                valid
            }
            _ => true,
        }
    }

    fn unique_items(&mut self, items: &[Value], at: Location) -> bool {
        for (index, item) in items.iter().enumerate() {
            for other in &items[..index] {
                match self.equal(item, other) {
                    Some(false) => {}
                    Some(true) => return self.violation(at, "uniqueItems", "two items are equal"),
                    None => return self.undecided(at, "uniqueItems", "cannot be compared"),
                }
            }
        }
        true
    }

    /// Checks the items from index `first` on.
    fn items_from(
        &mut self,
        first: usize,
        items: &[Value],
        schema: &'d Value,
        path: &PointerPath,
        at: Location,
    ) -> bool {
        let mut valid = true;
        for (index, item) in items.iter().enumerate().skip(first) {
            let value = &PointerPath::Index(at.value, index);
            valid &= self.schema(schema, item, Location { value, schema: path });
        }
        valid
    }

    fn contains(
        &mut self,
        members: &Map<String, Value>,
        schema: &'d Value,
        items: &[Value],
        path: &PointerPath,
        at: Location,
    ) -> bool {
        let (mut found, mut open) = (0, 0);
        for (index, item) in items.iter().enumerate() {
            let value = &PointerPath::Index(at.value, index);
            match self.holds(schema, item, Location { value, schema: path }) {
                Some(holds) => found += usize::from(holds),
                None => open += 1,
            }
        }
        let limit = |keyword, default| members.get(keyword).map_or(Some(default), Value::as_f64);
        let (Some(least), Some(most)) =
            (limit("minContains", 1.0), limit("maxContains", f64::INFINITY))
        else {
            return self.undecided(at, "contains", "its limits are not numbers");
        };
        if ((found + open) as f64) < least {
            return self.violation(at, "contains", format!("{found} of its items fit"));
        }
        found as f64 <= most
            || self.violation(at, "maxContains", format!("{found} of its items fit"))
    }
}
