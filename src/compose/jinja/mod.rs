//! A spec as a Jinja template that transformers, vLLM and llama.cpp take as it is.
//!
//! Only what all of them have is used: if, for, set, block set, macros, namespaces, `~`, and a
//! handful of filters and tests. Text is joined and never replaced, so that a message that looks
//! like a slot stays what it is.

mod answers;
mod calls;
mod system;
mod text;
pub(crate) mod xml;

use super::spec::formatter::{Formatter, JsonStyle};
use super::spec::policy::{DATE_FORMAT, Placement};
use super::spec::processor::Processor;
use super::spec::turns::ContentParts;
use super::spec::{ComponentSpec, UnknownRoles};
use answers::begun;
use system::{date, separator};
use text::{Joined, Lines, filled, quoted, text, value};

/// The text; `marked` puts assistants' turns into `{% generation %}` blocks.
pub(crate) fn template(spec: &ComponentSpec, marked: bool) -> String {
    let mut lines = Lines::default();
    let writer = TemplateWriter { spec, marked, lines: &mut lines };
    writer.write();
    lines.finish()
}

pub(super) struct TemplateWriter<'a> {
    pub(super) spec: &'a ComponentSpec,
    pub(super) marked: bool,
    pub(super) lines: &'a mut Lines,
}

/// Where a message's content stands; decides which parts it may have.
pub(super) const SYSTEM: &str = "system";
const USER: &str = "user";
pub(super) const ASSISTANT: &str = "assistant";
const TOOL: &str = "tool";

