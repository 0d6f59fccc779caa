//! Failures of commands: a message, the library's code, a remedy and an exit status.

use std::fmt;

use serde_json::Value;

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The exit status of a success.
pub(crate) const OK: u8 = 0;
/// The command failed.
pub(crate) const FAILED: u8 = 1;
/// A check found something: lints, differences or a damaged file.
pub(crate) const FOUND: u8 = 3;
/// The user pressed Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The library's error code, if the library failed.
    pub(crate) code: Option<String>,
    /// What is wrong, and where.
    pub(crate) message: String,
    /// The remedy, if there is a single one.
    pub(crate) next: Option<String>,
    /// Further members of the library's error, or null.
    pub(crate) details: Box<Value>,
}

impl Failure {
    /// A failure of the program itself.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { code: None, message: message.into(), next: None, details: Box::default() }
    }

    /// The user ended something with Ctrl-C.
    pub(crate) fn interrupted(what: &str) -> Failure {
        let mut failure = Failure::new(format!("{what} was ended by Ctrl-C"));
        failure.code = Some("CANCELLED".to_owned());
        failure
    }

    /// The same failure with a next step.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// Converts an error object of the library: `code`, `message` and `details`.
    pub(crate) fn of_library(error: &Value) -> Failure {
        let code = error["code"].as_str().unwrap_or("INTERNAL_BRIDGE_ERROR").to_owned();
        let message = in_words_of_the_program(error["message"].as_str().unwrap_or("unknown"));
        let details = error.get("details").cloned().unwrap_or_default();
        let next = details["next"].as_str().map(str::to_owned);
        // Another file is the remedy, not another copy of this one.
        let is_other_kind = message.contains(SERVE_EMBEDDING);
        let next = next.or_else(|| next_step(&code).map(str::to_owned)).filter(|_| !is_other_kind);
        Failure { code: Some(code), message, next, details: Box::new(details) }
    }

    /// The same failure. If a template failed, the message begins with the argument that names the
    /// template, and with the line.
    pub(crate) fn in_template(mut self, argument: &str) -> Failure {
        if self.is("TEMPLATE_ERROR") {
            let line = self.details["line"].as_u64().map(|line| format!("{line}:"));
            let line = line.unwrap_or_default();
            self.message = format!("{argument}:{line} {}", self.message);
        }
        self
    }

    /// The same failure. If the message begins with the name of an option of a create or a request
    /// that `option` knows, it begins with that of the program instead: `--n-ctx` for `n_ctx`.
    pub(crate) fn in_options(mut self, option: impl Fn(&str) -> Option<String>) -> Failure {
        // An option of a chat may be the default of a member of its requests.
        let path = self.message.strip_prefix("defaults.").unwrap_or(&self.message);
        let name = path.split(['.', ':', '[']).next().unwrap_or_default();
        if self.is("INVALID_REQUEST")
            && let Some(spelling) = option(name)
        {
            self.message = spelling + &path[name.len()..];
        }
        self
    }

    /// Whether the library reports this code.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        if self.is("CANCELLED") { INTERRUPTED } else { FAILED }
    }
}

const SERVE_EMBEDDING: &str = "`llb serve --embedding MODEL` serves it";

/// What messages of the library say about its C functions, and what that is in this program.
const IN_THIS_PROGRAM: [(&str, &str); 8] = [
    ("open it with llb_embed_create and call llb_embed", SERVE_EMBEDDING),
    ("open it with llb_embed_create and call llb_rank", SERVE_EMBEDDING),
    ("call llb_embed_create again", "start llb again"),
    ("call llb_rank", "ask for /v1/rerank"),
    ("llb_backends lists", "`llb doctor` lists"),
    (
        "name the model's mmproj file in the create option `projector`",
        "start llb with --projector FILE, the model's mmproj file",
    ),
    ("the create option `media_folders`", "llb serve --media-folder"),
    ("the create option `media_urls`", "llb serve --media-urls"),
];

/// The message of the library without names of C functions.
fn in_words_of_the_program(message: &str) -> String {
    let mut message = message.to_owned();
    for (in_c, here) in IN_THIS_PROGRAM {
        message = message.replace(in_c, here);
    }
    message
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) => write!(f, "{} ({code})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(error.to_string())
    }
}

/// The remedy for codes whose message cannot contain it, because it concerns this program.
fn next_step(code: &str) -> Option<&'static str> {
    Some(match code {
        "MODEL_NOT_FOUND" => {
            "`llb models` lists the models of this machine; `llb fetch ORG/NAME` downloads one"
        }
        "MODEL_INVALID" => "fetch it again; `llb models verify` finds damaged downloads",
        "OUT_OF_MEMORY" => "try a smaller --n-ctx, or a smaller quantisation of the model",
        "CONTEXT_OVERFLOW" => {
            "shorten the conversation, raise --n-ctx, or let --context-overflow drop old turns"
        }
        "TEMPLATE_ERROR" => "`llb template check` says what the chat template refuses",
        "HUB_UNAUTHORIZED" => "set HF_TOKEN to a token of the hub",
        "HUB_GATED" => "accept the licence on the model's page, and set HF_TOKEN",
        "HUB_AMBIGUOUS" => "add the quantisation (ORG/NAME:Q8_0) or --filename",
        "HUB_NETWORK" => "check the network; an interrupted download is resumed",
        "OFFLINE" => "leave out --offline, or unset HF_HUB_OFFLINE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_name_options_and_commands_of_the_program() {
        let failure = |code: &str, message: &str| {
            let known = |name: &str| (name == "n_ctx").then(|| "--n-ctx".to_owned());
            Failure::of_library(&json!({ "code": code, "message": message })).in_options(known)
        };
        let invalid = |message: &str| failure("INVALID_REQUEST", message).message;
        assert_eq!(invalid("n_ctx: must be from 16"), "--n-ctx: must be from 16");
        assert_eq!(invalid("defaults.n_ctx: is 1"), "--n-ctx: is 1");
        assert_eq!(invalid("messages[0].role: missing"), "messages[0].role: missing");
        assert_eq!(failure("MODEL_INVALID", "n_ctx: x").message, "n_ctx: x");
        let embeds =
            failure("MODEL_INVALID", "no text; open it with llb_embed_create and call llb_embed");
        assert_eq!(embeds.message, format!("no text; {SERVE_EMBEDDING}"));
        assert_eq!(embeds.next, None);
    }
}
