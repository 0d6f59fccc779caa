//! Tests properties of the whole pipeline with the conversations of minja's test suite and many
//! kinds of templates.

#[cfg(test)]
pub(crate) mod case;

use std::cell::Cell;

use serde_json::{Value, json};

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::segmented_text::Segment;
use super::step::SentMessage;
use super::{PolyfillTarget, STEPS, apply};
use crate::api::Polyfills;
use crate::error::Code;
use crate::template::probe::traits::{
    AcceptedArguments, Details, NoContent, ReasoningFormat, RoleSupport, Traits, WithCalls,
};
use crate::template::tests::renders;
use case::{PolyfillCase, call, check_origins, traits};

type Change = Box<dyn Fn(&mut Traits)>;

/// Traits that differ from those of a template that accepts everything.
fn kinds() -> Vec<Traits> {
    let mut changes: Vec<Change> = vec![
        Box::new(|_| {}),
        Box::new(|t| t.caps.supports_system_role = false),
        Box::new(|t| t.caps.supports_tools = false),
        Box::new(|t| t.caps.supports_tool_calls = false),
        Box::new(|t| t.caps.supports_tool_responses = false),
        Box::new(|t| t.caps.supports_parallel_tool_calls = false),
        Box::new(|t| t.caps.requires_object_arguments = true),
        Box::new(|t| t.caps.requires_typed_content_blocks = true),
        Box::new(|t| t.details.accepts_parts = false),
        Box::new(|t| t.details.arguments = AcceptedArguments::PrefersObject),
        Box::new(|t| t.details.arguments = AcceptedArguments::Text),
        Box::new(|t| t.details.nine_character_ids = true),
        Box::new(|t| t.details.results_by_position = true),
        Box::new(|t| t.details.refuses_user_after_result = true),
        Box::new(|t| t.details.developer = RoleSupport::Refused),
        Box::new(|t| t.details.later_system = RoleSupport::Lost),
        Box::new(|t| t.details.needs_alternation = true),
        Box::new(|t| t.details.reasoning.inline = true),
        Box::new(|t| t.details.reasoning.with_calls = WithCalls::Raises),
    ];
    for form in [NoContent::Null, NoContent::Empty, NoContent::Space] {
        changes.push(Box::new(move |t| {
            t.details.no_content = form;
            t.details.no_content_with_calls = form;
        }));
    }
    for format in [
        ReasoningFormat::ThoughtField,
        ReasoningFormat::ThinkingField,
        ReasoningFormat::ToolPlanField,
        ReasoningFormat::ThinkingContentBlock,
        ReasoningFormat::ThoughtsContentBlock,
        ReasoningFormat::ReasoningField,
        ReasoningFormat::BlocksMapping,
        ReasoningFormat::None,
    ] {
        changes.push(Box::new(move |t| t.caps.reasoning_format = format));
    }
    let mut kinds = Vec::new();
    for one in &changes {
        for other in &changes {
            let mut kind = traits();
            one(&mut kind);
            other(&mut kind);
            kinds.push(kind);
        }
    }
    // Combinations of several changes. They are the same in every run.
    let mut random = 1_u64;
    for _ in 0..400 {
        let mut kind = traits();
        for change in &changes {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if random >> 62 == 0 {
                change(&mut kind);
            }
        }
        kinds.push(kind);
    }
    kinds
}

#[test]
fn a_call_that_is_over_adapts_no_more_messages() {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": "a" }] });
    let messages = vec![message; 1_000];
    let traits =
        Traits { details: Details { accepts_parts: false, ..traits().details }, ..traits() };
    for most in [0, 10, 1_000] {
        let asked = Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() > most
        };
        let target = PolyfillTarget { is_over: &is_over, ..(&traits).into() };
        let error = apply(&messages, None, target, &Polyfills::default()).expect_err("over");
        assert_eq!((error.code(), asked.get()), (Code::Cancelled, most + 1));
    }
}

/// Checks that no step changes a conversation in which no message needs a step.
#[track_caller]
fn check_needs(messages: &[Value], traits: &Traits) {
    let context = PolyfillContext {
        caps: traits.caps,
        details: &traits.details,
        tool_call_example: None,
        call_writer: None,
        is_answered_next: false,
        schema: None,
        options: &Polyfills::default(),
        tools: &[],
    };
    let mut conversation = PolyfillConversation::of(messages, &|| false).expect("in time");
    let (mut needed, mut changed) = (Vec::new(), Vec::new());
    for step in STEPS.iter().filter(|step| (step.applies)(&context)) {
        if SentMessage::all(messages).any(|message| (step.needs)(&message, &context)) {
            needed.push(step.name);
        }
        match (step.run)(&mut conversation, &context) {
            Ok(true) => changed.push(step.name),
            Ok(false) if conversation.diagnostics.is_empty() => {}
            Ok(false) | Err(_) => changed.push("diagnostics"),
        }
        assert!(
            changed.is_empty() || !needed.is_empty(),
            "{changed:?} without need: {messages:#?}"
        );
    }
}

