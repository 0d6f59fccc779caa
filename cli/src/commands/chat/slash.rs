//! The slash commands of a chat.

use std::path::PathBuf;

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::json;

/// What `/help` prints.
pub(super) const HELP: &str = r#"/system [TEXT]  set the system message, or show it
/tools [FILE]   use the tools of a JSON file, or list them; /tools none uses no tools,
                /tools only NAME... some of them, /tools all all of them
/set [NAME VALUE]
                set a member of the requests, such as temperature 0.2, or list them;
                the value "default" returns to the default
/image FILE     send a picture with the next message
/audio FILE     send a sound with the next message
/model [MODEL]  go on with another model, or show the model
/save FILE      write the conversation as JSON; /save! FILE replaces a file
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
pub(super) const NAMES: [&str; 14] = [
    "/audio ", "/clear", "/help", "/image ", "/load ", "/model ", "/quit", "/retry", "/save ",
    "/set ", "/system ", "/tools ", "/undo", "/usage",
];

#[derive(Debug, PartialEq)]
pub(super) enum Slash {
    Help,
    System(Option<String>),
    /// `None` lists the tools.
    Tools(Option<ToolChoice>),
    /// `None` lists the settings. A setting without a value returns to its default.
    Set(Option<(String, Option<Value>)>),
    /// A picture for the next message.
    Image(PathBuf),
    /// A sound for the next message.
    Audio(PathBuf),
    /// `None` shows the model.
    Model(Option<String>),
    Save {
        path: PathBuf,
        replaces: bool,
    },
    Load(PathBuf),
    Retry,
    Undo,
    Clear,
    Usage,
    Quit,
}

/// Which tools the model may call.
#[derive(Debug, PartialEq)]
pub(super) enum ToolChoice {
    All,
    None,
    /// These of all tools.
    Only(Vec<String>),
    File(PathBuf),
}

impl ToolChoice {
    fn read(argument: &str) -> ToolChoice {
        match argument.split_once(' ') {
            Some(("only", names)) => {
                ToolChoice::Only(names.split_whitespace().map(str::to_owned).collect())
            }
            _ if argument == "all" => ToolChoice::All,
            _ if argument == "none" => ToolChoice::None,
            _ => ToolChoice::File(argument.into()),
        }
    }
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
            "tools" => Slash::Tools(argument.map(ToolChoice::read)),
            "set" => return Some(argument.map_or(Ok(Slash::Set(None)), setting)),
            "image" => return Some(file().map(Slash::Image)),
            "audio" => return Some(file().map(Slash::Audio)),
            "model" => Slash::Model(argument.map(str::to_owned)),
            "save" | "save!" => {
                let replaces = name == "save!";
                return Some(file().map(|path| Slash::Save { path, replaces }));
            }
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

/// `NAME VALUE` or `NAME=VALUE`. A value that is no JSON is text.
fn setting(argument: &str) -> Result<Slash> {
    let (name, value) =
        argument.split_once(|c: char| c == '=' || c.is_whitespace()).ok_or_else(|| {
            Failure::new("/set: needs a name and a value").next("/set temperature 0.2")
        })?;
    let value = match value.trim_start().trim_start_matches('=').trim() {
        "default" => None,
        text => Some(json::value(text).unwrap_or_else(|_| text.into())),
    };
    Ok(Slash::Set(Some((name.replace('-', "_"), value))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        for (line, choice) in [
            ("/tools none", ToolChoice::None),
            ("/tools all", ToolChoice::All),
            ("/tools only a b", ToolChoice::Only(vec!["a".into(), "b".into()])),
            ("/tools none.json", ToolChoice::File("none.json".into())),
        ] {
            assert_eq!(Slash::read(line).unwrap().unwrap(), Slash::Tools(Some(choice)), "{line}");
        }
        for (line, value) in [
            ("/set top-k 3", Some(json!(3))),
            ("/set top_k = 3", Some(json!(3))),
            ("/set top_k=default", None),
            ("/set top_k  a b", Some(json!("a b"))),
        ] {
            let expected = Slash::Set(Some(("top_k".to_owned(), value)));
            assert_eq!(Slash::read(line).unwrap().unwrap(), expected, "{line}");
        }
        assert!(Slash::read("/set top_k").unwrap().is_err());
        assert_eq!(Slash::read("/image a b.png").unwrap().unwrap(), Slash::Image("a b.png".into()));
        assert!(Slash::read("/image").unwrap().is_err());
        assert_eq!(Slash::read("/audio a b.wav").unwrap().unwrap(), Slash::Audio("a b.wav".into()));
        assert!(Slash::read("/audio").unwrap().is_err());
        assert!(Slash::read("/save").unwrap().is_err());
        assert!(Slash::read("/nothing").unwrap().is_err());
    }
}
