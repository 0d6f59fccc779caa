//! `llb run`: prints the reply to one prompt.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use crate::abi::Chat;
use crate::arguments::{Loading, Sampling};
use crate::failure::Result;
use crate::generation::{print_reply, refuse_cancelled};
use crate::input::{self, print_json};
use crate::mcp::{self, McpArguments, ToolRunner};
use crate::media_file::MediaFile;
use crate::model_source::{HELP, model_file};
use crate::prompt::Prompt;
use crate::template_warning::warn_of_template;
use crate::{interrupt, media_file, terminal};

/// A chat template that is nothing but the prompt.
const RAW: &str = "{{ messages[0].content }}";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    #[command(flatten)]
    prompt: Prompt,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// JSON file with tools; calls are printed, not run
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Picture for the model to see, before the prompt; may be given more than once. Without
    /// --projector, the projector beside the model is used
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Sound for the model to hear, before the prompt, as with --image
    #[arg(long, value_name = "FILE")]
    audio: Vec<PathBuf>,
    #[command(flatten)]
    mcp: McpArguments,
    /// Let the model continue the prompt as it is, without a chat template, as base models do
    #[arg(long, conflicts_with_all = ["system", "tools", "file", "chat_template", "image", "audio"])]
    raw: bool,
    /// Print the whole reply as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let prompt = arguments.prompt.required()?;
    let mut messages = Vec::new();
    if let Some(text) = &arguments.system {
        messages.push(json!({ "role": "system", "content": text }));
    }
    let pictures = arguments.image.iter().map(|path| media_file::picture(path));
    let media = pictures.chain(arguments.audio.iter().map(|path| media_file::sound(path)));
    let media: Vec<MediaFile> = media.collect::<Result<_>>()?;
    let content = media_file::content(&media, &prompt);
    let asked = messages.len();
    messages.push(json!({ "role": "user", "content": content }));
    let mut request = arguments.sampling.request()?;
    request["messages"] = messages.into();
    let mut tools = match &arguments.tools {
        Some(path) => input::tools(path)?,
        None => json!([]),
    };
    let path = model_file(&arguments.model)?;
    let mut options = arguments.loading.options(&path)?;
    if !media.is_empty() && options.get("projector").is_none() {
        options["projector"] = "auto".into();
    }
    if arguments.raw {
        options["chat_template"] = RAW.into();
        request["polyfills"] = json!({ "apply_polyfills": false });
    } else {
        warn_of_template(&path, &arguments.loading)?;
    }
    let mut runner = arguments.mcp.start()?;
    if let (Some(runner), Some(tools)) = (&runner, tools.as_array_mut()) {
        tools.extend(runner.tools());
    }
    if tools.as_array().is_some_and(|tools| !tools.is_empty()) {
        request["tools"] = tools;
    }
    let chat = Arc::new(Chat::open(&options, terminal::progress(&arguments.model))?);
    loop {
        let reply = if arguments.json {
            let cancelled = Arc::clone(&chat);
            interrupt::cancellable(move || cancelled.cancel(), || chat.infer(&request, |_| ()))
        } else {
            print_reply(&chat, &request)
        };
        let reply = reply.map_err(|failure| media_file::in_files(failure, asked, &media).0)?;
        let results = match &mut runner {
            Some(runner) if reply["finish_reason"] != "cancelled" => results(runner, &reply)?,
            _ => None,
        };
        let Some(results) = results else {
            if arguments.json {
                print_json(&reply);
            }
            return refuse_cancelled(&reply);
        };
        if let Some(messages) = request["messages"].as_array_mut() {
            messages.push(reply["message"].clone());
            messages.extend(results);
        }
    }
}

/// The results of a reply's calls. `None` if it has none, or if one is for a tool of the file, which is
/// not run.
fn results(runner: &mut ToolRunner, reply: &Value) -> Result<Option<Vec<Value>>> {
    let calls = reply["message"]["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        return Ok(None);
    }
    runner.begin_round()?;
    calls.iter().map(|call| runner.answer(call, mcp::ask)).collect()
}
