//! Writes rules in EBNF for JSON of a schema.
//!
//! In: a checked schema with the whitespace of the template, as it is in the grammar in Lark. Out:
//! rules for the texts that llguidance accepts, or nothing if a keyword has no rules here.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::ebnf_rules::{EbnfRules, literal};
use super::schema::with_stack;
use crate::json_schema::{TypeSet, allowed_values, entries, list, strings, type_names};

/// The maximum of the bounds of strings and arrays. xgrammar may need memory for each item.
const MAX_BOUND: u64 = 1024;

/// JSON of any kind. A string has no control characters, and only escapes of Unicode scalar values.
const JSON: [(&str, &str); 7] = [
    ("json", r#"json_object | json_array | json_string | json_number | "true" | "false" | "null""#),
    ("json_object", r#""{" (json_string ": " json (", " json_string ": " json)*)? "}""#),
    ("json_array", r#""[" (json (", " json)*)? "]""#),
    ("json_string", r#""\"" json_char* "\"""#),
    (
        "json_char",
        r#"[^\u0022\u005c\u0000-\u001f\u007f] | "\\" ([\u0022\u005cbfnrt] | "u" json_unicode)"#,
    ),
    (
        "json_unicode",
        r#"[0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | [dD] [89abAB] [0-9a-fA-F]{2} "\\u" [dD] [c-fC-F] [0-9a-fA-F]{2}"#,
    ),
    ("json_number", r#""-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+\u002d]? [0-9]+)?"#),
];
/// A whole number.
const INTEGER: &str = r#""-"? ("0" | [1-9] [0-9]*)"#;

/// The keywords that have rules, and that may be together.
const KEYWORDS: [&str; 9] = [
    "type",
    "minLength",
    "maxLength",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "additionalProperties",
];

/// Writes the rules of one schema.
pub(super) struct SchemaRules<'r, 's> {
    rules: &'r mut EbnfRules,
    targets: Option<&'s Value>,
    /// The rules of the targets of references.
    names: HashMap<&'s str, String>,
    /// The references that are being followed, and whose targets have begun no array or object.
    followed: Vec<&'s str>,
}

impl<'r, 's> SchemaRules<'r, 's> {
    /// Adds the rules of a schema. Returns the name of the first one.
    pub(super) fn of(rules: &'r mut EbnfRules, schema: &'s Value) -> Option<String> {
        let style = &schema["x-guidance"];
        let is_fixed = style["whitespace_flexible"] == false
            && style["item_separator"] == ", "
            && style["key_separator"] == ": ";
        if !is_fixed {
            return None;
        }
        if rules.begin_json() {
            JSON.iter().for_each(|(name, body)| rules.define(name, body));
        }
        let targets = schema.get("$defs");
        let mut written =
            SchemaRules { rules, targets, names: HashMap::new(), followed: Vec::new() };
        written.value(schema)
    }

    /// The name of the rule for a value of a schema.
    fn value(&mut self, schema: &'s Value) -> Option<String> {
        with_stack(|| match schema {
            Value::Bool(true) => Some("json".to_owned()),
            Value::Object(members) => self.value_of(schema, members),
            _ => None,
        })
    }

    fn value_of(&mut self, schema: &'s Value, members: &'s Map<String, Value>) -> Option<String> {
        let keywords = members.keys().map(String::as_str);
        let keywords: Vec<&str> =
            keywords.filter(|keyword| !matches!(*keyword, "x-guidance" | "$defs")).collect();
        let only = |allowed: &[&str]| keywords.iter().all(|keyword| allowed.contains(keyword));
        let types = type_names(members.get("type"));
        if keywords.is_empty() {
            return Some("json".to_owned());
        }
        if only(&["$ref"]) {
            return self.target(members["$ref"].as_str()?);
        }
        if only(&["anyOf"]) {
            let possible = list(members.get("anyOf")).iter().filter(|way| **way != false);
            let ways = possible.map(|way| self.value(way)).collect::<Option<Vec<_>>>()?;
            return (!ways.is_empty()).then(|| self.rules.rule(&ways.join(" | ")));
        }
        if only(&["type", "enum", "const"])
            && let Some(values) = allowed_values(schema)
        {
            let fits = |value: &&&Value| {
                types.as_ref().is_none_or(|types| {
                    let mut types = types.iter().filter_map(|name| TypeSet::named(name));
                    types.any(|allowed| allowed.has(TypeSet::of(value)))
                })
            };
            let texts = values.iter().filter(fits).map(|value| literal(&text_of(value)));
            let texts: Vec<String> = texts.collect();
            return (!texts.is_empty()).then(|| self.rules.rule(&texts.join(" | ")));
        }
        if !only(&KEYWORDS) {
            return None;
        }
        let ways = types?.into_iter().map(|name| self.of_type(name, members));
        let ways = ways.collect::<Option<Vec<_>>>()?;
        match ways.as_slice() {
            [way] => Some(way.clone()),
            ways => Some(self.rules.rule(&ways.join(" | "))),
        }
    }

    fn of_type(&mut self, name: &str, members: &'s Map<String, Value>) -> Option<String> {
        match name {
            "null" => Some(literal("null")),
            "boolean" => Some(r#"("true" | "false")"#.to_owned()),
            "integer" => Some(self.rules.rule(INTEGER)),
            "number" => Some("json_number".to_owned()),
            "string" => self.string(members),
            "array" => self.separate(|rules| rules.array(members)),
            "object" => self.separate(|rules| rules.object(members)),
            _ => None,
        }
    }

    fn string(&mut self, members: &Map<String, Value>) -> Option<String> {
        let bounds = bounds(members, "minLength", "maxLength")?;
        if bounds == (0, None) {
            return Some("json_string".to_owned());
        }
        Some(self.rules.rule(&format!(r#""\"" json_char{} "\"""#, repetition(bounds))))
    }

    fn array(&mut self, members: &'s Map<String, Value>) -> Option<String> {
        let (least, most) = bounds(members, "minItems", "maxItems")?;
        let item = members.get("items").unwrap_or(&Value::Bool(true));
        if most == Some(0) || item == false {
            return (least == 0).then(|| literal("[]"));
        }
        let item = self.value(item)?;
        let more = repetition((least.saturating_sub(1), most.map(|most| most - 1)));
        let optional = if least == 0 { "?" } else { "" };
        let body = format!(r#""[" ({item} (", " {item}){more}){optional} "]""#);
        Some(self.rules.rule(&body))
    }

    /// An object that has the listed members only, in their order, or any others.
    fn object(&mut self, members: &'s Map<String, Value>) -> Option<String> {
        let listed: Vec<(&String, &Value)> = entries(members.get("properties")).collect();
        let required: Vec<&str> = strings(members.get("required")).collect();
        let others = members.get("additionalProperties").unwrap_or(&Value::Bool(true));
        if listed.is_empty() && required.is_empty() && others != false {
            let other = self.value(others)?;
            let member = format!(r#"json_string ": " {other}"#);
            return Some(self.rules.rule(&format!(r#""{{" ({member} (", " {member})*)? "}}""#)));
        }
        let is_listed = |name: &&str| listed.iter().any(|(listed, _)| listed == name);
        if others != false || !required.iter().all(is_listed) {
            return None;
        }
        let mut properties = Vec::new();
        for (name, schema) in listed {
            let is_required = required.contains(&name.as_str());
            match (schema == false, is_required) {
                (true, true) => return None,
                (true, false) => continue,
                (false, _) => {}
            }
            let name = literal(&format!("{}: ", Value::from(name.as_str())));
            properties.push((format!("{name} {}", self.value(schema)?), is_required));
        }
        // What follows each property.
        let mut after = vec![literal("}")];
        for (property, is_required) in properties.iter().skip(1).rev() {
            let optional = if *is_required { "" } else { "?" };
            let next = &after[after.len() - 1];
            after.push(self.rules.rule(&format!(r#"(", " {property}){optional} {next}"#)));
        }
        after.reverse();
        // The first property is at the latest the first one that is required.
        let first = properties.iter().position(|(_, is_required)| *is_required);
        let mut ways: Vec<String> = properties
            .iter()
            .zip(&after)
            .take(first.map_or(properties.len(), |first| first + 1))
            .map(|((property, _), after)| format!("{property} {after}"))
            .collect();
        if first.is_none() {
            ways.push(literal("}"));
        }
        Some(self.rules.rule(&format!(r#""{{" ({})"#, ways.join(" | "))))
    }

    /// The rule of a reference's target.
    fn target(&mut self, reference: &'s str) -> Option<String> {
        // Such a rule would begin with itself.
        if self.followed.contains(&reference) {
            return None;
        }
        if let Some(name) = self.names.get(reference) {
            return Some(name.clone());
        }
        let target = self.targets?.get(reference.strip_prefix("#/$defs/")?)?;
        let name = self.rules.reserve();
        self.names.insert(reference, name.clone());
        self.followed.push(reference);
        let body = self.value(target)?;
        self.followed.pop();
        self.rules.define(&name, &body);
        Some(name)
    }

    /// Writes rules of an array or object, which begins with a text.
    fn separate(&mut self, write: impl FnOnce(&mut Self) -> Option<String>) -> Option<String> {
        let followed = std::mem::take(&mut self.followed);
        let name = write(self);
        self.followed = followed;
        name
    }
}

/// The bounds that these keywords set. `None` if they are too large.
fn bounds(members: &Map<String, Value>, least: &str, most: &str) -> Option<(u64, Option<u64>)> {
    let bound = |keyword: &str| members.get(keyword).map(Value::as_u64);
    let (least, most) = (bound(least).unwrap_or(Some(0))?, bound(most));
    let most = match most {
        Some(most) => Some(most?),
        None => None,
    };
    (least.max(most.unwrap_or(0)) <= MAX_BOUND).then_some((least, most))
}

fn repetition((least, most): (u64, Option<u64>)) -> String {
    match (least, most) {
        (0, None) => "*".to_owned(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

/// A value as JSON with the whitespace of the rules.
fn text_of(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text_of).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), text_of(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}
