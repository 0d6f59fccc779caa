//! A test case of messages before and after, with the checks that hold for every case.

use serde_json::{Value, json};

use crate::api::Polyfills;
use crate::template::polyfill::{Polyfilled, apply};
use crate::template::probe::traits::{
    AcceptedArguments, Details, NoContent, ReasoningFormat, RoleSupport, TemplateCaps, Traits,
    WithCalls,
};

/// The traits of a template that takes everything as it is sent.
pub(crate) fn traits() -> Traits {
    Traits {
        caps: TemplateCaps {
            supports_system_role: true,
            supports_tools: true,
            supports_tool_calls: true,
            supports_tool_responses: true,
            supports_tool_call_id: true,
            supports_parallel_tool_calls: true,
            requires_object_arguments: false,
            requires_non_null_content: false,
            requires_typed_content_blocks: false,
            supports_reasoning: true,
            reasoning_format: ReasoningFormat::ReasoningContentField,
            reasoning_requires_tools: false,
            supports_clear_thinking: false,
            supports_reasoning_without_content: true,
            supports_reasoning_with_content: true,
            respects_enable_reasoning: false,
        },
        details: Details {
            accepts_parts: true,
            requires_non_empty_content: false,
            content_ladder: Vec::new(),
            no_content: NoContent::Absent,
            no_content_with_calls: NoContent::Absent,
            arguments: AcceptedArguments::Either,
            nine_character_ids: false,
            developer: RoleSupport::Shown,
            later_system: RoleSupport::Shown,
            needs_alternation: false,
            inline_reasoning: false,
            reasoning_with_calls: WithCalls::Both,
            reasoning_needs: None,
            reasoning_visible: Vec::new(),
            switches: Vec::new(),
            effort: None,
        },
        tool_call_example: None,
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

pub(crate) struct PolyfillCase {
    traits: Traits,
    messages: Value,
    tools: Option<Value>,
    options: Polyfills,
    notes: Vec<(&'static str, usize)>,
}

/// The index of a diagnostic without a message.
pub(crate) const NO_MESSAGE: usize = usize::MAX;

impl PolyfillCase {
    pub(crate) fn new(traits: Traits, messages: Value) -> PolyfillCase {
        PolyfillCase {
            traits,
            messages,
            tools: None,
            options: Polyfills::default(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn tools(mut self, tools: Value) -> PolyfillCase {
        self.tools = Some(tools);
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Polyfills)) -> PolyfillCase {
        change(&mut self.options);
        self
    }

    /// The expected diagnostics: code and message index.
    pub(crate) fn notes(mut self, notes: &[(&'static str, usize)]) -> PolyfillCase {
        self.notes = notes.to_vec();
        self
    }

    #[track_caller]
    pub(crate) fn check(self, after: Value, applied: &[&str]) {
        let got = self.run();
        assert_eq!(Value::Array(got.messages.to_vec()).to_string(), after.to_string());
        assert_eq!(got.applied, applied);
    }

    /// The messages are neither changed nor copied.
    #[track_caller]
    pub(crate) fn unchanged(self) {
        let got = self.run();
        assert!(
            matches!(got.messages, std::borrow::Cow::Borrowed(_)),
            "changed: {:?} {:?}",
            got.applied,
            got.messages
        );
        assert!(got.applied.is_empty());
    }

    #[track_caller]
    pub(crate) fn refused(self, problem: &str) {
        let error =
            apply(self.sent(), self.declared(), &self.traits, &self.options).expect_err("refused");
        assert_eq!((error.code(), error.message()), (crate::error::Code::InvalidRequest, problem));
    }

    #[track_caller]
    pub(crate) fn run(&self) -> Polyfilled<'_> {
        let got =
            apply(self.sent(), self.declared(), &self.traits, &self.options).expect("polyfilled");
        let notes: Vec<_> = got
            .diagnostics
            .iter()
            .map(|note| {
                let index = note.details.first().and_then(|(_, index)| index.as_u64());
                (note.code, index.map_or(NO_MESSAGE, |index| index as usize))
            })
            .collect();
        assert_eq!(notes, self.notes);
        let again =
            apply(&got.messages, None, &self.traits, &self.options).expect("polyfilled again");
        assert!(
            again.applied.is_empty(),
            "the second run: {:?} made {:?}",
            again.applied,
            again.messages
        );
        check_origins(&got, &json!({"messages": self.messages, "tools": self.tools}));
        got
    }

    fn sent(&self) -> &[Value] {
        self.messages.as_array().expect("a list of messages")
    }

    fn declared(&self) -> Option<&[Value]> {
        self.tools.as_ref().and_then(Value::as_array).map(Vec::as_slice)
    }
}

/// Every string of the result is visited once, and every segment is the text of its member, or a
/// JSON escape of it.
#[track_caller]
pub(crate) fn check_origins(got: &Polyfilled, request: &Value) {
    let mut visited = 0;
    got.visit_strings(&mut |message, pointer, text, segments| {
        visited += 1;
        assert_eq!(
            got.messages[message].pointer(pointer).and_then(Value::as_str),
            Some(text),
            "{message} {pointer}"
        );
        let mut at = 0;
        for segment in segments {
            assert!(
                at <= segment.start && segment.start < segment.end && segment.end <= text.len(),
                "{segments:?}"
            );
            at = segment.end;
            let piece = &text[segment.start..segment.end];
            let member = at_path(request, &segment.path);
            let member = member.as_str().unwrap_or_else(|| panic!("{} is no string", segment.path));
            let unescaped: String =
                serde_json::from_str(&format!("\"{piece}\"")).unwrap_or_else(|_| piece.to_owned());
            let spelled = member.parse::<Value>().is_ok_and(|value| holds(&value, &unescaped));
            assert!(
                member == piece || member == unescaped || spelled,
                "{piece:?} is not {member:?} of {}",
                segment.path
            );
        }
    });
    let strings: usize = got.messages.iter().map(count).sum();
    assert_eq!(visited, strings);
}

fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own == text,
        Value::Array(items) => items.iter().any(|item| holds(item, text)),
        Value::Object(members) => members.values().any(|member| holds(member, text)),
        _ => false,
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::String(_) => 1,
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// The value at `messages[0].content`.
fn at_path<'a>(request: &'a Value, path: &str) -> &'a Value {
    let pointer = path.replace('[', ".").replace(']', "").replace('.', "/");
    request.pointer(&format!("/{pointer}")).unwrap_or_else(|| panic!("no {path}"))
}
