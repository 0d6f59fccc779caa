//! A connection to one MCP server, which is a program of this machine or behind HTTP.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use rmcp::ServiceExt;
use rmcp::model::{ClientConfig, Implementation, Tool};
use rmcp::service::{Peer, RoleClient, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::config::{Connection as Address, ServerConfig};
use crate::failure::{Failure, Result};

/// The time in which a server must answer and list its tools. Servers of npx download themselves first.
const START: Duration = Duration::from_secs(60);
/// The time in which the output of a program that failed is read to its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server that runs, and the tools that it had at the start.
pub(super) struct Connection {
    pub(super) name: String,
    pub(super) tools: Vec<Tool>,
    service: RunningService<RoleClient, ClientConfig>,
}

impl Connection {
    /// Starts or reaches a server, and asks for its tools.
    pub(super) async fn open(config: ServerConfig) -> Result<Connection> {
        let ServerConfig { name, connection } = config;
        let last_words = LastWords::default();
        let failed = |reason: String| {
            let said =
                last_words.text().map(|line| format!("; it wrote: {line}")).unwrap_or_default();
            Failure::new(format!("MCP server {name}: {reason}{said}"))
        };
        let started = async {
            let service = match connection {
                Address::Program { command, args, env, cwd } => {
                    let program =
                        which::which(&command).map_err(|error| format!("{command}: {error}"))?;
                    let mut command = Command::new(program);
                    // The transport kills it in a task, which may end with the runtime before that.
                    command.args(args).envs(env).kill_on_drop(true);
                    if let Some(folder) = cwd {
                        command.current_dir(folder);
                    }
                    let (transport, stderr) = TokioChildProcess::builder(command)
                        .stderr(Stdio::piped())
                        .spawn()
                        .map_err(|error| error.to_string())?;
                    if let Some(stderr) = stderr {
                        last_words.listen(stderr);
                    }
                    client().serve(transport).await.map_err(|error| error.to_string())?
                }
                Address::Http { url, headers } => {
                    let headers = headers.iter().map(|(name, value)| {
                        let pair =
                            (HeaderName::try_from(name).ok(), HeaderValue::try_from(value).ok());
                        let (Some(name), Some(mut value)) = pair else {
                            return Err(format!("headers.{name}: is not a header"));
                        };
                        value.set_sensitive(true);
                        Ok((name, value))
                    });
                    let headers = headers.collect::<std::result::Result<HashMap<_, _>, _>>()?;
                    let config =
                        StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers);
                    let transport = StreamableHttpClientTransport::from_config(config);
                    client().serve(transport).await.map_err(|error| error.to_string())?
                }
            };
            let tools = service.list_all_tools().await.map_err(|error| error.to_string())?;
            Ok((service, tools))
        };
        let started = timeout(START, started).await;
        let started =
            started.unwrap_or_else(|_| Err(format!("no answer within {} s", START.as_secs())));
        match started {
            Ok((service, tools)) => Ok(Connection { name, tools, service }),
            Err(reason) => {
                // What a program says before it ends may come after its end.
                last_words.wait_for_end().await;
                Err(failed(reason))
            }
        }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Ends the server if it is a program.
    pub(super) async fn close(mut self) {
        let _ = self.service.close().await;
    }
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.client_info = Implementation::new("llb", env!("CARGO_PKG_VERSION"));
    config
}

/// The last line that a program wrote to stderr.
#[derive(Default)]
struct LastWords {
    line: Arc<Mutex<Option<String>>>,
    /// Reads until the program ends.
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl LastWords {
    fn listen(&self, stderr: ChildStderr) {
        let last = Arc::clone(&self.line);
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if !line.trim().is_empty() {
                    *lock(&last) = Some(line);
                }
            }
        });
        *lock(&self.reader) = Some(reader);
    }

    async fn wait_for_end(&self) {
        let reader = lock(&self.reader).take();
        if let Some(reader) = reader {
            let _ = timeout(LAST_WORDS, reader).await;
        }
    }

    fn text(&self) -> Option<String> {
        lock(&self.line).clone()
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
