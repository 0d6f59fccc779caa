//! The keywords of objects.

use serde_json::{Map, Value};

use super::{Child, Keyword, Location, TOO_LONG, ValueCheck};
use crate::json_schema::{PointerPath, entries, strings};

const NOT_A_PROPERTY: &str = "it is not an allowed property";

impl<'d> ValueCheck<'_, 'd> {
    pub(super) fn object(
        &mut self,
        k: Keyword<'_, 'd>,
        object: &Map<String, Value>,
        value: &Value,
    ) -> bool {
        match k.name {
            "minProperties" | "maxProperties" => self.count(k, object.len()),
            "required" => self.required(k, object),
            "properties" | "patternProperties" | "dependentSchemas" | "dependentRequired"
            | "dependencies"
                if !k.argument.is_object() =>
            {
                self.undecided(k, "is not an object")
            }
            "properties" => self.properties(k, object),
            "patternProperties" => self.pattern_properties(k, object),
            "additionalProperties" => self.additional_properties(k, object),
            "unevaluatedProperties" => self.unevaluated_properties(k, object, value),
            "propertyNames" => self.property_names(k, object),
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                self.dependencies(k, object, value)
            }
            _ => true,
        }
    }

    fn required(&mut self, k: Keyword<'_, 'd>, object: &Map<String, Value>) -> bool {
        // In draft 3, `required` is a boolean in the schema of the property.
        let Some(names) = k.argument.as_array() else {
            return self.undecided(k, "is not an array");
        };
        if !self.spend(names.len()) {
            return self.too_long(k.at);
        }
        let mut valid = true;
        for name in strings(Some(k.argument)).filter(|name| !object.contains_key(*name)) {
            valid = self.violation(k, format!("{name:?} is missing"));
        }
        valid
    }

    fn properties(&mut self, k: Keyword<'_, 'd>, object: &Map<String, Value>) -> bool {
        let path = k.path();
        let mut valid = true;
        for (name, schema) in entries(Some(k.argument)) {
            if let Some(member) = object.get(name) {
                let (value, schema_path) =
                    (&PointerPath::Key(k.at.value, name), &PointerPath::Key(&path, name));
                valid &= self.schema(schema, member, Location { value, schema: schema_path });
            } else if !self.spend(1) {
                return self.too_long(k.at);
            }
        }
        valid
    }

    fn pattern_properties(&mut self, k: Keyword<'_, 'd>, object: &Map<String, Value>) -> bool {
        let path = k.path();
        let mut valid = true;
        for (pattern, schema) in entries(Some(k.argument)) {
            let path = PointerPath::Key(&path, pattern);
            for (name, member) in object {
                if !self.spend(1) {
                    return self.too_long(k.at);
                }
                valid &= match self.matches(pattern, name) {
                    Ok(true) => {
                        let value = &PointerPath::Key(k.at.value, name);
                        self.schema(schema, member, Location { value, schema: &path })
                    }
                    Ok(false) => true,
                    Err(reason) => self.undecided(k, reason),
                };
            }
        }
        valid
    }

    fn additional_properties(&mut self, k: Keyword<'_, 'd>, object: &Map<String, Value>) -> bool {
        let mut valid = true;
        for (name, member) in object {
            valid &= match self.is_listed(k.schema, name) {
                Ok(true) => true,
                Ok(false) => self.unlisted(k, name, member),
                Err(reason) => self.undecided(k, reason),
            };
        }
        valid
    }

    fn unevaluated_properties(
        &mut self,
        k: Keyword<'_, 'd>,
        object: &Map<String, Value>,
        value: &Value,
    ) -> bool {
        let mut valid = true;
        for (name, member) in object {
            valid &= match self.evaluates(k.schema, Child::Member(name, member), value, k.at) {
                Some(true) => true,
                Some(false) => self.unlisted(k, name, member),
                None => self.undecided(k, super::unevaluated::UNKNOWN),
            };
        }
        valid
    }

    /// Checks a member to which no other keyword applies.
    fn unlisted(&mut self, k: Keyword<'_, 'd>, name: &str, member: &Value) -> bool {
        let at = Location { value: &PointerPath::Key(k.at.value, name), schema: &k.path() };
        if k.argument == &Value::Bool(false) {
            return self.violation(Keyword { at, ..k }, NOT_A_PROPERTY);
        }
        self.schema(k.argument, member, at)
    }

    fn property_names(&mut self, k: Keyword<'_, 'd>, object: &Map<String, Value>) -> bool {
        let schema = &k.path();
        let mut valid = true;
        for name in object.keys() {
            let value = &PointerPath::Key(k.at.value, name);
            let text = Value::String(name.clone());
            valid &= self.schema(k.argument, &text, Location { value, schema });
        }
        valid
    }

    fn dependencies(
        &mut self,
        k: Keyword<'_, 'd>,
        object: &Map<String, Value>,
        value: &Value,
    ) -> bool {
        let path = k.path();
        if !self.spend(k.argument.as_object().map_or(0, Map::len)) {
            return self.too_long(k.at);
        }
        let mut valid = true;
        let present = entries(Some(k.argument)).filter(|(name, _)| object.contains_key(*name));
        for (name, dependency) in present {
            let Some(names) = dependency.as_array() else {
                let schema = &PointerPath::Key(&path, name);
                valid &= self.schema(dependency, value, Location { schema, ..k.at });
                continue;
            };
            if !self.spend(names.len()) {
                return self.too_long(k.at);
            }
            if let Some(missing) =
                strings(Some(dependency)).find(|name| !object.contains_key(*name))
            {
                valid =
                    self.violation(k, format!("{missing:?} is missing, which {name:?} requires"));
            }
        }
        valid
    }

    /// Whether `properties` or `patternProperties` applies to a member with this name.
    pub(super) fn is_listed(
        &mut self,
        schema: &'d Map<String, Value>,
        name: &str,
    ) -> Result<bool, &'static str> {
        if schema.get("properties").and_then(|properties| properties.get(name)).is_some() {
            return Ok(true);
        }
        for (pattern, _) in entries(schema.get("patternProperties")) {
            if self.matches(pattern, name)? {
                return Ok(true);
            }
        }
        if self.spend(1) { Ok(false) } else { Err(TOO_LONG) }
    }
}
