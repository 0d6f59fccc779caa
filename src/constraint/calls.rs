//! Writes the grammar of tool calls, exactly as the model's template renders them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::elements::Elements;
use super::json_like::JsonLikeWriter;
use super::lark::{Lark, Symbol, escaped};
use super::nested::NestedWriter;
use super::schema::{self, CheckedSchema, Policy, Relaxed, SchemaReport};
use super::shape::{ObjectShape, ValueShape, resolved};
use super::syntaxes::{JsonTextSyntax, Pairs, Python};
use super::tagged::TaggedWriter;
use crate::api::{function_name, function_parameters, is_strict};
use crate::error::Result;
use crate::json_schema::{child, strings, type_names};
use crate::output::expressible::ExpressibleCalls;
use crate::output::format::{CallPart, CallSyntax, Encoding, IdForm, written_name};

/// The number of calls whose ids must contain their exact position. The ids of later calls may
/// contain any number.
const COUNTED: usize = 10;

/// A tool that may be called, with its index in the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllowedTool<'a> {
    pub(super) index: usize,
    pub(super) definition: &'a Value,
}

/// The calls that a request allows.
pub(super) struct RequestCalls<'a> {
    expressible: &'a ExpressibleCalls<'a>,
    /// All tools of the request, by name.
    tools: Vec<(&'a str, &'a Value)>,
    /// The tools that may be called.
    allowed: &'a [AllowedTool<'a>],
    /// Whether the reply must have a call.
    forced: bool,
}

impl<'a> RequestCalls<'a> {
    pub(super) fn new(
        expressible: &'a ExpressibleCalls<'a>,
        tools: &'a [Value],
        allowed: &'a [AllowedTool<'a>],
        forced: bool,
    ) -> RequestCalls<'a> {
        let mut tools: Vec<_> = tools.iter().map(|tool| (function_name(tool), tool)).collect();
        tools.sort_by_key(|(name, _)| *name);
        RequestCalls { expressible, tools, allowed, forced }
    }

    /// The tools that matter for reading a call of this name: those whose names begin with it, and
    /// those with which it begins.
    fn alike(&self, name: &str) -> Arc<Vec<Value>> {
        let from = |name: &str| &self.tools[self.tools.partition_point(|(it, _)| *it < name)..];
        let longer = from(name).iter().take_while(|(other, _)| other.starts_with(name));
        let beginnings = name.char_indices().map(|(at, _)| &name[..at]);
        let shorter = beginnings
            .filter_map(|beginning| from(beginning).first().filter(|(it, _)| *it == beginning));
        Arc::new(longer.chain(shorter).map(|(_, tool)| (*tool).clone()).collect())
    }

    /// The policy for a tool that the format cannot carry. A forced call is refused, because the
    /// model could write no other.
    fn carrying_policy(&self, tool: &AllowedTool) -> Policy {
        Policy::of(self.forced || is_strict(tool.definition))
    }
}

/// The alternatives for the calls of a turn, from the start of the section to its end.
pub(super) fn calls_of_turn(
    lark: &mut Lark,
    calls: &CallSyntax,
    request: &RequestCalls,
    parallel: bool,
    relaxed: &mut Vec<Relaxed>,
) -> Result<Vec<Vec<Symbol>>> {
    let mut tools = Vec::with_capacity(request.allowed.len());
    let mut written = Vec::with_capacity(request.allowed.len());
    for tool in request.allowed {
        if can_be_called(request, tool, relaxed)? {
            written.push(arguments(lark, calls, request, tool, relaxed)?);
            tools.push(*tool);
        }
    }
    let counts = calls
        .call
        .iter()
        .any(|part| matches!(part, CallPart::Id(IdForm::Index(_) | IdForm::Named { .. })));
    let positions = if counts { COUNTED } else { 1 };
    let after: Vec<String> = (0..positions).map(|_| lark.reserve()).collect();
    for (position, name) in after.iter().enumerate() {
        let mut ways = Vec::new();
        if parallel {
            let next = (position + 1).min(positions);
            for (tool, arguments) in tools.iter().zip(&written) {
                let call = call(lark, calls, function_name(tool.definition), arguments, next);
                let name = Symbol::Rule(after[next.min(positions - 1)].clone());
                ways.push([lark.symbols(&calls.separator), call, vec![name]].concat());
            }
        }
        ways.push(lark.symbols(&calls.close));
        let body = lark.choice(ways);
        lark.define(name, &body);
    }
    let first = tools.iter().zip(&written).map(|(tool, arguments)| {
        let call = call(lark, calls, function_name(tool.definition), arguments, 0);
        [lark.symbols(&calls.open), call, vec![Symbol::Rule(after[0].clone())]].concat()
    });
    Ok(first.collect())
}

