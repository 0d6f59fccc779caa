//! The slash commands of a chat.

use std::path::PathBuf;

use crate::failure::{Failure, Result};

/// What `/help` prints.
pub(super) const HELP: &str = r#"/system [TEXT]  set the system message, or show it
/tools [FILE]   use the tools of a JSON file, or no tools
/save FILE      write the conversation as JSON
/load FILE      continue a saved conversation
/retry          answer the last message again
/undo           remove the last message and its reply
/clear          remove all messages
/usage          count the tokens of the conversation
/quit           end the chat, like Ctrl-D
Ctrl-C ends a reply. A message may span several lines: end a line with \, or put the text between
""" and """. To begin a message with a slash, type two slashes.
"#;

/// Names for completion.
pub(super) const NAMES: [&str; 10] = [
    "/clear", "/help", "/load ", "/quit", "/retry", "/save ", "/system ", "/tools ", "/undo",
    "/usage",
];

#[derive(Debug, PartialEq)]
pub(super) enum Slash {
    Help,
    System(Option<String>),
    Tools(Option<PathBuf>),
    Save(PathBuf),
    Load(PathBuf),
    Retry,
    Undo,
    Clear,
    Usage,
    Quit,
}

impl Slash {
    /// Parses a slash command; `None` if the line is a message.
    pub(super) fn read(line: &str) -> Option<Result<Slash>> {
        let line = line.trim();
        let command = line.strip_prefix('/').filter(|command| !command.starts_with('/'))?;
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let argument = Some(argument.trim()).filter(|argument| !argument.is_empty());
        let file = || {
            argument
                .map(PathBuf::from)
                .ok_or_else(|| Failure::new(format!("/{name}: needs the name of a file")))
        };
        Some(Ok(match name {
            "help" | "?" => Slash::Help,
            "system" => Slash::System(argument.map(str::to_owned)),
            "tools" => Slash::Tools(argument.map(PathBuf::from)),
            "save" => return Some(file().map(Slash::Save)),
            "load" => return Some(file().map(Slash::Load)),
            "retry" => Slash::Retry,
            "undo" => Slash::Undo,
            "clear" => Slash::Clear,
            "usage" => Slash::Usage,
            "quit" | "exit" => Slash::Quit,
            _ => {
                let failure = Failure::new(format!("/{name}: unknown command"));
                return Some(Err(failure.next("/help lists the commands")));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        assert!(Slash::read("hello").is_none());
        assert!(Slash::read("//hello").is_none());
        assert_eq!(
            Slash::read("/system  Be brief. ").unwrap().unwrap(),
            Slash::System(Some("Be brief.".into()))
        );
        assert_eq!(Slash::read("/tools").unwrap().unwrap(), Slash::Tools(None));
        assert!(Slash::read("/save").unwrap().is_err());
        assert!(Slash::read("/nothing").unwrap().is_err());
    }
}