impl TemplateWriter<'_> {
    fn write(mut self) {
        self.lines
            .comment("Composed from components by llb; change the components, not this text.");
        self.parts();
        self.bare();
        self.tools();
        self.skills();
        if !self.spec.policies.prefix.is_empty() {
            self.lines.write(text(&self.spec.policies.prefix));
        }
        self.system();
        self.indices();
        self.turns();
        self.prompt();
    }

    /// The macro that turns a message's content into text.
    fn parts(&mut self) {
        let spec = self.spec;
        let vision = |token: &str| text(&spec.vision_start).text(token).text(&spec.vision_end);
        self.lines.comment("The text of a message: a string, nothing, or a list of parts.");
        self.lines.open("macro parts(content, role)");
        self.lines.open("if content is string");
        self.lines.write(value("content"));
        if spec.turns.content_parts == ContentParts::Drop {
            self.lines.close("endif");
            self.lines.close("endmacro");
            return;
        }
        self.lines.or("elif content");
        self.lines.open("for part in content");
        self.lines.open("if part.type == \"text\"");
        self.lines.write(value("part.text"));
        if let Some(token) = &spec.image_token {
            self.lines.or(
                "elif part.type in [\"image\", \"image_url\"] and role in [\"user\", \"tool\"]",
            );
            self.lines.write(vision(token));
        }
        if let Some(token) = &spec.video_token {
            self.lines.or("elif part.type == \"video\" and role == \"user\"");
            self.lines.write(vision(token));
        }
        if spec.turns.content_parts == ContentParts::Error {
            self.lines.or("else");
            self.lines.write(value(
                "raise_exception(\"unsupported_part: a part of type \" ~ part.type ~ \" in a message of role \" ~ role)",
            ));
        }
        self.lines.close("endif");
        self.lines.close("endfor");
        self.lines.close("endif");
        self.lines.close("endmacro");
    }

    /// `tools_raw` and `tools_block`, where the spec has a place for them.
    fn tools(&mut self) {
        let spec = self.spec;
        let in_system = spec.policies.use_system
            && (spec.system_template.has("tools") || spec.default_system().has("tools"));
        let in_user = spec.user_with_tools().is_some_and(|user| user.has("tools"));
        let processed = matches!(
            spec.policies.system_processor,
            Some(Processor::AppendIfTools(_) | Processor::PrependIfTools(_))
        );
        if !in_system && !in_user && !processed {
            return;
        }
        self.lines.comment("The declared tools.");
        self.lines.set("tools_raw", text(""));
        self.lines.set("tools_block", text(""));
        self.lines.open(&format!("if {}", spec.policies.has_tools()));
        match &spec.policies.formatter {
            Formatter::Yaml => self.yaml_tools(),
            Formatter::Json { style, .. } => self.json_tools(style),
            Formatter::Xml(style) => {
                let row = match &spec.single_tool_template {
                    Some(single) => filled(single, |_| value("tool_text")),
                    None => value("(\"\" if loop.first else \"\\n\")").value("tool_text"),
                };
                self.xml_tools(style, &row);
            }
        }
        let block = match &spec.tools_template {
            Some(template) => filled(template, |_| value("tools_raw")),
            None => value("tools_raw"),
        };
        self.lines.set("tools_block", block);
        self.lines.close("endif");
    }

    fn yaml_tools(&mut self) {
        self.lines.comment("YAML comes from the host: the text of the catalogue, or of each tool.");
        self.lines.open("if tools_yaml is not defined");
        self.lines.write(value(
            "raise_exception(\"missing_variable: tools_yaml, the declared tools as YAML\")",
        ));
        self.lines.close("endif");
        match &self.spec.single_tool_template {
            None => self.lines.set("tools_raw", value("tools_yaml")),
            Some(single) => {
                self.lines.open("set tools_raw");
                self.lines.open("for tool in tools_yaml");
                self.lines.write(filled(single, |_| value("tool")));
                self.lines.close("endfor");
                self.lines.close("endset");
            }
        }
    }

    fn json_tools(&mut self, style: &JsonStyle) {
        let spec = self.spec;
        let picks = spec.policies.tool_processor == Some(Processor::PickFunction);
        let tojson = tojson(style);
        // A list of what the processor picks has to be built; jinja has no other way to map one.
        let picked = picks && style.format_as_list && spec.single_tool_template.is_none();
        self.lines.set(
            "state",
            value(if picked { "namespace(strings=0, tools=[])" } else { "namespace(strings=0)" }),
        );
        self.lines.open("for tool in tools");
        let item =
            if picks { "(tool.function if tool.function is defined else tool)" } else { "tool" };
        self.lines.open(&format!("if {item} is string"));
        self.lines.set("state.strings", value("state.strings + 1"));
        self.lines.close("endif");
        if picked {
            self.lines.tag(&format!("set state.tools = state.tools + [{item}]"));
        }
        self.lines.close("endfor");
        self.lines.open("if state.strings and state.strings != tools | length");
        self.lines.write(value(
            "raise_exception(\"mixed_tools: tools are strings or objects, not both\")",
        ));
        self.lines.close("endif");
        if let Some(single) = &spec.single_tool_template {
            self.lines.open("set tools_raw");
            self.lines.open("for tool in tools");
            let list = if style.format_as_list { format!("[{item}]") } else { item.to_owned() };
            let one = format!("({item} if state.strings else {list} | {tojson})");
            if !single.has("tool")
                || single.has("name")
                || single.has("description")
                || single.has("parameters")
            {
                self.lines.set(
                    "function",
                    value("(tool.function if tool.function is defined else tool)"),
                );
            }
            let parameters = format!(
                "(function.parameters | {tojson} if function.parameters is defined else \"{{}}\")"
            );
            self.lines.write(filled(single, |slot| match slot {
                "name" => value("(tool if state.strings else function.name)"),
                "description" => value("function.description"),
                "parameters" => value(&parameters),
                _ => value(&one),
            }));
            self.lines.close("endfor");
            self.lines.close("endset");
            return;
        }
        if style.format_as_list {
            let list = if picked { "state.tools" } else { "tools" };
            self.lines.open("if not state.strings");
            self.lines.set("tools_raw", value(&format!("{list} | {tojson}")));
            self.lines.or("else");
            self.lines
                .set("tools_raw", value(&format!("{list} | join({})", quoted(&style.joiner))));
            self.lines.close("endif");
            return;
        }
        self.lines.open("set tools_raw");
        self.lines.open("for tool in tools");
        let one = format!("({item} if state.strings else {item} | {tojson})");
        let joiner = format!("(\"\" if loop.first else {})", quoted(&style.joiner));
        let between = if style.joiner.is_empty() { Joined::default() } else { value(&joiner) };
        self.lines.write(between.value(&one));
        self.lines.close("endfor");
        self.lines.close("endset");
    }

    /// `skills_block`, where the spec has a place for it.
    fn skills(&mut self) {
        let spec = self.spec;
        if !spec.policies.use_system
            || !(spec.system_template.has("skills") || spec.default_system().has("skills"))
        {
            return;
        }
        self.lines.comment("The skills.");
        self.lines.set("skills_block", text(""));
        let Some(template) = &spec.skills_template else { return };
        self.lines.open("if skills");
        self.lines.open("set skills_rows");
        self.lines.open("for skill in skills");
        let joiner = format!("(\"\" if loop.first else {})", quoted(&spec.policies.skill_joiner));
        let row = filled(&spec.single_skill_template, |name| {
            let member = format!("skill[{}]", quoted(name));
            value(&format!("(\"\" if {member} is none else {member})"))
        });
        self.lines.write(if spec.policies.skill_joiner.is_empty() {
            Joined::default()
        } else {
            value(&joiner)
        });
        self.lines.write(row);
        self.lines.close("endfor");
        self.lines.close("endset");
        self.lines.set("skills_block", filled(template, |_| value("skills_rows")));
        self.lines.close("endif");
    }

    /// Which user's message gets the tools, and where the last turn begins.
    fn indices(&mut self) {
        let spec = self.spec;
        let tools =
            spec.user_with_tools().is_some() || spec.policies.system_placement != Placement::System;
        self.questions();
        if !tools && (!self.asks() || spec.policies.thinking.no_question.is_some()) {
            return;
        }
        self.lines.comment("The first and the last message of a user.");
        self.lines.set("users", value("namespace(first=-1, last=-1)"));
        self.lines.open("for message in messages");
        self.lines.open("if message.role == \"user\"");
        self.lines.set("users.last", value("loop.index0"));
        self.lines.open("if users.first == -1");
        self.lines.set("users.first", value("loop.index0"));
        self.lines.close("endif");
        self.lines.close("endif");
        self.lines.close("endfor");
    }

    fn turns(&mut self) {
        let spec = self.spec;
        self.lines.comment("The turns.");
        if spec.observations_template.is_some() {
            self.lines.set("results", value("namespace(text=\"\")"));
        }
        self.lines.open("for message in messages");
        self.lines.open("if loop.first and has_system");
        self.lines.comment("Written above.");
        self.lines.or("elif message.role == \"user\"");
        self.user();
        self.lines.or("elif message.role == \"assistant\"");
        self.assistant();
        self.lines.or("elif message.role == \"tool\"");
        self.results();
        self.late_system();
        match spec.unknown_roles {
            UnknownRoles::Drop => {}
            UnknownRoles::Error => {
                self.lines.or("else");
                self.lines.write(value("raise_exception(\"unexpected_role: \" ~ message.role)"));
            }
            UnknownRoles::AsUser => {
                self.lines.or("else");
                self.lines
                    .write(filled(&spec.user_template, |_| value(&parts("message.content", USER))));
            }
        }
        self.lines.close("endif");
        self.lines.close("endfor");
    }

    fn user(&mut self) {
        let spec = self.spec;
        let mut content = value(&parts("message.content", USER));
        if let Some(system) = self.system_of_user() {
            content = value(&system).value(&parts("message.content", USER));
        }
        let turn =
            |pattern| {
                begun(spec, pattern, |slot| {
                    if slot == "tools" { value("tools_raw") } else { content.clone() }
                })
            };
        let Some(with_tools) = spec.user_with_tools() else {
            self.lines.write(turn(&spec.user_template));
            return;
        };
        let tools = spec.policies.has_tools();
        self.lines.open(&format!(
            "if {tools} and loop.index0 == users.{}",
            spec.policies.placement.user()
        ));
        self.lines.write(turn(with_tools));
        self.lines.or("else");
        self.lines.write(turn(&spec.user_template));
        self.lines.close("endif");
    }

    fn assistant(&mut self) {
        let spec = self.spec;
        self.answer();
        // White space was cut before reasoning was put in front.
        if let Some(processor) = spec
            .policies
            .assistant_processor
            .as_ref()
            .filter(|processor| **processor != Processor::Strip)
        {
            self.lines.set("text", processed(processor, "text"));
        }
        if spec.shows_calls() {
            self.calls();
        }
        self.answer_turn();
    }
}

