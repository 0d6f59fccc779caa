//! The MCP servers of a file, their tools, and calls of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::config;
use super::connection::Connection;
use crate::failure::Result;
use crate::{interrupt, json, terminal};

/// The longest result that a model gets, in bytes. It is more than most contexts hold.
const MAX_RESULT: usize = 256 * 1024;

/// The servers of a file, which end with this value.
pub(crate) struct McpServers {
    runtime: Runtime,
    connections: Vec<Connection>,
    /// The tool for each name that the model sees.
    tools: HashMap<String, ServerTool>,
}

/// A tool, by its server's index and its name there.
struct ServerTool {
    server: usize,
    name: String,
}

impl McpServers {
    /// Starts the servers of a file. If one of them fails, none is left.
    pub(crate) fn start(path: &Path) -> Result<McpServers> {
        let configs = config::read(path)?;
        // reqwest takes the process's provider. An error says that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let spinner = terminal::spinner("MCP servers");
        let connections = runtime.block_on(async {
            let mut starts = JoinSet::new();
            for (index, config) in configs.into_iter().enumerate() {
                starts.spawn(async move { (index, Connection::open(config).await) });
            }
            let mut opened = starts.join_all().await;
            opened.sort_by_key(|(index, _)| *index);
            opened
                .into_iter()
                .map(|(_, connection)| connection)
                .collect::<Result<Vec<Connection>>>()
        });
        spinner.finish_and_clear();
        let connections = connections?;
        let tools = names(&connections);
        Ok(McpServers { runtime, connections, tools })
    }

    /// The tools of all servers, as a request has them.
    pub(crate) fn tools(&self) -> Vec<Value> {
        let mut named: Vec<(&String, &ServerTool)> = self.tools.iter().collect();
        named.sort_by_key(|(name, tool)| (tool.server, *name));
        let described = named.into_iter().filter_map(|(name, tool)| {
            let tools = &self.connections[tool.server].tools;
            let tool = tools.iter().find(|other| other.name == tool.name)?;
            let mut function = json!({ "name": name, "parameters": *tool.input_schema });
            if let Some(text) = &tool.description {
                function["description"] = text.as_ref().into();
            }
            Some(json!({ "type": "function", "function": function }))
        });
        described.collect()
    }

    /// Whether a call is for a tool of these servers.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Runs a call, and returns the text for the model, which may say that the call failed. Ctrl-C
    /// ends the call.
    pub(crate) fn call(&self, name: &str, arguments: &str) -> String {
        let Some(tool) = self.tools.get(name) else {
            return format!("Error: there is no tool {name}");
        };
        let mut params = CallToolRequestParams::new(tool.name.clone());
        match json::value(arguments) {
            Ok(Value::Object(arguments)) => params.arguments = Some(arguments),
            _ => return "Error: the arguments are not a JSON object".to_owned(),
        }
        let cancel = Arc::new(Notify::new());
        let cancelled = Arc::clone(&cancel);
        let peer = self.connections[tool.server].peer();
        let spinner = terminal::spinner(name);
        let text = interrupt::cancellable(
            move || cancelled.notify_one(),
            || {
                self.runtime.block_on(async {
                    tokio::select! {
                        result = peer.call_tool(params) => match result {
                            Ok(result) => result_text(&result),
                            Err(error) => format!("Error: {error}"),
                        },
                        () = cancel.notified() => "Error: the user ended this call".to_owned(),
                    }
                })
            },
        );
        spinner.finish_and_clear();
        text
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        let connections = std::mem::take(&mut self.connections);
        self.runtime.block_on(async {
            let mut ends = JoinSet::new();
            for connection in connections {
                ends.spawn(connection.close());
            }
            let _ = tokio::time::timeout(Duration::from_secs(5), ends.join_all()).await;
        });
    }
}

/// The names that the model sees: a tool's own, or with its server's in front if two have the same.
fn names(connections: &[Connection]) -> HashMap<String, ServerTool> {
    let mut count: HashMap<&str, usize> = HashMap::new();
    for tool in connections.iter().flat_map(|connection| &connection.tools) {
        *count.entry(&tool.name).or_default() += 1;
    }
    let mut named = HashMap::new();
    for (server, connection) in connections.iter().enumerate() {
        for tool in &connection.tools {
            let is_single = count[&*tool.name] == 1;
            let name = if is_single {
                tool.name.to_string()
            } else {
                format!("{}_{}", connection.name, tool.name)
            };
            named.entry(name).or_insert(ServerTool { server, name: tool.name.to_string() });
        }
    }
    named
}

/// The texts of a result, one below the other. What is not text is named.
fn result_text(result: &CallToolResult) -> String {
    let mut texts: Vec<String> = result.content.iter().map(block).collect();
    if texts.is_empty() {
        texts.extend(result.structured_content.as_ref().map(ToString::to_string));
    }
    let mut text = texts.join("\n");
    if text.len() > MAX_RESULT {
        let mut end = MAX_RESULT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let left_out = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n[{left_out} bytes more were left out]"));
    }
    if result.is_error == Some(true) { format!("Error: {text}") } else { text }
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[image: {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio: {}]", audio.mime_type),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, .. } => format!("[file: {uri}]"),
            _ => "[file]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[file: {}]", link.uri),
        _ => "[content of an unknown kind]".to_owned(),
    }
}
