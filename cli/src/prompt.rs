//! The prompt of a single reply: the words of the command line, and the text of a pipe after them.

use clap::Args;

use crate::failure::{Failure, Result};
use crate::input;

#[derive(Debug, Args)]
pub(crate) struct Prompt {
    /// Prompt. The text of a pipe follows it
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    words: Vec<String>,
    /// The prompt as one argument
    #[arg(long, short, value_name = "TEXT")]
    prompt: Option<String>,
}

impl Prompt {
    /// The prompt; `None` without one, if stdin is a terminal.
    pub(crate) fn read(&self) -> Result<Option<String>> {
        let words = (!self.words.is_empty()).then(|| self.words.join(" "));
        let given = self.prompt.clone().or(words);
        let piped = input::piped(given.is_some())?;
        let prompt = match (given, piped) {
            (Some(given), Some(piped)) if !piped.is_empty() => format!("{given}\n\n{piped}"),
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) => return Ok(None),
        };
        not_empty(prompt).map(Some)
    }

    /// The prompt, which is read from stdin if none is given.
    pub(crate) fn required(&self) -> Result<String> {
        match self.read()? {
            Some(prompt) => Ok(prompt),
            None => not_empty(input::typed()?),
        }
    }
}

fn not_empty(prompt: String) -> Result<String> {
    if prompt.is_empty() {
        let next = "pass a prompt as an argument, or write one to stdin";
        return Err(Failure::new("the prompt is empty").next(next));
    }
    Ok(prompt)
}
