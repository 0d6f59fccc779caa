//! Nested elements: one element for each key of an object, and a repeated element for an array.

use std::collections::HashMap;

use serde_json::Value;

use super::lark::{Lark, Symbol};
use super::members::{self, Member};
use super::raw_text::{self, RawValue};
use super::schema::{CheckedSchema, SchemaReport};
use super::shape::{ArrayShape, ObjectShape, StringShape, ValueShape, shapes};
use crate::error::Result;
use crate::output::expressible::ExpressibleCalls;

/// The maximum number of array items that a grammar can count.
const MAX_COUNTED: usize = 64;

/// Writes the elements of one tool.
pub(super) struct Elements<'a, 'r> {
    /// The text at the start of every tag.
    pub(super) prefix: &'a str,
    /// The name of the element for array items.
    pub(super) item: &'a str,
    pub(super) expressible: &'a ExpressibleCalls<'a>,
    pub(super) checked: &'a CheckedSchema,
    /// Collects the keywords that cannot be enforced.
    pub(super) report: &'a mut SchemaReport<'r>,
    /// The rules for definitions, by index and tag.
    pub(super) rules: HashMap<(usize, String), String>,
}

impl Elements<'_, '_> {
    /// The rule for the elements of an object, followed by `tail`. `nested` says whether it is not
    /// the arguments themselves.
    pub(super) fn members(
        &mut self,
        lark: &mut Lark,
        object: &ObjectShape,
        nested: bool,
        tail: &[Symbol],
    ) -> Result<Symbol> {
        let mut all = Vec::new();
        for property in &object.properties {
            let name = &property.name;
            if !self.expressible.key(name, nested) {
                self.report.refuse_key(&property.pointer, name)?;
                continue;
            }
            let ways = self.element(lark, name, &property.schema, &property.pointer)?;
            if ways.is_empty() && property.required {
                return Err(self.report.error(&property.pointer, "", "no value is possible"));
            }
            all.push(Member { ways, required: property.required });
        }
        Ok(members::rule(lark, &all, &[], tail))
    }

    fn element(
        &mut self,
        lark: &mut Lark,
        tag: &str,
        schema: &Value,
        at: &str,
    ) -> Result<Vec<Vec<Symbol>>> {
        let open = self.tag(lark, &format!("<{tag}>"));
        let values = self.values(lark, tag, schema, at)?;
        Ok(values.into_iter().map(|value| [open.clone(), value].concat()).collect())
    }

    /// A tag with the prefix. A special token in its name is text.
    fn tag(&self, lark: &Lark, tag: &str) -> Vec<Symbol> {
        [lark.symbols(self.prefix), vec![Symbol::Text(tag.to_owned())]].concat()
    }

    /// The alternatives for a value and its closing tag.
    fn values(
        &mut self,
        lark: &mut Lark,
        tag: &str,
        schema: &Value,
        at: &str,
    ) -> Result<Vec<Vec<Symbol>>> {
        let close = format!("{}</{tag}>", self.prefix);
        // With a prefix, text must not contain any tag. Without one, it must not contain its own
        // closing tag.
        let tag_start = if self.prefix.is_empty() { close.as_str() } else { self.prefix };
        let mut ways = Vec::new();
        let mut all = shapes(schema, at, self.checked, self.report)?;
        if let Some(RawValue { text, others }) = raw_text::union(&mut all, at, self.report)? {
            return Ok(vec![raw_text::text_or_values(lark, &text, &others, tag_start, &close)]);
        }
        for shape in all {
            let closed =
                |lark: &mut Lark, value: Symbol| [vec![value], lark.symbols(&close)].concat();
            match shape {
                ValueShape::Any => ways.push(raw_text::text_or_values(
                    lark,
                    &StringShape::default(),
                    &[],
                    tag_start,
                    &close,
                )),
                ValueShape::String(text) => {
                    ways.push(raw_text::text_or_values(lark, &text, &[], tag_start, &close))
                }
                ValueShape::Constant(Value::String(text)) => {
                    match raw_text::constant(lark, &text, tag_start, &close) {
                        Some(way) => ways.push(way),
                        None => {
                            let problem = format!("the value {text:?} cannot be expressed");
                            self.report.refuse_in_encoding(at, "enum", &problem)?;
                        }
                    }
                }
                ValueShape::Constant(value @ (Value::Array(_) | Value::Object(_))) => {
                    let problem = format!("the value {value} cannot be expressed");
                    self.report.refuse_in_encoding(at, "", &problem)?;
                }
                ValueShape::Constant(value) => {
                    ways.push(closed(lark, Symbol::Text(value.to_string())))
                }
                ValueShape::Null => ways.push(closed(lark, Symbol::Text("null".into()))),
                ValueShape::Boolean => {
                    ways.extend(
                        ["true", "false"].map(|text| closed(lark, Symbol::Text(text.into()))),
                    );
                }
                ValueShape::Number(schema) => {
                    let number = lark.json(&schema);
                    ways.push(closed(lark, number));
                }
                ValueShape::Object(object) => {
                    let tail = lark.symbols(&close);
                    ways.push(vec![self.members(lark, &object, true, &tail)?]);
                }
                ValueShape::Array(array) => {
                    ways.extend(self.array(lark, &array, &close)?.map(|rule| vec![rule]))
                }
                ValueShape::Reference(index) => ways.push(vec![self.definition(lark, index, tag)?]),
            }
        }
        Ok(ways)
    }

