//! The keywords of objects.

use serde_json::{Map, Value};

use super::{Child, Location, TOO_LONG, ValueCheck};
use crate::json_schema::{PointerPath, entries, strings};

const NOT_A_PROPERTY: &str = "it is not an allowed property";

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn object(
        &mut self,
        members: &'d Map<String, Value>,
        keyword: &str,
        argument: &'d Value,
        object: &Map<String, Value>,
        value: &Value,
        at: Location,
    ) -> bool {
        match keyword {
            "minProperties" | "maxProperties" => self.count(keyword, argument, object.len(), at),
            "required" => self.required(argument, object, at),
            "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired"
            | "dependencies"
                if !argument.is_object() =>
            {
                self.undecided(at, keyword, "is not an object")
            }
            "properties" => self.properties(argument, object, at),
            "patternProperties" => self.pattern_properties(argument, object, at),
            "additionalProperties" => self.additional_properties(members, argument, object, at),
            "unevaluatedProperties" => {
                self.unevaluated_properties(members, argument, object, value, at)
            }
            "propertyNames" => self.property_names(argument, object, at),
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                self.dependencies(keyword, argument, object, value, at)
            }
            _ => true,
        }
    }

    fn required(&mut self, argument: &Value, object: &Map<String, Value>, at: Location) -> bool {
        // In draft 3 this is a boolean, in the schema of the property.
        let Some(names) = argument.as_array() else {
            return self.undecided(at, "required", "is not an array");
        };
        if !self.spend(names.len()) {
            return self.too_long(at);
        }
        let mut valid = true;
        for name in strings(Some(argument)).filter(|name| !object.contains_key(*name)) {
            valid = self.violation(at, "required", format!("{name:?} is missing"));
        }
        valid
    }

    fn properties(
        &mut self,
        argument: &'d Value,
        object: &Map<String, Value>,
        at: Location,
    ) -> bool {
        let keyword = PointerPath::Key(at.schema, "properties");
        let mut valid = true;
        for (name, schema) in entries(Some(argument)) {
            if let Some(member) = object.get(name) {
                let at = Location {
                    value: &PointerPath::Key(at.value, name),
                    schema: &PointerPath::Key(&keyword, name),
                };
                valid &= self.schema(schema, member, at);
            } else if !self.spend(1) {
                return self.too_long(at);
            }
        }
        valid
    }

    fn pattern_properties(
        &mut self,
        argument: &'d Value,
        object: &Map<String, Value>,
        at: Location,
    ) -> bool {
        let keyword = PointerPath::Key(at.schema, "patternProperties");
        let mut valid = true;
        for (pattern, schema) in entries(Some(argument)) {
            let path = PointerPath::Key(&keyword, pattern);
            for (name, member) in object {
                match self.matches(pattern, name) {
                    Ok(true) => {
                        let value = &PointerPath::Key(at.value, name);
                        valid &= self.schema(schema, member, Location { value, schema: &path });
                    }
                    Ok(false) => {}
                    Err(reason) => valid &= self.undecided(at, "patternProperties", reason),
                }
            }
        }
        valid
    }

    fn additional_properties(
        &mut self,
        members: &'d Map<String, Value>,
        argument: &'d Value,
        object: &Map<String, Value>,
        at: Location,
    ) -> bool {
        const KEYWORD: &str = "additionalProperties";
        let schema = PointerPath::Key(at.schema, KEYWORD);
        let mut valid = true;
        for (name, member) in object {
            let inside = Location { value: &PointerPath::Key(at.value, name), schema: &schema };
            valid &= match self.is_listed(members, name) {
                Ok(true) => true,
                Ok(false) if argument == &Value::Bool(false) => {
                    self.violation(inside, KEYWORD, NOT_A_PROPERTY)
                }
                Ok(false) => self.schema(argument, member, inside),
                Err(reason) => self.undecided(at, KEYWORD, reason),
            };
        }
        valid
    }

    fn unevaluated_properties(
        &mut self,
        members: &'d Map<String, Value>,
        argument: &'d Value,
        object: &Map<String, Value>,
        value: &Value,
        at: Location,
    ) -> bool {
        const KEYWORD: &str = "unevaluatedProperties";
        let schema = PointerPath::Key(at.schema, KEYWORD);
        let mut valid = true;
        for (name, member) in object {
            let inside = Location { value: &PointerPath::Key(at.value, name), schema: &schema };
            valid &= match self.evaluates(members, Child::Member(name, member), value, at) {
                Some(true) => true,
                Some(false) if argument == &Value::Bool(false) => {
                    self.violation(inside, KEYWORD, NOT_A_PROPERTY)
                }
                Some(false) => self.schema(argument, member, inside),
                None => self.undecided(at, KEYWORD, super::unevaluated::UNKNOWN),
            };
        }
        valid
    }

    fn property_names(
        &mut self,
        argument: &'d Value,
        object: &Map<String, Value>,
        at: Location,
    ) -> bool {
        let schema = PointerPath::Key(at.schema, "propertyNames");
        let mut valid = true;
        for name in object.keys() {
            let inside = Location { value: &PointerPath::Key(at.value, name), schema: &schema };
            valid &= self.schema(argument, &Value::String(name.clone()), inside);
        }
        valid
    }

    fn dependencies(
        &mut self,
        keyword: &str,
        argument: &'d Value,
        object: &Map<String, Value>,
        value: &Value,
        at: Location,
    ) -> bool {
        let path = PointerPath::Key(at.schema, keyword);
        if !self.spend(argument.as_object().map_or(0, Map::len)) {
            return self.too_long(at);
        }
        let mut valid = true;
        for (name, dependency) in
            entries(Some(argument)).filter(|(name, _)| object.contains_key(*name))
        {
            let Some(names) = dependency.as_array() else {
                let schema = &PointerPath::Key(&path, name);
                valid &= self.schema(dependency, value, Location { schema, ..at });
                continue;
            };
            if !self.spend(names.len()) {
                return self.too_long(at);
            }
            if let Some(missing) =
                strings(Some(dependency)).find(|name| !object.contains_key(*name))
            {
                let reason = format!("{missing:?} is missing, which {name:?} requires");
                valid = self.violation(at, keyword, reason);
            }
        }
        valid
    }

    /// Whether `properties` or `patternProperties` apply to a member of this name.
    pub(super) fn is_listed(
        &mut self,
        members: &'d Map<String, Value>,
        name: &str,
    ) -> Result<bool, &'static str> {
        if members.get("properties").and_then(|properties| properties.get(name)).is_some() {
            return Ok(true);
        }
        for (pattern, _) in entries(members.get("patternProperties")) {
            if self.matches(pattern, name)? {
                return Ok(true);
            }
        }
        if self.spend(1) { Ok(false) } else { Err(TOO_LONG) }
    }
}
