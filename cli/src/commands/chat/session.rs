//! The conversation: its messages, its settings, and the effects of slash commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::slash::{HELP, Slash, ToolChoice};
use crate::abi::Chat;
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::generation::{print_reply, refuse_cancelled, speed};
use crate::media_file::MediaFile;
use crate::model_source::model_file;
use crate::template_warning::warn_of_template;
use crate::terminal::{Look, Style, columns, counted, printable};
use crate::{input, media_file, terminal};

pub(super) struct Session {
    chat: Arc<Chat>,
    /// The argument that names the model.
    model: String,
    /// How models are loaded.
    loading: Loading,
    /// The file that this session has written or read, which `/save` may replace.
    file: Option<PathBuf>,
    /// The members of every request, without messages and tools.
    request: Value,
    system: Option<String>,
    /// The tools that the model may call.
    tools: Vec<Value>,
    /// All tools of this session, from which `/tools` chooses.
    all_tools: Vec<Value>,
    /// The messages, without the system message.
    messages: Vec<Value>,
    /// The pictures and sounds of the next message.
    media: Vec<MediaFile>,
}

impl Session {
    /// Opens the model.
    pub(super) fn open(
        model: &str,
        loading: &Loading,
        request: Value,
        system: Option<String>,
        tools: Vec<Value>,
    ) -> Result<Session> {
        Ok(Session {
            chat: Arc::new(open(model, loading)?),
            model: model.to_owned(),
            loading: loading.clone(),
            file: None,
            request,
            system,
            all_tools: tools.clone(),
            tools,
            messages: Vec::new(),
            media: Vec::new(),
        })
    }

    /// Sends one message and prints the reply. Ctrl-C is a failure.
    pub(super) fn answer_once(&mut self, prompt: &str) -> Result<()> {
        refuse_cancelled(&self.ask(json!({ "role": "user", "content": prompt }))?)
    }

    /// Sends a message of the user with the media for it. After a failure they stay for the next, but
    /// for one that the library refuses.
    pub(super) fn ask_user(&mut self, text: &str) -> Result<()> {
        let content = media_file::content(&self.media, text);
        let index = self.conversation().len();
        let asked = self.ask_timed(vec![json!({ "role": "user", "content": content })]);
        asked.map_err(|failure| {
            let (failure, refused) = media_file::in_files(failure, index, &self.media);
            refused.map(|number| self.media.remove(number));
            failure
        })?;
        self.media.clear();
        Ok(())
    }

