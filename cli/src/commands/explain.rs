//! `llb explain`: shows a prompt with the origin of its parts.

use clap::Args;
use serde_json::{Value, json};

use crate::abi::{self, Chat};
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::input::{print, print_json};
use crate::template_source::PromptArguments;
use crate::terminal::{self, Look, ORIGINS, Style, printable};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    prompt: PromptArguments,
    /// Load the model and count tokens
    #[arg(long)]
    tokens: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let explanation =
        explanation(arguments).map_err(|failure| failure.in_template(&arguments.prompt.model))?;
    if arguments.json {
        print_json(&explanation);
        return Ok(());
    }
    let style = Style::stdout();
    print(&if style.is_on() { coloured(&explanation, style) } else { listed(&explanation) });
    print(&summary(&explanation));
    Ok(())
}

fn explanation(arguments: &Arguments) -> Result<Value> {
    let mut request = arguments.prompt.request()?;
    if !arguments.tokens {
        request["spans"] = true.into();
        return abi::template_render(&request);
    }
    if request["gguf"].is_null() {
        return Err(Failure::new("--tokens needs a model, and this is a Jinja file"));
    }
    let path = request["gguf"].take();
    let options = arguments.loading.options(path.as_str().unwrap_or_default())?;
    if let Some(members) = request.as_object_mut() {
        members.remove("gguf");
    }
    Chat::open(&options, terminal::progress(&arguments.prompt.model))?.explain(&request)
}

/// The prompt with text of the template dimmed, and text of the request in one look per path.
fn coloured(explanation: &Value, style: Style) -> String {
    let look = |index: usize| Look::Origin((index % ORIGINS) as u8);
    let mut paths: Vec<String> = Vec::new();
    let mut text = String::new();
    for (piece, path) in pieces(explanation) {
        let piece = printable(&piece);
        let Some(path) = path else {
            text += &style.paint(Look::Dim, &piece);
            continue;
        };
        let index = paths.iter().position(|known| *known == path).unwrap_or_else(|| {
            paths.push(path);
            paths.len() - 1
        });
        text += &style.paint(look(index), &piece);
    }
    text.push_str("\n\n");
    text += &style.paint(Look::Dim, "template");
    for (index, path) in paths.iter().enumerate() {
        text += &format!("  {}", style.paint(look(index), path));
    }
    text.push('\n');
    text
}

/// One line per span: its origin, and its text as a JSON string.
fn listed(explanation: &Value) -> String {
    let lines: Vec<Vec<String>> = pieces(explanation)
        .into_iter()
        .map(|(piece, path)| {
            vec![path.unwrap_or_else(|| "template".to_owned()), json!(piece).to_string()]
        })
        .collect();
    terminal::columns(&lines)
}

/// The texts of the spans. Each text from the request comes with its path.
fn pieces(explanation: &Value) -> Vec<(String, Option<String>)> {
    let prompt = explanation["prompt"].as_str().unwrap_or_default();
    let offset = |span: &Value, end: &str| span[end].as_u64().unwrap_or_default() as usize;
    let spans = explanation["spans"].as_array().into_iter().flatten();
    spans
        .map(|span| {
            let text = prompt.get(offset(span, "start")..offset(span, "end"));
            let path = span["path"].as_str().map(str::to_owned);
            (text.unwrap_or_default().to_owned(), path)
        })
        .collect()
}

fn summary(explanation: &Value) -> String {
    let mut lines = String::from("\n");
    for (name, label) in [
        ("prompt_tokens", "prompt tokens"),
        ("cached_tokens", "cached tokens"),
        ("tokens_left", "tokens left"),
    ] {
        if let Some(count) = explanation[name].as_u64() {
            lines += &format!("{label:14} {count}\n");
        }
    }
    let polyfills = explanation["polyfills_applied"].as_array().into_iter().flatten();
    let polyfills: Vec<&str> = polyfills.filter_map(Value::as_str).collect();
    let polyfills = if polyfills.is_empty() { "none".to_owned() } else { polyfills.join(", ") };
    lines += &format!("{:14} {polyfills}\n", "polyfills");
    let notes = explanation["diagnostics"].as_array().into_iter().flatten();
    for (number, note) in notes.enumerate() {
        let label = if number == 0 { "diagnostics" } else { "" };
        lines += &format!("{label:14} {}\n", printable(&remark(note)));
    }
    lines
}

/// A diagnostic in one line: `messages[2]: text [code]`.
fn remark(note: &Value) -> String {
    let place = note["message_index"].as_u64().map(|index| format!("messages[{index}]: "));
    let text = |name: &str| note[name].as_str().unwrap_or_default().to_owned();
    format!("{}{} [{}]", place.unwrap_or_default(), text("message"), text("code"))
}
