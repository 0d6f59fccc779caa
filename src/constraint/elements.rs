//! Nested elements: one element for each key of an object, and a repeated element for an array.

use std::collections::HashMap;

use serde_json::Value;

use super::items;
use super::lark::{Lark, Symbol};
use super::members::{self, Member};
use super::open_elements::OpenElements;
use super::raw_text::{self, Excluded, RawValue};
use super::schema::{CheckedSchema, SchemaReport, with_stack};
use super::shape::{ArrayShape, ObjectShape, StringShape, ValueShape, shapes};
use crate::error::Result;
use crate::output::expressible::ExpressibleCalls;

/// Writes the elements of one tool.
pub(super) struct Elements<'a, 'r> {
    /// The text at the start of every tag.
    prefix: &'a str,
    /// The name of the element for array items.
    item: &'a str,
    expressible: &'a ExpressibleCalls<'a>,
    checked: &'a CheckedSchema,
    /// Collects the keywords that cannot be enforced.
    report: &'a mut SchemaReport<'r>,
    /// The rules for definitions, by index and tag, and whether the element is an item of an array
    /// without a tag of its own.
    rules: HashMap<(usize, String, bool), String>,
    /// The rule for an item of any type.
    any_item: Option<String>,
    open: OpenElements,
}

impl<'a, 'r> Elements<'a, 'r> {
    pub(super) fn new(
        (prefix, item): (&'a str, &'a str),
        expressible: &'a ExpressibleCalls<'a>,
        checked: &'a CheckedSchema,
        report: &'a mut SchemaReport<'r>,
    ) -> Elements<'a, 'r> {
        let (rules, any_item, open) = (HashMap::new(), None, OpenElements::default());
        Elements { prefix, item, expressible, checked, report, rules, any_item, open }
    }

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
        self.open.push(tag);
        let values = self.values(lark, tag, schema, at, false);
        self.open.pop();
        Ok(values?.into_iter().map(|value| [open.clone(), value].concat()).collect())
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
        with_stack(|| self.ways(lark, tag, schema, at, repeats))
    }

    fn ways(
        &mut self,
        lark: &mut Lark,
        tag: &str,
        schema: &Value,
        at: &str,
        repeats: bool,
    ) -> Result<Vec<Vec<Symbol>>> {
        let close = format!("{}</{tag}>", self.prefix);
        let mut ways = Vec::new();
        let mut all = shapes(schema, at, self.checked, self.report)?;
        let is_string =
            !all.iter().any(|shape| matches!(shape, ValueShape::Any | ValueShape::Array(_)));
        let excluded = self.excluded(is_string);
        if let Some(RawValue { text, others }) = raw_text::union(&mut all, at, self.report)? {
            return Ok(vec![raw_text::text_or_values(lark, &text, &others, &excluded, &close)]);
        }
        let is_union = all.len() > 1;
        for shape in all {
            let closed =
                |lark: &mut Lark, value: Symbol| [vec![value], lark.symbols(&close)].concat();
            match shape {
                ValueShape::Any => ways.extend(self.any_value(lark, tag)),
                ValueShape::String(text) => {
                    ways.push(raw_text::text_or_values(lark, &text, &[], &excluded, &close))
                }
                ValueShape::Constant(value @ Value::Array(_)) if self.item.is_empty() => {
                    let problem = format!("the array {value} cannot be told from its first item");
                    self.report.refuse_in_encoding(at, "enum", &problem)?;
                }
                // An array or an object is JSON.
                ValueShape::Constant(value) => {
                    let text = match &value {
                        Value::String(text) => text.clone(),
                        value => value.to_string(),
                    };
                    match raw_text::constant(lark, &text, &excluded, &close) {
                        Some(way) => ways.push(way),
                        None => {
                            let problem = format!("the value {value} cannot be expressed");
                            self.report.refuse_in_encoding(at, "enum", &problem)?;
                        }
                    }
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
                // An end tag must repeat the name of its element, so elements of any name are no rule.
                // Such an object is JSON.
                ValueShape::Object(object) if object.others.is_some() => {
                    let json = lark.json(&self.checked.json_of(&object.schema));
                    ways.push(closed(lark, json));
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
                ValueShape::Array(array) if self.item.is_empty() && array.most == Some(0) => {
                    let problem = "an empty array cannot be written";
                    self.report.refuse_in_encoding(at, "maxItems", problem)?;
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

    /// What a text in the innermost element cannot contain.
    fn excluded(&self, is_string: bool) -> Excluded {
        self.open.excluded(self.prefix, self.expressible.prepared.closing_tags(), is_string)
    }

    /// The alternatives for a value of any type and its closing tag: a text, which may be JSON, or
    /// items.
    fn any_value(&mut self, lark: &mut Lark, tag: &str) -> Vec<Vec<Symbol>> {
        let close = format!("{}</{tag}>", self.prefix);
        let (text, excluded) = (StringShape::default(), self.excluded(false));
        let mut ways = vec![raw_text::text_or_values(lark, &text, &[], &excluded, &close)];
        if !self.item.is_empty() {
            let open = self.tag(lark, &format!("<{}>", self.item));
            let item = [open, vec![self.any_item(lark)]].concat();
            let rest = lark.reserve();
            let next = vec![Symbol::Rule(rest.clone())];
            let body = lark.choice(vec![[&*item, &*next].concat(), lark.symbols(&close)]);
            lark.define(&rest, &body);
            ways.push([item, next].concat());
        }
        ways
    }

    /// The rule for an item of any type and its closing tag.
    fn any_item(&mut self, lark: &mut Lark) -> Symbol {
        if let Some(name) = &self.any_item {
            return Symbol::Rule(name.clone());
        }
        let name = lark.reserve();
        self.any_item = Some(name.clone());
        let around = std::mem::replace(&mut self.open, OpenElements::in_definition(self.item));
        let ways = self.any_value(lark, self.item);
        self.open = around;
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Symbol::Rule(name)
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
        let around = std::mem::replace(&mut self.open, OpenElements::in_definition(tag));
        let ways = self.values(lark, tag, target, pointer, repeats);
        self.open = around;
        let ways = ways?;
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
        let (mut first, rest) =
            array.item_ways(|schema, at| self.values(lark, tag, schema, at, true))?;
        if first.is_empty() {
            first.push(rest.clone());
        }
        if first[0].is_empty() {
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
        let (first, rest) = array.item_ways(|schema, at| self.element(lark, &item, schema, at))?;
        items::rule(lark, array, &first, &rest, &close, self.report)
    }
}
