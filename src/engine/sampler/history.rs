//! The recent tokens of a sequence, including its prompt, for penalties and DRY.

use std::collections::VecDeque;

use crate::engine::backend::TokenId;

/// The last tokens up to a maximum number, and how often each occurs.
#[derive(Debug)]
pub(super) struct TokenHistory {
    most: usize,
    tokens: VecDeque<TokenId>,
    /// How often each token occurs, sorted by token.
    counts: Vec<(TokenId, u32)>,
}

impl TokenHistory {
    /// Keeps the last `most` tokens, at least 1.
    pub(super) fn new(most: usize) -> TokenHistory {
        TokenHistory { most, tokens: VecDeque::new(), counts: Vec::new() }
    }

    pub(super) fn push(&mut self, token: TokenId) {
        if self.tokens.len() >= self.most
            && let Some(oldest) = self.tokens.pop_front()
            && let Ok(place) = self.counts.binary_search_by_key(&oldest, |(id, _)| *id)
        {
            self.counts[place].1 -= 1;
            if self.counts[place].1 == 0 {
                self.counts.remove(place);
            }
        }
        self.tokens.push_back(token);
        match self.counts.binary_search_by_key(&token, |(id, _)| *id) {
            Ok(place) => self.counts[place].1 += 1,
            Err(place) => self.counts.insert(place, (token, 1)),
        }
    }

    /// How often each token occurs, sorted by token.
    pub(super) fn counts(&self) -> &[(TokenId, u32)] {
        &self.counts
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The token `places` places before the last one.
    pub(super) fn before_last(&self, places: usize) -> TokenId {
        self.tokens[self.tokens.len() - 1 - places]
    }
}
