//! Prints findings as text, JSON, SARIF or annotations.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::abi;
use crate::failure::Failure;
use crate::input::{print, print_json};
use crate::terminal::{Look, Style, counted, printable};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
    /// Never
    Never,
}

impl Severity {
    fn read(finding: &Value) -> Severity {
        match finding["severity"].as_str() {
            Some("error") => Severity::Error,
            Some("warning") => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// The place in a list of words for remarks, warnings and errors. No finding is `Never`.
    fn index(self) -> usize {
        (self as usize).min(2)
    }

    fn name(self) -> &'static str {
        ["info", "warning", "error"][self.index()]
    }
}

/// A remark on a template.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) file: String,
    pub(super) severity: Severity,
    code: String,
    message: String,
    line: Option<u64>,
    /// For a model file: "default" or "tool_use".
    template: Option<String>,
}

impl Finding {
    pub(super) fn read(file: &str, finding: &Value) -> Finding {
        let text = |name: &str| finding[name].as_str().map(str::to_owned);
        Finding {
            file: file.to_owned(),
            severity: Severity::read(finding),
            code: text("code").unwrap_or_default(),
            message: text("message").unwrap_or_default(),
            line: finding["line"].as_u64(),
            template: text("template"),
        }
    }

    /// The finding for a template that cannot be checked, for example because of a syntax error.
    pub(super) fn of_failure(file: &str, failure: &Failure) -> Finding {
        // The file has its own place in a report.
        let message = failure.message.strip_prefix(&format!("{file}: "));
        Finding {
            file: file.to_owned(),
            severity: Severity::Error,
            code: failure.code.as_deref().unwrap_or("unreadable").to_lowercase(),
            message: message.unwrap_or(&failure.message).to_owned(),
            line: failure.details["line"].as_u64(),
            template: None,
        }
    }

    fn json(&self) -> Value {
        json!({
            "file": self.file, "line": self.line, "severity": self.severity.name(), "code": self.code,
            "message": self.message, "template": self.template,
        })
    }
}

pub(super) fn text(findings: &[Finding], files: usize) {
    let style = Style::stdout();
    for finding in findings {
        let look = [Look::Dim, Look::Yellow, Look::Red][finding.severity.index()];
        let place = match finding.line {
            Some(line) => format!("{}:{line}:", finding.file),
            None => format!("{}:", finding.file),
        };
        // If a model has two templates, the name of the second one is printed.
        let template = finding.template.as_deref().filter(|&name| name != "default");
        let template = template.map(|name| format!("{name}: ")).unwrap_or_default();
        print(&format!(
            "{} {}: {template}{} {}\n",
            style.paint(Look::Strong, &place),
            style.paint(look, finding.severity.name()),
            printable(&finding.message).replace('\n', " "),
            style.paint(Look::Dim, &format!("[{}]", finding.code)),
        ));
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    say!(
        "{}: {}, {}, {}",
        counted(files, "template"),
        counted(count(Severity::Error), "error"),
        counted(count(Severity::Warning), "warning"),
        counted(count(Severity::Info), "remark")
    );
}

pub(super) fn json(findings: &[Finding]) {
    print_json(&findings.iter().map(Finding::json).collect());
}

/// <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>
pub(super) fn sarif(findings: &[Finding]) {
    let rules: BTreeMap<&str, ()> = findings.iter().map(|finding| (&*finding.code, ())).collect();
    let rules: Vec<Value> = rules.keys().map(|code| json!({ "id": code })).collect();
    let results: Vec<Value> = findings.iter().map(sarif_result).collect();
    let version = abi::version();
    let version = version.split(' ').nth(1).unwrap_or_default();
    print_json(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "llb", "version": version, "rules": rules } },
            "results": results,
        }],
    }));
}

fn sarif_result(finding: &Finding) -> Value {
    let level = ["note", "warning", "error"][finding.severity.index()];
    let mut place = json!({ "artifactLocation": { "uri": uri(&finding.file) } });
    if let Some(line) = finding.line {
        place["region"] = json!({ "startLine": line });
    }
    json!({
        "ruleId": finding.code,
        "level": level,
        "message": { "text": finding.message },
        "locations": [{ "physicalLocation": place }],
    })
}

/// A path as a relative reference (RFC 3986).
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into());
            }
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

/// The workflow commands of GitHub Actions.
pub(super) fn github(findings: &[Finding]) {
    for finding in findings {
        let command = ["notice", "warning", "error"][finding.severity.index()];
        let line = finding.line.map(|line| format!(",line={line}")).unwrap_or_default();
        print(&format!(
            "::{command} file={}{line},title={}::{}\n",
            property(&finding.file),
            property(&finding.code),
            data(&finding.message),
        ));
    }
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
