//! Tests a fork of a template whose comments (P1 to P5) state how it differs from the original,
//! from the shared conformance data. Each difference is shown by a pair of renders, and by the
//! original's render.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::renders::{data, say, templates};
use crate::error::{Code, Result};
use crate::template::{LocalTime, RenderInput, Templates};

/// The fork as published, and as saved by a page that treated its closing tags as HTML.
const FORKS: [&str; 2] = ["gemma4-public-fork", "gemma4-public-fork-as-saved"];
const ORIGINAL: &str = "lcp.google-gemma-4-31B-it";

struct Set(BTreeMap<String, Templates>);

impl Set {
    fn find() -> Option<Set> {
        let set = data("the stated properties of a fork").map(|root| Set(templates(&root)))?;
        let lacks = FORKS.into_iter().find(|name| !set.0.contains_key(*name));
        if let Some(name) = lacks {
            say(&format!("skipped: the stated properties of a fork: the set has no {name}"));
        }
        lacks.is_none().then_some(set)
    }

    fn render(&self, name: &str, messages: &Value, kwargs: &Value) -> Result<String> {
        let now = LocalTime::parse("2026-01-31T09:30:00").unwrap();
        let kwargs: &Map<String, Value> = kwargs.as_object().unwrap();
        let messages = messages.as_array().unwrap();
        let input = RenderInput {
            add_generation_prompt: true,
            kwargs: Some(kwargs),
            ..RenderInput::new(messages, now)
        };
        self.0[name].render(&input).map(|prompt| prompt.text)
    }

