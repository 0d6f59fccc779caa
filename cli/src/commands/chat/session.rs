//! The conversation: its messages, its settings, and the effects of slash commands.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::slash::{HELP, Slash};
use crate::abi::Chat;
use crate::failure::{Failure, Result};
use crate::generation::{print_reply, refuse_cancelled};
use crate::input;
use crate::terminal::{Look, Style, counted};

pub(super) struct Session {
    chat: Arc<Chat>,
    /// The members of every request, without messages and tools.
    request: Value,
    system: Option<String>,
    tools: Option<Value>,
    /// The messages, without the system message.
    messages: Vec<Value>,
}

impl Session {
    pub(super) fn new(
        chat: Chat,
        request: Value,
        system: Option<String>,
        tools: Option<Value>,
    ) -> Session {
        Session { chat: Arc::new(chat), request, system, tools, messages: Vec::new() }
    }

    /// Sends one message and prints the reply. Ctrl-C is a failure.
    pub(super) fn answer_once(&mut self, prompt: &str) -> Result<()> {
        refuse_cancelled(&self.ask(json!({ "role": "user", "content": prompt }))?)
    }

    /// Adds a message, then prints and adds the reply to it.
    pub(super) fn ask(&mut self, message: Value) -> Result<Value> {
        self.ask_all(vec![message])
    }

    /// Like [`ask`](Self::ask), for several messages. After a failure, none of them is kept.
    pub(super) fn ask_all(&mut self, messages: Vec<Value>) -> Result<Value> {
        let before = self.messages.len();
        self.messages.extend(messages);
        let mut request = self.request.clone();
        request["messages"] = self.conversation().into();
        if let Some(tools) = &self.tools {
            request["tools"] = tools.clone();
        }
        match print_reply(&self.chat, &request) {
            Ok(reply) => {
                self.messages.push(reply["message"].clone());
                Ok(reply)
            }
            Err(failure) => {
                self.messages.truncate(before);
                Err(failure)
            }
        }
    }

    /// The ids and names of the calls in the last message.
    pub(super) fn open_calls(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = self.messages.last().map(|message| &message["tool_calls"]);
        let calls = calls.and_then(Value::as_array).into_iter().flatten();
        calls.map(|call| (text(&call["id"]), text(&call["function"]["name"]))).collect()
    }

    /// Removes the last user message and everything after it.
    pub(super) fn forget_turn(&mut self) {
        let last = self.messages.iter().rposition(|message| message["role"] == "user");
        self.messages.truncate(last.unwrap_or_default());
    }

    pub(super) fn command(&mut self, command: Slash) -> Result<()> {
        match command {
            Slash::Help => say!("{}", HELP.trim_end()),
            Slash::System(text) => self.set_system(text),
            Slash::Tools(path) => self.set_tools(path.as_deref())?,
            Slash::Save(path) => self.save(&path)?,
            Slash::Load(path) => self.load(&path)?,
            Slash::Undo => {
                self.forget_turn();
                self.print_length();
            }
            Slash::Clear => {
                self.messages.clear();
                self.print_length();
            }
            Slash::Retry => return self.retry(),
            Slash::Usage => self.print_usage()?,
            Slash::Quit => {}
        }
        Ok(())
    }

    fn conversation(&self) -> Vec<Value> {
        let system = self.system.as_ref().map(|text| json!({ "role": "system", "content": text }));
        system.into_iter().chain(self.messages.iter().cloned()).collect()
    }

    fn set_system(&mut self, text: Option<String>) {
        if text.is_some() {
            self.system = text;
        }
        note(self.system.as_deref().unwrap_or("no system message"));
    }

    fn set_tools(&mut self, path: Option<&Path>) -> Result<()> {
        self.tools = path.map(input::tools).transpose()?;
        match self.tools.as_ref().and_then(Value::as_array) {
            Some(tools) => note(&counted(tools.len(), "tool")),
            None => note("no tools"),
        }
        Ok(())
    }

    fn save(&self, path: &Path) -> Result<()> {
        let mut saved = json!({ "messages": self.conversation() });
        if let Some(tools) = &self.tools {
            saved["tools"] = tools.clone();
        }
        let text = serde_json::to_string_pretty(&saved).expect("JSON values have string keys");
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        note(&format!("saved {}", path.display()));
        Ok(())
    }

    fn load(&mut self, path: &Path) -> Result<()> {
        let mut saved = input::conversation(path)?;
        let mut messages = saved["messages"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let is_system = |first: &Value| first["role"] == "system" && first["content"].is_string();
        let system = messages.first().is_some_and(is_system).then(|| messages.remove(0));
        self.system = system.and_then(|message| message["content"].as_str().map(str::to_owned));
        self.tools = Some(saved["tools"].take()).filter(Value::is_array);
        self.messages = messages;
        self.print_length();
        Ok(())
    }

    /// Without the system message.
    fn print_length(&self) {
        note(&counted(self.messages.len(), "message"));
    }

    fn retry(&mut self) -> Result<()> {
        let last = self.messages.iter().rposition(|message| message["role"] == "user");
        let index = last.ok_or_else(|| Failure::new("there is no message to answer again"))?;
        let message = self.messages[index].clone();
        let removed = self.messages.split_off(index);
        let result = self.ask(message);
        if result.is_err() {
            self.messages.extend(removed);
        }
        result.map(|_| ())
    }

    fn print_usage(&self) -> Result<()> {
        let mut messages = self.conversation();
        if messages.is_empty() {
            messages.push(json!({ "role": "user", "content": "" }));
        }
        let mut request = json!({ "messages": messages });
        if let Some(tools) = &self.tools {
            request["tools"] = tools.clone();
        }
        let explanation = self.chat.explain(&request)?;
        let (tokens, left) = (&explanation["prompt_tokens"], &explanation["tokens_left"]);
        note(&format!("{tokens} tokens in the conversation, {left} left"));
        Ok(())
    }
}

fn note(text: &str) {
    say!("{}", Style::stderr().paint(Look::Dim, text));
}
