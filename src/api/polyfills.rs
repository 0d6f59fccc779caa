//! Which polyfills may change a request's messages.

use serde_json::Value;

use super::fields::Fields;
use crate::error::Result;

/// Switches, all on by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polyfills {
    /// Arguments of tool calls as objects, where the template reads them so.
    pub object_arguments: bool,
}

impl Default for Polyfills {
    fn default() -> Self {
        Polyfills { object_arguments: true }
    }
}

/// Names of the contract whose polyfills this version does not have: nothing is done for them, on or off.
const WITHOUT_EFFECT: [&str; 12] = [
    "polyfill_reasoning",
    "polyfill_typed_content",
    "polyfill_system_role",
    "polyfill_tools",
    "polyfill_tool_calls",
    "polyfill_tool_responses",
    "polyfill_tool_call_examples",
    "polyfill_null_content",
    "polyfill_empty_tool_calls",
    "polyfill_developer_role",
    "polyfill_same_role_merge",
    "polyfill_tool_call_ids",
];

impl Polyfills {
    /// Whether messages stay as they are.
    pub fn none(self) -> bool {
        !self.object_arguments
    }

    /// The member `polyfills`; an unknown name in it is an error. None when there is no such member.
    pub(crate) fn read(fields: &mut Fields) -> Result<Option<Polyfills>> {
        let path = fields.path("polyfills");
        let Some(value) = fields.get("polyfills") else { return Ok(None) };
        let mut switches = Fields::new(path, value)?;
        for name in WITHOUT_EFFECT {
            switches.boolean(name)?;
        }
        let all = switches.boolean("apply_polyfills")?.unwrap_or(true);
        let object_arguments = switches.boolean("polyfill_object_arguments")?.unwrap_or(true);
        match Value::as_object(value).and_then(|object| object.keys().find(|name| !switches.knows(name))) {
            Some(name) => Err(switches.invalid(name, "unknown polyfill")),
            None => Ok(Some(Polyfills { object_arguments: all && object_arguments })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(polyfills: Value, expected: Result<Option<bool>, &str>) {
        let request = json!({ "polyfills": polyfills });
        let mut fields = Fields::new("", &request).expect("an object");
        let got = Polyfills::read(&mut fields).map(|read| read.map(|polyfills| polyfills.object_arguments));
        assert_eq!(got.as_ref().map_err(|error| error.message()), expected.as_ref().map_err(|message| *message));
    }

    #[test]
    fn switches() {
        check(json!(null), Ok(None));
        check(json!({}), Ok(Some(true)));
        check(json!({ "apply_polyfills": false }), Ok(Some(false)));
        check(json!({ "polyfill_object_arguments": false, "polyfill_tools": true }), Ok(Some(false)));
        check(json!({ "polyfill_everything": true }), Err("polyfills.polyfill_everything: unknown polyfill"));
        check(json!({ "polyfill_tools": 1 }), Err("polyfills.polyfill_tools: expected true or false, got 1"));
    }
}
