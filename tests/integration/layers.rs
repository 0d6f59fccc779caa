//! Data flows one way: a module imports only from the layers below it in docs/architecture.md's table.

use std::path::{Path, PathBuf};

/// Each module and what it may import. `error` is for all.
const ALLOWED: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("panic", &["error"]),
    ("api", &["error"]),
    ("gguf", &["error", "api"]),
    ("jinja", &[]),
    ("template", &["error", "api", "jinja"]),
    ("output", &["error", "api", "template"]),
    ("constraint", &["error", "api", "output"]),
    ("validate", &["error", "api", "output"]),
    ("verdict", &["error", "api", "gguf", "template", "output"]),
    ("compose_request", &["error", "api", "template", "verdict"]),
    ("template_request", &["error", "api", "gguf", "template", "output", "validate", "verdict"]),
    ("engine", &["error", "panic", "api", "constraint"]),
    ("llama", &["error", "api", "gguf", "constraint", "engine"]),
    ("net", &["error"]),
    ("remote", &["error", "panic", "api", "net"]),
    ("hub", &["error", "panic", "api", "gguf", "verdict", "net"]),
    ("chat", &["error", "api", "gguf", "template", "output", "constraint", "validate", "verdict", "engine", "llama", "remote"]),
    ("ffi", &["error", "panic", "api", "verdict", "compose_request", "template_request", "hub", "chat", "llama"]),
];

/// Modules that only tests have: they import what they like, and other modules' tests import them.
const OF_TESTS: &[&str] = &["conformance"];

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn no_layer_reaches_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut seen = 0;
    for file in files {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let module = relative.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        let name = relative.file_name().unwrap().to_str().unwrap();
        if module == "lib" || OF_TESTS.contains(&name) {
            continue;
        }
        let (_, allowed) =
            ALLOWED.iter().find(|(name, _)| *name == module).unwrap_or_else(|| panic!("{module} is in no layer"));
        let text = std::fs::read_to_string(&file).unwrap();
        for import in text.split("crate::").skip(1) {
            let name: String = import.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if OF_TESTS.contains(&name.as_str()) {
                continue;
            }
            assert!(name == module || allowed.contains(&name.as_str()), "{}: imports {name}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} imports were found");
}

#[test]
fn unsafe_code_is_where_c_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let inside = file.starts_with(root.join("ffi")) || file.starts_with(root.join("llama"));
        let allows = std::fs::read_to_string(&file).unwrap().contains("allow(unsafe_code");
        assert!(inside || !allows, "{} allows unsafe code", file.display());
    }
}
