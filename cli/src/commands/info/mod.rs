//! `llb info`: describes a model and its capabilities from its header, and the memory that it
//! needs. Of a Jinja file it describes what the chat template can do.

mod memory;

use clap::Args;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::abi;
use crate::failure::{Failure, Result};
use crate::input::{print, print_json};
use crate::model_source::ModelSource;
use crate::template_source::{HELP, TokenArguments, add_template, is_template};
use crate::terminal::{Look, Style, columns, grouped, megabytes, printable};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    /// Encoder of pictures or sound (an mmproj GGUF file), or "auto" for the one beside the model
    #[arg(long, visible_alias = "mmproj", value_name = "FILE")]
    projector: Option<String>,
    /// Also print each capability of the chat template, with its evidence
    #[arg(long, short)]
    verbose: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tokens: TokenArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let info = match is_template(&arguments.model) {
        true => template_info(arguments)?,
        false => model_info(arguments)?,
    };
    if arguments.json {
        print_json(&info);
    } else {
        print(&printable_report(&info, arguments.verbose, Style::stdout()));
    }
    Ok(())
}

fn template_info(arguments: &Arguments) -> Result<Value> {
    if arguments.projector.is_some() {
        return Err(Failure::new("--projector needs a model, and this is a chat template"));
    }
    let mut request = json!({});
    add_template(&mut request, &arguments.model, &arguments.tokens)?;
    abi::template_info(&request).map_err(|failure| failure.in_template(&arguments.model))
}

/// The model information, with the memory that the model needs.
fn model_info(arguments: &Arguments) -> Result<Value> {
    let source = ModelSource::read(&arguments.model)?;
    let folder = header_folder();
    let (mut info, path) = source.info(folder.as_ref().map(TempDir::path))?;
    let projector = arguments.projector.as_deref();
    info["memory"] = path.map(|path| memory::table(&path, &info, projector)).unwrap_or_default();
    if let Some(taken) = info["memory"]["projector"]["input_modalities"].as_array() {
        info["input_modalities"] =
            std::iter::once("text".into()).chain(taken.iter().cloned()).collect();
        if let Some(path) = projector.filter(|path| *path != "auto") {
            info["projector"] = path.into();
        }
    }
    Ok(info)
}

fn printable_report(info: &Value, is_verbose: bool, style: Style) -> String {
    let heading = |text: &str| format!("\n{}\n", style.paint(Look::Strong, text));
    let mut report = summary(info, style);
    if is_verbose {
        report += &heading("Capabilities");
        for row in capabilities(info) {
            let looks = if row[1] == "yes" { Look::Green } else { Look::Dim };
            let status = style.paint(looks, &format!("{:8}", row[1]));
            report += &format!("{:36}{status} {}\n", row[0], style.paint(Look::Dim, &row[2]));
        }
    }
    if info["type"] == "model_info" {
        report += &heading("Memory");
        report += &match &info["memory"] {
            // No folder could be made for the header.
            Value::Null => "known after `llb fetch`\n".to_owned(),
            table => memory::printable_table(table, style),
        };
    }
    if let Some(sampling) = info["sampling"].as_object() {
        report += &heading("Recommended sampling");
        let rows: Vec<_> =
            sampling.iter().map(|(name, value)| vec![name.clone(), text(value)]).collect();
        report += &columns(&rows);
    }
    let findings = info["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !findings.is_empty() {
        report += &heading("Findings");
    }
    for finding in findings {
        report += &finding_line(finding, style);
    }
    report
}

fn finding_line(finding: &Value, style: Style) -> String {
    let severity = finding["severity"].as_str().unwrap_or("info");
    let look = match severity {
        "error" => Look::Red,
        "warning" => Look::Yellow,
        _ => Look::Dim,
    };
    let message = printable(&text(&finding["message"]));
    let code = style.paint(Look::Dim, &format!("[{}]", text(&finding["code"])));
    format!("{}: {message} {code}\n", style.paint(look, severity))
}

