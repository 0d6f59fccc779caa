//! What commands read: JSON files, text files, stdin.

use std::fs;
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::Path;

use serde_json::Value;

use crate::failure::{Failure, Result};

/// The text of a file; `-` is stdin.
pub(crate) fn text(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return all_of_stdin();
    }
    let bytes = fs::read(path).map_err(|error| about(path, error))?;
    String::from_utf8(bytes).map_err(|_| about(path, "not UTF-8"))
}

/// The JSON of a file; `-` is stdin.
pub(crate) fn json(path: &Path) -> Result<Value> {
    let text = text(path)?;
    serde_json::from_str(&text).map_err(|error| about(path, format!("not JSON: {error}")))
}

/// Everything on stdin. Says on a terminal how to end it.
pub(crate) fn all_of_stdin() -> Result<String> {
    if stdin().is_terminal() {
        say!("llb: reading from the terminal; Ctrl-D ends the input");
    }
    let mut bytes = Vec::new();
    stdin().read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| Failure::new("stdin is not UTF-8"))
}

/// Writes to stdout. A closed pipe (`| head`) ends the program without a message.
pub(crate) fn print(text: &str) {
    let mut out = stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes JSON to stdout, indented.
pub(crate) fn print_json(value: &Value) {
    let text = serde_json::to_string_pretty(value).expect("JSON values have string keys");
    print(&format!("{text}\n"));
}

fn about(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {what}", path.display()))
}
