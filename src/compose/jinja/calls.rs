//! Writes the tool calls of an answer, and tool results, in Jinja.

use super::text::{Joined, between, filled, quoted, text, value};
use super::writer::{TOOL, TemplateWriter, parts, processed};
use crate::compose::spec::policy::ArgumentValues;
use crate::compose::spec::processor::Processor;
use crate::compose::spec::slots::SlotPattern;

const FUNCTION: &str = "(call.function if call.type == \"function\" else call)";
/// The function of a call. If slots name the parts of a call, its type does not matter.
const ANY_FUNCTION: &str = "(call.function if call.function else call)";

impl TemplateWriter<'_> {
    /// Replaces null content.
    pub(in crate::compose) fn null_content(&mut self) {
        let written = &self.spec.assistant_policy.null_content;
        if !written.is_empty() {
            self.lines.open("if message.content is none");
            self.lines.set("text", text(written));
            self.lines.close("endif");
        }
    }

    /// Strips the text of the answer, and sets `spoken`, which decides whether a separator precedes
    /// the calls. Neither includes the reasoning.
    pub(in crate::compose) fn spoken(&mut self) {
        if self.spec.assistant_policy.processor == Some(Processor::Strip) {
            self.lines.set("text", value("text | trim"));
        }
        if !self.spec.tool_policy.calls.separator.is_empty() {
            self.lines.set("spoken", value("text | trim"));
        }
    }

    /// Sets `calls` to the text of all calls of the message.
    pub(in crate::compose) fn calls(&mut self) {
        let spec = self.spec;
        self.lines.set("calls", text(""));
        self.lines.open("if message.tool_calls");
        self.lines.open("set calls");
        self.lines.open("for call in message.tool_calls");
        self.call();
        self.lines.close("endfor");
        self.lines.close("endset");
        if spec.tool_calls_template.parts().len() > 1 {
            self.lines.set("calls", filled(&spec.tool_calls_template, |_| value("calls")));
        }
        let separator = &spec.tool_policy.calls.separator;
        if !separator.is_empty() {
            let separator = value(&format!("({} if spoken else \"\")", quoted(separator)));
            let joined = if spec.assistant_template.comes_before("tool_calls", "content") {
                value("calls").append(separator)
            } else {
                separator.value("calls")
            };
            self.lines.set("calls", joined);
        }
        self.lines.close("endif");
    }

    /// Writes the macro for bare values, if arguments need it.
    pub(in crate::compose) fn bare(&mut self) {
        let policy = &self.spec.tool_policy.calls;
        if policy.argument_values != ArgumentValues::Bare || self.spec.argument_template.is_none() {
            return;
        }
        let quote = &policy.argument_quote;
        self.lines.comment("An argument's value without JSON's quotes.");
        self.lines.open("macro bare(argument)");
        self.lines.open("if argument is string");
        self.lines.write(text(quote).value("argument").text(quote));
        self.lines.or("elif argument is boolean");
        self.lines.write(value("(\"true\" if argument else \"false\")"));
        self.lines.or("elif argument is none");
        self.lines.write(text(&policy.argument_null));
        self.lines.or("elif argument is mapping");
        self.lines.write(text("{"));
        self.lines.open("for key, inner in argument | dictsort");
        self.lines.write(between(",", "loop.first").value("key").text(":").value("bare(inner)"));
        self.lines.close("endfor");
        self.lines.write(text("}"));
        self.lines.or("elif argument is iterable");
        self.lines.write(text("["));
        self.lines.open("for inner in argument");
        self.lines.write(between(",", "loop.first").value("bare(inner)"));
        self.lines.close("endfor");
        self.lines.write(text("]"));
        self.lines.or("else");
        self.lines.write(value("argument | tojson"));
        self.lines.close("endif");
        self.lines.close("endmacro");
    }

    /// Writes one call, which is in the variable `call`.
    fn call(&mut self) {
        let spec = self.spec;
        let template = &spec.single_tool_call_template;
        let has = |slot| template.has(slot);
        let mut function = false;
        let written = match &spec.tool_policy.call_processor {
            _ if !has("tool_call") => Joined::default(),
            Some(Processor::KimiCall) => {
                function = true;
                self.lines.set("function", value(FUNCTION));
                value("(call.id or \"\")")
                    .text("<|tool_call_argument_begin|>")
                    .value("function.arguments | tojson")
            }
            Some(Processor::DsmlCall) => {
                function = true;
                self.lines.set("function", value(FUNCTION));
                // The file sets `invoke`.
                self.lines.source(include_str!("dsml_call.jinja"));
                value("invoke")
            }
            // The host has parsed arguments that are JSON text.
            _ => value(&format!("{FUNCTION} | tojson")),
        };
        if (has("name") || has("arguments")) && !function {
            self.lines.set("function", value(ANY_FUNCTION));
        }
        let arguments = if has("arguments") { self.arguments() } else { Joined::default() };
        let call = filled(template, |slot| match slot {
            "name" => value("function.name"),
            "id" => value("(call.id or \"\")"),
            "arguments" => arguments.clone(),
            _ => written.clone(),
        });
        self.lines.write(between(&spec.tool_policy.calls.joiner, "loop.first").append(call));
    }

    /// The expression for the arguments of `function`.
    fn arguments(&mut self) -> Joined {
        let spec = self.spec;
        let policy = &spec.tool_policy.calls;
        let given = "(function.arguments if function.arguments is defined and function.arguments \
                     is not none else {})";
        self.lines.set("given", value(given));
        let whole = if policy.text_as_is {
            "(given if given is string else given | tojson)"
        } else {
            "given | tojson"
        };
        let Some(template) = &spec.argument_template else { return value(whole) };
        let strings = spec.text_argument_template.as_ref().unwrap_or(template);
        let json = "argument | tojson";
        let (string, other) = match policy.argument_values {
            ArgumentValues::Text => ("argument", json.to_owned()),
            ArgumentValues::Json => (json, json.to_owned()),
            ArgumentValues::Bare => ("bare(argument)", "bare(argument)".to_owned()),
            ArgumentValues::Python => {
                let boolean = "((\"True\" if argument else \"False\") if argument is boolean";
                ("argument", format!("{boolean} else \"None\" if argument is none else {json})"))
            }
        };
        self.lines.open("set arguments");
        self.lines.open("if given is mapping");
        let pairs =
            if policy.argument_values == ArgumentValues::Bare { "dictsort" } else { "items" };
        self.lines.open(&format!("for key, argument in given | {pairs}"));
        let one = |template: &SlotPattern, written: &str| {
            let argument =
                filled(template, |slot| value(if slot == "key" { "key" } else { written }));
            between(&policy.argument_joiner, "loop.first").append(argument)
        };
        if strings == template && string == other {
            self.lines.write(one(template, string));
        } else {
            self.lines.open("if argument is string");
            self.lines.write(one(strings, string));
            self.lines.or("else");
            self.lines.write(one(template, &other));
            self.lines.close("endif");
        }
        self.lines.close("endfor");
        self.lines.or("else");
        self.lines.write(value(whole));
        self.lines.close("endif");
        self.lines.close("endset");
        value("arguments")
    }

    /// Collects one result, which is in the variable `message`. The last result writes the block.
    pub(in crate::compose) fn results(&mut self) {
        let spec = self.spec;
        let Some(template) = &spec.observations_template else {
            if spec.tool_policy.calls.drops_results {
                return;
            }
            self.lines
                .write(value("raise_exception(\"no_observations_template: this template has no place for tool results\")"));
            return;
        };
        let policy = &spec.tool_policy.calls;
        self.lines.set("content", value(&parts("message.content", TOOL)));
        if let Some(processor) = &policy.result_processor {
            self.lines.set("content", processed(processor, "content"));
        }
        let single_template = &spec.single_observation_template;
        if single_template.has("name") {
            // Sets `answered.name`, the name of the last call with the id of the result.
            self.lines.source(include_str!("answered_name.jinja"));
        }
        let single = filled(single_template, |slot| match slot {
            "name" => value("(message.name or answered.name)"),
            "tool_call_id" => value("(message.tool_call_id or \"\")"),
            _ => value("content"),
        });
        let first = "loop.first or messages[loop.index0 - 1].role != \"tool\"";
        let single = between(&policy.result_joiner, first).append(single);
        let sum = value("results.text").value(&single.operand());
        self.lines.set("results.text", sum);
        self.lines.open("if loop.last or messages[loop.index].role != \"tool\"");
        self.lines.write(filled(template, |_| value("results.text")));
        self.lines.set("results.text", text(""));
        if !policy.results_end.is_empty() {
            self.lines.open("if loop.last or messages[loop.index].role != \"user\"");
            self.lines.write(text(&policy.results_end));
            self.lines.close("endif");
        }
        self.lines.close("endif");
    }
}
