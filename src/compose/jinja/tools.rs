//! Writes declared tools and skills in Jinja.

use super::text::{Joined, between, filled, quoted, text, value};
use super::writer::TemplateWriter;
use crate::compose::spec::ComponentSpec;
use crate::compose::spec::formatter::{Formatter, JsonStyle, XmlStyle};
use crate::compose::spec::processor::Processor;

/// The `function` member of a tool, or the tool itself if it has no such member.
const FUNCTION: &str = "(tool.function if tool.function is defined else tool)";

impl TemplateWriter<'_> {
    /// Sets `tools_raw` and `tools_block`, if the spec has a place for them.
    pub(super) fn tools(&mut self) {
        let spec = self.spec;
        let in_system = self.has_in_system("tools");
        let in_user = spec.user_with_tools().is_some_and(|user| user.has("tools"));
        let processed = matches!(
            spec.system_policy.processor,
            Some(Processor::AppendIfTools(_) | Processor::PrependIfTools(_))
        );
        if !in_system && !in_user && !processed {
            return;
        }
        self.lines.comment("The declared tools.");
        self.lines.set("tools_raw", text(""));
        self.lines.set("tools_block", text(""));
        self.lines.open(&format!("if {}", spec.tool_policy.has_tools()));
        match &spec.tool_policy.formatter {
            Formatter::Yaml => self.yaml_tools(),
            Formatter::Json { style, .. } => self.json_tools(style),
            Formatter::Xml(style) => {
                let row = match &spec.single_tool_template {
                    Some(single) => filled(single, |_| value("tool_text")),
                    None => between("\n", "loop.first").value("tool_text"),
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

    /// Whether a system template has this slot.
    fn has_in_system(&self, slot: &str) -> bool {
        let ComponentSpec { system_policy, system_template, .. } = self.spec;
        system_policy.use_system
            && (system_template.has(slot) || self.spec.default_system().has(slot))
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
        let picks = spec.tool_policy.processor == Some(Processor::PickFunction);
        let tojson = tojson(style);
        // Jinja cannot map a list, so the `function` members are appended one by one.
        let picked = picks && style.format_as_list && spec.single_tool_template.is_none();
        self.lines.set(
            "state",
            value(if picked { "namespace(strings=0, tools=[])" } else { "namespace(strings=0)" }),
        );
        self.lines.open("for tool in tools");
        let item = if picks { FUNCTION } else { "tool" };
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
                self.lines.set("function", value(FUNCTION));
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
        self.lines.write(between(&style.joiner, "loop.first").value(&one));
        self.lines.close("endfor");
        self.lines.close("endset");
    }

    /// Sets `skills_block`, if the spec has a place for it.
    pub(super) fn skills(&mut self) {
        let spec = self.spec;
        if !self.has_in_system("skills") {
            return;
        }
        self.lines.comment("The skills.");
        self.lines.set("skills_block", text(""));
        let Some(template) = &spec.skills_template else { return };
        self.lines.open("if skills");
        self.lines.open("set skills_rows");
        self.lines.open("for skill in skills");
        let row = filled(&spec.single_skill_template, |name| {
            let member = format!("skill[{}]", quoted(name));
            value(&format!("(\"\" if {member} is none else {member})"))
        });
        self.lines.write(between(&spec.skill_policy.joiner, "loop.first"));
        self.lines.write(row);
        self.lines.close("endfor");
        self.lines.close("endset");
        self.lines.set("skills_block", filled(template, |_| value("skills_rows")));
        self.lines.close("endif");
    }
}

/// The filter that writes a tool in this style. Options that are absent keep the defaults of
/// transformers.
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

/// A list of strings in Jinja.
fn list(names: &[&str], more: &[String]) -> String {
    let all: Vec<String> =
        names.iter().copied().chain(more.iter().map(String::as_str)).map(quoted).collect();
    format!("[{}]", all.join(", "))
}

fn element(name: &str, content: &str) -> Joined {
    text("\n<").text(name).text(">").value(content).text("</").text(name).text(">")
}

impl TemplateWriter<'_> {
    /// Sets `tool_text` to the text of `function`.
    fn xml_tool(&mut self, style: &XmlStyle) {
        self.lines.open("set tool_text");
        self.lines.write(text("<function>\n<name>").value("function.name").text("</name>"));
        self.lines.open("if function.description is defined");
        self.lines.write(element("description", "function.description | trim"));
        self.lines.close("endif");
        self.lines.write(text("\n<parameters>"));
        self.lines.open("if function.parameters is mapping");
        self.lines.open("if function.parameters.properties is mapping");
        self.lines.open("for name, parameter in function.parameters.properties | items");
        self.lines.write(text("\n<parameter>").text("\n<name>").value("name").text("</name>"));
        self.lines.open("if parameter.type is defined");
        self.lines.write(element("type", "xml_text(parameter.type, true)"));
        self.lines.close("endif");
        self.lines.open("if parameter.description is defined");
        self.lines.write(element("description", "parameter.description | trim"));
        self.lines.close("endif");
        for name in &style.first {
            self.member("parameter", name);
        }
        let known = list(&["name", "type", "description"], &style.first);
        self.lines.write(value(&format!("xml_members(parameter, {known})")));
        self.lines.write(text("\n</parameter>"));
        self.lines.close("endfor");
        self.lines.close("endif");
        self.lines.write(value(&format!(
            "xml_members(function.parameters, {})",
            list(&["type", "properties"], &style.last)
        )));
        for name in &style.last {
            self.member("function.parameters", name);
        }
        self.lines.close("endif");
        self.lines.write(text("\n</parameters>"));
        self.lines.write(value(
            "xml_members(function, [\"type\", \"name\", \"description\", \"parameters\"])",
        ));
        self.lines.write(text("\n</function>"));
        self.lines.close("endset");
    }

    /// Writes a member of an object, if it is defined.
    fn member(&mut self, object: &str, name: &str) {
        let member = format!("{object}[{}]", quoted(name));
        self.lines.open(&format!("if {member} is defined"));
        self.lines.write(element(name, &format!("xml_text({member}, false)")));
        self.lines.close("endif");
    }

    /// Sets `tools_raw` to the tools, each as an element. `row` writes one tool from `tool_text`.
    pub(crate) fn xml_tools(&mut self, style: &XmlStyle, row: &Joined) {
        self.lines.source(include_str!("xml_macros.jinja"));
        self.lines.open("set tools_raw");
        self.lines.open("for tool in tools");
        self.lines.set("function", value(FUNCTION));
        self.lines.open("if function is string");
        self.lines.set("tool_text", value("function"));
        self.lines.or("else");
        self.xml_tool(style);
        self.lines.close("endif");
        self.lines.write(row.clone());
        self.lines.close("endfor");
        self.lines.close("endset");
    }
}
