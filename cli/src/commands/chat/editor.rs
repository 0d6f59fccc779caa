//! The line editor: several lines, completion of commands, and a history file that only its owner
//! can read.

use std::borrow::Cow;
use std::env;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Helper};

use super::slash::NAMES;
use crate::failure::{Failure, Result};
use crate::terminal::{Look, Style};

const QUOTES: &str = "\"\"\"";

/// A line that the user typed.
pub(super) enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D.
    End,
}

pub(super) struct Editor {
    editor: rustyline::Editor<EditedLines, FileHistory>,
    history: Option<PathBuf>,
}

impl Editor {
    pub(super) fn new(with_history: bool) -> Result<Editor> {
        let config = Config::builder().max_history_size(1000).map_err(failure)?.build();
        let mut editor = rustyline::Editor::with_config(config).map_err(failure)?;
        editor.set_helper(Some(EditedLines { style: Style::stderr() }));
        let history = with_history.then(history_file).flatten();
        if let Some(path) = &history {
            // The file does not exist before the first chat.
            let _ = editor.load_history(path);
        }
        Ok(Editor { editor, history })
    }

    pub(super) fn read(&mut self, prompt: &str) -> Result<Line> {
        match self.editor.readline(prompt) {
            Ok(text) => {
                self.remember(&text);
                Ok(Line::Text(joined(&text)))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(failure(error)),
        }
    }

    fn remember(&mut self, text: &str) {
        let added = self.editor.add_history_entry(text).unwrap_or_default();
        if let Some(path) = self.history.as_ref().filter(|_| added) {
            if let Some(folder) = path.parent() {
                let _ = std::fs::create_dir_all(folder);
            }
            // The chat continues even if the history cannot be written.
            let _ = self.editor.append_history(path);
        }
    }
}

/// The history file, `$XDG_STATE_HOME/llb/history` (XDG base directory specification).
fn history_file() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").filter(|folder| !folder.is_empty());
    let state = state.map(PathBuf::from);
    let home = || env::home_dir().map(|home| home.join(".local/state"));
    Some(state.or_else(home)?.join("llb/history"))
}

/// The message of several lines, without the backslashes at their ends and without the surrounding
/// quotes.
fn joined(text: &str) -> String {
    if let Some(quoted) = text.trim().strip_prefix(QUOTES) {
        let quoted = quoted.strip_suffix(QUOTES).unwrap_or(quoted);
        return quoted.trim_matches('\n').to_owned();
    }
    let text = text.replace("\\\n", "\n");
    if text.starts_with("//") { text[1..].to_owned() } else { text }
}

fn failure(error: ReadlineError) -> Failure {
    Failure::new(format!("the terminal: {error}"))
}

/// Tells rustyline how to treat the lines of a chat.
struct EditedLines {
    style: Style,
}

impl Helper for EditedLines {}
impl Hinter for EditedLines {
    type Hint = String;
}

impl Highlighter for EditedLines {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(self.style.shown(&self.style.paint(Look::Blue, prompt)))
    }
}

impl Completer for EditedLines {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let names = NAMES.iter().filter(|name| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, names.map(|&name| name.to_owned()).collect()))
    }
}

impl Validator for EditedLines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let open = text.trim_start().starts_with(QUOTES)
            && !(text.trim().len() >= 2 * QUOTES.len() && text.trim().ends_with(QUOTES));
        let incomplete = open || text.ends_with('\\');
        Ok(if incomplete { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, message: &str) {
        assert_eq!(joined(typed), message);
    }

    #[test]
    fn several_lines_are_one_message() {
        check("a\\\nb", "a\nb");
        check("\"\"\"\na\n\nb\n\"\"\"", "a\n\nb");
        check("//path", "/path");
        check("one", "one");
    }
}