fn check(messages: &[Value], tools: Option<&[Value]>) {
    let sent = messages.to_vec();
    for (number, traits) in kinds().iter().enumerate() {
        for reasoning_inline in [false, true] {
            let options = Polyfills { reasoning_inline, ..Polyfills::default() };
            let once = match apply(messages, tools, traits, &options) {
                Ok(once) => once,
                Err(error) => {
                    assert!(error.message().starts_with("messages["), "{error}");
                    continue;
                }
            };
            assert_eq!(messages, sent, "the input was changed");
            let changed = matches!(once.messages, std::borrow::Cow::Owned(_));
            assert!(changed || once.applied.is_empty());
            assert!(!changed || !once.applied.is_empty(), "{number}: changed by no step");
            check_origins(&once, &json!({"messages": messages, "tools": tools}));
            let twice = apply(&once.messages, None, traits, &options).expect("its own result");
            let borrowed = matches!(twice.messages, std::borrow::Cow::Borrowed(_));
            assert!(
                borrowed,
                "kind {number}: {:?} then {:?}: {:#?}\n{:#?}",
                once.applied, twice.applied, once.messages, twice.messages
            );
        }
        let off = Polyfills { apply_polyfills: false, ..Polyfills::default() };
        let off = apply(messages, tools, traits, &off).expect("untouched");
        assert!(
            matches!(off.messages, std::borrow::Cow::Borrowed(_)) && off.diagnostics.is_empty()
        );
    }
}

#[test]
fn conversations_of_minja() {
    let Some(root) = renders::data("polyfills on minja's conversations") else { return };
    let mut count = 0;
    for file in std::fs::read_dir(root.join("polyfill-contexts")).expect("a directory") {
        let text = std::fs::read(file.expect("an entry").path()).expect("a file");
        let context: Value = serde_json::from_slice(&text).expect("JSON");
        let messages = context["messages"].as_array().expect("messages");
        check(messages, context["tools"].as_array().map(Vec::as_slice));
        count += 1;
    }
    assert_eq!(count, 10);
}

/// A conversation with every kind of message.
fn everything() -> Value {
    let part = |text: &str| json!({"type": "text", "text": text});
    json!([
        {"role": "developer", "content": "D"},
        {"role": "system", "content": [part("S")], "name": null},
        {"role": "user", "content": "U \"quoted\"\n"},
        {"role": "user", "content": [part("V"), part("W")]},
        {"role": "assistant", "reasoning": "R1", "content": "A", "tool_calls": []},
        {"role": "user", "content": ""},
        {"role": "assistant", "reasoning_content": "R2", "content": "B", "tool_calls": [
            call("call_1", "f", json!("{\"city\": \"Köln\", \"n\": [1.5, \"x\"]}")),
            {"id": "call_2", "function": {"name": "f"}},
            call("123456789", "f", json!("broken")),
        ]},
        {"role": "tool", "tool_call_id": "call_2", "name": "f", "content": [part("r2")]},
        {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "{\"r\": 1}"},
        {"role": "tool", "tool_call_id": "123456789", "content": "r3"},
        {"role": "system", "content": "T"},
        {"role": "assistant", "content": null, "thinking": "R3"},
        {"role": "assistant", "content": null, "tool_calls": [call("call_1", "f", json!({}))]},
        {"role": "tool", "tool_call_id": "call_1", "content": "r4"},
        {"role": "system", "content": ""},
    ])
}

#[test]
fn a_step_changes_nothing_that_does_not_need_it() {
    let messages = everything();
    let messages = messages.as_array().expect("a list");
    for traits in kinds() {
        messages.chunks(1).for_each(|message| check_needs(message, &traits));
        messages.windows(2).for_each(|pair| check_needs(pair, &traits));
    }
}

#[test]
fn a_conversation_of_everything() {
    let tools = json!([{"type": "function", "function": {"name": "f", "description": "\"é\"\n", "parameters": {"type": "object"}}}]);
    let messages = everything();
    let messages = messages.as_array().expect("a list");
    check(messages, tools.as_array().map(Vec::as_slice));
    for from in 1..messages.len() {
        check(&messages[from..], None);
    }
}

#[test]
fn segments_of_a_whole_conversation() {
    let mut lacking = traits();
    lacking.caps.supports_system_role = false;
    lacking.caps.supports_tool_calls = false;
    let case = PolyfillCase::new(
        lacking,
        json!([
            {"role": "system", "content": "S\"s"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": "C", "tool_calls": [call("x", "f", json!("{\"city\": \"a\\nb\"}"))]},
        ]),
    )
    .notes(&[("system_message_merged", 0)]);
    let got = case.run();
    let content = |message: &PolyfillMessage| {
        let text = message.members.text("content").expect("a text");
        let piece = |s: &Segment| (text.as_str()[s.start..s.end].to_owned(), s.path.to_string());
        text.segments().iter().map(piece).collect::<Vec<_>>()
    };
    let seen: Vec<_> = got.nodes().expect("changed").iter().map(content).collect();
    let own = |text: &str, path: &str| (text.to_owned(), path.to_owned());
    assert_eq!(
        seen,
        [
            vec![own("S\"s", "messages[0].content"), own("U", "messages[1].content")],
            vec![
                own("f", "messages[2].tool_calls[0].function.name"),
                own("city", "messages[2].tool_calls[0].function.arguments"),
                own("a\\nb", "messages[2].tool_calls[0].function.arguments"),
                own("x", "messages[2].tool_calls[0].id"),
                own("C", "messages[2].content"),
            ],
        ]
    );
}

#[test]
fn an_override_replaces_a_probed_flag() {
    let sent = json!([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]);
    let given = json!({"supports_system_role": false});
    PolyfillCase::new(traits(), sent.clone())
        .with(|options| options.caps_override = given.as_object().cloned())
        .notes(&[("system_message_merged", 0)])
        .check(json!([{"role": "user", "content": "S\nU"}]), &["system_role"]);
    let wrong = json!({"supports_sytem_role": false});
    PolyfillCase::new(traits(), sent)
        .with(|options| options.caps_override = wrong.as_object().cloned())
        .refused("polyfills.caps_override.supports_sytem_role: unknown flag");
}
