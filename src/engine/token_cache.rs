//! Caches the tokens of texts. Each request repeats the messages of its conversation, and llama.cpp
//! takes a microsecond or more per token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::backend::TokenId;
use crate::error::Result;
use crate::sync::lock;

/// The maximum size of a generation in bytes of text. A conversation that fills a context of 32,768
/// tokens fits.
const MAX_BYTES: usize = 256 * 1024;

/// Caches the tokens of recent texts. May be used from any thread.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<Generations>);

/// The current and the previous generation. A text that is used again moves to the current one.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<[TokenId]>>,
    old: HashMap<Box<str>, Arc<[TokenId]>>,
    /// The size of the texts in `young`, in bytes.
    bytes: usize,
}

impl TokenCache {
    /// The tokens of a text, from the cache or by `tokenize`. Errors are not cached.
    pub(crate) fn tokens(
        &self,
        text: &str,
        tokenize: impl FnOnce() -> Result<Vec<TokenId>>,
    ) -> Result<Vec<TokenId>> {
        if text.len() > MAX_BYTES / 4 {
            return tokenize();
        }
        if let Some(tokens) = lock(&self.0).find(text) {
            return Ok(tokens.to_vec());
        }
        // The lock is not held here, so other threads can tokenize.
        let tokens = tokenize()?;
        lock(&self.0).keep(text.into(), tokens.as_slice().into());
        Ok(tokens)
    }
}

impl Generations {
    fn find(&mut self, text: &str) -> Option<Arc<[TokenId]>> {
        if let Some(tokens) = self.young.get(text) {
            return Some(Arc::clone(tokens));
        }
        let (text, tokens) = self.old.remove_entry(text)?;
        self.keep(text, Arc::clone(&tokens));
        Some(tokens)
    }

    fn keep(&mut self, text: Box<str>, tokens: Arc<[TokenId]>) {
        if self.bytes + text.len() > MAX_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += text.len();
        self.young.insert(text, tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Code, Error};

    /// Whether the cache had to call `tokenize`.
    fn asks(cache: &TokenCache, text: &str) -> bool {
        let mut asked = false;
        let tokens = cache.tokens(text, || {
            asked = true;
            Ok(text.bytes().map(TokenId::from).collect())
        });
        assert_eq!(tokens.expect("tokens"), text.bytes().map(TokenId::from).collect::<Vec<_>>());
        asked
    }

    #[test]
    fn a_text_is_tokenized_once() {
        let cache = TokenCache::default();
        assert_eq!([asks(&cache, "a"), asks(&cache, "b"), asks(&cache, "a")], [true, true, false]);
    }

    #[test]
    fn an_error_is_not_cached() {
        let cache = TokenCache::default();
        assert!(cache.tokens("a", || Err(Error::new(Code::InferenceFailed, "no"))).is_err());
        assert!(asks(&cache, "a"));
    }

    #[test]
    fn it_holds_at_most_two_generations_and_keeps_used_texts() {
        let cache = TokenCache::default();
        let text = |number: usize| format!("{number:>1000}");
        for number in 0..2000 {
            assert!(asks(&cache, &text(number)), "{number}");
            assert_eq!(asks(&cache, "used every time"), number == 0);
            let generations = lock(&cache.0);
            let held: usize =
                generations.young.keys().chain(generations.old.keys()).map(|text| text.len()).sum();
            assert!(held <= 2 * MAX_BYTES, "{held}");
        }
        assert!(asks(&cache, &text(0)), "long gone");
        assert!(!asks(&cache, &text(1999)));
        let long = "x".repeat(MAX_BYTES);
        assert_eq!([asks(&cache, &long), asks(&cache, &long)], [true, true], "too long to be kept");
    }
}