    /// Like [`ask`](Self::ask), and prints how fast the reply was.
    pub(super) fn ask_timed(&mut self, messages: Vec<Value>) -> Result<()> {
        let reply = self.ask_all(messages)?;
        note(&speed(&reply));
        Ok(())
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
        if !self.tools.is_empty() {
            request["tools"] = self.tools.clone().into();
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

    /// The calls in the last message.
    pub(super) fn open_calls(&self) -> Vec<Value> {
        let calls = self.messages.last().and_then(|message| message["tool_calls"].as_array());
        calls.cloned().unwrap_or_default()
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
            Slash::Tools(choice) => self.choose_tools(choice)?,
            Slash::Set(None) => self.print_settings(),
            Slash::Set(Some((name, value))) => self.set(&name, value)?,
            Slash::Image(path) => {
                self.add_media("/image", "picture", || media_file::picture(&path))?
            }
            Slash::Audio(path) => self.add_media("/audio", "sound", || media_file::sound(&path))?,
            Slash::Model(model) => self.set_model(model)?,
            Slash::Save { path, replaces } => self.save(&path, replaces)?,
            Slash::Load(path) => self.load(&path)?,
            Slash::Undo => {
                self.forget_turn();
                self.print_length();
            }
            Slash::Clear => {
                self.messages.clear();
                self.media.clear();
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

    fn choose_tools(&mut self, choice: Option<ToolChoice>) -> Result<()> {
        match choice {
            None => {}
            Some(ToolChoice::All) => self.tools = self.all_tools.clone(),
            Some(ToolChoice::None) => self.tools.clear(),
            Some(ToolChoice::Only(names)) => {
                let tool = |name: &String| {
                    let found =
                        self.all_tools.iter().find(|tool| tool["function"]["name"] == **name);
                    found.cloned().ok_or_else(|| {
                        let failure =
                            Failure::new(format!("/tools: {name}: no tool has this name"));
                        failure.next("/tools all, then /tools, lists them")
                    })
                };
                self.tools = names.iter().map(tool).collect::<Result<_>>()?;
            }
            Some(ToolChoice::File(path)) => {
                self.tools = input::tools(&path)?.as_array().cloned().unwrap_or_default();
                self.all_tools = self.tools.clone();
            }
        }
        self.print_tools();
        Ok(())
    }

    fn print_tools(&self) {
        if self.tools.is_empty() {
            return note("no tools");
        }
        let name = |tool: &Value| {
            let function = &tool["function"];
            let text = |name: &str| printable(function[name].as_str().unwrap_or_default());
            vec![text("name"), text("description")]
        };
        note(&counted(self.tools.len(), "tool"));
        note(columns(&self.tools.iter().map(name).collect::<Vec<_>>()).trim_end());
    }

    /// Changes a member of the requests. The library checks its name and its value.
    fn set(&mut self, name: &str, value: Option<Value>) -> Result<()> {
        const OTHERS: [&str; 4] = ["messages", "tools", "stream_format", "stream_options"];
        let unknown = || {
            let failure = Failure::new(format!("/set: {name}: no setting has this name"));
            failure.next("docs/abi.md lists them: temperature, top_p, max_tokens, seed, ...")
        };
        if OTHERS.contains(&name) {
            return Err(unknown());
        }
        let mut request = self.request.clone();
        match value {
            Some(value) => request[name] = value,
            None => {
                request.as_object_mut().map(|members| members.shift_remove(name));
            }
        }
        let mut trial = request.clone();
        trial["messages"] = json!([{ "role": "user", "content": "" }]);
        let explanation = self.chat.explain(&trial)?;
        let mut ignored = explanation["ignored_keys"].as_array().into_iter().flatten();
        if ignored.any(|key| key == name) {
            return Err(unknown());
        }
        self.request = request;
        self.print_settings();
        Ok(())
    }

    fn print_settings(&self) {
        let members = self.request.as_object().into_iter().flatten();
        let shown = members.filter(|(name, _)| *name != "stream_format");
        let rows: Vec<_> =
            shown.map(|(name, value)| vec![name.clone(), value.to_string()]).collect();
        match rows.is_empty() {
            true => note("all settings have their defaults"),
            false => note(columns(&rows).trim_end()),
        }
    }

    /// Keeps a picture or a sound for the next message.
    fn add_media(
        &mut self,
        command: &str,
        noun: &str,
        read: impl FnOnce() -> Result<MediaFile>,
    ) -> Result<()> {
        if self.loading.projector.is_none() {
            let failure = Failure::new(format!("{command}: the model takes text only"));
            let next = "start llb chat with --projector FILE, or --projector auto for the one \
                        beside the model";
            return Err(failure.next(next));
        }
        let file = read()?;
        let kind = &file.part["type"];
        let same = self.media.iter().filter(|other| other.part["type"] == *kind).count();
        self.media.push(file);
        note(&format!("{} for the next message", counted(same + 1, noun)));
        Ok(())
    }

    /// Goes on with another model. The old one stays if the new one does not open.
    fn set_model(&mut self, model: Option<String>) -> Result<()> {
        if let Some(model) = model {
            self.chat = Arc::new(open(&model, &self.loading)?);
            self.model = model;
        }
        note(&printable(&self.model));
        Ok(())
    }

    fn save(&mut self, path: &Path, replaces: bool) -> Result<()> {
        if path.exists() && !replaces && self.file.as_deref() != Some(path) {
            let failure = Failure::new(format!("{}: this file exists", path.display()));
            return Err(failure.next(format!("/save! {} replaces it", path.display())));
        }
        let mut saved = json!({ "messages": self.conversation() });
        if !self.tools.is_empty() {
            saved["tools"] = self.tools.clone().into();
        }
        let text = serde_json::to_string_pretty(&saved).expect("JSON values have string keys");
        std::fs::write(path, text + "\n")
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        self.file = Some(path.to_owned());
        note(&format!("saved {}", path.display()));
        Ok(())
    }

    fn load(&mut self, path: &Path) -> Result<()> {
        let mut saved = input::conversation(path)?;
        let mut messages = saved["messages"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let is_system = |first: &Value| first["role"] == "system" && first["content"].is_string();
        let system = messages.first().is_some_and(is_system).then(|| messages.remove(0));
        self.system = system.and_then(|message| message["content"].as_str().map(str::to_owned));
        self.tools = saved["tools"].as_array_mut().map(std::mem::take).unwrap_or_default();
        self.all_tools = self.tools.clone();
        self.messages = messages;
        self.file = Some(path.to_owned());
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
        let result = self.ask_timed(vec![message]);
        if result.is_err() {
            self.messages.extend(removed);
        }
        result
    }

    fn print_usage(&self) -> Result<()> {
        let mut messages = self.conversation();
        if messages.is_empty() {
            messages.push(json!({ "role": "user", "content": "" }));
        }
        let mut request = json!({ "messages": messages });
        if !self.tools.is_empty() {
            request["tools"] = self.tools.clone().into();
        }
        let explanation = self.chat.explain(&request)?;
        let (tokens, left) = (&explanation["prompt_tokens"], &explanation["tokens_left"]);
        note(&format!("{tokens} tokens in the conversation, {left} left"));
        Ok(())
    }
}

fn open(model: &str, loading: &Loading) -> Result<Chat> {
    let path = model_file(model)?;
    warn_of_template(&path, loading)?;
    Chat::open(&loading.options(&path)?, terminal::progress(model))
}

fn note(text: &str) {
    say!("{}", Style::stderr().paint(Look::Dim, text));
}
