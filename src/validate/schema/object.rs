//! The keywords of objects.

use serde_json::{Map, Value};

use super::{At, Child, Location, TOO_LONG, ValueCheck};

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn object(
        &mut self,
        members: &'d Map<String, Value>,
        keyword: &str,
        argument: &'d Value,
        object: &Map<String, Value>,
        value: &Value,
        place: Location,
    ) -> bool {
        let at_keyword = At::Key(place.schema, keyword);
        let mut valid = true;
        match keyword {
            "minProperties" | "maxProperties" => {
                valid = self.count(keyword, argument, object.len(), place)
            }
            "required" => {
                // Draft 3 has a boolean here, in the schema of the property.
                let Some(names) = argument.as_array() else {
                    return self.undecided(place, keyword, "is not an array");
                };
                if !self.spend(names.len()) {
                    return self.too_long(place);
                }
                for name in names
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|name| !object.contains_key(*name))
                {
                    valid = self.violation(place, keyword, format!("{name:?} is missing"));
                }
            }
            "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired"
            | "dependencies"
                if !argument.is_object() =>
            {
                self.undecided(place, keyword, "is not an object");
            }
            "properties" => {
                for (name, schema) in argument.as_object().into_iter().flatten() {
                    if let Some(member) = object.get(name) {
                        let at = Location {
                            value: &At::Key(place.value, name),
                            schema: &At::Key(&at_keyword, name),
                        };
                        valid &= self.schema(schema, member, at);
                    } else if !self.spend(1) {
                        return self.too_long(place);
                    }
                }
            }
            "patternProperties" => {
                for (pattern, schema) in argument.as_object().into_iter().flatten() {
                    let at_schema = At::Key(&at_keyword, pattern);
                    for (name, member) in object {
                        let at =
                            Location { value: &At::Key(place.value, name), schema: &at_schema };
                        match self.matches(pattern, name) {
                            Ok(true) => valid &= self.schema(schema, member, at),
                            Ok(false) => {}
                            Err(reason) => valid &= self.undecided(place, keyword, reason),
                        }
                    }
                }
            }
            "additionalProperties" => {
                for (name, member) in object {
                    let at = Location { value: &At::Key(place.value, name), schema: &at_keyword };
                    valid &= match self.named(members, name) {
                        Ok(true) => true,
                        Ok(false) if argument == &Value::Bool(false) => {
                            self.violation(at, keyword, "it is not a property".to_owned())
                        }
                        Ok(false) => self.schema(argument, member, at),
                        Err(reason) => self.undecided(place, keyword, reason),
                    };
                }
            }
            "unevaluatedProperties" => {
                for (name, member) in object {
                    let at = Location { value: &At::Key(place.value, name), schema: &at_keyword };
                    valid &= match self.covers(members, Child::Member(name, member), value, place) {
                        Some(true) => true,
                        Some(false) if argument == &Value::Bool(false) => {
                            self.violation(at, keyword, "it is not a property".to_owned())
                        }
                        Some(false) => self.schema(argument, member, at),
                        None => self.undecided(place, keyword, "what is left for it is not known"),
                    };
                }
            }
            "propertyNames" => {
                for name in object.keys() {
                    let text = Value::String(name.clone());
                    let at = Location { value: &At::Key(place.value, name), schema: &at_keyword };
                    valid &= self.schema(argument, &text, at);
                }
            }
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                if !self.spend(argument.as_object().map_or(0, Map::len)) {
                    return self.too_long(place);
                }
                for (name, wanted) in argument
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| object.contains_key(*name))
                {
                    valid &= match wanted {
                        Value::Array(names) => {
                            if !self.spend(names.len()) {
                                return self.too_long(place);
                            }
                            let missing = names
                                .iter()
                                .filter_map(Value::as_str)
                                .find(|name| !object.contains_key(*name));
                            match missing {
                                Some(missing) => self.violation(
                                    place,
                                    keyword,
                                    format!("{missing:?} is missing beside {name:?}"),
                                ),
                                None => true,
                            }
                        }
                        schema => self.schema(
                            schema,
                            value,
                            Location { schema: &At::Key(&at_keyword, name), ..place },
                        ),
                    };
                }
            }
            _ => {}
        }
        valid
    }

    /// Whether `properties` or `patternProperties` speak of a member of this name.
    pub(super) fn named(
        &mut self,
        members: &'d Map<String, Value>,
        name: &str,
    ) -> Result<bool, &'static str> {
        if members.get("properties").and_then(|properties| properties.get(name)).is_some() {
            return Ok(true);
        }
        for (pattern, _) in
            members.get("patternProperties").and_then(Value::as_object).into_iter().flatten()
        {
            if self.matches(pattern, name)? {
                return Ok(true);
            }
        }
        if self.spend(1) { Ok(false) } else { Err(TOO_LONG) }
    }
}
