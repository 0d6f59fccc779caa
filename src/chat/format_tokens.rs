//! What the engine must know of a chat's output format: the control tokens that its text shows, and
//! the tags of reasoning.

use std::sync::Arc;

use crate::api::ChatRequest;
use crate::engine::{Interrupt, ReasoningOptions, SpecialTokens, TokenId, Vocab};
use crate::error::{Error, Result};
use crate::output::{Format, families};

/// The tokens and tags of one output format.
pub(super) struct FormatTokens {
    /// Control tokens that the output format contains.
    visible: Arc<[TokenId]>,
    /// Like `visible`, plus the control tokens in the calls of every family.
    visible_with_calls: Arc<[TokenId]>,
    /// The special tokens that may begin a call of any family.
    pub(super) special_openings: Arc<[String]>,
    /// The opening and the closing tag of reasoning, if they are known.
    reasoning_tags: Option<[Arc<str>; 2]>,
}

impl FormatTokens {
    pub(super) fn new(format: Option<&Format>, special: &SpecialTokens) -> FormatTokens {
        let texts = format.map(Format::texts).unwrap_or_default();
        let controls = |texts: &[&str]| -> Vec<TokenId> {
            let found = texts.iter().flat_map(|text| special.controls_in(text));
            found.map(|(_, token)| token).collect()
        };
        let visible = controls(&texts);
        let markers = families::call_markers();
        let of_calls = controls(&markers.iter().map(String::as_str).collect::<Vec<_>>());
        let special_openings = markers.iter().filter(|text| special.contains(text));
        FormatTokens {
            visible_with_calls: visible.iter().copied().chain(of_calls).collect(),
            visible: visible.into(),
            special_openings: special_openings.cloned().collect(),
            reasoning_tags: format
                .and_then(Format::reasoning_tags)
                .map(|(open, close)| [open.into(), close.into()]),
        }
    }

    /// The control tokens whose text a reply to this request shows.
    pub(super) fn visible(&self, request: &ChatRequest) -> Arc<[TokenId]> {
        if request.plain.is_some() {
            return Arc::default();
        }
        Arc::clone(match request.tools.is_empty() {
            true => &self.visible,
            false => &self.visible_with_calls,
        })
    }

    /// The tags of the model's reasoning, its budget, and the tokens that end it. `None` if the
    /// tags are unknown. `inside` is true if the prompt ends inside reasoning. `n_ctx` is the size of
    /// the context.
    pub(super) fn reasoning(
        &self,
        (vocab, n_ctx): (&dyn Vocab, usize),
        request: &ChatRequest,
        inside: bool,
        interrupt: &Interrupt,
    ) -> Result<Option<ReasoningOptions>> {
        let tags = self.reasoning_tags.as_ref().filter(|_| request.plain.is_none());
        let Some([open, close]) = tags else {
            return Ok(None);
        };
        let message = &request.output.reasoning_budget_message;
        if message.contains(&**close) {
            let problem = format!("contains {close:?}, which ends the reasoning; leave it out");
            return Err(Error::invalid("reasoning_budget_message", problem));
        }
        // Text from a request never becomes special tokens.
        let mut ending = vocab
            .tokenize(message, false, interrupt)
            .map_err(|error| error.about("reasoning_budget_message"))?;
        if ending.len() >= n_ctx {
            let tokens = ending.len();
            let problem = format!("has {tokens} tokens, but the context has {n_ctx}; shorten it");
            return Err(Error::invalid("reasoning_budget_message", problem));
        }
        ending.extend(vocab.tokenize(close, true, interrupt)?);
        Ok(Some(ReasoningOptions {
            open: Arc::clone(open),
            close: Arc::clone(close),
            inside,
            budget: request.output.reasoning_budget,
            ending,
        }))
    }
}
