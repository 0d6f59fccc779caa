//! `llb launch`: a coding agent on a model of this machine. It serves the model, and starts the agent
//! with the settings that make it use the server. It writes no file.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;

use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::sync::watch;

use crate::failure::{FAILED, Failure, OK, Result};
use crate::input::print;
use crate::model_source::model_file;
use crate::serve::{self, Server};
use crate::{abi, interrupt};

/// The context of a model for an agent, unless the model has less. Their first prompts have 10,000
/// tokens and more.
const N_CTX: u32 = 65_536;

#[derive(Debug, Args)]
#[command(mut_arg("port", |port| port.default_value("0")))]
pub(crate) struct Arguments {
    /// The program to start
    #[arg(value_enum)]
    client: Client,
    /// Print the command and its environment instead, for a server on --port, or on 8080
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    serve: serve::Arguments,
    /// Arguments of the client
    #[arg(last = true, value_name = "ARGUMENTS")]
    rest: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Client {
    Codex,
    Claude,
    Opencode,
    Aider,
}

pub(crate) fn run(arguments: Arguments) -> Result<u8> {
    let Arguments { client, print: prints, serve: arguments, rest } = arguments;
    let Some((name, model)) = arguments.first_model() else {
        return Err(Failure::new("a coding agent needs a chat model"));
    };
    let key = arguments.key()?;
    let start = move |address| client.start(address, &name, key.as_deref());
    let mut address = arguments.address();
    if address.port() == 0 {
        address.set_port(serve::PORT);
    }
    if prints {
        print(&(start(address).shell(&rest) + "\n"));
        return Ok(OK);
    }
    let program = start(address).program;
    let program = which::which(program).map_err(|_| {
        let failure = Failure::new(format!("{program} is not installed, or not in PATH"));
        failure.next(client.installation())
    })?;
    let trained = abi::model_info(&model_file(model)?)?["context_length"].as_u64();
    let n_ctx =
        trained.and_then(|most| u32::try_from(most).ok()).map_or(N_CTX, |most| most.min(N_CTX));
    let server = Server::load(&arguments.for_client(n_ctx))?;

    let (stop, stopping) = watch::channel(false);
    let mut client = None;
    server.serve(stopping, |address| {
        interrupt::lend_terminal();
        let start = start(address);
        client = Some(thread::spawn(move || {
            let mut command = Command::new(&program);
            command.args(start.arguments).args(rest).envs(start.environment);
            let status = command.status();
            let _ = stop.send(true);
            status.map_err(|error| Failure::new(format!("{}: {error}", program.display())))
        }));
    })?;
    let status = client.and_then(|client| client.join().ok()).transpose()?;
    Ok(status.and_then(|status| status.code()).map_or(FAILED, |code| code as u8))
}

/// How a client is started.
#[derive(Debug, PartialEq)]
struct Start {
    program: &'static str,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl Start {
    /// The command line for a shell.
    fn shell(&self, rest: &[OsString]) -> String {
        let variables =
            self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let rest = rest.iter().map(|argument| argument.to_string_lossy().into_owned());
        let arguments = self.arguments.iter().cloned().chain(rest);
        let words =
            variables.chain([self.program.to_owned()]).chain(arguments.map(|it| quoted(&it)));
        words.collect::<Vec<String>>().join(" ")
    }
}

/// A word as a POSIX shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Client {
    /// How the client is started for a model of a server. Sources: the documentation of each.
    fn start(self, address: SocketAddr, model: &str, key: Option<&str>) -> Start {
        let root = format!("http://{address}");
        let base = format!("{root}/v1");
        let any_key = key.unwrap_or("none").to_owned();
        let text = |text: &str| json!(text).to_string();
        match self {
            // https://developers.openai.com/codex/config-reference. Values are TOML.
            Client::Codex => {
                let env_key = key.map_or("", |_| r#",env_key="LLB_SERVER_KEY""#);
                let provider = format!(
                    r#"model_providers.llb={{name="llb",base_url={},wire_api="responses"{env_key}}}"#,
                    text(&base)
                );
                let settings =
                    [format!("model={}", text(model)), "model_provider=\"llb\"".into(), provider];
                Start {
                    program: "codex",
                    arguments: settings
                        .into_iter()
                        .flat_map(|setting| ["-c".into(), setting])
                        .collect(),
                    environment: key
                        .map(|key| ("LLB_SERVER_KEY", key.to_owned()))
                        .into_iter()
                        .collect(),
                }
            }
            // https://code.claude.com/docs/en/env-vars
            Client::Claude => Start {
                program: "claude",
                arguments: Vec::new(),
                environment: vec![
                    ("ANTHROPIC_BASE_URL", root),
                    ("ANTHROPIC_AUTH_TOKEN", any_key),
                    ("ANTHROPIC_MODEL", model.into()),
                    ("ANTHROPIC_SMALL_FAST_MODEL", model.into()),
                    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
                ],
            },
            // https://opencode.ai/docs/config
            Client::Opencode => {
                let config = json!({
                    "model": format!("llb/{model}"),
                    "provider": {"llb": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": base, "apiKey": any_key},
                        "models": {model: {}},
                    }},
                });
                Start {
                    program: "opencode",
                    arguments: Vec::new(),
                    environment: vec![("OPENCODE_CONFIG_CONTENT", config.to_string())],
                }
            }
            // https://aider.chat/docs/llms/openai-compat.html
            Client::Aider => Start {
                program: "aider",
                arguments: vec!["--model".into(), format!("openai/{model}")],
                environment: vec![("OPENAI_API_BASE", base), ("OPENAI_API_KEY", any_key)],
            },
        }
    }

    /// How the client is installed.
    fn installation(self) -> &'static str {
        match self {
            Client::Codex => "npm install -g @openai/codex",
            Client::Claude => "npm install -g @anthropic-ai/claude-code",
            Client::Opencode => "npm install -g opencode-ai",
            Client::Aider => "python -m pip install aider-chat",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(client: Client, key: Option<&str>, command: &str) {
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        let rest = [OsString::from("say hello")];
        assert_eq!(client.start(address, "it's", key).shell(&rest), command);
    }

    #[test]
    fn commands_of_a_shell() {
        check(
            Client::Claude,
            None,
            "ANTHROPIC_BASE_URL=http://127.0.0.1:8080 ANTHROPIC_AUTH_TOKEN=none \
             ANTHROPIC_MODEL='it'\\''s' ANTHROPIC_SMALL_FAST_MODEL='it'\\''s' \
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 claude 'say hello'",
        );
        check(
            Client::Codex,
            Some("k"),
            "LLB_SERVER_KEY=k codex -c 'model=\"it'\\''s\"' -c 'model_provider=\"llb\"' \
             -c 'model_providers.llb={name=\"llb\",base_url=\"http://127.0.0.1:8080/v1\",wire_api=\"responses\",env_key=\"LLB_SERVER_KEY\"}' 'say hello'",
        );
        check(
            Client::Aider,
            Some("k"),
            "OPENAI_API_BASE=http://127.0.0.1:8080/v1 OPENAI_API_KEY=k aider --model 'openai/it'\\''s' 'say hello'",
        );
    }
}
