//! The tools of a request, as functions of the library, and how a call of each is written in items.
//!
//! Source: the types of the package `openai` 3.54 (`Tool`, `ResponseInputItem`). The parameters of
//! the tools that a client runs without declaring them are the members of their calls there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::serve::custom_tool;
use crate::serve::error::ApiError;
use crate::serve::fields::{self, brief, items, join, required_string};
use crate::serve::left_out::{LeftOut, Reason};
use crate::serve::stamp::id;

/// The namespace of tools that belong to none.
const NO_NAMESPACE: &str = "functions";

/// A kind of tool that a client runs, by the form of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolKind {
    Function,
    /// Its input is a text.
    Custom,
    LocalShell,
    Shell,
    ApplyPatch,
    ToolSearch,
}

impl ToolKind {
    const ALL: [ToolKind; 6] = [
        ToolKind::Function,
        ToolKind::Custom,
        ToolKind::LocalShell,
        ToolKind::Shell,
        ToolKind::ApplyPatch,
        ToolKind::ToolSearch,
    ];

    /// The type of the tool.
    fn tool_type(self) -> &'static str {
        match self {
            ToolKind::Function => "function",
            ToolKind::Custom => "custom",
            ToolKind::LocalShell => "local_shell",
            ToolKind::Shell => "shell",
            ToolKind::ApplyPatch => "apply_patch",
            ToolKind::ToolSearch => "tool_search",
        }
    }

    /// The type of the item of a call. That of a result has `_output` after it, except for searches.
    pub(super) fn call_type(self) -> &'static str {
        match self {
            ToolKind::Function => "function_call",
            ToolKind::Custom => "custom_tool_call",
            ToolKind::LocalShell => "local_shell_call",
            ToolKind::Shell => "shell_call",
            ToolKind::ApplyPatch => "apply_patch_call",
            ToolKind::ToolSearch => "tool_search_call",
        }
    }

    /// The kind by the type of a call's item.
    pub(super) fn from_call_type(name: &str) -> Option<ToolKind> {
        ToolKind::ALL.into_iter().find(|kind| kind.call_type() == name)
    }

    /// The kind by the type of a result's item.
    pub(super) fn from_output_type(name: &str) -> Option<ToolKind> {
        if name == "tool_search_output" {
            return Some(ToolKind::ToolSearch);
        }
        ToolKind::from_call_type(name.strip_suffix("_output")?)
    }

    /// The member of a call's item with what the tool gets.
    fn member(self) -> &'static str {
        match self {
            ToolKind::Function | ToolKind::ToolSearch => "arguments",
            ToolKind::Custom => "input",
            ToolKind::LocalShell | ToolKind::Shell => "action",
            ToolKind::ApplyPatch => "operation",
        }
    }

    /// The name, for a tool that has none of its own.
    fn own_name(self) -> Option<&'static str> {
        (!matches!(self, ToolKind::Function | ToolKind::Custom)).then(|| self.tool_type())
    }

    /// The arguments of the library's call for the item of an earlier call.
    pub(super) fn arguments(self, item: &Value, path: &str) -> Result<String, ApiError> {
        let member = self.member();
        let missing = || ApiError::invalid(&join(path, member), "is missing");
        match self {
            ToolKind::Function => Ok(required_string(item, path, member)?.to_owned()),
            ToolKind::Custom => Ok(custom_tool::arguments(required_string(item, path, member)?)),
            _ => {
                let mut given = fields::get(item, member).ok_or_else(missing)?.clone();
                if self == ToolKind::LocalShell
                    && let Some(members) = given.as_object_mut()
                {
                    members.shift_remove("type");
                }
                // Clients may send a text here that they got as one.
                Ok(given.as_str().map_or_else(|| given.to_string(), str::to_owned))
            }
        }
    }

    /// A member of a call's item, from the arguments that the model wrote.
    fn value(self, arguments: &str) -> Value {
        let parsed: Value = crate::json::value(arguments).unwrap_or_default();
        match self {
            ToolKind::Function => arguments.into(),
            ToolKind::Custom => custom_tool::input(arguments).into(),
            ToolKind::LocalShell => {
                let mut action = json!({ "type": "exec", "command": [], "env": {} });
                fields::copy(
                    &parsed,
                    &["command", "env", "timeout_ms", "user", "working_directory"],
                    &mut action,
                );
                action
            }
            ToolKind::Shell | ToolKind::ApplyPatch | ToolKind::ToolSearch => {
                if parsed.is_object() {
                    parsed
                } else {
                    json!({})
                }
            }
        }
    }

    /// A description and parameters, for a tool whose client declares none.
    fn declaration(self) -> (&'static str, Value) {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let texts = json!({ "type": "array", "items": { "type": "string" } });
        let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required });
        match self {
            ToolKind::LocalShell => (
                "Runs a program on the user's machine and returns its output.",
                object(
                    json!({
                        "command": texts,
                        "working_directory": text("The folder to run it in"),
                        "timeout_ms": { "type": "integer" },
                        "env": { "type": "object", "additionalProperties": { "type": "string" } },
                    }),
                    json!(["command"]),
                ),
            ),
            ToolKind::Shell => (
                "Runs shell commands on the user's machine and returns their output.",
                object(
                    json!({
                        "commands": texts, "timeout_ms": { "type": "integer" },
                        "max_output_length": { "type": "integer" },
                    }),
                    json!(["commands"]),
                ),
            ),
            ToolKind::ApplyPatch => (
                "Creates, changes or deletes a file of the user.",
                object(
                    json!({
                        "type": { "enum": ["create_file", "update_file", "delete_file"] },
                        "path": text("The file, relative to the workspace"),
                        "diff": text("The change as lines that begin with +, - or a space"),
                    }),
                    json!(["type", "path"]),
                ),
            ),
            ToolKind::ToolSearch => (
                "Finds further tools and makes them available.",
                object(json!({ "query": text("What the tool should do") }), json!(["query"])),
            ),
            ToolKind::Function | ToolKind::Custom => ("", custom_tool::parameters()),
        }
    }
}

