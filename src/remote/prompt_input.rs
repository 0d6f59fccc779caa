//! Converts a prompt to the server's input so that no text of a message becomes a special token.
//!
//! Most prompts are sent as text, and the server's tokenizer finds the special tokens of the
//! template. If a message spells a special token, the prompt is split and tokenized with the
//! server's `/tokenize`. llama.cpp's server can treat text as plain. For vLLM the spelling is
//! split.

use std::ops::Range;
use std::sync::PoisonError;

use serde_json::{Value, json};

use super::body::PromptInput;
use super::fault::{self, CallError};
use super::http::CallLimits;
use super::special_spellings::FoundSpelling;
use super::{Missing, Remote, ServerInfo};
use crate::api::ServerKind;
use crate::error::Error;

/// The maximum number of bytes of a response with the tokens of a prompt.
const MAX_BYTES: usize = 64 << 20;

impl Remote {
    /// The number of tokens of a prompt; `None` if the server cannot count them. `plain` lists the
    /// ranges of the prompt that the request wrote, in order. Without it, any text may spell
    /// special tokens.
    pub fn count_tokens(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        limits: &CallLimits,
    ) -> Result<Option<usize>, CallError> {
        let known = self.known(limits)?;
        if known.kind == ServerKind::OpenAi {
            return Ok(None);
        }
        let input = self.prompt_input(prompt, plain, limits)?;
        match &input.prompt {
            Value::Array(tokens) => Ok(Some(tokens.len())),
            Value::String(text) => {
                Ok(Some(self.tokenize(&known, text, input.add_special, true, limits)?.len()))
            }
            _ => Ok(None),
        }
    }

    /// The input to send for a prompt. `plain` is described at [`Remote::count_tokens`].
    pub(super) fn prompt_input(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        limits: &CallLimits,
    ) -> Result<PromptInput, CallError> {
        let known = self.known(limits)?;
        let found = self.specials.find(prompt, plain);
        let mut from_request = Vec::new();
        for found in found.iter().filter(|found| found.from_request) {
            if known.kind == ServerKind::OpenAi
                || self.control(&prompt[found.range.clone()], limits)?.is_some()
            {
                from_request.push(found);
            }
        }
        let begins_with_bos = known.bos_text.as_deref().is_some_and(|bos| prompt.starts_with(bos));
        match (from_request.first(), known.kind) {
            (None, ServerKind::Llama) => {
                // This server prepends BOS even if the text begins with it.
                let bos = known.bos_text.as_deref().filter(|_| begins_with_bos && !known.bos.is_empty());
                Ok(PromptInput { prompt: prompt[bos.map_or(0, str::len)..].into(), add_special: true })
            }
            (None, _) => Ok(PromptInput { prompt: prompt.into(), add_special: !begins_with_bos }),
            (Some(_), ServerKind::Llama) => self.llama_input(&known, prompt, &found, limits),
            (Some(_), ServerKind::Vllm) => self.vllm_input(&known, prompt, &from_request, !begins_with_bos, limits),
            (Some(first), ServerKind::OpenAi) => Err(Error::invalid(
                "messages",
                format!(
                    "special_tokens_in_messages: they spell the special token {:?}, which this server cannot treat as text; \
                     remove it, or allow it with `parse_special_in_messages`",
                    &prompt[first.range.clone()]
                ),
            )
            .into()),
        }
    }

    /// Special tokens of the template as ids, and the text between them tokenized as plain text.
    fn llama_input(
        &self,
        known: &ServerInfo,
        prompt: &str,
        found: &[FoundSpelling],
        limits: &CallLimits,
    ) -> Result<PromptInput, CallError> {
        let plain_tokens = |text: &str| self.tokenize(known, text, false, false, limits);
        let mut tokens = Vec::new();
        let mut done = 0;
        for FoundSpelling { range, .. } in found.iter().filter(|found| !found.from_request) {
            let Some(token) = self.control(&prompt[range.clone()], limits)? else { continue };
            if range.start > done {
                tokens.extend(plain_tokens(&prompt[done..range.start])?);
            }
            tokens.push(token);
            done = range.end;
        }
        if done < prompt.len() {
            tokens.extend(plain_tokens(&prompt[done..])?);
        }
        if !tokens.starts_with(&known.bos) {
            tokens.splice(0..0, known.bos.iter().copied());
        }
        Ok(PromptInput { prompt: json!(tokens), add_special: false })
    }

    /// Splits spellings in text of the request so that neither half is a special token.
    fn vllm_input(
        &self,
        known: &ServerInfo,
        prompt: &str,
        from_request: &[&FoundSpelling],
        add_bos: bool,
        limits: &CallLimits,
    ) -> Result<PromptInput, CallError> {
        let mut tokens = Vec::new();
        let mut done = 0;
        let cuts = from_request.iter().map(|found| {
            let first = prompt[found.range.clone()].chars().next().map_or(0, char::len_utf8);
            found.range.start + first
        });
        for cut in cuts.chain([prompt.len()]) {
            let (text, is_first) = (&prompt[done..cut], done == 0);
            tokens.extend(self.tokenize(known, text, add_bos && is_first, true, limits)?);
            done = cut;
        }
        Ok(PromptInput { prompt: json!(tokens), add_special: false })
    }

    /// The id of the control token with this spelling; `None` for other text. A normal token is not
    /// a control token, because it means the same in a message.
    pub fn control(&self, spelling: &str, limits: &CallLimits) -> Result<Option<i64>, CallError> {
        let controls = || self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = controls().get(spelling).copied() {
            return Ok(cached);
        }
        let known = self.known(limits)?;
        let one = |tokens: Vec<i64>| <[i64; 1]>::try_from(tokens).ok().map(|[token]| token);
        let special = one(self.tokenize(&known, spelling, false, true, limits)?);
        let word = match known.kind {
            ServerKind::Llama if special.is_some() => {
                one(self.tokenize(&known, spelling, false, false, limits)?)
            }
            _ => None,
        };
        let control = special.filter(|_| special != word);
        controls().insert(spelling.to_owned(), control);
        Ok(control)
    }

    fn tokenize(
        &self,
        known: &ServerInfo,
        text: &str,
        add_special: bool,
        parse_special: bool,
        limits: &CallLimits,
    ) -> Result<Vec<i64>, CallError> {
        let body = match known.kind {
            ServerKind::Llama => {
                json!({ "content": text, "add_special": add_special, "parse_special": parse_special })
            }
            _ => json!({ "model": known.model, "prompt": text, "add_special_tokens": add_special }),
        };
        let (answer, server) =
            self.ask("/tokenize", Some(body), MAX_BYTES, Missing::Fails, limits)?;
        let tokens = answer["tokens"]
            .as_array()
            .map(|tokens| tokens.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>());
        let missing = || fault::failed(&server, "its /tokenize response has no `tokens`").into();
        tokens.flatten().ok_or_else(missing)
    }
}
