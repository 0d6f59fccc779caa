//! Ends drafts that a model makes where it is not sure.

use crate::engine::backend::TokenId;

/// A draft ends before a token that is less likely than this.
const MIN_PROBABILITY: f32 = 0.5;

/// The likeliest token; `None` if its probability is too low.
pub(super) fn confident(logits: &[f32]) -> Option<TokenId> {
    let (token, best) = logits.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let others: f32 = logits.iter().map(|logit| (logit - best).exp()).sum();
    (1.0 / others >= MIN_PROBABILITY).then_some(token as TokenId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_likely_tokens_are_drafted() {
        assert_eq!(confident(&[0.0, 5.0, 1.0]), Some(1));
        assert_eq!(confident(&[1.0, 1.0, 1.0]), None);
        assert_eq!(confident(&[0.0, f32::NAN]), None);
        assert_eq!(confident(&[]), None);
    }
}