    #[track_caller]
    fn prompt(&self, name: &str, messages: &Value, kwargs: Value) -> String {
        self.render(name, messages, &kwargs).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn call(arguments: Value) -> Value {
    let function = json!({ "name": "find", "arguments": arguments });
    json!({ "role": "assistant", "tool_calls": [{ "id": "call00001", "type": "function", "function": function }] })
}

fn result(text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": "call00001", "name": "find", "content": text })
}

#[test]
fn null_arguments_are_null() {
    let Some(set) = Set::find() else { return };
    for (name, printed) in FORKS.map(|name| (name, "null")).into_iter().chain([(ORIGINAL, "None")])
    {
        let with = |value: Value| {
            set.prompt(
                name,
                &json!([user("q"), call(json!({ "after": value })), result("r")]),
                json!({}),
            )
        };
        let null = with(Value::Null);
        assert!(null.contains(&format!("call:find{{after:{printed}}}")), "{name}: {null}");
        assert_eq!(null.replace(&format!("after:{printed}"), "after:7"), with(json!(7)), "{name}");
        // The same for nested values.
        let nested = with(json!({ "x": [null, true] }));
        assert!(nested.contains(&format!("after:{{x:[{printed},true]}}")), "{name}: {nested}");
    }
}

#[test]
fn thinking_is_on_by_default() {
    let Some(set) = Set::find() else { return };
    let messages = json!([user("q")]);
    for name in FORKS.into_iter().chain([ORIGINAL]) {
        let [unset, on, off] =
            [json!({}), json!({ "enable_thinking": true }), json!({ "enable_thinking": false })]
                .map(|kwargs| set.prompt(name, &messages, kwargs));
        assert_ne!(on, off, "{name}");
        assert!(on.contains("<|think|>") && !off.contains("<|think|>"), "{name}");
        let is_fork = name != ORIGINAL;
        assert_eq!(unset, if is_fork { on } else { off.clone() }, "{name}");
        if is_fork {
            // The empty channel makes the model skip its reasoning.
            assert!(
                off.contains("<|turn>model\n<|channel>thought\n") && !unset.contains("<|channel>"),
                "{name}"
            );
        }
        let traits = set.0[name].traits();
        let switch = traits
            .details
            .reasoning
            .switches
            .iter()
            .find(|switch| switch.variable == "enable_thinking")
            .unwrap();
        assert_eq!(switch.default, Some(is_fork), "{name}");
    }
}

#[test]
fn string_arguments_are_refused() {
    let Some(set) = Set::find() else { return };
    let exchange = |arguments: Value| json!([user("q"), call(arguments), result("r")]);
    let text = exchange(json!(r#"{"city":"Tokyo"}"#));
    for name in FORKS {
        let error = set.render(name, &text, &json!({})).unwrap_err();
        assert_eq!(
            (error.code(), &error.details().unwrap()["kind"]),
            (Code::TemplateError, &json!("raised"))
        );
        let words =
            "tool_calls[].function.arguments must be a JSON object (mapping). Got a 16-char";
        assert!(error.message().contains(words), "{name}: {}", error.message());
        set.prompt(name, &exchange(json!({ "city": "Tokyo" })), json!({}));
        // Null arguments mean a call without arguments.
        assert!(
            set.prompt(name, &exchange(Value::Null), json!({})).contains("call:find{}"),
            "{name}"
        );
        assert!(set.0[name].traits().caps.requires_object_arguments, "{name}");
        let lints = set.0[name].lints();
        let found = lints.iter().find(|lint| lint.code == "raises_on_string_arguments").unwrap();
        assert!(found.message.contains("must be a JSON object (mapping)"), "{}", found.message);
    }
    // The reason for the fork: the original writes the text between its own braces.
    assert!(set.prompt(ORIGINAL, &text, json!({})).contains(r#"call:find{{"city":"Tokyo"}}"#));
}

#[test]
fn old_reasoning_is_kept_by_default() {
    let Some(set) = Set::find() else { return };
    let thinks = |text: &str| {
        let mut message = call(json!({}));
        message["reasoning_content"] = text.into();
        message
    };
    let messages = json!([
        user("q"),
        thinks("old thought"),
        result("r"),
        user("q"),
        thinks("new thought"),
        result("r")
    ]);
    for name in FORKS.into_iter().chain([ORIGINAL]) {
        let [unset, keep, drop] = [
            json!({}),
            json!({ "preserve_thinking": true }),
            json!({ "preserve_thinking": false }),
        ]
        .map(|kwargs| set.prompt(name, &messages, kwargs));
        for prompt in [&unset, &keep, &drop] {
            assert!(prompt.contains("<|channel>thought\nnew thought\n"), "{name}: {prompt}");
        }
        let has_old = [&unset, &keep, &drop]
            .map(|prompt| prompt.contains("<|channel>thought\nold thought\n"));
        let is_fork = name != ORIGINAL;
        assert_eq!(has_old, [is_fork, is_fork, false], "{name}");
        assert_eq!(unset, if is_fork { keep } else { drop }, "{name}");
        let found = set.0[name].lints().iter().any(|lint| lint.code == "drops_old_reasoning");
        assert_eq!(found, !is_fork, "{name}");
    }
}

#[test]
fn a_continued_turn_is_opened_once() {
    let Some(set) = Set::find() else { return };
    let opened = |prompt: &str| prompt.matches("<|turn>model\n").count();
    let closed = |prompt: &str| prompt.matches("<turn|>").count();
    for name in FORKS {
        // After a result the same turn continues with a call. A question starts a new turn.
        let goes_on = json!([
            user("q"),
            call(json!({ "a": 1 })),
            result("r"),
            call(json!({ "a": 2 })),
            result("r")
        ]);
        let prompt = set.prompt(name, &goes_on, json!({}));
        assert_eq!(
            (opened(&prompt), prompt.matches("call:find").count()),
            (1, 2),
            "{name}: {prompt}"
        );
        let asked = json!([
            user("q"),
            call(json!({ "a": 1 })),
            result("r"),
            user("q"),
            call(json!({ "a": 2 })),
            result("r")
        ]);
        assert_eq!(opened(&set.prompt(name, &asked, json!({}))), 2, "{name}");
    }
    let answer = |text: &str| json!({ "role": "assistant", "content": text });
    let answered =
        json!([user("q"), call(json!({ "a": 1 })), result("r"), answer("done"), user("q")]);
    let [published, saved] = FORKS;
    let prompt = set.prompt(published, &answered, json!({}));
    // That turn and the generation prompt.
    assert_eq!(opened(&prompt), 2, "{prompt}");
    // P5: two consecutive answers form one turn, opened once and closed once. The original closes
    // it twice.
    let two = json!([user("q"), answer("part 1"), answer("part 2"), user("q")]);
    let prompt = set.prompt(published, &two, json!({}));
    assert!(prompt.contains("<|turn>model\npart 1\npart 2<turn|>\n"), "{prompt}");
    let original = set.prompt(ORIGINAL, &two, json!({}));
    assert_eq!(
        closed(&original),
        closed(&prompt),
        "the original's system turn is the fork's: {original}"
    );
    // The saved copy lost the tag at which answers are split, and Python refuses an empty
    // separator.
    assert_eq!(set.render(saved, &answered, &json!({})).unwrap_err().message(), "empty separator");
}
