//! The file that names MCP servers, in the form that other programs use:
//!
//! ```json
//! {"mcpServers": {
//!     "files": {"command": "npx", "args": ["-y", "some-server", "."], "env": {"KEY": "${KEY}"}},
//!     "search": {"type": "http", "url": "https://example.org/mcp", "headers": {"authorization": "Bearer ${TOKEN}"}}
//! }}
//! ```
//!
//! `${NAME}` is a variable of the environment, `${NAME:-text}` the text if the variable is not set.
//! Source: <https://code.claude.com/docs/en/mcp>.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::input;

/// A server as the file describes it.
#[derive(Debug, PartialEq)]
pub(super) struct ServerConfig {
    pub(super) name: String,
    pub(super) connection: Connection,
}

/// How a server is reached.
#[derive(Debug, PartialEq)]
pub(super) enum Connection {
    Program {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<PathBuf>,
    },
    Http {
        url: String,
        headers: BTreeMap<String, String>,
    },
}

/// The members of a server. Others, such as `disabled` of some editors, have no meaning here.
#[derive(Deserialize)]
struct Members {
    r#type: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Reads the servers of a file.
pub(super) fn read(path: &Path) -> Result<Vec<ServerConfig>> {
    let file = input::json(path)?;
    servers(&file).map_err(|mut failure| {
        failure.message = format!("{}: {}", path.display(), failure.message);
        failure
    })
}

fn servers(file: &Value) -> Result<Vec<ServerConfig>> {
    let Some(servers) = file["mcpServers"].as_object() else {
        let failure = Failure::new("mcpServers: missing, or not an object");
        return Err(failure.next(r#"write {"mcpServers": {"NAME": {"command": "PROGRAM"}}}"#));
    };
    if servers.is_empty() {
        return Err(Failure::new("mcpServers: has no server"));
    }
    let read = |(name, members): (&String, &Value)| {
        let connection = connection(members)
            .map_err(|reason| Failure::new(format!("mcpServers.{name}{reason}")))?;
        Ok(ServerConfig { name: name.clone(), connection })
    };
    servers.iter().map(read).collect()
}

/// The error begins with the member that is wrong.
fn connection(members: &Value) -> std::result::Result<Connection, String> {
    let members = Members::deserialize(members).map_err(|error| format!(": {error}"))?;
    let kind = members.r#type.as_deref();
    let expand =
        |member: &str, text: &str| expanded(text).map_err(|why| format!(".{member}: {why}"));
    let all = |member: &str, texts: BTreeMap<String, String>| {
        let texts = texts.into_iter();
        texts
            .map(|(name, text)| Ok((name, expand(member, &text)?)))
            .collect::<std::result::Result<_, String>>()
    };
    match (kind, members.command, members.url) {
        (None | Some("stdio"), Some(command), _) => Ok(Connection::Program {
            command: expand("command", &command)?,
            args: members
                .args
                .iter()
                .map(|text| expand("args", text))
                .collect::<std::result::Result<_, _>>()?,
            env: all("env", members.env)?,
            cwd: members.cwd.map(|text| expand("cwd", &text)).transpose()?.map(PathBuf::from),
        }),
        (None | Some("http" | "streamable-http" | "streamableHttp"), None, Some(url)) => {
            Ok(Connection::Http {
                url: expand("url", &url)?,
                headers: all("headers", members.headers)?,
            })
        }
        (Some("sse"), ..) => {
            Err(".type: sse is not supported; ask the server for streamable HTTP, and \
                                  write http"
                .into())
        }
        (Some(kind @ ("stdio" | "http")), ..) => {
            let missing = if kind == "stdio" { "command" } else { "url" };
            Err(format!(".{missing}: is missing"))
        }
        (Some(kind), ..) => Err(format!(".type: {kind} is unknown; expected stdio or http")),
        (None, ..) => Err(": needs a command or a url".into()),
    }
}

/// A text with the variables of the environment in their places.
fn expanded(text: &str) -> std::result::Result<String, String> {
    let mut rest = text;
    let mut whole = String::new();
    while let Some(at) = rest.find("${") {
        whole.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end = inner.find('}').ok_or("${ without }")?;
        let (name, default) = match inner[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inner[..end], None),
        };
        match (env::var(name), default) {
            (Ok(value), _) => whole.push_str(&value),
            (Err(_), Some(default)) => whole.push_str(default),
            (Err(_), None) => return Err(format!("the variable {name} is not set")),
        }
        rest = &inner[end + 1..];
    }
    Ok(whole + rest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_and_http() {
        let file = json!({"mcpServers": {
            "a": {"command": "x", "args": ["1", "${LLB_NO_SUCH:-2}"], "disabled": false},
            "b": {"type": "http", "url": "http://h/mcp", "headers": {"k": "v"}},
        }});
        let found = servers(&file).unwrap();
        let program = Connection::Program {
            command: "x".into(),
            args: vec!["1".into(), "2".into()],
            env: BTreeMap::new(),
            cwd: None,
        };
        let headers = BTreeMap::from([("k".into(), "v".into())]);
        let http = Connection::Http { url: "http://h/mcp".into(), headers };
        assert_eq!(found[0], ServerConfig { name: "a".into(), connection: program });
        assert_eq!(found[1], ServerConfig { name: "b".into(), connection: http });
    }

    #[track_caller]
    fn refused(server: Value, message: &str) {
        let failure = servers(&json!({"mcpServers": {"s": server}})).unwrap_err();
        assert_eq!(failure.message, format!("mcpServers.s{message}"));
    }

    #[test]
    fn errors_name_the_member() {
        refused(json!({}), ": needs a command or a url");
        refused(json!({"type": "http"}), ".url: is missing");
        refused(
            json!({"type": "pipe", "command": "x"}),
            ".type: pipe is unknown; expected stdio or http",
        );
        refused(
            json!({"command": "${LLB_NO_SUCH}"}),
            ".command: the variable LLB_NO_SUCH is not set",
        );
        refused(json!({"command": "x", "env": {"K": "${"}}), ".env: ${ without }");
        assert!(
            servers(&json!({"servers": {}}))
                .unwrap_err()
                .message
                .starts_with("mcpServers: missing")
        );
    }
}