/// A tool that the model may call.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    kind: ToolKind,
    name: String,
    namespace: Option<String>,
}

impl Tool {
    /// The item of a call that has just begun.
    pub(super) fn call_item(&self, call_id: &Value) -> Value {
        let prefix = match self.kind {
            ToolKind::Function => "fc_",
            ToolKind::Custom => "ctc_",
            ToolKind::LocalShell => "lsh_",
            ToolKind::Shell => "sh_",
            ToolKind::ApplyPatch => "apc_",
            ToolKind::ToolSearch => "tsc_",
        };
        let mut item = json!({
            "id": id(prefix), "type": self.kind.call_type(), "status": "in_progress",
            "call_id": call_id,
        });
        if self.kind.own_name().is_none() {
            item["name"] = self.name.clone().into();
            if let Some(namespace) = &self.namespace {
                item["namespace"] = namespace.clone().into();
            }
        }
        if self.kind == ToolKind::ToolSearch {
            item["execution"] = "client".into();
        }
        let empty = if self.has_text() { json!("") } else { self.kind.value("") };
        item[self.kind.member()] = empty;
        item
    }

    /// Completes an item with the arguments that the model wrote. Returns the text of its last
    /// event, if it has one.
    pub(super) fn complete(&self, item: &mut Value, arguments: &str) -> Option<String> {
        let value = self.kind.value(arguments);
        let text = value.as_str().filter(|_| self.has_text()).map(str::to_owned);
        item[self.kind.member()] = value;
        text
    }

    /// Whether calls are written as the library's are: name and JSON.
    pub(super) fn is_function(&self) -> bool {
        self.kind == ToolKind::Function
    }

    /// Whether what the tool gets is a text, and not an object.
    fn has_text(&self) -> bool {
        matches!(self.kind, ToolKind::Function | ToolKind::Custom)
    }
}

/// The tools of a request and of the conversation so far.
#[derive(Default)]
pub(super) struct Tools {
    functions: Vec<Value>,
    by_name: HashMap<String, Arc<Tool>>,
    /// Tools that a search of the client can load: functions and tools.
    deferred: Vec<(Value, Tool)>,
}

impl Tools {
    /// Adds the tools of an array. `path` is its path.
    pub(super) fn add_all(
        &mut self,
        tools: &[Value],
        path: &str,
        left_out: &mut LeftOut,
    ) -> Result<(), ApiError> {
        items(path, tools).try_for_each(|(path, tool)| self.add(tool, &path, None, left_out))
    }

