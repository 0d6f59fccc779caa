//! Renders a conversation to a prompt.

use std::borrow::Cow;

use serde_json::Map;

use super::compiled::CompiledTemplate;
use super::environment::{self, RenderCost};
use super::import::{self, ImportMode, Origins};
use super::{Failure, Limits, LocalTime, Polyfilled, Prompt, Span, continue_final_message};
use crate::api::{Polyfills, RESERVED_VARIABLES};
use crate::error::{Error, Result};
use crate::jinja::{Context, Rendered, Text, Value};

/// The variables that a template receives besides those of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables {
    /// Whether `bos_token` is the vocabulary's. If not, it is "".
    pub bos_token: bool,
    /// Whether `eos_token` is the vocabulary's. If not, it is "".
    pub eos_token: bool,
    /// Whether `strftime_now` is defined.
    pub strftime_now: bool,
}

impl Variables {
    /// The variables that a request's switches allow.
    pub fn of(polyfills: &Polyfills) -> Variables {
        Variables {
            bos_token: polyfills.use_bos_token,
            eos_token: polyfills.use_eos_token,
            strftime_now: polyfills.define_strftime_now,
        }
    }
}

impl Default for Variables {
    fn default() -> Self {
        Variables { bos_token: true, eos_token: true, strftime_now: true }
    }
}

/// One conversation to render.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// OpenAI-style messages.
    pub messages: &'a [serde_json::Value],
    /// The origins of the messages, if polyfills changed them.
    pub polyfilled: Option<&'a Polyfilled<'a>>,
    /// Declared tools. `None` differs from an empty list, which some templates print.
    pub tools: Option<&'a [serde_json::Value]>,
    /// Skills, for composed templates and any other template that reads the variable.
    pub skills: Option<&'a [serde_json::Value]>,
    /// Documents, for retrieval templates.
    pub documents: Option<&'a [serde_json::Value]>,
    /// Whether to end with the start of an assistant turn.
    pub add_generation_prompt: bool,
    /// Ends the prompt inside the last message, in the member with this name, usually `content`.
    pub continue_final_message: Option<&'a str>,
    /// Extra variables (`chat_template_kwargs`). They override everything except messages, tools
    /// and add_generation_prompt.
    pub kwargs: Option<&'a Map<String, serde_json::Value>>,
    /// The time that `strftime_now` prints.
    pub now: LocalTime,
    /// Whether to keep the messages unchanged, instead of preparing them like transformers.
    pub raw: bool,
    /// Whether to record the origin of each byte of the prompt.
    pub spans: bool,
    /// The variables besides those of the request.
    pub variables: Variables,
    /// The limits of the render.
    pub limits: Limits,
}

impl<'a> RenderInput<'a> {
    /// A render of these messages at this time, without tools or generation prompt. Everything else
    /// is as in transformers.
    pub fn new(messages: &'a [serde_json::Value], now: LocalTime) -> RenderInput<'a> {
        RenderInput {
            messages,
            polyfilled: None,
            tools: None,
            skills: None,
            documents: None,
            add_generation_prompt: false,
            continue_final_message: None,
            kwargs: None,
            now,
            raw: false,
            spans: false,
            variables: Variables::default(),
            limits: Limits::default(),
        }
    }
}

impl CompiledTemplate {
    /// Renders the input and passes the result and its cost to `observe`. `tokens` are the texts
    /// of the vocabulary's BOS and EOS tokens.
    pub(super) fn render(
        &self,
        input: &RenderInput<'_>,
        tokens: [&str; 2],
        observe: impl FnOnce(&Result<Rendered, Failure>, RenderCost),
    ) -> Result<Prompt> {
        let mut origins = Origins::default();
        let mut mode =
            if input.spans { ImportMode::Origins(&mut origins) } else { ImportMode::Plain };
        let tag = |member| continue_final_message::tag(input.messages, member, &self.source);
        let continued = input.continue_final_message.map(tag).transpose()?;
        let messages = continued.as_ref().map_or(input.messages, |continued| &continued.messages);
        let messages = self.host.messages(messages);
        let tools_yaml = self.host.tools_yaml(input.tools.unwrap_or_default());
        let variables = variables(input, tokens, &messages, tools_yaml.as_ref(), &mut mode)?;
        let now = input.now;
        let strftime_now: Box<dyn Fn(&str) -> String> =
            Box::new(move |format| now.strftime(format));
        let strftime_now = input.variables.strftime_now.then_some(strftime_now);
        let context = Context { variables, strftime_now, log: None };
        let (rendered, cost) = environment::render(&self.template, context, &input.limits);
        observe(&rendered, cost);
        let rendered = rendered.map_err(|failure| self.error(failure))?;
        let paths = origins.into_paths();
        let mut spans = Vec::with_capacity(rendered.marks.len());
        spans.extend(rendered.marks.iter().filter_map(|mark| {
            Some(Span {
                start: mark.start as usize,
                end: mark.end as usize,
                path: paths.get(mark.origin)?,
            })
        }));
        let mut prompt = Prompt { spans, text: rendered.text, generation: rendered.generation };
        if let Some(continued) = continued {
            continued.cut(&mut prompt)?;
        }
        Ok(prompt)
    }
}

/// The variables of a render.
fn variables(
    input: &RenderInput<'_>,
    [bos_token, eos_token]: [&str; 2],
    messages: &[serde_json::Value],
    tools_yaml: Option<&serde_json::Value>,
    mode: &mut ImportMode<'_>,
) -> Result<Vec<(Cow<'static, str>, Value)>> {
    let mut list = |items: Option<&[serde_json::Value]>, path| match items {
        Some(items) => import::list(items, path, mode),
        None => Value::None,
    };
    let (tools, documents) = (list(input.tools, "tools"), list(input.documents, "documents"));
    let token = |text: &str, used: bool| {
        Value::Text(Text::uncharged(if used { text } else { "" }, Vec::new()))
    };
    let nodes = input.polyfilled.and_then(Polyfilled::nodes);
    let mut variables = vec![
        ("messages".into(), import::messages(messages, nodes, input.raw, mode)),
        ("tools".into(), tools),
        ("documents".into(), documents),
        ("add_generation_prompt".into(), Value::Bool(input.add_generation_prompt)),
        ("bos_token".into(), token(bos_token, input.variables.bos_token)),
        ("eos_token".into(), token(eos_token, input.variables.eos_token)),
    ];
    // Templates test whether the variable is defined, so it is set only if there are skills.
    if let Some(skills) = input.skills {
        variables.push(("skills".into(), import::list(skills, "skills", mode)));
    }
    if let Some(yaml) = tools_yaml {
        variables.push(("tools_yaml".into(), import::value(yaml, "tools", mode)));
    }
    // Names of `chat_template_kwargs` are distinct, so they only replace these.
    let own = variables.len();
    for (key, json) in input.kwargs.into_iter().flatten() {
        let path = format!("chat_template_kwargs.{key}");
        if RESERVED_VARIABLES.contains(&key.as_str()) {
            return Err(Error::invalid(path, format!("set `{key}` of the request instead")));
        }
        let value = import::value(json, &path, mode);
        match variables[..own].iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => variables.push((key.clone().into(), value)),
        }
    }
    Ok(variables)
}
