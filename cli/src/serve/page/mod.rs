//! The page at `/`: one file of HTML, CSS and JavaScript, with a policy that prevents a browser
//! from running anything else. Its parts are the small files of this folder, put together here.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const STYLES: [&str; 3] = [
    include_str!("style/page.css"),
    include_str!("style/chat.css"),
    include_str!("style/panels.css"),
];

/// Libraries (`scripts/page-libraries.sh`), which define `marked` and `DOMPurify`.
const LIBRARIES: [&str; 2] =
    [include_str!("vendor/marked.umd.js"), include_str!("vendor/purify.min.js")];

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("script/", $name)))),*]
    };
}

/// The modules of the script, each after those that it imports.
const MODULES: [(&str, &str); 17] = modules![
    "dom.js",
    "server.js",
    "models.js",
    "code.js",
    "markdown.js",
    "conversation.js",
    "tokens.js",
    "request.js",
    "turns.js",
    "reply.js",
    "composer.js",
    "chat.js",
    "prompt.js",
    "template.js",
    "load.js",
    "kept_chats.js",
    "main.js",
];

/// The page with its policy.
struct Page {
    html: String,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let [style, libraries] = [STYLES.concat(), LIBRARIES.join("\n")].map(normal);
    let script = normal(MODULES.map(|(_, source)| joined(source)).concat());
    let policy = policy(&style, [&libraries, &script]);
    let policy = HeaderValue::from_str(&policy)
        .expect("a policy has only characters of base64 and fixed words");
    let html = normal(include_str!("page.html").to_owned())
        .replacen("<style></style>", &format!("<style>{style}</style>"), 1)
        .replacen("<script></script>", &format!("<script>{libraries}</script>"), 1)
        .replacen(
            "<script type=\"module\"></script>",
            &format!("<script type=\"module\">{script}</script>"),
            1,
        );
    Page { html, policy }
});

/// Needs no key, because the page contains nothing about the models.
pub(super) async fn show() -> Response<Body> {
    let mut response = Response::new(Body::from(PAGE.html.as_str()));
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, html);
    headers.insert(header::CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    // Another version of the program has a different page.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// A text as a browser hashes it: HTML parsers convert CRLF to LF.
fn normal(text: String) -> String {
    text.replace("\r\n", "\n")
}

/// A module as a part of the one script: without its imports, which come before it, and without
/// the word `export`.
fn joined(source: &str) -> String {
    let lines = source.lines().filter(|line| !line.starts_with("import "));
    lines.map(|line| line.strip_prefix("export ").unwrap_or(line).to_owned() + "\n").collect()
}

/// Sources: <https://www.w3.org/TR/CSP3/> and <https://www.w3.org/TR/trusted-types/>. Only
/// DOMPurify may make elements from text.
fn policy(style: &str, scripts: [&str; 2]) -> String {
    let [libraries, script] = scripts.map(source);
    let style = source(style);
    format!(
        "default-src 'none'; script-src {libraries} {script}; style-src {style}; \
         connect-src 'self'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify"
    )
}

/// The hash of an inline element, as a source of a policy.
fn source(content: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The name that a line of a module declares for the others, and whether it exports it.
    fn declared(line: &str) -> Option<(&str, bool)> {
        let exported = line.strip_prefix("export ");
        let line = exported.unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let words = ["const ", "let ", "class ", "function* ", "function "];
        let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
        let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '$';
        Some((rest.split(is_end).next().unwrap_or(rest), exported.is_some()))
    }

    /// The modules are valid as modules of their own, and together as one script.
    #[test]
    fn modules_import_what_earlier_ones_export() {
        let (mut names, mut exports) = (BTreeSet::new(), BTreeSet::new());
        for (module, source) in MODULES {
            let imports = source.lines().filter_map(|line| line.strip_prefix("import { "));
            for import in imports {
                let (imported, from) = import.split_once(" } from \"./").unwrap();
                let from = from.strip_suffix("\";").unwrap();
                for name in imported.split(", ") {
                    assert!(exports.contains(&(from, name)), "{module}: {from} has no {name}");
                    let uses = source.matches(name).count();
                    assert!(uses > 1, "{module} does not use {name}");
                }
            }
            for (name, is_exported) in source.lines().filter_map(declared) {
                assert!(names.insert(name), "{module}: {name} is declared twice");
                if is_exported {
                    exports.insert((module, name));
                }
            }
        }
        assert!(exports.len() > 30, "{exports:?}");
    }

    #[test]
    fn no_part_ends_its_element() {
        for part in STYLES.iter().chain(&LIBRARIES).chain(MODULES.iter().map(|(_, part)| part)) {
            for tag in ["<script", "</script", "</style"] {
                assert!(!part.contains(tag), "{tag}");
            }
        }
        assert_eq!(PAGE.html.matches("<script").count(), 2);
    }
}