    fn add(
        &mut self,
        tool: &Value,
        path: &str,
        namespace: Option<&str>,
        left_out: &mut LeftOut,
    ) -> Result<(), ApiError> {
        let given = required_string(tool, path, "type")?;
        if given == "namespace" && namespace.is_none() {
            let name = required_string(tool, path, "name")?;
            let namespace = Some(name).filter(|name| *name != NO_NAMESPACE);
            let tools = fields::array_at(tool, path, "tools")?;
            return items(&join(path, "tools"), tools)
                .try_for_each(|(path, tool)| self.add(tool, &path, namespace, left_out));
        }
        let kind = ToolKind::ALL.into_iter().find(|kind| kind.tool_type() == given);
        let is_hosted = kind == Some(ToolKind::ToolSearch) && tool["execution"] != "client";
        let Some(kind) = kind.filter(|_| !is_hosted) else {
            let message = format!("tools of type {:?} do not run here", brief(given));
            left_out.note(Reason::Tool, path, message);
            return Ok(());
        };
        let name = match kind.own_name() {
            Some(name) => name.to_owned(),
            None => required_string(tool, path, "name")?.to_owned(),
        };
        let flat = flat_name(namespace, &name);
        if self.by_name.contains_key(&flat) && (kind.own_name().is_some() || namespace.is_some()) {
            let message = format!("another tool has the name {:?}", brief(&flat));
            left_out.note(Reason::Tool, path, message);
            return Ok(());
        }
        let function = function(kind, tool, &flat, path, left_out);
        let tool_of = Tool { kind, name, namespace: namespace.map(str::to_owned) };
        if fields::get(tool, "defer_loading") == Some(&Value::Bool(true)) {
            self.deferred.push((function, tool_of));
        } else {
            self.push(function, tool_of);
        }
        Ok(())
    }

    /// Loads tools that a search has found, or that an item brings. Those that are known stay.
    pub(super) fn load(
        &mut self,
        tools: &[Value],
        path: &str,
        left_out: &mut LeftOut,
    ) -> Result<(), ApiError> {
        let mut found = Tools::default();
        found.add_all(tools, path, left_out)?;
        let found_now = found.functions.into_iter().map(|function| {
            let name = function["function"]["name"].as_str().unwrap_or_default();
            let tool = found.by_name.get(name).map(|tool| Tool::clone(tool));
            (function, tool)
        });
        let deferred = found.deferred.into_iter().map(|(function, tool)| (function, Some(tool)));
        for (function, tool) in found_now.chain(deferred) {
            let name = function["function"]["name"].as_str().unwrap_or_default();
            if let Some(tool) = tool
                && !self.by_name.contains_key(name)
            {
                self.push(function, tool);
            }
        }
        Ok(())
    }

    /// Loads the deferred tools, unless the client can search for them.
    pub(super) fn finish(&mut self) {
        if self.by_name.values().any(|tool| tool.kind == ToolKind::ToolSearch) {
            return;
        }
        for (function, tool) in std::mem::take(&mut self.deferred) {
            if !self.by_name.contains_key(&flat_name(tool.namespace.as_deref(), &tool.name)) {
                self.push(function, tool);
            }
        }
    }

    fn push(&mut self, function: Value, tool: Tool) {
        let name = flat_name(tool.namespace.as_deref(), &tool.name);
        self.functions.push(function);
        self.by_name.insert(name, Arc::new(tool));
    }

    /// The tools for the library.
    pub(super) fn functions(&self) -> &[Value] {
        &self.functions
    }

    /// Keeps the named tools.
    pub(super) fn retain(&mut self, names: &HashSet<String>) {
        let is_named = |name: Option<&str>| name.is_some_and(|name| names.contains(name));
        self.functions.retain(|function| is_named(function["function"]["name"].as_str()));
    }

    /// The tool by the name that the model writes. An unknown one is a function.
    pub(super) fn get(&self, name: &str) -> Arc<Tool> {
        let function = || Tool { kind: ToolKind::Function, name: name.to_owned(), namespace: None };
        self.by_name.get(name).cloned().unwrap_or_else(|| Arc::new(function()))
    }
}

/// The name that the model writes. Clients that know no namespaces write such names too.
fn flat_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !has_prefix(name, namespace) => format!("{namespace}__{name}"),
        _ => name.to_owned(),
    }
}

/// Whether a name begins with its namespace.
fn has_prefix(name: &str, namespace: &str) -> bool {
    name.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('_'))
}

/// The name of the tool that an item or a choice refers to.
pub(super) fn referred_name(item: &Value, path: &str, kind: ToolKind) -> Result<String, ApiError> {
    if let Some(name) = kind.own_name() {
        return Ok(name.to_owned());
    }
    let namespace = fields::get(item, "namespace").and_then(Value::as_str);
    let namespace = namespace.filter(|namespace| *namespace != NO_NAMESPACE);
    Ok(flat_name(namespace, required_string(item, path, "name")?))
}

/// The kind of tool that a `tool_choice` names. `None` for tools that do not run here.
pub(super) fn chosen_kind(choice: &str) -> Option<ToolKind> {
    ToolKind::ALL.into_iter().find(|kind| kind.tool_type() == choice)
}

