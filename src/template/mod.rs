//! Chat templates: messages -> prompt, as Hugging Face transformers 5.x renders it, and what a template can carry.
//!
//! In: the Jinja source of a model file, messages, tools, the time. Out: the prompt, or an error with its kind and line, and
//! the capability flags. Never reads files, the network or (but for [`LocalTime::now`]) the clock, and never prints.

mod calls;
mod caps;
mod clock;
mod content;
mod details;
mod effort;
mod env;
mod evidence;
mod example;
mod failure;
mod filters;
mod frame;
mod generation_prompt;
mod limits;
mod methods;
mod minja;
mod namespace;
pub mod polyfill;
mod prepare;
mod probe;
mod prober;
mod reasoning;
mod roles;
mod source;
mod switches;
mod template_caps;
mod tojson;
mod traits;
mod turns;
mod value;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod conformance_caps;

use std::sync::OnceLock;

use minijinja::Environment;
use minijinja::value::Value;
use serde_json::Map;
use sha2::{Digest, Sha256};

pub use caps::{Caps, CapsReport};
pub use clock::LocalTime;
pub use evidence::{Evidence, Status};
pub use failure::Failure;
pub use limits::Limits;
pub use source::Sources;
pub use traits::{
    Arguments, Details, Effort, Fate, NoContent, ReasoningCell, ReasoningFormat, Switch, TemplateCaps, Traits, WithCalls,
};

use crate::error::{Error, Result};
use prober::Prober;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";
const CHATML: &str = "chatml";

/// Variables that a caller's extra variables may not replace: the request itself says what they are.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Something about a template that is not an error but that its user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Stable, for programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// The compiled templates of one model: its default, and its tool_use template when it has one.
#[derive(Debug)]
pub struct Templates {
    env: Environment<'static>,
    limits: Limits,
    bos_token: String,
    eos_token: String,
    /// What requests without tools are rendered with.
    default: &'static str,
    tool_use: bool,
    sha256: Option<String>,
    findings: Vec<Finding>,
    caps: OnceLock<CapsReport>,
    traits: OnceLock<(Traits, Vec<(&'static str, Evidence)>)>,
}

/// One conversation to render.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// OpenAI-style messages.
    pub messages: &'a [serde_json::Value],
    /// Declared tools; an empty list is the same as None.
    pub tools: Option<&'a [serde_json::Value]>,
    /// Documents for retrieval templates; an empty list is the same as None.
    pub documents: Option<&'a [serde_json::Value]>,
    /// End with the start of an assistant turn.
    pub add_generation_prompt: bool,
    /// Extra variables (`chat_template_kwargs`); they override everything but messages, tools and add_generation_prompt.
    pub kwargs: Option<&'a Map<String, serde_json::Value>>,
    /// What `strftime_now` tells.
    pub now: LocalTime,
    /// Leave the messages as they are, instead of preparing them as transformers does.
    pub raw: bool,
}

impl Templates {
    /// Compiles what the file has, or the built-in ChatML when it has nothing.
    ///
    /// A default that does not parse is `TEMPLATE_ERROR` with `{"kind":"syntax","line","template":"default"}`; a tool_use
    /// template that does not parse is left out, with a finding.
    pub fn compile(sources: &Sources, limits: &Limits) -> Result<Templates> {
        let mut env = env::environment(limits);
        let mut findings = Vec::new();
        let mut tool_use = sources.own_tool_use();
        if let Some(text) = tool_use
            && let Err(failure) = env::add(&mut env, TOOL_USE, text)
        {
            let line = failure.line.map_or_else(String::new, |line| format!(" at line {line}"));
            let message = format!("the tool_use template is ignored: {}{line}", failure.message);
            findings.push(Finding { code: "tool_use_template_ignored", message });
            tool_use = None;
        }
        let default = match sources.own_default() {
            Some(text) => {
                env::add(&mut env, DEFAULT, text).map_err(|failure| failure.into_error(DEFAULT))?;
                DEFAULT
            }
            None if tool_use.is_some() => TOOL_USE,
            None => {
                env::add(&mut env, CHATML, source::CHATML).map_err(|failure| failure.into_error(CHATML))?;
                CHATML
            }
        };
        Ok(Templates {
            env,
            limits: *limits,
            bos_token: sources.bos_token.clone(),
            eos_token: sources.eos_token.clone(),
            default,
            tool_use: tool_use.is_some(),
            sha256: tool_use.or(sources.own_default()).map(sha256),
            findings,
            caps: OnceLock::new(),
            traits: OnceLock::new(),
        })
    }

    /// The prompt, with the tool_use template when there is one and tools are given, else with the default.
    ///
    /// `TEMPLATE_ERROR` or `TEMPLATE_LIMIT` with `{"kind","line","template"}`; what the template refuses by
    /// `raise_exception` has kind `raised` and the template's own words as its message.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String> {
        let has_tools = input.tools.is_some_and(|tools| !tools.is_empty());
        let template = self.variant(has_tools);
        let root = self.root(input)?;
        env::render(&self.env, template, root, &self.limits).map_err(|failure| failure.into_error(template))
    }

