//! Converts texts of a request to tokens, with the tokens that the model expects around a text.

use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

use crate::engine::{Interrupt, TokenId, Vocab};
use crate::error::{Code, Error, Result};
use crate::llama::LlamaVocab;

/// The most tokens of all texts of a request, each of four bytes.
const MAX_TOKENS: usize = 16 << 20;

/// Tokenizes whole texts. No text can spell a reserved token.
pub(super) struct TextTokenizer {
    vocab: Arc<LlamaVocab>,
    /// The tokens before and after each text.
    before: Vec<TokenId>,
    after: Vec<TokenId>,
    /// An additional token between two texts.
    between: Option<TokenId>,
}

/// The maximum length of texts, and what to do with longer ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLimit {
    /// The maximum number of tokens in a text.
    pub(super) n_ctx: usize,
    /// Whether to cut longer texts. Otherwise they are an error.
    pub(super) truncate: bool,
}

/// A text that was cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TruncatedText {
    /// The index of the text in the request.
    pub index: usize,
    /// How many tokens the text had.
    pub tokens: usize,
}

/// The texts of a request.
#[derive(Default)]
pub(super) struct TokenizedTexts {
    pub(super) tokens: Vec<Vec<TokenId>>,
    pub(super) truncated: Vec<TruncatedText>,
    n_tokens: usize,
}

impl TokenizedTexts {
    /// The number of tokens in all texts.
    pub(super) fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Adds the next text of the member `list`. `INVALID_REQUEST` if there are too many tokens: a
    /// prefix or a query that is put before each text makes many of a short request.
    pub(super) fn push(&mut self, list: &str, tokens: Vec<TokenId>) -> Result<()> {
        self.n_tokens += tokens.len();
        if self.n_tokens > MAX_TOKENS {
            let count = self.tokens.len() + 1;
            let problem = format!(
                "the first {count} texts have {} tokens with what is put around them, more than \
                 {MAX_TOKENS}; send them in several calls",
                self.n_tokens
            );
            return Err(Error::invalid(list, problem));
        }
        self.tokens.push(tokens);
        Ok(())
    }
}

impl TextTokenizer {
    pub(super) fn new(vocab: Arc<LlamaVocab>) -> Result<TextTokenizer> {
        let [before, after] = vocab.enclosing()?;
        let between = vocab.pair_separator();
        Ok(TextTokenizer { vocab, before, after, between })
    }

    /// The tokens of each text of `input`, with `prefix` before each.
    pub(super) fn texts(
        &self,
        input: &[String],
        prefix: &str,
        limit: TextLimit,
        interrupt: &Interrupt,
    ) -> Result<TokenizedTexts> {
        let mut texts = TokenizedTexts::default();
        for (index, text) in input.iter().enumerate() {
            let path = || format!("input[{index}]");
            let inner = match prefix {
                "" => self.plain(text, interrupt),
                prefix => self.plain(&format!("{prefix}{text}"), interrupt),
            };
            let mut inner = inner.map_err(|error| about(error, &path()))?;
            let around = self.before.len() + self.after.len();
            let n_tokens = inner.len() + around;
            if n_tokens == 0 {
                return Err(Error::invalid(path(), "is empty, and has no tokens in this model"));
            }
            if n_tokens > limit.n_ctx {
                if !limit.truncate {
                    return Err(too_long("input", index, n_tokens, "", limit.n_ctx));
                }
                inner.truncate(limit.n_ctx.saturating_sub(around));
                texts.truncated.push(TruncatedText { index, tokens: n_tokens });
            }
            texts.push("input", [&*self.before, &inner, &self.after].concat())?;
        }
        Ok(texts)
    }

    /// The tokens of two texts, joined as the vocabulary prescribes.
    pub(super) fn pair(
        &self,
        first: &str,
        second: &str,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        if self.after.is_empty() && self.between.is_none() {
            let message = "the model file has no template of a query and a document \
                           (tokenizer.chat_template.rerank), and its vocabulary no token between \
                           two texts";
            return Err(Error::new(Code::ModelInvalid, message));
        }
        let (first, second) = (self.plain(first, interrupt)?, self.plain(second, interrupt)?);
        let between: &[TokenId] = self.between.as_slice();
        let parts = [&self.before, &first, &*self.after, between, &second, &self.after];
        Ok(parts.concat())
    }

    /// The tokens of a prompt, without tokens around it. The `plain` ranges never become reserved
    /// tokens.
    pub(super) fn prompt(
        &self,
        text: &str,
        plain: Vec<Range<usize>>,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        interrupt.check()?;
        let vocab: &dyn Vocab = &*self.vocab;
        Ok(vocab.special_tokens().tokenize(vocab, text, plain, None, interrupt)?.tokens)
    }

    fn plain(&self, text: &str, interrupt: &Interrupt) -> Result<Vec<TokenId>> {
        let whole = std::iter::once(0..text.len()).collect();
        self.prompt(text, whole, interrupt)
    }
}

/// Replaces the path in an error of the tokenizer, which names the messages of a chat.
pub(super) fn about(error: Error, path: &str) -> Error {
    match error.message().strip_prefix("messages: ") {
        Some(rest) => {
            let message = format!("{path}: {rest}");
            error.with_message(message)
        }
        None => error,
    }
}

/// The error for text `index` of the member `list`. `with` says what its tokens include.
pub(super) fn too_long(
    list: &str,
    index: usize,
    n_tokens: usize,
    with: &str,
    n_ctx: usize,
) -> Error {
    let message = format!(
        "{list}[{index}]: has {n_tokens} tokens{with}, but the context has {n_ctx}; shorten it, set \
         `truncate` to true, or open the model with a larger n_ctx, if it can have one"
    );
    Error::new(Code::ContextOverflow, message)
        .with("index", index)
        .with("n_tokens", n_tokens)
        .with("n_ctx", n_ctx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_request_are_limited() {
        let mut texts = TokenizedTexts::default();
        let half = || vec![1; MAX_TOKENS / 2];
        texts.push("documents", half()).expect("half of them");
        texts.push("documents", half()).expect("all of them");
        assert_eq!(texts.n_tokens(), MAX_TOKENS);
        let error = texts.push("documents", vec![1]).expect_err("one too many");
        assert_eq!(error.code(), Code::InvalidRequest);
        let message = "documents: the first 3 texts have 16777217 tokens";
        assert!(error.message().starts_with(message), "{}", error.message());
    }
}
