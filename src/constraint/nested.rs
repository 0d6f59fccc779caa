//! Arrays and objects as nested elements that name the types of their values:
//! `<v name="a" type="raw">x</v>` in an object, `<v type="raw">x</v>` in an array.
//!
//! Elements end at the first end tag that is theirs, so no text inside contains the start or the end
//! of one. Strings are verbatim, and the values of other types are JSON.

use std::collections::HashMap;

use serde_json::Value;

use super::items;
use super::lark::{Lark, Symbol, escaped};
use super::members::{self, Member};
use super::raw_text;
use super::schema::{CheckedSchema, SchemaReport, with_stack};
use super::shape::{ArrayShape, ObjectShape, StringShape, ValueShape, shapes};
use crate::error::Result;
use crate::output::expressible::ExpressibleCalls;
use crate::output::format::{Tagged, ValueKind, with_entities};

/// Writes the nested elements of one tool.
pub(super) struct NestedWriter<'a> {
    form: &'a Tagged,
    kind: &'a ValueKind,
    /// The text of an item up to its type.
    item: &'a str,
    /// The text with which every element begins, which no value contains.
    start: &'a str,
    expressible: &'a ExpressibleCalls<'a>,
    checked: &'a CheckedSchema,
    /// The rules for definitions, by index.
    rules: HashMap<usize, String>,
    /// The rule for any value.
    any_value: Option<String>,
}

