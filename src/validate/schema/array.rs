//! The keywords of arrays.

use serde_json::Value;

use super::{Child, Keyword, Location, ValueCheck};
use crate::json_schema::{PointerPath, list};

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn array(&mut self, k: Keyword<'_, 'd>, value: &Value) -> bool {
        let items = list(Some(value));
        // Drafts before 2020-12 use `items` and `additionalItems` for what is now `prefixItems` and
        // `items`.
        let tuple = |name| k.schema.get(name).and_then(Value::as_array).map(Vec::len);
        match k.name {
            "minItems" | "maxItems" => self.count(k, items.len()),
            "uniqueItems" if k.argument == &Value::Bool(true) => self.unique_items(k, items),
            "prefixItems" | "items" if k.argument.is_array() => {
                let path = k.path();
                let mut valid = true;
                for (index, (schema, item)) in list(Some(k.argument)).iter().zip(items).enumerate()
                {
                    let at = Location {
                        value: &PointerPath::Index(k.at.value, index),
                        schema: &PointerPath::Index(&path, index),
                    };
                    valid &= self.schema(schema, item, at);
                }
                valid
            }
            "items" => self.items_from(k, tuple("prefixItems").unwrap_or(0), items),
            "additionalItems" => {
                tuple("items").is_none_or(|first| self.items_from(k, first, items))
            }
            "contains" => self.contains(k, items),
            "unevaluatedItems" => {
                let mut valid = true;
                for (index, item) in items.iter().enumerate() {
                    valid &= match self.evaluates(k.schema, Child::Item(index, item), value, k.at) {
                        Some(true) => true,
                        Some(false) => {
                            let value = &PointerPath::Index(k.at.value, index);
                            self.schema(k.argument, item, Location { value, schema: &k.path() })
                        }
                        None => self.undecided(k, super::unevaluated::UNKNOWN),
                    };
                }
                valid
            }
            _ => true,
        }
    }

    fn unique_items(&mut self, k: Keyword<'_, 'd>, items: &[Value]) -> bool {
        for (index, item) in items.iter().enumerate() {
            for other in &items[..index] {
                match self.equal(item, other) {
                    Some(false) => {}
                    Some(true) => return self.violation(k, "two items are equal"),
                    None => return self.undecided(k, "cannot be compared"),
                }
            }
        }
        true
    }

    /// Checks the items from index `first` on.
    fn items_from(&mut self, k: Keyword<'_, 'd>, first: usize, items: &[Value]) -> bool {
        let path = k.path();
        let mut valid = true;
        for (index, item) in items.iter().enumerate().skip(first) {
            let value = &PointerPath::Index(k.at.value, index);
            valid &= self.schema(k.argument, item, Location { value, schema: &path });
        }
        valid
    }

    fn contains(&mut self, k: Keyword<'_, 'd>, items: &[Value]) -> bool {
        let path = k.path();
        let (mut found, mut open) = (0, 0);
        for (index, item) in items.iter().enumerate() {
            let value = &PointerPath::Index(k.at.value, index);
            match self.holds(k.argument, item, Location { value, schema: &path }) {
                Some(holds) => found += usize::from(holds),
                None => open += 1,
            }
        }
        let limit = |name, default| k.schema.get(name).map_or(Some(default), Value::as_f64);
        let (Some(least), Some(most)) =
            (limit("minContains", 1.0), limit("maxContains", f64::INFINITY))
        else {
            return self.undecided(k, "its limits are not numbers");
        };
        if ((found + open) as f64) < least {
            return self.violation(k, format!("{found} of its items fit"));
        }
        let at_most = Keyword { name: "maxContains", ..k };
        found as f64 <= most || self.violation(at_most, format!("{found} of its items fit"))
    }
}
