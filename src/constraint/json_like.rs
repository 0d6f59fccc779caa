//! Values in a syntax like JSON: objects in braces and arrays in brackets, but with other keys,
//! strings and constants.

use std::collections::HashMap;

use serde_json::Value;

use super::lark::{Lark, Symbol, literal, sequence};
use super::members::{self, Member};
use super::raw_text;
use super::schema::{CheckedSchema, SchemaReport, with_stack};
use super::shape::{ArrayShape, ObjectShape, StringShape, ValueShape, shapes};
use super::syntaxes::JsonLikeSyntax;
use crate::error::Result;
use crate::output::expressible::ExpressibleCalls;
use crate::output::format::Keywords;

/// The texts between members, and how their keys and values are written.
struct MemberLayout {
    colon: String,
    comma: String,
    /// Whether keys have no quotes.
    keywords: bool,
    /// The quote around strings without escapes.
    raw_quote: Option<char>,
}

/// Writes the values of one tool.
pub(super) struct JsonLikeWriter<'a, 'r> {
    syntax: &'a dyn JsonLikeSyntax,
    expressible: &'a ExpressibleCalls<'a>,
    checked: &'a CheckedSchema,
    report: &'a mut SchemaReport<'r>,
    /// The rules for definitions, by index.
    rules: HashMap<usize, String>,
    /// The rule for any value.
    any_value: Option<String>,
    /// The number of properties around the current value.
    depth: usize,
}

impl<'a, 'r> JsonLikeWriter<'a, 'r> {
    pub(super) fn new(
        syntax: &'a dyn JsonLikeSyntax,
        expressible: &'a ExpressibleCalls<'a>,
        checked: &'a CheckedSchema,
        report: &'a mut SchemaReport<'r>,
    ) -> JsonLikeWriter<'a, 'r> {
        let rules = HashMap::new();
        JsonLikeWriter { syntax, expressible, checked, report, rules, any_value: None, depth: 0 }
    }

    /// Like [`new`](Self::new), for the value of one parameter.
    pub(super) fn for_parameter(
        syntax: &'a dyn JsonLikeSyntax,
        expressible: &'a ExpressibleCalls<'a>,
        checked: &'a CheckedSchema,
        report: &'a mut SchemaReport<'r>,
    ) -> JsonLikeWriter<'a, 'r> {
        JsonLikeWriter { depth: 1, ..JsonLikeWriter::new(syntax, expressible, checked, report) }
    }

    /// The rule for keyword arguments, followed by `tail`. Keys have no quotes.
    pub(super) fn keywords(
        &mut self,
        lark: &mut Lark,
        form: &Keywords,
        object: &ObjectShape,
        tail: &[Symbol],
    ) -> Result<Symbol> {
        let layout = MemberLayout {
            colon: "=".to_owned(),
            comma: form.separator.to_string(),
            keywords: true,
            raw_quote: form.raw_quote,
        };
        self.members(lark, object, &layout, tail)
    }

    /// The rule for named values without braces, followed by `tail`.
    fn members(
        &mut self,
        lark: &mut Lark,
        object: &ObjectShape,
        layout: &MemberLayout,
        tail: &[Symbol],
    ) -> Result<Symbol> {
        let MemberLayout { colon, comma, keywords, raw_quote } = layout;
        let mut all = Vec::new();
        for property in &object.properties {
            let name = &property.name;
            let key = match keywords {
                true => Some(vec![Symbol::Text(name.clone())]),
                false => self.syntax.key(lark, name),
            };
            let Some(key) = key.filter(|_| self.expressible.key(name, self.depth > 0)) else {
                self.report.refuse_key(&property.pointer, name)?;
                continue;
            };
            self.depth += 1;
            let value = with_stack(|| {
                self.alternatives(lark, &property.schema, &property.pointer, *raw_quote)
            });
            self.depth -= 1;
            let ways = match value? {
                Some(value) => vec![[key, lark.symbols(colon), vec![value]].concat()],
                None if property.required => {
                    return Err(self.report.error(&property.pointer, "", "no value is possible"));
                }
                None => Vec::new(),
            };
            all.push(Member { ways, required: property.required });
        }
        let comma = lark.symbols(comma);
        Ok(members::rule(lark, &all, &comma, tail))
    }