/// The library's tool.
fn function(kind: ToolKind, tool: &Value, name: &str, path: &str, left_out: &mut LeftOut) -> Value {
    let mut function = json!({ "name": name });
    fields::copy(tool, &["description", "parameters", "strict"], &mut function);
    if kind == ToolKind::Function {
        return json!({ "type": "function", "function": function });
    }
    let (description, parameters) = kind.declaration();
    if function.get("description").is_none() && !description.is_empty() {
        function["description"] = description.into();
    }
    if kind != ToolKind::ToolSearch || function.get("parameters").is_none() {
        function["parameters"] = parameters;
    }
    if kind == ToolKind::Custom {
        let path = join(path, "format");
        if let Some(format) = fields::get(tool, "format").filter(|it| it["type"] == "grammar") {
            custom_tool::add_grammar(format, &mut function, &path, left_out);
        }
    }
    json!({ "type": "function", "function": function })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(given: Value) -> (Tools, LeftOut) {
        let (mut tools, mut left_out) = (Tools::default(), LeftOut::default());
        tools.add_all(given.as_array().unwrap(), "tools", &mut left_out).unwrap();
        tools.finish();
        (tools, left_out)
    }

    fn names(tools: &Tools) -> Vec<&str> {
        tools.functions().iter().map(|f| f["function"]["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn namespaces_are_flattened_and_come_back() {
        let f = |name: &str| json!({ "type": "function", "name": name, "parameters": {} });
        let (tools, _) = tools(json!([
            { "type": "namespace", "name": "functions", "tools": [f("a")] },
            { "type": "namespace", "name": "crm", "tools": [f("a"), f("crm_b"), f("crms")] },
            { "type": "namespace", "name": "crm", "tools": [f("a")] },
        ]));
        assert_eq!(names(&tools), ["a", "crm__a", "crm_b", "crm__crms"]);
        let item = tools.get("crm__a").call_item(&json!("c1"));
        assert_eq!((&item["name"], &item["namespace"]), (&json!("a"), &json!("crm")));
        assert_eq!(tools.get("a").call_item(&json!("c1")).get("namespace"), None);
        let referred = referred_name(&item, "input[0]", ToolKind::Function).unwrap();
        assert_eq!(referred, "crm__a");
    }

    #[test]
    fn calls_have_the_form_of_their_tool() {
        let check = |tool: Value, arguments: Value, member: &str, expected: Value| {
            let (tools, _) = tools(json!([tool]));
            let name = names(&tools)[0].to_owned();
            let tool = tools.get(&name);
            let mut item = tool.call_item(&json!("c1"));
            tool.complete(&mut item, &arguments.to_string());
            assert_eq!(item[member], expected);
            let kind = ToolKind::from_call_type(item["type"].as_str().unwrap()).unwrap();
            let back: Value = serde_json::from_str(&kind.arguments(&item, "x").unwrap()).unwrap();
            assert_eq!(back, arguments, "{item}");
        };
        check(
            json!({ "type": "custom", "name": "sql" }),
            json!({ "input": "select 1" }),
            "input",
            json!("select 1"),
        );
        check(
            json!({ "type": "local_shell" }),
            json!({ "command": ["ls"], "env": {} }),
            "action",
            json!({ "type": "exec", "command": ["ls"], "env": {} }),
        );
        let patch = json!({ "type": "delete_file", "path": "a" });
        check(json!({ "type": "apply_patch" }), patch.clone(), "operation", patch);
        let commands = json!({ "commands": ["ls", "pwd"] });
        check(json!({ "type": "shell" }), commands.clone(), "action", commands);
    }

    #[test]
    fn deferred_tools_wait_for_a_search_of_the_client() {
        let late = json!({ "type": "function", "name": "late", "defer_loading": true });
        let (without, _) = tools(json!([late, { "type": "tool_search" }]));
        assert_eq!(names(&without), ["late"], "nobody could search");
        let (mut with, mut left_out) =
            tools(json!([late, { "type": "tool_search", "execution": "client" }]));
        assert_eq!(names(&with), ["tool_search"]);
        for _ in 0..2 {
            with.load(std::slice::from_ref(&late), "input[1].tools", &mut left_out).unwrap();
            assert_eq!(names(&with), ["tool_search", "late"]);
        }
    }

    #[test]
    fn hosted_tools_are_left_out() {
        let (tools, left_out) =
            tools(json!([{ "type": "web_search" }, { "type": "function", "name": "f" }]));
        assert_eq!(names(&tools), ["f"]);
        let first = left_out.first().unwrap();
        assert_eq!(first, "tools[0]: tools of type \"web_search\" do not run here");
    }
}
