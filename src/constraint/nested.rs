//! Arrays and objects as nested elements that name the types of their values:
//! `<v name="a" type="raw">x</v>` in an object, `<v type="raw">x</v>` in an array.
//!
//! Elements end at the first end tag that is theirs, so no text inside contains the start or the end
//! of one. Strings are verbatim, and the values of other types are JSON.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Value, json};

use super::items;
use super::lark::{Lark, Symbol, escaped, merged};
use super::members::{self, Member};
use super::raw_text::{self, Excluded};
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
    /// The rules for values, by what they are and by the text after their types.
    rules: HashMap<(RuleOf, Vec<Symbol>), String>,
}

/// What a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RuleOf {
    /// The definition with this index.
    Definition(usize),
    AnyValue,
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
            && !kind.after_of_item(&form.after_key).ends_with(char::is_whitespace)
            && kind.words.array != kind.words.object;
        let rules = HashMap::new();
        is_exact.then_some(NestedWriter { form, kind, item, start, expressible, checked, rules })
    }

    /// The word for the type of an array or an object, and the rule for what is inside its element.
    /// None if too few items are possible.
    pub(super) fn contents(
        &mut self,
        lark: &mut Lark,
        shape: &ValueShape,
        report: &mut SchemaReport,
    ) -> Result<Option<(&'a str, Symbol)>> {
        let words = &self.kind.words;
        let (word, rule) = match shape {
            ValueShape::Array(array) => (&words.array, self.array(lark, array, report)?),
            ValueShape::Object(object) => (&words.object, self.object(lark, object, report)?),
            _ => return Ok(None),
        };
        Ok(rule.map(|rule| (&**word, rule)))
    }

    fn array(
        &mut self,
        lark: &mut Lark,
        array: &ArrayShape,
        report: &mut SchemaReport,
    ) -> Result<Option<Symbol>> {
        let (first, rest) =
            array.item_ways(|schema, at| self.element_ways(lark, None, schema, at, report))?;
        items::rule(lark, array, &first, &rest, &[], report)
    }

    fn object(
        &mut self,
        lark: &mut Lark,
        object: &ObjectShape,
        report: &mut SchemaReport,
    ) -> Result<Option<Symbol>> {
        if let Some((at, schema)) = &object.others {
            let key = self.any_key(lark);
            let ways = self.element_ways(lark, Some(key), schema, at, report)?;
            return Ok(Some(lark.repeated(&ways, &[])));
        }
        let mut all = Vec::new();
        for property in &object.properties {
            if !self.expressible.key(&property.name, true) {
                report.refuse_key(&property.pointer, &property.name)?;
                continue;
            }
            let key = Symbol::Text(with_entities(&property.name, self.form.entities));
            let (schema, at) = (&property.schema, &property.pointer);
            let ways = self.element_ways(lark, Some(key), schema, at, report)?;
            if ways.is_empty() && property.required {
                return Err(report.error(&property.pointer, "", "no value is possible"));
            }
            all.push(Member { ways, required: property.required });
        }
        Ok(Some(members::rule(lark, &all, &[], &[])))
    }

    /// The ways to write an element. An item of an array has no key.
    fn element_ways(
        &mut self,
        lark: &mut Lark,
        key: Option<Symbol>,
        schema: &Value,
        at: &str,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let (open, after_type) = self.around_type(lark, key);
        let values = self.values(lark, &after_type, schema, at, report)?;
        Ok(values.into_iter().map(|value| [open.clone(), value].concat()).collect())
    }

    /// The texts of an element before its type, and from its type to its value. Items have no key.
    fn around_type(&self, lark: &Lark, key: Option<Symbol>) -> (Vec<Symbol>, Vec<Symbol>) {
        let Tagged { open, after_key, .. } = self.form;
        let after = lark.symbols(&self.kind.after);
        let (open, after_key) = (lark.symbols(open), lark.symbols(after_key));
        match key {
            None => {
                let after = self.kind.after_of_item(&self.form.after_key);
                (lark.symbols(self.item), lark.symbols(after))
            }
            Some(key) if self.kind.before_key => (open, [after, vec![key], after_key].concat()),
            Some(key) => ([open, vec![key], after_key].concat(), after),
        }
    }

    /// The terminal for the keys of an object with any keys.
    fn any_key(&self, lark: &mut Lark) -> Symbol {
        let end =
            self.form.after_key.chars().next().map_or(String::new(), |c| escaped(&c.to_string()));
        lark.terminal(&format!("/[^<>&\\n{end}]{{1,64}}/"))
    }

    /// The ways to write a value of this schema, from the word of its type to its end tag.
    /// `after_type` is the text from the type to the value.
    fn values(
        &mut self,
        lark: &mut Lark,
        after_type: &[Symbol],
        schema: &Value,
        at: &str,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let mut ways = Vec::new();
        for shape in shapes(schema, at, self.checked, report)? {
            ways.extend(with_stack(|| self.ways(lark, after_type, shape, at, report))?);
        }
        Ok(ways)
    }

    fn ways(
        &mut self,
        lark: &mut Lark,
        after_type: &[Symbol],
        shape: ValueShape,
        at: &str,
        report: &mut SchemaReport,
    ) -> Result<Vec<Vec<Symbol>>> {
        let close = &*self.form.close;
        let words = &self.kind.words;
        let stated = |lark: &Lark, word: &str| merged([&*lark.symbols(word), after_type].concat());
        let closed = |lark: &mut Lark, word: &str, value: Symbol| {
            [stated(lark, word), vec![value], lark.symbols(close)].concat()
        };
        Ok(match shape {
            ValueShape::Any => vec![vec![self.any(lark, after_type, report)?]],
            ValueShape::Reference(index) => {
                vec![vec![self.definition(lark, after_type, index, report)?]]
            }
            ValueShape::String(text) => {
                let text =
                    raw_text::text_or_values(lark, &text, &[], &Excluded::text(self.start), close);
                vec![[stated(lark, &words.string), text].concat()]
            }
            ValueShape::Constant(value) => {
                let text = match &value {
                    Value::String(text) => text.clone(),
                    value => value.to_string(),
                };
                let text = with_entities(&text, self.form.entities);
                match raw_text::constant(lark, &text, &Excluded::text(self.start), close) {
                    Some(text) => vec![[stated(lark, words.of(&value)), text].concat()],
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
                contents.map(|(word, rule)| closed(lark, word, rule)).into_iter().collect()
            }
        })
    }

    fn definition(
        &mut self,
        lark: &mut Lark,
        after_type: &[Symbol],
        index: usize,
        report: &mut SchemaReport,
    ) -> Result<Symbol> {
        let (name, is_new) = self.rule(lark, RuleOf::Definition(index), after_type);
        if is_new {
            let (pointer, target) = &self.checked.targets[index];
            let ways = self.values(lark, after_type, target, pointer, report)?;
            if ways.is_empty() {
                return Err(report.error(pointer, "", "no value is possible"));
            }
            let body = lark.choice(ways);
            lark.define(&name, &body);
        }
        Ok(Symbol::Rule(name))
    }

    /// The name of a rule, and whether it must still be defined.
    fn rule(&mut self, lark: &mut Lark, of: RuleOf, after_type: &[Symbol]) -> (String, bool) {
        match self.rules.entry((of, after_type.to_vec())) {
            Entry::Occupied(known) => (known.get().clone(), false),
            Entry::Vacant(new) => (new.insert(lark.reserve()).clone(), true),
        }
    }

    /// The rule for a value of any type.
    fn any(
        &mut self,
        lark: &mut Lark,
        after_type: &[Symbol],
        report: &mut SchemaReport,
    ) -> Result<Symbol> {
        let (name, is_new) = self.rule(lark, RuleOf::AnyValue, after_type);
        if !is_new {
            return Ok(Symbol::Rule(name));
        }
        let shapes = [
            ValueShape::String(StringShape::default()),
            ValueShape::Null,
            ValueShape::Boolean,
            ValueShape::Number(json!({"type": "number"})),
        ];
        let mut ways = Vec::new();
        for shape in shapes {
            ways.extend(self.ways(lark, after_type, shape, "", report)?);
        }
        let any = Value::Bool(true);
        let items = self.element_ways(lark, None, &any, "", report)?;
        let key = self.any_key(lark);
        let members = self.element_ways(lark, Some(key), &any, "", report)?;
        let (words, close) = (&self.kind.words, lark.symbols(&self.form.close));
        for (word, ways_inside) in [(&words.array, items), (&words.object, members)] {
            let inside = vec![lark.repeated(&ways_inside, &[])];
            let head = [&*lark.symbols(word), after_type].concat();
            ways.push([merged(head), inside, close.clone()].concat());
        }
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Ok(Symbol::Rule(name))
    }
}
