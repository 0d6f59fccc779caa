//! Tokens of texts that were tokenised before: the messages of a conversation come again with each
//! of its requests, and llama.cpp takes a microsecond or more for each token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::backend::TokenId;
use crate::error::Result;

/// Bytes of text in one generation. A conversation that fills a context of 32,768 tokens fits.
const MOST_BYTES: usize = 256 * 1024;

/// Remembers what was asked last. May be used by any thread.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<Generations>);

/// What was asked since the last one filled up, and what that one held: whatever is asked again is
/// in the younger one.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<[TokenId]>>,
    old: HashMap<Box<str>, Arc<[TokenId]>>,
    /// Of the young one.
    bytes: usize,
}

impl TokenCache {
    /// The tokens of a text, by `tokenize` where they are not known. Errors are not remembered.
    pub(crate) fn tokens(
        &self,
        text: &str,
        tokenize: impl FnOnce() -> Result<Vec<TokenId>>,
    ) -> Result<Vec<TokenId>> {
        if text.len() > MOST_BYTES / 4 {
            return tokenize();
        }
        if let Some(tokens) = self.lock().find(text) {
            return Ok(tokens.to_vec());
        }
        // Not under the lock: others tokenise meanwhile.
        let tokens = tokenize()?;
        self.lock().keep(text.into(), tokens.as_slice().into());
        Ok(tokens)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.bytes + text.len() > MOST_BYTES {
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

    /// Whether the cache had to ask.
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
    fn what_was_asked_is_not_asked_again() {
        let cache = TokenCache::default();
        assert_eq!([asks(&cache, "a"), asks(&cache, "b"), asks(&cache, "a")], [true, true, false]);
    }

    #[test]
    fn an_error_is_not_remembered() {
        let cache = TokenCache::default();
        assert!(cache.tokens("a", || Err(Error::new(Code::InferenceFailed, "no"))).is_err());
        assert!(asks(&cache, "a"));
    }

    #[test]
    fn it_holds_two_generations_at_most_and_what_is_in_use() {
        let cache = TokenCache::default();
        let text = |number: usize| format!("{number:>1000}");
        for number in 0..2000 {
            assert!(asks(&cache, &text(number)), "{number}");
            assert_eq!(asks(&cache, "used every time"), number == 0);
            let generations = cache.lock();
            let held: usize =
                generations.young.keys().chain(generations.old.keys()).map(|text| text.len()).sum();
            assert!(held <= 2 * MOST_BYTES, "{held}");
        }
        assert!(asks(&cache, &text(0)), "long gone");
        assert!(!asks(&cache, &text(1999)));
        let long = "x".repeat(MOST_BYTES);
        assert_eq!([asks(&cache, &long), asks(&cache, &long)], [true, true], "too long to be kept");
    }
}
