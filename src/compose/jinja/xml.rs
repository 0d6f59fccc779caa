//! Writes declared tools as XML elements: name, description, each parameter, and all other members,
//! one per line.

use super::TemplateWriter;
use super::text::{Joined, quoted, text, value};
use super::tools::FUNCTION;
use crate::compose::spec::formatter::XmlStyle;

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