/// Whether the format can carry calls of the tool: its name, and the keys that every call has.
fn can_be_called(
    request: &RequestCalls,
    tool: &AllowedTool,
    relaxed: &mut Vec<Relaxed>,
) -> Result<bool> {
    let name = function_name(tool.definition);
    let path = format!("tools[{}].function.name", tool.index);
    let mut report = SchemaReport::new(path, Some(name), request.carrying_policy(tool), relaxed);
    if !request.expressible.name(name, &request.alike(name)) {
        let problem = "calls with this name cannot be written in this model's call format";
        report.refuse("", "", &format!("{problem}; rename the tool"))?;
        return Ok(false);
    }
    let path = format!("tools[{}].function.parameters", tool.index);
    let mut report = SchemaReport::new(path, Some(name), request.carrying_policy(tool), relaxed);
    let parameters = function_parameters(tool.definition);
    let keys = strings(parameters.and_then(|schema| schema.get("required")));
    let mut keys = keys.filter(|key| !request.expressible.key(key, false));
    if let Some(key) = keys.next() {
        report.refuse_key(&child("/properties", key), key)?;
        return Ok(false);
    }
    Ok(true)
}

/// The symbols of one call, without the text after it.
fn call(
    lark: &mut Lark,
    calls: &CallSyntax,
    name: &str,
    arguments: &Symbol,
    position: usize,
) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    let mut skip_text = false;
    for (at, part) in calls.call.iter().enumerate() {
        let text = std::mem::take(&mut skip_text);
        match part {
            // The rule of the arguments includes the text that follows them.
            CallPart::Text(_) if text => {}
            CallPart::Text(text) => symbols.extend(lark.symbols(text)),
            CallPart::Name => {
                let name = written_name(&calls.call, at, name);
                symbols.push(Symbol::Text(name.into_owned()))
            }
            CallPart::Arguments(_) => {
                symbols.push(arguments.clone());
                skip_text = true;
            }
            CallPart::Id(form) => match form {
                IdForm::Free => symbols.push(lark.terminal("/[A-Za-z0-9_\\-]{1,40}/")),
                IdForm::Alphanumeric(length) => {
                    symbols.push(lark.terminal(&format!("/[A-Za-z0-9]{{{length}}}/")))
                }
                IdForm::Index(first) => symbols.push(number(lark, first + position, position)),
                IdForm::Named { prefix, infix } => {
                    symbols.extend(lark.symbols(prefix));
                    symbols.push(Symbol::Text(name.to_owned()));
                    symbols.extend(lark.symbols(infix));
                    symbols.push(number(lark, position, position));
                }
            },
        }
    }
    symbols
}

fn number(lark: &mut Lark, number: usize, position: usize) -> Symbol {
    if position < COUNTED {
        Symbol::Text(number.to_string())
    } else {
        lark.terminal("/[1-9][0-9]{1,2}/")
    }
}

