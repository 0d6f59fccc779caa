//! Specs by name: those built into the library, and those that this process has registered.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fault::{Reason, SpecFault};
use crate::json;
use crate::process::{Lazy, Shared};

/// A built-in spec.
struct BuiltIn {
    name: &'static str,
    spec: &'static str,
    /// A handwritten template, for a model that components cannot express.
    chat_template: Option<&'static str>,
    /// Whether it renders the same as the model's own template wherever both render.
    exact: bool,
}

macro_rules! composed {
    ($name:literal) => {
        BuiltIn {
            name: $name,
            spec: include_str!(concat!("registry/", $name, ".json")),
            chat_template: None,
            exact: false,
        }
    };
}

const QWEN3: &str = include_str!("registry/qwen3.jinja");
const QWEN3_INSTRUCT: &str = include_str!("registry/qwen3-instruct.jinja");

/// docs/compose.md lists the source of each, and its differences from the model's own template.
static BUILT_IN: [BuiltIn; 16] = [
    composed!("deepseek-prover"),
    composed!("deepseek-v3.1"),
    composed!("deepseek-v4"),
    composed!("glm-4"),
    composed!("glm-4.5"),
    composed!("kimi-k2-instruct"),
    composed!("llama-3.2"),
    composed!("nemotron"),
    composed!("phi-4"),
    composed!("qwen2.5"),
    composed!("qwen2.5-no-system-tool"),
    composed!("qwen2.5-think"),
    BuiltIn { chat_template: Some(QWEN3), exact: true, ..composed!("qwen3") },
    BuiltIn { chat_template: Some(QWEN3_INSTRUCT), ..composed!("qwen3-instruct") },
    BuiltIn { chat_template: Some(QWEN3_INSTRUCT), exact: true, ..composed!("qwen3-vl-instruct") },
    composed!("toolgen-qwen2.5"),
];

/// A spec that was found by name.
#[derive(Debug, Clone)]
pub(crate) struct RegisteredSpec {
    pub(crate) spec: Value,
    pub(crate) exact: bool,
}

static REGISTERED: Lazy<Shared<BTreeMap<String, RegisteredSpec>>> = Lazy::new(|| {
    let entries = BUILT_IN.iter().map(|built_in| {
        // A test checks that every built-in file parses.
        let mut spec = json::value(built_in.spec).unwrap_or_default();
        if let (Some(template), Value::Object(members)) = (built_in.chat_template, &mut spec) {
            members.insert("chat_template".to_owned(), template.trim_end().into());
        }
        (built_in.name.to_owned(), RegisteredSpec { spec, exact: built_in.exact })
    });
    Shared::new(entries.collect())
});

/// The spec of this name. Fails with `unknown_template` if it does not exist. May be called from
/// any thread.
pub(crate) fn find(name: &str, path: &str) -> Result<RegisteredSpec, SpecFault> {
    let registered = REGISTERED.lock();
    registered.get(name).cloned().ok_or_else(|| {
        let names =
            registered.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        SpecFault::new(
            Reason::UnknownTemplate,
            path,
            format!("no template {name:?} is registered; expected one of {names}"),
        )
    })
}

/// Registers a spec until the process ends. With `replace`, it may replace a registered spec of the
/// same name, but never a built-in one. May be called from any thread.
pub(crate) fn register(name: &str, spec: Value, replace: bool) -> Result<(), SpecFault> {
    let taken =
        |problem: String| Err(SpecFault::new(Reason::NameTaken, "components.name", problem));
    if BUILT_IN.iter().any(|built_in| built_in.name == name) {
        return taken(format!("{name:?} is built in and cannot be replaced"));
    }
    let mut registered = REGISTERED.lock();
    if !replace && registered.contains_key(name) {
        return taken(format!(
            "a template {name:?} is already registered; `override`: true replaces it"
        ));
    }
    registered.insert(name.to_owned(), RegisteredSpec { spec, exact: false });
    Ok(())
}

/// All specs, sorted by name.
pub(crate) fn all() -> Vec<(String, RegisteredSpec)> {
    let registered = REGISTERED.lock();
    registered.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
}