    fn definition(&mut self, lark: &mut Lark, index: usize, tag: &str) -> Result<Symbol> {
        let key = (index, tag.to_owned());
        if let Some(name) = self.rules.get(&key) {
            return Ok(Symbol::Rule(name.clone()));
        }
        let name = lark.reserve();
        self.rules.insert(key, name.clone());
        let (pointer, target) = &self.checked.targets[index];
        let ways = self.values(lark, tag, target, pointer)?;
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Ok(Symbol::Rule(name))
    }

    /// The rule for the items and the closing tag. None if too few items are possible.
    fn array(
        &mut self,
        lark: &mut Lark,
        array: &ArrayShape,
        close: &str,
    ) -> Result<Option<Symbol>> {
        let item = self.item.to_owned();
        let close = lark.symbols(close);
        let mut first = Vec::new();
        for (at, schema) in &array.first {
            first.push(self.element(lark, &item, schema, at)?);
        }
        let rest = match &array.rest {
            Some((at, schema)) => self.element(lark, &item, schema, at)?,
            None => Vec::new(),
        };
        let taken = first.len();
        let mut least = array.least.saturating_sub(taken);
        let mut most = array.most.map(|most| most.saturating_sub(taken));
        if rest.is_empty() {
            if least > 0 {
                return Ok(None);
            }
            most = Some(0);
        }
        if least > MAX_COUNTED || most.is_some_and(|most| most > MAX_COUNTED) {
            let at = array
                .rest
                .as_ref()
                .map(|(at, _)| at.trim_end_matches("/items"))
                .unwrap_or_default()
                .to_owned();
            self.report.refuse(
                &at,
                "maxItems",
                &format!("more than {MAX_COUNTED} items cannot be counted"),
            )?;
            (least, most) = (least.min(MAX_COUNTED), None);
        }
        // Built from the end: the rule after each number of items.
        let each_followed_by = |ways: &[Vec<Symbol>], next: &Symbol| -> Vec<Vec<Symbol>> {
            ways.iter().map(|way| [way.as_slice(), std::slice::from_ref(next)].concat()).collect()
        };
        let mut next = match most {
            None => {
                let name = lark.reserve();
                let mut ways = each_followed_by(&rest, &Symbol::Rule(name.clone()));
                ways.push(close.clone());
                let body = lark.choice(ways);
                lark.define(&name, &body);
                Symbol::Rule(name)
            }
            Some(_) => lark.choice_rule(vec![close.clone()]),
        };
        for written in (0..most.unwrap_or(least)).rev() {
            let mut ways = each_followed_by(&rest, &next);
            if written >= least {
                ways.push(close.clone());
            }
            next = lark.choice_rule(ways);
        }
        for ways in first.iter().rev() {
            next = lark.choice_rule(each_followed_by(ways, &next));
        }
        Ok(Some(next))
    }
}
