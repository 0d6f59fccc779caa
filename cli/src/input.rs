//! Reads the input of commands: JSON files, text files, stdin.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Write, stdin, stdout};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{FAILED, Failure, Result};
use crate::json;
use crate::terminal::{Style, is_plain};

/// The maximum number of bytes of a text to read.
const MAX_BYTES: u64 = 64 << 20;
/// How long a pipe may be silent before a message tells that it is read.
const PATIENCE: Duration = Duration::from_secs(2);

/// The text of a file; `-` is stdin. A byte order mark at its head is no part of the text.
pub(crate) fn text(path: &Path) -> Result<String> {
    let text = text_with_mark(path)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The text of a file, with its byte order mark; `-` is stdin.
pub(crate) fn text_with_mark(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return all_of_stdin();
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    limited(file, path)
}

/// The JSON of a file; `-` is stdin.
pub(crate) fn json(path: &Path) -> Result<Value> {
    let text = text(path)?;
    json::value(&text).map_err(|error| about(path, format!("not JSON: {error}")))
}

/// Reads a conversation from a JSON file as a request with `messages`. The file contains an array
/// of messages or a whole request.
pub(crate) fn conversation(path: &Path) -> Result<Value> {
    match json(path)? {
        messages @ Value::Array(_) => Ok(json!({ "messages": messages })),
        request @ Value::Object(_) if request["messages"].is_array() => Ok(request),
        _ => {
            let message = "has no conversation; expected an array of messages, or an object with \
                           `messages`";
            Err(about(path, message))
        }
    }
}

/// Reads the tools in a JSON file.
pub(crate) fn tools(path: &Path) -> Result<Value> {
    let tools = json(path)?;
    if tools.is_array() {
        return Ok(tools);
    }
    Err(about(path, "has no tools; expected an array, as in `tools` of a request"))
}

/// The text of stdin without the newline at its end; `None` if stdin is a terminal. If the text is
/// only an addition, a message tells after a while what the program waits for: a pipe that stays
/// open has no end.
pub(crate) fn piped(is_addition: bool) -> Result<Option<String>> {
    if stdin().is_terminal() {
        return Ok(None);
    }
    let (done, ended) = mpsc::channel::<()>();
    let reminder = is_addition.then(|| {
        thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                say!("llb: waiting for the end of stdin; without input for it, add < /dev/null");
            }
        })
    });
    let text = all_of_stdin();
    drop(done);
    if let Some(reminder) = reminder {
        let _ = reminder.join();
    }
    let text = text?;
    let prompt = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Some(prompt.strip_suffix('\r').unwrap_or(prompt).to_owned()))
}

/// Reads the prompt from the terminal.
pub(crate) fn typed() -> Result<String> {
    let text = all_of_stdin()?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Reads all of stdin. On a terminal, explains how to end the input.
fn all_of_stdin() -> Result<String> {
    if stdin().is_terminal() {
        say!("llb: reading from the terminal; Ctrl-D ends the input");
    }
    limited(stdin().lock(), Path::new("-"))
}

/// Writes to stdout. A terminal gets no control characters; a file or a pipe gets the text as it is.
/// A closed pipe (`| head`) ends the program without a message, a full disk with one.
pub(crate) fn print(text: &str) {
    let text = match stdout().is_terminal() {
        true => Cow::Owned(Style::stdout().shown(text)),
        false => Cow::Borrowed(text),
    };
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            say!("llb: stdout: {error}");
            std::process::exit(FAILED.into());
        }
    }
}

/// Writes JSON to stdout, indented. On a terminal, control characters are escaped.
pub(crate) fn print_json(value: &Value) {
    let mut text = serde_json::to_string_pretty(value).expect("JSON values have string keys");
    if stdout().is_terminal() {
        text = escaped(&text);
    }
    print(&format!("{text}\n"));
}

/// JSON in which the characters that are not plain are escape sequences. JSON requires that only of
/// the first 32, and those that are not plain occur only in its strings.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            units.iter().for_each(|unit| escaped += &format!("\\u{unit:04x}"));
        }
    }
    escaped
}

/// Reads a whole stream. `path` names it in errors.
fn limited(stream: impl Read, path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = stream.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(about(path, format!("has more than {} MiB of text", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| about(path, "not UTF-8"))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => {
            about(path, "no such file").next("give the name of a file, or - for stdin")
        }
        ErrorKind::IsADirectory => {
            about(path, "is a directory").next("give the name of a file in it")
        }
        _ => about(path, error),
    }
}

fn about(path: &Path, what: impl std::fmt::Display) -> Failure {
    let name = if path == Path::new("-") { Path::new("stdin") } else { path };
    Failure::new(format!("{}: {what}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_is_the_same_value() {
        let value = json!({ "a\u{9b}": "\u{1b}[2J\u{202e}\u{7f}\n\t ü 😀 \u{2066}" });
        let text = escaped(&serde_json::to_string_pretty(&value).unwrap());
        assert!(text.chars().all(is_plain), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.contains("ü 😀"), "{text}");
    }
}
