//! `llb template check`: prints the lints of chat templates.

mod report;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use clap::{Args, ValueEnum};
use serde_json::json;

use self::report::{Finding, Severity};
use crate::failure::{FOUND, Failure, OK, Result};
use crate::template_source::{TokenArguments, add_read_template, is_model};
use crate::{abi, input, terminal};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Jinja files, GGUF files, folders of them, or hf:ORG/NAME[:QUANT]
    #[arg(required = true)]
    templates: Vec<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Least severity that is printed
    #[arg(long, value_enum, default_value_t = Severity::Info)]
    level: Severity,
    /// Least severity that sets the exit status to 3
    #[arg(long, value_enum, default_value_t = Severity::Error)]
    fail_on: Severity,
    #[command(flatten)]
    tokens: TokenArguments,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One line per finding: `file:line: severity: message [code]`
    Text,
    /// JSON array of findings
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations for GitHub Actions
    Github,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let files = files(&arguments.templates)?;
    let mut findings = check_all(&files, arguments);
    findings.retain(|finding| finding.severity >= arguments.level);
    match arguments.format {
        Format::Text => report::text(&findings, files.len()),
        Format::Json => report::json(&findings),
        Format::Sarif => report::sarif(&findings),
        Format::Github => report::github(&findings),
    }
    let fails = findings.iter().any(|finding| finding.severity >= arguments.fail_on);
    Ok(if fails { FOUND } else { OK })
}

/// Checks files on all cores. The findings are in the order of the files.
fn check_all(files: &[String], arguments: &Arguments) -> Vec<Finding> {
    let bar = terminal::count_bar(files.len(), "templates");
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![Vec::new(); files.len()]);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(index) else { return };
                    let found = check(file, arguments);
                    bar.inc(1);
                    results.lock().expect("no thread panics with the lock")[index] = found;
                }
            });
        }
    });
    bar.finish_and_clear();
    results.into_inner().expect("no thread panics with the lock").into_iter().flatten().collect()
}

fn check(file: &str, arguments: &Arguments) -> Vec<Finding> {
    let info = if is_model(file) {
        crate::model_source::ModelSource::read(file)
            .and_then(|source| source.info(None))
            .map(|(info, _)| info)
    } else {
        let mut request = json!({});
        // The byte order mark is a finding.
        add_read_template(&mut request, file, &arguments.tokens, input::text_with_mark)
            .and_then(|()| abi::template_info(&request))
    };
    match info {
        Ok(info) => {
            let findings = info["findings"].as_array().into_iter().flatten();
            findings.map(|finding| Finding::read(file, finding)).collect()
        }
        Err(failure) => vec![Finding::of_failure(file, &failure)],
    }
}

/// The files of the arguments. The files of a folder are sorted.
fn files(arguments: &[String]) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for argument in arguments {
        let path = Path::new(argument);
        if !path.is_dir() {
            files.push(argument.clone());
            continue;
        }
        let before = files.len();
        let entries =
            fs::read_dir(path).map_err(|error| Failure::new(format!("{argument}: {error}")))?;
        let mut entries: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        entries.sort();
        let is_template = |path: &Path| {
            path.extension()
                .is_some_and(|name| ["jinja", "jinja2", "gguf"].iter().any(|&n| name == n))
        };
        let entries = entries.iter().filter(|path| is_template(path));
        files.extend(entries.map(|path| path.to_string_lossy().into_owned()));
        if files.len() == before {
            return Err(Failure::new(format!("{argument}: has no files *.jinja or *.gguf")));
        }
    }
    Ok(files)
}
