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

use super::config::{self, ServerConfig};
use super::connection::Connection;
use crate::failure::Result;
use crate::{interrupt, json, terminal};

/// The longest result that a model gets, in bytes. It is more than most contexts hold.
const MAX_RESULT: usize = 256 * 1024;
/// The time in which servers are asked to end.
const CLOSE: Duration = Duration::from_secs(5);
/// The time in which killed programs are gone.
const KILL: Duration = Duration::from_millis(100);

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
        let started = runtime.block_on(start_all(configs));
        spinner.finish_and_clear();
        let connections = started?;
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

/// Starts servers side by side. After the first failure the others are not waited for.
async fn start_all(configs: Vec<ServerConfig>) -> Result<Vec<Connection>> {
    let mut starts = JoinSet::new();
    for (index, config) in configs.into_iter().enumerate() {
        starts.spawn(async move { (index, Connection::open(config).await) });
    }
    let (mut opened, mut failure) = (Vec::new(), None);
    while let Some(start) = starts.join_next().await {
        match start {
            Ok((index, Ok(connection))) => opened.push((index, connection)),
            Ok((_, Err(failed))) => {
                failure.get_or_insert(failed);
                starts.abort_all();
            }
            Err(error) if error.is_cancelled() => {}
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    opened.sort_by_key(|(index, _)| *index);
    let connections = opened.into_iter().map(|(_, connection)| connection).collect();
    let Some(failure) = failure else { return Ok(connections) };
    close_all(connections).await;
    // Programs whose start was aborted are killed by tasks of their own.
    tokio::time::sleep(KILL).await;
    Err(failure)
}

async fn close_all(connections: Vec<Connection>) {
    let mut ends = JoinSet::new();
    for connection in connections {
        ends.spawn(connection.close());
    }
    let _ = tokio::time::timeout(CLOSE, ends.join_all()).await;
}

impl Drop for McpServers {
    fn drop(&mut self) {
        let connections = std::mem::take(&mut self.connections);
        self.runtime.block_on(close_all(connections));
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
