//! Replies of llama.cpp in this process: prompt to tokens, schemas to a constraint, a job for the
//! engine.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::reasoning_budget as budget;
pub(super) mod overflow;
pub(super) mod state_file;
use super::source::{Foreseen, Order, Started, Updates, dropped_constraint, plain};
use crate::api::{ChatRequest, ResponseFormat, ToolChoice};
use crate::constraint::{self, CompiledGrammar, Constraint, Relaxed};
use crate::diagnostic::Diagnostic;
use crate::engine::{Job, Token, Tokenised};
use crate::error::{Code, Error, Result};
use crate::llama::LoadedModel;
use crate::output::Format;
use crate::template::Prompt;

/// A model in this process, and what its replies are marked with.
pub(super) struct Native {
    pub(super) model: Arc<LoadedModel>,
    /// Control tokens that the output format is written with.
    marks: Arc<[Token]>,
    /// What opens and closes reasoning, where that is known.
    reasoning: Option<[Arc<str>; 2]>,
    /// The grammar of the last reply.
    last: Mutex<Option<Grammar>>,
}

/// The grammar of a reply, and what it was made for: tools are mostly those of the request before.
struct Grammar {
    tools: String,
    choice: ToolChoice,
    parallel: bool,
    response: Option<ResponseFormat>,
    own: Option<String>,
    reasoning_open: bool,
    /// None constrains nothing.
    lark: Option<String>,
    relaxed: Vec<Relaxed>,
}

impl Grammar {
    /// Whether this order has the same.
    fn is_of(&self, order: &Order) -> bool {
        let request = order.request;
        request.tools_text() == Some(&self.tools)
            && request.tool_choice == self.choice
            && request.parallel_tool_calls == self.parallel
            && request.response_format == self.response
            && request.grammar == self.own
            && order.reasoning_open == self.reasoning_open
    }
}

/// What the tokens of a reply must obey.
struct Held {
    grammar: Option<String>,
    constraint: Option<Constraint>,
    diagnostics: Vec<Value>,
}

impl Native {
    /// A model whose replies have this format.
    pub(super) fn new(model: Arc<LoadedModel>, format: Option<&Format>) -> Native {
        let special = model.engine.vocab().special_tokens();
        let texts = format.map(Format::texts).unwrap_or_default();
        let marks = texts
            .into_iter()
            .flat_map(|text| special.controls_in(text))
            .map(|(_, token)| token)
            .collect();
        let reasoning = format
            .and_then(Format::reasoning_tags)
            .map(|(open, close)| [open.into(), close.into()]);
        Native { model, marks, reasoning, last: Mutex::default() }
    }
}

/// Gives the engine a job.
pub(super) fn start(native: &Native, order: &Order) -> Result<Started> {
    let Native { model, marks, reasoning, .. } = native;
    let request = order.request;
    let prompt_tokens = order.tokens.len();
    let Held { constraint, diagnostics, .. } = hold(native, order)?;
    let vocab = model.engine.vocab();
    let reasoning = match reasoning {
        Some(tags) => Some(budget::reasoning(
            tags,
            order.reasoning_open,
            request.reasoning_budget,
            vocab.as_ref(),
        )?),
        None => None,
    };
    let held = constraint.is_some();
    let (updates, received) = channel();
    model.engine.submit(Job {
        chat: order.chat,
        prompt: order.tokens.to_vec(),
        max_tokens: request.max_tokens,
        sampling: request.sampling.clone(),
        stop: request.stop.clone(),
        constraint,
        reasoning,
        logprobs: request.logprobs,
        visible: Arc::clone(marks),
        reuse_prefix: request.cache_prompt,
        cancel: order.cancel.clone(),
        deadline: order.deadline,
        updates,
    })?;
    Ok(Started {
        updates: Updates::Native { received, vocab: vocab.clone(), prompt_tokens },
        held,
        judged: held && !request.tool_choice.forces_call(),
        diagnostics,
    })
}