impl<'a> NestedWriter<'a> {
    /// None if arrays and objects are JSON, or if nested elements could not be read back: if
    /// whitespace would belong to their values, or an empty array is not told from an object.
    pub(super) fn new(
        form: &'a Tagged,
        expressible: &'a ExpressibleCalls<'a>,
        checked: &'a CheckedSchema,
    ) -> Option<NestedWriter<'a>> {
        let kind = form.kind.as_deref()?;
        let item = kind.item.as_deref()?;
        let start = item.trim_start();
        let start = &start[..start.find(char::is_whitespace).unwrap_or(start.len())];
        let is_exact = !start.is_empty()
            && form.close.starts_with(form.close.trim())
            && !kind.after.ends_with(char::is_whitespace)
            && kind.words.array != kind.words.object;
        let (rules, any_value) = (HashMap::new(), None);
        is_exact.then_some(NestedWriter {
            form,
            kind,
            item,
            start,
            expressible,
            checked,
            rules,
            any_value,
        })
    }

    /// The ways to write the word of an array or an object and what is inside its element.
    pub(super) fn contents(
        &mut self,
        lark: &mut Lark,
        shape: &ValueShape,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let words = &self.kind.words;
        let (word, rule) = match shape {
            ValueShape::Array(array) => (&words.array, self.array(lark, array, report)?),
            ValueShape::Object(object) => (&words.object, self.object(lark, object, report)?),
            _ => return Ok(Vec::new()),
        };
        let stated = self.stated(lark, word);
        Ok(rule.map(|rule| [stated, vec![rule]].concat()).into_iter().collect())
    }

    fn stated(&self, lark: &Lark, word: &str) -> Vec<Symbol> {
        lark.symbols(&format!("{word}{}", self.kind.after))
    }

    fn array(
        &mut self,
        lark: &mut Lark,
        array: &ArrayShape,
        report: &mut SchemaReport,
    ) -> Result<Option<Symbol>> {
        let mut first: Vec<Vec<Vec<Symbol>>> = Vec::new();
        for (at, schema) in &array.first {
            first.push(self.item_ways(lark, schema, at, report)?);
        }
        let rest = match &array.rest {
            Some((at, schema)) => self.item_ways(lark, schema, at, report)?,
            None => Vec::new(),
        };
        items::rule(lark, array, &first, &rest, &[], report)
    }

    fn item_ways(
        &mut self,
        lark: &mut Lark,
        schema: &Value,
        at: &str,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let open = lark.symbols(self.item);
        let values = self.values(lark, schema, at, report)?;
        Ok(values.into_iter().map(|value| [open.clone(), value].concat()).collect())
    }

    fn object(
        &mut self,
        lark: &mut Lark,
        object: &ObjectShape,
        report: &mut SchemaReport,
    ) -> Result<Option<Symbol>> {
        if let Some((at, schema)) = &object.others {
            let values = self.values(lark, schema, at, report)?;
            return Ok(Some(self.free_object(lark, values)));
        }
        let mut all = Vec::new();
        for property in &object.properties {
            if !self.expressible.key(&property.name, true) {
                report.refuse_key(&property.pointer, &property.name)?;
                continue;
            }
            let key = Symbol::Text(with_entities(&property.name, self.form.entities));
            let values = self.values(lark, &property.schema, &property.pointer, report)?;
            if values.is_empty() && property.required {
                return Err(report.error(&property.pointer, "", "no value is possible"));
            }
            let ways = values.into_iter().map(|value| self.member(lark, key.clone(), value));
            all.push(Member { ways: ways.collect(), required: property.required });
        }
        Ok(Some(members::rule(lark, &all, &[], &[])))
    }

    fn member(&self, lark: &Lark, key: Symbol, value: Vec<Symbol>) -> Vec<Symbol> {
        let (open, after_key) = (&self.form.open, &self.form.after_key);
        [lark.symbols(open), vec![key], lark.symbols(after_key), value].concat()
    }

    /// An object with any keys.
    fn free_object(&self, lark: &mut Lark, values: Vec<Vec<Symbol>>) -> Symbol {
        let end =
            self.form.after_key.chars().next().map_or(String::new(), |c| escaped(&c.to_string()));
        let key = lark.terminal(&format!("/[^<>&\\n{end}]{{1,64}}/"));
        let ways = values.into_iter().map(|value| self.member(lark, key.clone(), value));
        let ways: Vec<_> = ways.collect();
        self.repeated(lark, ways)
    }

    fn repeated(&self, lark: &mut Lark, ways: Vec<Vec<Symbol>>) -> Symbol {
        let name = lark.reserve();
        let next = Symbol::Rule(name.clone());
        let mut ways: Vec<_> =
            ways.into_iter().map(|way| [way, vec![next.clone()]].concat()).collect();
        ways.push(Vec::new());
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Symbol::Rule(name)
    }

    /// The ways to write a value of this schema, from the word of its type to its end tag.
    fn values(
        &mut self,
        lark: &mut Lark,
        schema: &Value,
        at: &str,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let mut ways = Vec::new();
        for shape in shapes(schema, at, self.checked, report)? {
            ways.extend(with_stack(|| self.ways(lark, shape, at, report))?);
        }
        Ok(ways)
    }

    fn ways(
        &mut self,
        lark: &mut Lark,
        shape: ValueShape,
        at: &str,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let close = &*self.form.close;
        let words = &self.kind.words;
        let closed = |lark: &mut Lark, word: &str, value: Symbol| {
            [self.stated(lark, word), vec![value], lark.symbols(close)].concat()
        };
        Ok(match shape {
            ValueShape::Any => vec![vec![self.any(lark, report)?]],
            ValueShape::Reference(index) => vec![vec![self.definition(lark, index, report)?]],
            ValueShape::String(text) => vec![self.text(lark, &text)],
            ValueShape::Constant(value) => {
                let text = match &value {
                    Value::String(text) => text.clone(),
                    value => value.to_string(),
                };
                let text = with_entities(&text, self.form.entities);
                match raw_text::constant(lark, &text, self.start, close) {
                    Some(text) => vec![[self.stated(lark, words.of(&value)), text].concat()],
                    None => {
                        let problem = format!("the value {value} cannot be expressed");
                        report.refuse_in_encoding(at, "enum", &problem)?;
                        Vec::new()
                    }
                }
            }
            ValueShape::Null => vec![closed(lark, &words.null, Symbol::Text("null".into()))],
            ValueShape::Boolean => {
                let values = ["true", "false"];
                values.map(|value| closed(lark, &words.boolean, Symbol::Text(value.into()))).into()
            }
            ValueShape::Number(schema) => {
                let mut ways = Vec::new();
                let is_integer = schema["type"] == "integer";
                if words.integer != words.number || is_integer {
                    let mut whole = schema.clone();
                    whole["type"] = "integer".into();
                    let value = lark.json(&whole);
                    ways.push(closed(lark, &words.integer, value));
                }
                if !is_integer {
                    let value = lark.json(&schema);
                    ways.push(closed(lark, &words.number, value));
                }
                ways
            }
            shape @ (ValueShape::Array(_) | ValueShape::Object(_)) => {
                let contents = self.contents(lark, &shape, report)?;
                let close = lark.symbols(close);
                contents.into_iter().map(|way| [way, close.clone()].concat()).collect()
            }
        })
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Symbol> {
        let stated = self.stated(lark, &self.kind.words.string);
        let text = raw_text::text_or_values(lark, text, &[], self.start, &self.form.close);
        [stated, text].concat()
    }

    fn definition(
        &mut self,
        lark: &mut Lark,
        index: usize,
        report: &mut SchemaReport,
    ) -> Result<Symbol> {
        if let Some(name) = self.rules.get(&index) {
            return Ok(Symbol::Rule(name.clone()));
        }
        let name = lark.reserve();
        self.rules.insert(index, name.clone());
        let (pointer, target) = &self.checked.targets[index];
        let ways = self.values(lark, target, pointer, report)?;
        if ways.is_empty() {
            return Err(report.error(pointer, "", "no value is possible"));
        }
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Ok(Symbol::Rule(name))
    }

    fn any(&mut self, lark: &mut Lark, report: &mut SchemaReport) -> Result<Symbol> {
        if let Some(name) = &self.any_value {
            return Ok(Symbol::Rule(name.clone()));
        }
        let name = lark.reserve();
        self.any_value = Some(name.clone());
        let value = vec![Symbol::Rule(name.clone())];
        let scalars = [
            ValueShape::String(StringShape::default()),
            ValueShape::Null,
            ValueShape::Boolean,
            ValueShape::Number(serde_json::json!({"type": "number"})),
        ];
        let mut ways = Vec::new();
        for scalar in scalars {
            ways.extend(self.ways(lark, scalar, "", report)?);
        }
        let close = lark.symbols(&self.form.close);
        let item = [lark.symbols(self.item), value.clone()].concat();
        let array = self.repeated(lark, vec![item]);
        let object = self.free_object(lark, vec![value]);
        let words = &self.kind.words;
        for (word, rule) in [(&words.array, array), (&words.object, object)] {
            ways.push([self.stated(lark, word), vec![rule], close.clone()].concat());
        }
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Ok(Symbol::Rule(name))
    }
}