/// The rule for the arguments of a tool and the text directly after them.
fn arguments(
    lark: &mut Lark,
    calls: &CallSyntax,
    request: &RequestCalls,
    tool: &AllowedTool,
    relaxed: &mut Vec<Relaxed>,
) -> Result<Symbol> {
    let name = function_name(tool.definition);
    let policy = Policy::of(is_strict(tool.definition));
    let expressible = request.expressible;
    let path = format!("tools[{}].function.parameters", tool.index);
    let mut report = SchemaReport::new(path, Some(name), policy, relaxed);
    let mut checked = arguments_schema(function_parameters(tool.definition), &mut report)?;
    let mut parts = calls.call.iter().skip_while(|part| !matches!(part, CallPart::Arguments(_)));
    let Some(CallPart::Arguments(encoding)) = parts.next() else { return Ok(lark.rule(r#""""#)) };
    if encoding != &Encoding::Json {
        checked = checked.merged(&mut report)?;
    }
    let tail_text = match parts.next() {
        Some(CallPart::Text(text)) => &**text,
        _ => "",
    };
    let tail = lark.symbols(tail_text);
    let value = match encoding {
        Encoding::Json => lark.json(&checked.json()),
        Encoding::Tagged(form) => {
            let root = arguments_shape(&checked, &mut report)?;
            let own = Arc::new(vec![tool.definition.clone()]);
            let carries =
                |key: &str, value: &Value| expressible.call(name, &json!({ key: value }), &own);
            let mut writer = TaggedWriter {
                form,
                expressible,
                checked: &checked,
                report: &mut report,
                nested: NestedWriter::new(form, expressible, &checked),
                carries: &carries,
            };
            return writer.arguments(lark, &root, tail_text);
        }
        Encoding::Elements { prefix, item } => {
            let root = arguments_shape(&checked, &mut report)?;
            let form = (&**prefix, &**item);
            let mut elements = Elements::new(form, expressible, &checked, &mut report);
            return elements.members(lark, &root, false, &tail);
        }
        Encoding::Python(form) => {
            let root = arguments_shape(&checked, &mut report)?;
            return JsonLikeWriter::new(&Python, expressible, &checked, &mut report)
                .keywords(lark, form, &root, &tail);
        }
        Encoding::Pairs { quote } => {
            let root = arguments_shape(&checked, &mut report)?;
            JsonLikeWriter::new(&Pairs(quote), expressible, &checked, &mut report)
                .object(lark, &root)?
        }
        Encoding::JsonText => {
            let root = arguments_shape(&checked, &mut report)?;
            let object = JsonLikeWriter::new(&JsonTextSyntax, expressible, &checked, &mut report)
                .object(lark, &root)?;
            let quote = Symbol::Text("\"".into());
            lark.choice_rule(vec![vec![quote.clone(), object, quote]])
        }
    };
    Ok(lark.choice_rule(vec![[vec![value], tail].concat()]))
}

/// The alternatives of text followed by a call without the format's tags, one for each tool: in a
/// fenced block, in an element of any name, or bare at the start of a line. With `needs_fence`, in a
/// fenced block only. The reply parser accepts such calls if their arguments match the tool's schema
/// (`output/parser/states/block.rs`). The grammar enforces the match from the tool's name and
/// `arguments` on, up to the end of the call's object.
pub(super) fn untagged(
    lark: &mut Lark,
    tools: &[AllowedTool],
    needs_fence: bool,
) -> Result<Vec<Vec<Symbol>>> {
    tools.iter().map(|tool| untagged_call(lark, tool, needs_fence)).collect()
}

fn untagged_call(lark: &mut Lark, tool: &AllowedTool, needs_fence: bool) -> Result<Vec<Symbol>> {
    // Dropped keywords are already reported for the calls in tags.
    let mut relaxed = Vec::new();
    let mut report = SchemaReport::new(String::new(), None, Policy::Relax, &mut relaxed);
    let checked = arguments_schema(function_parameters(tool.definition), &mut report)?;
    // The head ends at its first match, so the optional space after it is part of the arguments.
    let spaced = vec![Symbol::Text(" ".into()), lark.json(&checked.json())];
    let arguments = lark.choice_rule(vec![spaced[1..].to_vec(), spaced]);
    let name = escaped(&Value::from(function_name(tool.definition)).to_string());
    let fence = r"```[a-z_]*[ \n]*";
    let opening = match needs_fence {
        true => fence.to_owned(),
        false => format!(r"({fence}|<[A-Za-z_|]+>[ \n]*)?"),
    };
    // A call may begin a line, or follow another call.
    let head = lark.lazy(&format!(
        r#"/(?s:((.*\n)?[ ]*{opening}(\[[ \n]*)?|[ \n]*[,;][ \n]*)\{{[ \n]*"name":[ ]?{name},[ \n]*"(arguments|parameters)":)/"#
    ));
    let close = lark.terminal(r"/[ \n]*\}/");
    Ok(vec![head, arguments, close])
}

/// The schema of the arguments, which always describes an object. A tool without a schema has no
/// parameters.
fn arguments_schema(
    parameters: Option<&Value>,
    report: &mut SchemaReport,
) -> Result<CheckedSchema> {
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let schema = parameters.filter(|schema| schema != &&json!({})).unwrap_or(&none);
    let mut checked = schema::check(schema, report)?;
    let Value::Object(root) = &mut checked.root else {
        return Err(report.error("", "", &format!("arguments must be an object, not {schema}")));
    };
    let is_object = type_names(root.get("type")).is_none_or(|names| names.contains(&"object"));
    if !is_object {
        return Err(report.error(
            "",
            "type",
            &format!("arguments must be an object, not {}", root["type"]),
        ));
    }
    root.insert("type".into(), "object".into());
    Ok(checked)
}

/// The shape of the arguments, for encodings that write each parameter separately.
fn arguments_shape(checked: &CheckedSchema, report: &mut SchemaReport) -> Result<ObjectShape> {
    const NOT_ONE_LIST: &str = "its parameters are not one list of properties";
    let lists =
        resolved(&checked.root, "", checked, report)?.into_iter().filter_map(|shape| match shape {
            ValueShape::Object(object) => Some(object),
            _ => None,
        });
    let lists: Vec<ObjectShape> = lists.collect();
    if lists.len() > 1 {
        report.refuse("", "", NOT_ONE_LIST)?;
    }
    let all = lists.into_iter().reduce(ObjectShape::or);
    all.ok_or_else(|| report.error("", "", NOT_ONE_LIST))
}