/// What a request would be.
pub(super) fn foresee(native: &Native, order: &Order) -> Result<Foreseen> {
    let (model, tokens) = (&native.model, order.tokens);
    let Held { grammar, diagnostics, .. } = hold(native, order)?;
    let special = model.engine.vocab().special_tokens();
    let controls = tokens.iter().filter_map(|token| special.control(*token)).map(str::to_owned);
    Ok(Foreseen {
        prompt_tokens: Some(tokens.len()),
        special_tokens: Some(controls.collect()),
        tokens_left: Some(model.n_ctx.saturating_sub(tokens.len())),
        grammar,
        diagnostics,
    })
}

/// Prompt to tokens. Special tokens are those that the template wrote: what stands in messages,
/// tools and documents is text. BOS is prepended where the vocabulary wants one and the prompt has
/// none.
///
/// `before` is a prompt of the same model and its tokens, of which as much as can be is used again.
pub(super) fn tokenise(
    model: &LoadedModel,
    request: &ChatRequest,
    prompt: &Prompt,
    before: Option<(&str, &Tokenised)>,
) -> Result<Tokenised> {
    let vocab = model.engine.vocab();
    let plain = plain(request, prompt);
    let mut tokenised =
        vocab.special_tokens().tokenize(vocab.as_ref(), &prompt.text, plain, before)?;
    if let Some(bos) = vocab.required_bos()
        && tokenised.tokens.first() != Some(&bos)
    {
        tokenised.prepend(bos);
    }
    if tokenised.tokens.is_empty() {
        return Err(Error::invalid("messages", "the prompt they make has no tokens"));
    }
    Ok(tokenised)
}

/// What the reply is held to. Where nothing forces it, a grammar that cannot be enforced is left
/// out, and said so.
fn hold(native: &Native, order: &Order) -> Result<Held> {
    let request = order.request;
    let wanted = order.wanted();
    let strict = |tool: &Value| tool["function"]["strict"] == true;
    let forced = request.tool_choice.forces_call()
        || wanted.grammar.is_some()
        || request.tools.iter().any(strict);
    match compile(native, order) {
        Ok(compiled) => Ok(Held {
            grammar: compiled.lark,
            constraint: compiled.constraint,
            diagnostics: compiled
                .relaxed
                .iter()
                .map(|relaxed| Diagnostic::from(relaxed).to_json())
                .collect(),
        }),
        Err(error)
            if error.code() == Code::SchemaUnsupported
                && !forced
                && wanted.response_format.is_none() =>
        {
            Ok(Held {
                grammar: None,
                constraint: None,
                diagnostics: vec![dropped_constraint(&error).to_json()],
            })
        }
        Err(error) => Err(error),
    }
}

/// The grammar of the reply: the last one, where nothing it is made of has changed.
fn compile(native: &Native, order: &Order) -> Result<CompiledGrammar> {
    let Native { model, last, .. } = native;
    // Not held while a grammar compiles, which may take a second.
    let last = || last.lock().unwrap_or_else(PoisonError::into_inner);
    let same = last()
        .as_ref()
        .filter(|last| last.is_of(order))
        .map(|last| (last.lark.clone(), last.relaxed.clone()));
    if let Some((lark, relaxed)) = same {
        let constraint = lark.as_deref().map(|lark| model.grammars.compile(lark)).transpose()?;
        return Ok(CompiledGrammar { lark, constraint, relaxed });
    }
    let special = model.engine.vocab().special_tokens();
    let format = order.profile.format();
    let compiled = constraint::compile(&model.grammars, format, &order.wanted(), &|text| {
        special.controls_in(text)
    })?;
    let request = order.request;
    *last() = request.tools_text().map(|tools| Grammar {
        tools: tools.to_owned(),
        choice: request.tool_choice.clone(),
        parallel: request.parallel_tool_calls,
        response: request.response_format.clone(),
        own: request.grammar.clone(),
        reasoning_open: order.reasoning_open,
        lark: compiled.lark.clone(),
        relaxed: compiled.relaxed.clone(),
    });
    Ok(compiled)
}