    /// The rule for an object, including its braces.
    pub(super) fn object(&mut self, lark: &mut Lark, object: &ObjectShape) -> Result<Symbol> {
        let open = literal("{");
        let Some((at, schema)) = &object.others else {
            let layout = MemberLayout {
                colon: self.syntax.colon().to_owned(),
                comma: self.syntax.comma().to_owned(),
                keywords: false,
                raw_quote: None,
            };
            let Symbol::Rule(members) =
                self.members(lark, object, &layout, &[Symbol::Text("}".into())])?
            else {
                unreachable!("members are a rule")
            };
            return Ok(lark.rule(&format!("{open} {members}")));
        };
        let value = self.value(lark, schema, at)?;
        Ok(self.free_object(lark, value))
    }

    fn free_object(&mut self, lark: &mut Lark, value: Option<Symbol>) -> Symbol {
        let Some(value) = value else { return lark.rule(r#""{" "}""#) };
        let key = self.syntax.any_key(lark);
        let member = sequence(&[key, lark.symbols(self.syntax.colon()), vec![value]].concat());
        let member = lark.rule(&member);
        self.list(lark, "{", &member, 0, None, "}")
    }

    /// The rule for `open item comma item close`.
    fn list(
        &mut self,
        lark: &mut Lark,
        open: &str,
        item: &Symbol,
        least: usize,
        most: Option<usize>,
        close: &str,
    ) -> Symbol {
        let item = sequence(std::slice::from_ref(item));
        let comma = sequence(&lark.symbols(self.syntax.comma()));
        let (open, close) = (literal(open), literal(close));
        if most == Some(0) {
            return lark.rule(&format!("{open} {close}"));
        }
        let more = repeated(
            &format!("({comma} {item})"),
            least.saturating_sub(1),
            most.map(|most| most - 1),
        );
        let optional = if least == 0 { "?" } else { "" };
        lark.rule(&format!("{open} ({item} {more}){optional} {close}"))
    }

    /// The rule for a value; None if no value is possible.
    pub(super) fn value(
        &mut self,
        lark: &mut Lark,
        schema: &Value,
        at: &str,
    ) -> Result<Option<Symbol>> {
        with_stack(|| self.alternatives(lark, schema, at, None))
    }

    /// Like [`value`](Self::value). With `raw_quote`, strings are raw text in these quotes.
    fn alternatives(
        &mut self,
        lark: &mut Lark,
        schema: &Value,
        at: &str,
        raw_quote: Option<char>,
    ) -> Result<Option<Symbol>> {
        let raw_quote = raw_quote.map(String::from);
        let mut ways: Vec<Vec<Symbol>> = Vec::new();
        for shape in shapes(schema, at, self.checked, self.report)? {
            match (shape, &raw_quote) {
                (ValueShape::Any, Some(quote)) => {
                    ways.push(raw_text::quoted(lark, &StringShape::default(), quote));
                    ways.extend(self.any_but_text(lark));
                }
                (ValueShape::String(text), Some(quote)) => {
                    ways.push(raw_text::quoted(lark, &text, quote))
                }
                (ValueShape::Constant(Value::String(text)), Some(quote))
                    if !text.contains(quote.as_str()) =>
                {
                    let text = vec![Symbol::Text(text)];
                    ways.push([lark.symbols(quote), text, lark.symbols(quote)].concat())
                }
                (shape, _) => ways.extend(self.ways(lark, shape, at)?),
            }
        }
        Ok(if ways.is_empty() { None } else { Some(lark.choice_rule(ways)) })
    }

    /// The alternatives for a value of this shape.
    pub(super) fn ways(
        &mut self,
        lark: &mut Lark,
        shape: ValueShape,
        at: &str,
    ) -> Result<Vec<Vec<Symbol>>> {
        let mut ways: Vec<Vec<Symbol>> = Vec::new();
        let [null, yes, no] = self.syntax.constants();
        match shape {
            ValueShape::Any => ways.push(vec![self.any(lark)]),
            ValueShape::Constant(value) => match self.constant(lark, &value) {
                Some(text) => ways.push(text),
                None => {
                    let problem = format!("the value {value} cannot be expressed");
                    self.report.refuse_in_encoding(at, "", &problem)?;
                }
            },
            ValueShape::Null => ways.push(vec![Symbol::Text(null.to_owned())]),
            ValueShape::Boolean => {
                ways.extend([yes, no].map(|text| vec![Symbol::Text(text.to_owned())]))
            }
            ValueShape::Number(schema) => ways.push(vec![lark.json(&schema)]),
            ValueShape::String(text) => ways.extend(self.syntax.text(lark, &text)),
            ValueShape::Array(array) => {
                ways.extend(self.array(lark, &array)?.map(|rule| vec![rule]))
            }
            ValueShape::Object(object) => ways.push(vec![self.object(lark, &object)?]),
            ValueShape::Reference(index) => ways.push(vec![self.definition(lark, index)?]),
        }
        Ok(ways)
    }

    fn definition(&mut self, lark: &mut Lark, index: usize) -> Result<Symbol> {
        if let Some(name) = self.rules.get(&index) {
            return Ok(Symbol::Rule(name.clone()));
        }
        let name = lark.reserve();
        self.rules.insert(index, name.clone());
        let (pointer, target) = &self.checked.targets[index];
        let Some(value) = self.value(lark, target, pointer)? else {
            return Err(self.report.error(pointer, "", "no value is possible"));
        };
        lark.define(&name, &sequence(&[value]));
        Ok(Symbol::Rule(name))
    }

    fn array(&mut self, lark: &mut Lark, array: &ArrayShape) -> Result<Option<Symbol>> {
        let rest = match &array.rest {
            Some((at, schema)) => self.value(lark, schema, at)?,
            None => None,
        };
        if array.first.is_empty() {
            return Ok(match rest {
                Some(item) => Some(self.list(lark, "[", &item, array.least, array.most, "]")),
                None if array.least == 0 => Some(lark.rule(r#""[" "]""#)),
                None => None,
            });
        }
        let comma = self.syntax.comma().to_owned();
        let mut body = literal("[");
        for (index, (at, schema)) in array.first.iter().enumerate() {
            let Some(item) = self.value(lark, schema, at)? else { return Ok(None) };
            if index > 0 {
                body.push_str(&format!(" {}", sequence(&lark.symbols(&comma))));
            }
            body.push_str(&format!(" {}", sequence(&[item])));
        }
        let least = array.least.saturating_sub(array.first.len());
        let most = array.most.map(|most| most - array.first.len());
        match rest {
            Some(item) => {
                let item = sequence(&[lark.symbols(&comma), vec![item]].concat());
                body.push_str(&format!(" {}", repeated(&format!("({item})"), least, most)));
            }
            None if least > 0 => return Ok(None),
            None => {}
        }
        Ok(Some(lark.rule(&format!("{body} \"]\""))))
    }

    fn any(&mut self, lark: &mut Lark) -> Symbol {
        if let Some(name) = &self.any_value {
            return Symbol::Rule(name.clone());
        }
        let name = lark.reserve();
        self.any_value = Some(name.clone());
        let mut ways = self.syntax.text(lark, &StringShape::default());
        ways.extend(self.any_but_text(lark));
        let body = lark.choice(ways);
        lark.define(&name, &body);
        Symbol::Rule(name)
    }

    /// The alternatives for any value except a string.
    fn any_but_text(&mut self, lark: &mut Lark) -> Vec<Vec<Symbol>> {
        let item = self.any(lark);
        let constants = self.syntax.constants().map(|text| vec![Symbol::Text(text.to_owned())]);
        let mut ways = constants.to_vec();
        ways.push(vec![lark.json(&serde_json::json!({"type": "number"}))]);
        ways.push(vec![self.list(lark, "[", &item, 0, None, "]")]);
        ways.push(vec![self.free_object(lark, Some(item))]);
        ways
    }

    fn constant(&self, lark: &Lark, value: &Value) -> Option<Vec<Symbol>> {
        let text = |text: &str| vec![Symbol::Text(text.to_owned())];
        let [null, yes, no] = self.syntax.constants();
        let list = |open: &str, items: Vec<Vec<Symbol>>, close: &str| {
            let comma = lark.symbols(self.syntax.comma());
            [text(open), items.join(&comma[..]), text(close)].concat()
        };
        Some(match value {
            Value::Null => text(null),
            Value::Bool(true) => text(yes),
            Value::Bool(false) => text(no),
            Value::Number(number) => text(&number.to_string()),
            Value::String(string) => self.syntax.constant(lark, string)?,
            Value::Array(items) => {
                let items = items.iter().map(|item| self.constant(lark, item));
                list("[", items.collect::<Option<_>>()?, "]")
            }
            Value::Object(members) => {
                let member = |(key, value): (&String, &Value)| {
                    let key = self.syntax.key(lark, key)?;
                    let colon = lark.symbols(self.syntax.colon());
                    Some([key, colon, self.constant(lark, value)?].concat())
                };
                list("{", members.iter().map(member).collect::<Option<_>>()?, "}")
            }
        })
    }
}

fn repeated(what: &str, least: usize, most: Option<usize>) -> String {
    match (least, most) {
        (0, None) => format!("{what}*"),
        (least, None) => format!("{what}{{{least},}}"),
        (least, Some(most)) => format!("{what}{{{least},{most}}}"),
    }
}