/// A model in six lines, or a chat template in two.
fn summary(info: &Value, style: Style) -> String {
    let chat = [("tools", tools(info)), ("reasoning", reasoning(&info["output_format"]))];
    let row = |(name, value): (&str, String)| vec![name.to_owned(), printable(&value)];
    if info["type"] == "template_info" {
        return columns(&chat.map(row));
    }
    let known = |name: &str| info[name].as_str().map(printable);
    let parameters =
        info["n_params"].as_u64().map(|count| format!("{} parameters", grouped(count)));
    let size = info["file_size"].as_u64().map(megabytes);
    let license = known("license").map(|license| format!("licence {license}"));
    let parts = [known("architecture"), parameters, known("quantization"), size, license];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let model = [
        ("model", parts.join(", ")),
        ("context", format!("{} tokens", count(&info["context_length"]))),
        ("input", input(info)),
    ];
    let rows: Vec<Vec<String>> = model.into_iter().chain(chat).map(row).collect();
    style.paint(Look::Strong, &printable(&text(&info["name"]))) + "\n" + &columns(&rows)
}

/// What the model takes, and the file of its projector.
fn input(info: &Value) -> String {
    let all = info["input_modalities"].as_array().into_iter().flatten();
    let all = all.map(text).collect::<Vec<String>>().join(", ");
    match info["projector"].as_str() {
        Some(path) => format!("{all}, with the projector {path}"),
        None => all,
    }
}

/// How the model gets tools and makes calls.
fn tools(info: &Value) -> String {
    let format = &info["output_format"];
    let family = format["family"].as_str().unwrap_or("inferred");
    match info["tool_support"].as_str() {
        Some("native") => format!("native; calls have the format {family}"),
        Some("polyfilled") => {
            let reasons = info["tool_support_reasons"].as_array().into_iter().flatten();
            let reasons: Vec<String> = reasons.map(text).collect();
            format!("polyfilled, as text: {}", reasons.join("; "))
        }
        _ => "none".to_owned(),
    }
}

/// The tags of reasoning, if the model reasons.
fn reasoning(format: &Value) -> String {
    let tags: Vec<String> =
        format["reasoning_tags"].as_array().into_iter().flatten().map(text).collect();
    match format["reasoning"].as_str() {
        None | Some("none") => "none".to_owned(),
        Some(kind) => format!("{kind} {}", tags.join(" ")).trim_end().to_owned(),
    }
}

/// Rows of name, yes or no, and evidence. llama.cpp's flags come first, then minja's other flags.
fn capabilities(info: &Value) -> Vec<[String; 3]> {
    let caps = info["caps"].as_object().into_iter().flatten();
    let more = info["template_caps"].as_object().into_iter().flatten();
    let more = more.filter(|(name, _)| info["caps"].get(name.as_str()).is_none());
    let mut rows = Vec::new();
    for (name, value) in caps.chain(more) {
        let evidence = &info["evidence"][name];
        // Four names are in both sets of flags. `caps` is present if the two differ.
        let own =
            if info["caps"].get(name.as_str()).is_some() { &evidence["caps"] } else { evidence };
        let because = own["because"].as_str().or(evidence["because"].as_str()).unwrap_or_default();
        let status = match value {
            Value::Bool(true) => "yes".to_owned(),
            Value::Bool(false) if evidence["status"] == "unknown" => "unknown".to_owned(),
            Value::Bool(false) => "no".to_owned(),
            other => text(other).to_lowercase(),
        };
        rows.push([name.clone(), status, printable(because)]);
    }
    rows
}

fn count(value: &Value) -> String {
    value.as_u64().map_or_else(|| "unknown".to_owned(), grouped)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A new folder for the headers of a model on the hub, which only this user can read. `None` if the
/// system refuses it.
fn header_folder() -> Option<TempDir> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder.prefix("llb-info-").tempdir().ok()
}
