//! Nested elements: one element for each key of an object, and a repeated element for an array.

use std::collections::HashMap;

use serde_json::Value;

use super::items;
use super::lark::{Lark, Symbol};
use super::members::{self, Member};
use super::raw_text::{self, RawValue};
use super::schema::{CheckedSchema, SchemaReport};
use super::shape::{ArrayShape, ObjectShape, StringShape, ValueShape, shapes};
use crate::error::Result;
use crate::output::expressible::ExpressibleCalls;

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
    /// The rules for definitions, by index and tag, and whether the element is an item of an array
    /// without a tag of its own.
    pub(super) rules: HashMap<(usize, String, bool), String>,
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
        let values = self.values(lark, tag, schema, at, false)?;
        Ok(values.into_iter().map(|value| [open.clone(), value].concat()).collect())
    }

    /// A tag with the prefix. A special token in its name is text.
    fn tag(&self, lark: &Lark, tag: &str) -> Vec<Symbol> {
        [lark.symbols(self.prefix), vec![Symbol::Text(tag.to_owned())]].concat()
    }

    /// The alternatives for a value and its closing tag. `repeats` says whether the element is an
    /// item of an array that repeats it.
    fn values(
        &mut self,
        lark: &mut Lark,
        tag: &str,
        schema: &Value,
        at: &str,
        repeats: bool,
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
        let is_union = all.len() > 1;
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
                ValueShape::Array(_) if self.item.is_empty() && (repeats || is_union) => {
                    let problem = "an array inside of an array, or beside another type, cannot be \
                                   told from its items";
                    self.report.refuse_in_encoding(at, "type", problem)?;
                }
                ValueShape::Array(array) if self.item.is_empty() => {
                    ways.extend(self.repeated(lark, tag, &array)?.map(|rule| vec![rule]))
                }
                ValueShape::Array(array) => {
                    ways.extend(self.array(lark, &array, &close)?.map(|rule| vec![rule]))
                }
                ValueShape::Reference(index) => {
                    ways.push(vec![self.definition(lark, index, tag, repeats)?])
                }
            }
        }
        Ok(ways)
    }

    fn definition(
        &mut self,
        lark: &mut Lark,
        index: usize,
        tag: &str,
        repeats: bool,
    ) -> Result<Symbol> {
        let key = (index, tag.to_owned(), repeats);
        if let Some(name) = self.rules.get(&key) {
            return Ok(Symbol::Rule(name.clone()));
        }
        let name = lark.reserve();
        self.rules.insert(key, name.clone());
        let (pointer, target) = &self.checked.targets[index];
        let ways = self.values(lark, tag, target, pointer, repeats)?;
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Ok(Symbol::Rule(name))
    }

    /// The rule for an array that repeats its own element, from the first item's value on. An array
    /// without items cannot be written. None if no array is possible.
    fn repeated(
        &mut self,
        lark: &mut Lark,
        tag: &str,
        array: &ArrayShape,
    ) -> Result<Option<Symbol>> {
        let open = self.tag(lark, &format!("<{tag}>"));
        let mut first = Vec::new();
        for (at, schema) in &array.first {
            first.push(self.values(lark, tag, schema, at, true)?);
        }
        let rest = match &array.rest {
            Some((at, schema)) => self.values(lark, tag, schema, at, true)?,
            None => Vec::new(),
        };
        if first.is_empty() {
            first.push(rest.clone());
        }
        if first[0].is_empty() || array.most == Some(0) {
            return Ok(None);
        }
        let with_tag = |ways: &[Vec<Symbol>]| -> Vec<Vec<Symbol>> {
            ways.iter().map(|way| [&*open, way].concat()).collect()
        };
        for ways in &mut first[1..] {
            *ways = with_tag(ways);
        }
        items::rule(lark, array, &first, &with_tag(&rest), &[], self.report)
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
        items::rule(lark, array, &first, &rest, &close, self.report)
    }
}
