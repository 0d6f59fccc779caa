//! Tests compiling, choosing and rendering the templates of one model.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;

use crate::error::{Code, Result};
use crate::template::templates::sha256;
use crate::template::{LocalTime, RenderInput, Sources, Templates, Variables};

fn templates(default: Option<&str>, tool_use: Option<&str>) -> Templates {
    let sources = Sources {
        default: default.map(str::to_owned),
        tool_use: tool_use.map(str::to_owned),
        bos_token: "<s>".to_owned(),
        eos_token: "</s>".to_owned(),
        ..Sources::default()
    };
    Templates::compile(&sources).unwrap()
}

fn input<'a>(messages: &'a [serde_json::Value], kwargs: &'a serde_json::Value) -> RenderInput<'a> {
    let now = LocalTime::parse("2026-01-31T09:30:00").unwrap();
    RenderInput {
        add_generation_prompt: true,
        kwargs: kwargs.as_object(),
        ..RenderInput::new(messages, now)
    }
}

fn render(
    templates: &Templates,
    tools: &[serde_json::Value],
    kwargs: serde_json::Value,
) -> Result<String> {
    let messages = [json!({"role": "user", "content": "Hi"})];
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    templates.render(&RenderInput { tools, ..input(&messages, &kwargs) }).map(|prompt| prompt.text)
}

#[track_caller]
fn check(
    templates: &Templates,
    tools: &[serde_json::Value],
    kwargs: serde_json::Value,
    expected: &str,
) {
    assert_eq!(render(templates, tools, kwargs).unwrap(), expected);
}

#[test]
fn templates_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Templates>();
}

#[test]
fn the_built_in_template() {
    for default in [None, Some(""), Some("chatml")] {
        let templates = templates(default, None);
        check(
            &templates,
            &[],
            json!({}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        );
        assert_eq!(templates.variant(true), "chatml");
        assert_eq!(templates.sha256(), None);
        assert!(!templates.llama_cpp_caps().caps.tool_capable());
    }
}

#[test]
fn tools_choose_the_template() {
    let both = templates(Some("plain {{ tools }}"), Some("tools {{ tools|length }}"));
    check(&both, &[], json!({}), "plain None");
    check(&both, &[json!({})], json!({}), "tools 1");
    assert!(both.has_tool_use());
    assert_eq!(both.sha256(), Some(sha256("tools {{ tools|length }}")));
    let only = templates(None, Some("tools {{ tools }}"));
    check(&only, &[], json!({}), "tools None");
    assert_eq!(only.variant(false), "tool_use");
}

#[test]
fn a_broken_tool_use_template_is_left_out() {
    let templates = templates(Some("plain"), Some("{% if %}"));
    check(&templates, &[json!({})], json!({}), "plain");
    assert!(!templates.has_tool_use());
    assert_eq!(templates.lints()[0].code, "tool_use_template_ignored");
    assert_eq!(templates.sha256(), Some(sha256("plain")));
}

#[test]
fn a_broken_default_is_an_error() {
    let sources = Sources { default: Some("a\n{% if %}".to_owned()), ..Sources::default() };
    let error = Templates::compile(&sources).unwrap_err();
    assert_eq!(error.code(), Code::TemplateError);
    let details = error.details().unwrap();
    assert_eq!(
        (&details["kind"], &details["line"], &details["template"]),
        (&json!("syntax"), &json!(2), &json!("default"))
    );
}

#[test]
fn variables() {
    let templates = templates(Some("{{ bos_token }}{{ x }}{{ y is none }}{{ documents }}"), None);
    check(&templates, &[], json!({"x": [1], "y": null}), "<s>[1]TrueNone");
    check(&templates, &[], json!({"bos_token": "B"}), "BFalseNone");
    let error = render(&templates, &[], json!({"tools": []})).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    assert!(error.message().starts_with("chat_template_kwargs.tools: "));
}

#[test]
fn omitted_variables() {
    let templates =
        templates(Some("{{ bos_token }}{{ eos_token }}{{ strftime_now is defined }}"), None);
    let messages = [json!({"role": "user", "content": "Hi"})];
    let kwargs = json!({});
    let input = input(&messages, &kwargs);
    assert_eq!(templates.render(&input).unwrap().text, "<s></s>True");
    let variables = Variables { bos_token: false, eos_token: false, strftime_now: false };
    assert_eq!(templates.render(&RenderInput { variables, ..input }).unwrap().text, "False");
}

#[test]
fn a_refusal_keeps_its_message() {
    let error =
        render(&templates(Some("\n{{ raise_exception('No {x}!') }}"), None), &[], json!({}))
            .unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::TemplateError, "No {x}!"));
    assert_eq!(error.details().unwrap()["kind"], "raised");
}