pub(super) fn parts(content: &str, role: &str) -> String {
    format!("parts({content}, {})", quoted(role))
}

/// The filter that writes a tool as the style says; what is not named is transformers' default.
fn tojson(style: &JsonStyle) -> String {
    let mut options = Vec::new();
    if style.ascii {
        options.push("ensure_ascii=true".to_owned());
    }
    if let Some(indent) = style.indent {
        options.push(format!("indent={indent}"));
    }
    if let Some([item, key]) = &style.separators {
        options.push(format!("separators=[{}, {}]", quoted(item), quoted(key)));
    }
    if style.sort_keys {
        options.push("sort_keys=true".to_owned());
    }
    if options.is_empty() { "tojson".to_owned() } else { format!("tojson({})", options.join(", ")) }
}

/// What a processor of a system or an assistant's text makes of `name`.
pub(super) fn processed(processor: &Processor, name: &str) -> Joined {
    let text_or = |added: Joined| format!("({} if {name} else \"\")", added.expression());
    match processor {
        Processor::DateHeader { cutoff } => text("Cutting Knowledge Date: ")
            .text(cutoff)
            .text("\nToday Date: ")
            .value(&date(DATE_FORMAT))
            .text("\n\n")
            .value(name),
        Processor::Prepend(added) => text(added).value(name),
        Processor::Append(added) => value(name).text(added),
        Processor::AppendIfTools(added) => value(name).value(&separator(added, Some(name))),
        Processor::PrependIfTools(added) => value(&separator(added, Some(name))).value(name),
        Processor::PrependIfNonempty(added) => value(&text_or(text(added).value(name))),
        Processor::NewlineIfNonempty => value(&text_or(text("\n").value(name))),
        Processor::Strip => value(&format!("{name} | trim")),
        Processor::Json => value(&format!("{name} | tojson")),
        Processor::PickFunction
        | Processor::ObjectArguments
        | Processor::KimiCall
        | Processor::DsmlCall => value(name),
    }
}
