//! A peer: another template engine in a separate process, which times itself.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A peer runs until it is dropped. peer.py describes the JSON objects, one per line in each
/// direction.
pub(crate) struct Peer {
    process: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

/// The folder where setup.sh installs the peers.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-peers")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/template").join(name)
}

impl Peer {
    /// transformers and jinja2. Prints a line if they are unavailable.
    pub(crate) fn python() -> Option<Peer> {
        let interpreter = folder().join("venv/bin/python");
        let mut command = Command::new(interpreter);
        command.arg(script("peer.py"));
        Peer::start("transformers and jinja2", command)
    }

    /// @huggingface/jinja. Prints a line if it is unavailable.
    pub(crate) fn node() -> Option<Peer> {
        let mut command = Command::new("node");
        command.arg(script("peer.mjs")).arg(folder());
        Peer::start("@huggingface/jinja", command)
    }

    fn start(name: &str, mut command: Command) -> Option<Peer> {
        let spawned =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let why = match spawned {
            Err(error) => error.to_string(),
            Ok(mut process) => {
                let requests = process.stdin.take();
                let replies = BufReader::new(process.stdout.take().expect("the output is piped"));
                let mut peer = Peer { process, requests, replies };
                match peer.ask(&json!({ "do": "version" })) {
                    Ok(reply) => {
                        println!("peer: {}", reply["version"].as_str().unwrap_or(name));
                        return Some(peer);
                    }
                    Err(why) => why,
                }
            }
        };
        println!("skipped: {name}: it does not start ({why}); run benches/template/setup.sh");
        None
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        let requests = self.requests.as_mut().expect("the input is open until the end");
        writeln!(requests, "{request}")
            .and_then(|()| requests.flush())
            .map_err(|error| error.to_string())?;
        let mut line = String::new();
        self.replies.read_line(&mut line).map_err(|error| error.to_string())?;
        let reply: Value = serde_json::from_str(&line).map_err(|_| "no reply".to_owned())?;
        match reply["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(reply),
        }
    }

    /// Compiles a template for later renders. Returns the time in seconds. The text must be new, or
    /// the peer finds it in a cache.
    pub(crate) fn compile(
        &mut self,
        template: &str,
        bos_token: &str,
        eos_token: &str,
        now: &str,
    ) -> Result<f64, String> {
        let request = json!({ "do": "compile", "template": template, "bos_token": bos_token, "eos_token": eos_token, "now": now });
        Ok(self.ask(&request)?["seconds"].as_f64().expect("a reply has seconds"))
    }

    /// Renders a conversation several times. Returns the seconds of each render, and the text.
    /// `bare` leaves out what transformers adds.
    pub(crate) fn render(
        &mut self,
        conversation: &str,
        times: usize,
        bare: bool,
    ) -> Result<(f64, String), String> {
        let request =
            json!({ "do": "render", "conversation": conversation, "times": times, "bare": bare });
        let reply = self.ask(&request)?;
        let text = reply["text"].as_str().expect("a reply has a text").to_owned();
        Ok((reply["seconds"].as_f64().expect("a reply has seconds"), text))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process ends when its input is closed.
        self.requests = None;
        let _ = self.process.wait();
    }
}
