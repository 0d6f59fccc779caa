//! A test case: messages before and after, and the checks that every case must pass.

use serde_json::{Value, json};

use crate::api::Polyfills;
use crate::template::polyfill::{Node, NodeMember, PolyfillTarget, Polyfilled, apply};
use crate::template::probe::traits::{
    AcceptedArguments, Details, NoContent, ReasoningDetails, ReasoningFormat, RoleSupport,
    TemplateCaps, Traits, WithCalls,
};

/// The traits of a template that accepts everything unchanged.
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
            results_by_position: false,
            refuses_user_after_result: false,
            developer: RoleSupport::Shown,
            later_system: RoleSupport::Shown,
            needs_alternation: false,
            reasoning: ReasoningDetails {
                inline: false,
                with_calls: WithCalls::Both,
                needs: None,
                visible: Vec::new(),
                switches: Vec::new(),
                effort: None,
            },
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
    schema: Option<Value>,
    options: Polyfills,
    notes: Vec<(&'static str, usize)>,
}

/// The index in a diagnostic that is not about a message.
pub(crate) const NO_MESSAGE: usize = usize::MAX;

impl PolyfillCase {
    pub(crate) fn new(traits: Traits, messages: Value) -> PolyfillCase {
        PolyfillCase {
            traits,
            messages,
            tools: None,
            schema: None,
            options: Polyfills::default(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn tools(mut self, tools: Value) -> PolyfillCase {
        self.tools = Some(tools);
        self
    }

    pub(crate) fn schema(mut self, schema: Value) -> PolyfillCase {
        self.schema = Some(schema);
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Polyfills)) -> PolyfillCase {
        change(&mut self.options);
        self
    }

    /// The messages are a part of a conversation: calls or results may be missing.
    pub(crate) fn part(self) -> PolyfillCase {
        self.with(|options| options.result_order = false)
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

    /// Checks that the messages are neither changed nor copied.
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
        let target = PolyfillTarget { schema: self.schema.as_ref(), ..(&self.traits).into() };
        let got = apply(self.sent(), self.declared(), target, &self.options).expect("polyfilled");
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
        let format = json!({"json_schema": {"schema": self.schema}});
        let request = json!({
            "messages": self.messages, "tools": self.tools, "response_format": format,
        });
        check_origins(&got, &request);
        got
    }

    fn sent(&self) -> &[Value] {
        self.messages.as_array().expect("a list of messages")
    }

    fn declared(&self) -> Option<&[Value]> {
        self.tools.as_ref().and_then(Value::as_array).map(Vec::as_slice)
    }
}

/// Checks the origins: every byte of the result that does not come from a polyfill must be a name,
/// number or string of the member that it is attributed to, or a JSON escape of one.
#[track_caller]
pub(crate) fn check_origins(got: &Polyfilled, request: &Value) {
    let Some(nodes) = got.nodes() else { return };
    assert_eq!(nodes.len(), got.messages.len());
    for message in nodes {
        message.members.iter().for_each(|member| check_member(member, request));
    }
}

#[track_caller]
fn check_member(member: &NodeMember, request: &Value) {
    if let Some(path) = &member.path {
        check_piece(&member.name, path, request);
    }
    check_node(&member.node, request);
}

#[track_caller]
fn check_node(node: &Node, request: &Value) {
    match node {
        Node::Null | Node::Bool(_) => {}
        Node::Number(number, path) => check_piece(&number.to_string(), path, request),
        Node::Text(text) => {
            let (text, mut at) = ((text.as_str(), text.segments()), 0);
            for segment in text.1 {
                assert!(
                    at <= segment.start && segment.start < segment.end,
                    "{:?} in {:?}",
                    text.1,
                    text.0
                );
                at = segment.end;
                check_piece(&text.0[segment.start..segment.end], &segment.path, request);
            }
            assert!(at <= text.0.len());
        }
        Node::List(items) => items.iter().for_each(|item| check_node(item, request)),
        Node::Map(members) => members.iter().for_each(|member| check_member(member, request)),
    }
}

/// Checks that the piece occurs in the value of the member, or in the JSON that the member contains
/// as text.
#[track_caller]
fn check_piece(piece: &str, path: &str, request: &Value) {
    let member = at_path(request, path);
    let unescaped: String =
        serde_json::from_str(&format!("\"{piece}\"")).unwrap_or_else(|_| piece.to_owned());
    let parsed = member.as_str().and_then(|text| text.parse::<Value>().ok());
    let holds = |piece: &str| {
        holds(member, piece) || parsed.as_ref().is_some_and(|parsed| holds(parsed, piece))
    };
    assert!(holds(piece) || holds(&unescaped), "{piece:?} is not of {path}: {member}");
}

/// Whether the text is a name, a number or a string in the value.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own == text,
        Value::Number(number) => number.to_string() == text,
        Value::Array(items) => items.iter().any(|item| holds(item, text)),
        Value::Object(members) => {
            members.iter().any(|(name, member)| name == text || holds(member, text))
        }
        Value::Null | Value::Bool(_) => false,
    }
}

/// The value at `messages[0].content`.
fn at_path<'a>(request: &'a Value, path: &str) -> &'a Value {
    let pointer = path.replace('[', ".").replace(']', "").replace('.', "/");
    request.pointer(&format!("/{pointer}")).unwrap_or_else(|| panic!("no {path}"))
}
