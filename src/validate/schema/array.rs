//! The keywords of arrays.

use serde_json::{Map, Value};

use super::{At, Child, Location, ValueCheck};

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn array(
        &mut self,
        members: &'d Map<String, Value>,
        keyword: &str,
        argument: &'d Value,
        value: &Value,
        place: Location,
    ) -> bool {
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let at_keyword = At::Key(place.schema, keyword);
        // Drafts before 2020-12 write `prefixItems` and `items` as `items` and `additionalItems`.
        let tuple = |name| members.get(name).and_then(Value::as_array).map(Vec::len);
        match keyword {
            "minItems" | "maxItems" => self.count(keyword, argument, items.len(), place),
            "uniqueItems" if argument == &Value::Bool(true) => {
                for (index, item) in items.iter().enumerate() {
                    for other in &items[..index] {
                        match self.equal(item, other) {
                            Some(false) => {}
                            Some(true) => {
                                return self.violation(
                                    place,
                                    keyword,
                                    "an item is there twice".to_owned(),
                                );
                            }
                            None => return self.undecided(place, keyword, "cannot be compared"),
                        }
                    }
                }
                true
            }
            "prefixItems" | "items" if argument.is_array() => {
                let schemas = argument.as_array().into_iter().flatten().enumerate();
                let mut valid = true;
                for ((index, schema), item) in schemas.zip(items) {
                    let at = Location {
                        value: &At::Index(place.value, index),
                        schema: &At::Index(&at_keyword, index),
                    };
                    valid &= self.schema(schema, item, at);
                }
                valid
            }
            "items" => {
                self.rest(tuple("prefixItems").unwrap_or(0), items, argument, &at_keyword, place)
            }
            "additionalItems" => match tuple("items") {
                Some(first) => self.rest(first, items, argument, &at_keyword, place),
                None => true,
            },
            "contains" => self.contains(members, argument, items, &at_keyword, place),
            "unevaluatedItems" => {
                let mut valid = true;
                for (index, item) in items.iter().enumerate() {
                    let at =
                        Location { value: &At::Index(place.value, index), schema: &at_keyword };
                    match self.covers(members, Child::Item(index, item), value, place) {
                        Some(true) => {}
                        Some(false) => valid &= self.schema(argument, item, at),
                        None => {
                            valid &=
                                self.undecided(place, keyword, "what is left for it is not known")
                        }
                    }
                }
                valid
            }
            _ => true,
        }
    }

    pub(super) fn rest(
        &mut self,
        first: usize,
        items: &[Value],
        schema: &'d Value,
        at: &At,
        place: Location,
    ) -> bool {
        let mut valid = true;
        for (index, item) in items.iter().enumerate().skip(first) {
            valid &= self.schema(
                schema,
                item,
                Location { value: &At::Index(place.value, index), schema: at },
            );
        }
        valid
    }

    pub(super) fn contains(
        &mut self,
        members: &Map<String, Value>,
        schema: &'d Value,
        items: &[Value],
        at: &At,
        place: Location,
    ) -> bool {
        let (mut found, mut open) = (0, 0);
        for (index, item) in items.iter().enumerate() {
            match self.holds(
                schema,
                item,
                Location { value: &At::Index(place.value, index), schema: at },
            ) {
                Some(holds) => found += usize::from(holds),
                None => open += 1,
            }
        }
        let limit = |keyword, default| members.get(keyword).map_or(Some(default), Value::as_f64);
        let (Some(least), Some(most)) =
            (limit("minContains", 1.0), limit("maxContains", f64::INFINITY))
        else {
            return self.undecided(place, "contains", "its limits are no numbers");
        };
        if ((found + open) as f64) < least {
            return self.violation(place, "contains", format!("{found} of its items fit"));
        }
        found as f64 <= most
            || self.violation(place, "maxContains", format!("{found} of its items fit"))
    }
}
