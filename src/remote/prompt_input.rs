//! A prompt -> what the server is fed, so that no text of a message becomes a special token.
//!
//! Nearly always the prompt goes as text, and the server's tokeniser finds the special tokens that
//! the template wrote. Where a message spells one, the prompt is cut up and tokenised by the
//! server's `/tokenize`: llama.cpp's can be told that a text holds none; for vLLM the spelling is
//! cut in two.

use std::ops::Range;

use serde_json::{Value, json};

use super::body::PromptInput;
use super::fault::CallError;
use super::http::CallLimits;
use super::special_spellings::FoundSpelling;
use super::{Remote, ServerInfo};
use crate::api::ServerKind;
use crate::error::Error;

/// Bytes of an answer with the tokens of a prompt.
const MOST_BYTES: usize = 64 << 20;

impl Remote {
    /// How many tokens a prompt has; None where the server cannot tell.
    pub fn count(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        until: &CallLimits,
    ) -> Result<Option<usize>, CallError> {
        let known = self.known(until)?;
        if known.kind == ServerKind::OpenAi {
            return Ok(None);
        }
        let fed = self.feed(prompt, plain, until)?;
        match &fed.prompt {
            Value::Array(tokens) => Ok(Some(tokens.len())),
            Value::String(text) => {
                Ok(Some(self.tokenize(&known, text, fed.add_special, true, until)?.len()))
            }
            _ => Ok(None),
        }
    }

    /// What to send for a prompt. `plain` is what the request wrote of it, in order; empty lets it
    /// spell special tokens.
    pub(super) fn feed(
        &self,
        prompt: &str,
        plain: &[Range<usize>],
        until: &CallLimits,
    ) -> Result<PromptInput, CallError> {
        let known = self.known(until)?;
        let found = self.specials.found(prompt, plain);
        let mut foreign = Vec::new();
        for found in found.iter().filter(|found| found.foreign) {
            if known.kind == ServerKind::OpenAi
                || self.control(&prompt[found.range.clone()], until)?.is_some()
            {
                foreign.push(found);
            }
        }
        let begins_with_bos = known.bos_text.as_deref().is_some_and(|bos| prompt.starts_with(bos));
        match (foreign.first(), known.kind) {
            (None, ServerKind::Llama) => {
                // It puts its BOS in front whatever the text begins with.
                let bos = known.bos_text.as_deref().filter(|_| begins_with_bos && !known.bos.is_empty());
                Ok(PromptInput { prompt: prompt[bos.map_or(0, str::len)..].into(), add_special: true })
            }
            (None, _) => Ok(PromptInput { prompt: prompt.into(), add_special: !begins_with_bos }),
            (Some(_), ServerKind::Llama) => self.feed_llama(&known, prompt, &found, until),
            (Some(_), ServerKind::Vllm) => self.feed_vllm(&known, prompt, &foreign, !begins_with_bos, until),
            (Some(first), ServerKind::OpenAi) => Err(Error::invalid(
                "messages",
                format!(
                    "special_tokens_in_messages: they spell the special token {:?}, and this server cannot be told that it is \
                     text; take it out, or allow it by `parse_special_in_messages`",
                    &prompt[first.range.clone()]
                ),
            )
            .into()),
        }
    }

    /// As in this process: the template's special tokens by number, all between them as text.
    fn feed_llama(
        &self,
        known: &ServerInfo,
        prompt: &str,
        found: &[FoundSpelling],
        until: &CallLimits,
    ) -> Result<PromptInput, CallError> {
        let mut tokens = Vec::new();
        let mut done = 0;
        for FoundSpelling { range, .. } in found.iter().filter(|found| !found.foreign) {
            let Some(token) = self.control(&prompt[range.clone()], until)? else { continue };
            if range.start > done {
                tokens.extend(self.tokenize(
                    known,
                    &prompt[done..range.start],
                    false,
                    false,
                    until,
                )?);
            }
            tokens.push(token);
            done = range.end;
        }
        if done < prompt.len() {
            tokens.extend(self.tokenize(known, &prompt[done..], false, false, until)?);
        }
        if !tokens.starts_with(&known.bos) {
            tokens.splice(0..0, known.bos.iter().copied());
        }
        Ok(PromptInput { prompt: json!(tokens), add_special: false })
    }

    /// Cut inside of what a message spells: neither half is a special token.
    fn feed_vllm(
        &self,
        known: &ServerInfo,
        prompt: &str,
        foreign: &[&FoundSpelling],
        add_bos: bool,
        until: &CallLimits,
    ) -> Result<PromptInput, CallError> {
        let mut tokens = Vec::new();
        let mut done = 0;
        let cuts = foreign.iter().map(|found| {
            let first = prompt[found.range.clone()].chars().next().map_or(0, char::len_utf8);
            found.range.start + first
        });
        for cut in cuts.chain([prompt.len()]) {
            tokens.extend(self.tokenize(
                known,
                &prompt[done..cut],
                add_bos && done == 0,
                true,
                until,
            )?);
            done = cut;
        }
        Ok(PromptInput { prompt: json!(tokens), add_special: false })
    }

    /// The number of a control token; None for a text that is none. A word of the vocabulary means
    /// the same wherever it stands.
    pub fn control(&self, spelling: &str, until: &CallLimits) -> Result<Option<i64>, CallError> {
        let cached = self
            .controls
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .get(spelling)
            .copied();
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let known = self.known(until)?;
        let one = |tokens: Vec<i64>| {
            Some(tokens)
                .filter(|tokens| tokens.len() == 1)
                .and_then(|tokens| tokens.first().copied())
        };
        let special = one(self.tokenize(&known, spelling, false, true, until)?);
        let word = match known.kind {
            ServerKind::Llama if special.is_some() => {
                one(self.tokenize(&known, spelling, false, false, until)?)
            }
            _ => None,
        };
        let control = special.filter(|_| special != word);
        self.controls
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(spelling.to_owned(), control);
        Ok(control)
    }

    fn tokenize(
        &self,
        known: &ServerInfo,
        text: &str,
        add_special: bool,
        parse_special: bool,
        until: &CallLimits,
    ) -> Result<Vec<i64>, CallError> {
        let body = match known.kind {
            ServerKind::Llama => {
                json!({ "content": text, "add_special": add_special, "parse_special": parse_special })
            }
            _ => json!({ "model": known.model, "prompt": text, "add_special_tokens": add_special }),
        };
        let (answer, server) = self.ask("/tokenize", Some(body), MOST_BYTES, until)?;
        let tokens = answer["tokens"]
            .as_array()
            .map(|tokens| tokens.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>());
        match tokens.flatten() {
            Some(tokens) => Ok(tokens),
            None => {
                Err(super::fault::failed(&server, "its /tokenize answers without `tokens`").into())
            }
        }
    }
}
