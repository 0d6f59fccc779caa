//! What the probes of several parts have in common: their texts, tools and calls. Each text occurs
//! once in a prompt, and templates do not change it.

use serde_json::{Value, json};

use crate::probing::{ProbeRenderer, call, tool};

pub(super) const USER: &str = "Quserone";
pub(super) const USER_2: &str = "Qusertwo";
/// A user message that precedes [`USER`].
pub(super) const USER_3: &str = "Quserthree";
pub(super) const ANSWER: &str = "Qanswerone";
pub(super) const SYSTEM: &str = "Qsystemone";
pub(super) const SYSTEM_2: &str = "Qsystemtwo";

/// The prefixes of the texts and names of all probes.
const PREFIXES: [&str; 11] = [
    "Quser", "Qanswer", "Qreason", "Qlate", "Qsystem", "Qresult", "Qplace", "qtool", "qcall",
    "qkey", "qskill",
];

/// Whether a text contains a part of a probe, so that it is not constant text of the template.
pub(super) fn contains_needle(text: &str) -> bool {
    PREFIXES.iter().any(|prefix| text.contains(prefix))
}

/// Compiles a spec to a renderer. None if the spec cannot be composed.
pub(super) type Compose<'a> = dyn Fn(&Value) -> Option<ProbeRenderer<'static>> + 'a;

/// The probes' calls, with arguments as text or as an object.
pub(super) fn probe_calls(text_arguments: bool) -> Vec<Value> {
    let arguments = |city: &str| {
        let arguments = json!({ "zone": city, "deep": { "b": [1, true, null], "a": "ü \"q\"" } });
        if text_arguments { Value::String(arguments.to_string()) } else { arguments }
    };
    vec![
        call("qcallonex", "qtoolone", &arguments("Qplaceone")),
        call("qcalltwox", "qtooltwo", &arguments("Qplacetwo")),
    ]
}

/// The first call of the probes, with other arguments.
pub(super) fn probe_call(arguments: &Value) -> Value {
    call("qcallonex", "qtoolone", arguments)
}

/// The probes' tools: unsorted keys, non-ASCII text, an empty object, lists.
pub(super) fn probe_tools() -> Vec<Value> {
    vec![
        tool(
            "qtoolone",
            "Ein \"erstes\" Wörkzeug",
            &json!({ "type": "object", "properties": { "place": { "type": "string" } } }),
        ),
        tool(
            "qtooltwo",
            "数 & <b>",
            &json!({ "type": "object", "properties": {}, "required": ["x", "a"] }),
        ),
    ]
}