    fn root(&self, input: &RenderInput<'_>) -> Result<Value> {
        let list = |items: Option<&[serde_json::Value]>| match items {
            Some(items) if !items.is_empty() => Value::from(items.iter().map(value::from_json).collect::<Vec<_>>()),
            _ => Value::from(()),
        };
        let messages: Vec<Value> = match input.raw {
            true => input.messages.iter().map(value::from_json).collect(),
            false => input.messages.iter().map(|message| value::from_json(&prepare::message(message))).collect(),
        };
        let mut root = vec![
            ("messages", Value::from(messages)),
            ("tools", list(input.tools)),
            ("documents", list(input.documents)),
            ("add_generation_prompt", Value::from(input.add_generation_prompt)),
            ("bos_token", Value::from(self.bos_token.as_str())),
            ("eos_token", Value::from(self.eos_token.as_str())),
            ("strftime_now", env::strftime_now(input.now)),
        ];
        for (name, json) in input.kwargs.into_iter().flatten() {
            if RESERVED.contains(&name.as_str()) {
                let path = format!("chat_template_kwargs.{name}");
                return Err(Error::invalid(path, "this variable is set by the request itself"));
            }
            root.push((name, value::from_json(json)));
        }
        Ok(Value::from_pairs(root))
    }

    /// Which template a request is rendered with: `default`, `tool_use`, or `chatml` (the built-in one).
    pub fn variant(&self, has_tools: bool) -> &'static str {
        if has_tools && self.tool_use { TOOL_USE } else { self.default }
    }

    /// Whether there is a tool_use template that parses.
    pub fn has_tool_use(&self) -> bool {
        self.tool_use
    }

    /// SHA-256, in hex, of the source that [`caps`](Self::caps) is about, as stored in the file; None for the built-in one.
    pub fn sha256(&self) -> Option<String> {
        self.sha256.clone()
    }

    /// What the template can carry; of the tool_use template when there is one. Probed at the first call.
    pub fn caps(&self) -> &CapsReport {
        self.caps.get_or_init(|| caps::report(self.prober()))
    }

    /// What the template does with each part of a conversation, and why that is believed; of the tool_use template when
    /// there is one. Probed at the first call.
    pub fn traits(&self) -> &(Traits, Vec<(&'static str, Evidence)>) {
        self.traits.get_or_init(|| template_caps::report(self.prober()))
    }

    /// The sixteen flags as minja's own algorithm finds them; null where that cannot be computed. Probed at every call.
    pub fn minja_caps(&self) -> Map<String, serde_json::Value> {
        minja::minja_caps(&self.prober())
    }

    /// How many renders it takes to probe.
    #[cfg(test)]
    fn count_probes(&self) -> u32 {
        let prober = self.prober();
        let renders = prober.count();
        template_caps::report(prober);
        renders.get()
    }

    fn prober(&self) -> Prober {
        Prober::new(&self.env, self.variant(true), &self.limits)
    }

    /// What was noticed while compiling.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;
    use crate::error::Code;

    fn templates(default: Option<&str>, tool_use: Option<&str>) -> Templates {
        let sources = Sources {
            default: default.map(str::to_owned),
            tool_use: tool_use.map(str::to_owned),
            bos_token: "<s>".to_owned(),
            eos_token: "</s>".to_owned(),
        };
        Templates::compile(&sources, &Limits::default()).unwrap()
    }

    fn render(templates: &Templates, tools: &[serde_json::Value], kwargs: serde_json::Value) -> Result<String> {
        templates.render(&RenderInput {
            messages: &[json!({"role": "user", "content": "Hi"})],
            tools: Some(tools),
            documents: None,
            add_generation_prompt: true,
            kwargs: kwargs.as_object(),
            now: LocalTime::parse("2026-01-31T09:30:00").unwrap(),
            raw: false,
        })
    }

    #[track_caller]
    fn check(templates: &Templates, tools: &[serde_json::Value], kwargs: serde_json::Value, expected: &str) {
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
            check(&templates, &[], json!({}), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
            assert_eq!(templates.variant(true), "chatml");
            assert_eq!(templates.sha256(), None);
            assert!(!templates.caps().caps.tool_capable());
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
        assert_eq!(templates.findings()[0].code, "tool_use_template_ignored");
        assert_eq!(templates.sha256(), Some(sha256("plain")));
    }

    #[test]
    fn a_broken_default_is_an_error() {
        let sources = Sources { default: Some("a\n{% if %}".to_owned()), ..Sources::default() };
        let error = Templates::compile(&sources, &Limits::default()).unwrap_err();
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
    fn a_refusal_keeps_its_words() {
        let error = render(&templates(Some("\n{{ raise_exception('No {x}!') }}"), None), &[], json!({})).unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::TemplateError, "No {x}!"));
        assert_eq!(error.details().unwrap()["kind"], "raised");
    }
}
