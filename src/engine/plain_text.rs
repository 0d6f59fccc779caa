//! Keeps control tokens out of plain text.
//!
//! Tokenizers can write a control token for text that merely spells it: merges reach `</s>`, RWKV
//! matches `<s>`, a word of the pre-tokenizer is `[EOT]`. In: such a text. Out: tokens of the same
//! text, cut inside each spelling so that no reserved token appears. The caller has found a reserved
//! token in it.

use std::collections::HashMap;

use super::backend::TokenId;
use super::interrupt::Interrupt;
use crate::error::{Code, Error, Result};

/// The functions of a vocabulary that plain text needs.
pub(crate) trait PlainVocab {
    /// The tokens of a text, which may include reserved ones.
    fn raw_tokens(&self, text: &str) -> Result<Vec<TokenId>>;

    /// Whether only the template may write the token.
    fn is_reserved(&self, token: TokenId) -> bool;

    /// Whether the token stands for text that the vocabulary cannot represent.
    fn is_unknown(&self, token: TokenId) -> bool;

    /// The texts that the tokenizer may turn into the token.
    fn spellings(&self, token: TokenId) -> Vec<String>;

    /// The text of tokens.
    fn text_of(&self, tokens: &[TokenId]) -> Vec<u8>;

    /// The token for this byte.
    fn byte_token(&self, byte: u8) -> Option<TokenId>;
}

/// Text to put before a part. A tokenizer that adds a space to each text then adds it there and not
/// to the part.
const BEFORE_PART: [&str; 5] = [".", "\n", "x", "0", "|"];

/// Tokenizes a text whose tokens contain a reserved one.
pub(crate) fn without_reserved(
    vocab: &dyn PlainVocab,
    text: &str,
    tokens: Vec<TokenId>,
    interrupt: &Interrupt,
) -> Result<Vec<TokenId>> {
    let mut written = Vec::with_capacity(tokens.len());
    // A repeated spelling leads to the same parts again.
    let mut known: HashMap<&str, Vec<TokenId>> = HashMap::new();
    let mut pending = vec![(text, tokens)];
    while let Some((part, tokens)) = pending.pop() {
        interrupt.check()?;
        let reserved = reserved_in(vocab, part, &tokens);
        if reserved.is_empty() {
            written.extend(tokens);
            continue;
        }
        let cuts = cuts_in(vocab, part, &reserved);
        if cuts.is_empty() {
            written.extend(byte_tokens(vocab, part)?);
            continue;
        }
        let ends = cuts.iter().copied().chain([part.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let mut parts = Vec::with_capacity(cuts.len() + 1);
        for (start, end) in starts.zip(ends) {
            interrupt.check()?;
            let inner = &part[start..end];
            let tokens = match known.get(inner) {
                Some(tokens) => tokens.clone(),
                None => {
                    let first = written.is_empty() && parts.is_empty();
                    let tokens =
                        if first { vocab.raw_tokens(inner)? } else { continued(vocab, inner)? };
                    if !first {
                        known.insert(inner, tokens.clone());
                    }
                    tokens
                }
            };
            parts.push((inner, tokens));
        }
        pending.extend(parts.into_iter().rev());
    }
    Ok(written)
}

/// The distinct reserved tokens of a part. The token for unknown text counts only if the text
/// spells it.
fn reserved_in(vocab: &dyn PlainVocab, part: &str, tokens: &[TokenId]) -> Vec<TokenId> {
    let mut reserved: Vec<TokenId> =
        tokens.iter().copied().filter(|token| vocab.is_reserved(*token)).collect();
    reserved.sort_unstable();
    reserved.dedup();
    let is_spelt = |token| vocab.spellings(token).iter().any(|text| part.contains(text.as_str()));
    reserved.retain(|token| !vocab.is_unknown(*token) || is_spelt(*token));
    reserved
}

/// Positions inside each spelling of the tokens. If the tokenizer has changed the text so that no
/// spelling is found, the middle of the text. Empty for a single character.
fn cuts_in(vocab: &dyn PlainVocab, part: &str, reserved: &[TokenId]) -> Vec<usize> {
    let next = |place: usize| place + part[place..].chars().next().map_or(1, char::len_utf8);
    let mut cuts = Vec::new();
    for spelling in reserved.iter().flat_map(|token| vocab.spellings(*token)) {
        let mut from = 0;
        while spelling.chars().nth(1).is_some()
            && let Some(found) = part[from..].find(&spelling)
        {
            // Another spelling may begin inside this one.
            from = next(from + found);
            cuts.push(from);
        }
    }
    if cuts.is_empty() {
        let middle = part.char_indices().map(|(place, _)| place).find(|at| *at >= part.len() / 2);
        let middle = middle.filter(|at| *at > 0).or_else(|| Some(next(0)));
        cuts.extend(middle.filter(|at| *at < part.len()));
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// The tokens of a part that is not at the beginning of a text. Some tokenizers add a space to each
/// text; this avoids that space where possible.
fn continued(vocab: &dyn PlainVocab, part: &str) -> Result<Vec<TokenId>> {
    let tokens = vocab.raw_tokens(part)?;
    if vocab.text_of(&tokens) == part.as_bytes() {
        return Ok(tokens);
    }
    for before in BEFORE_PART {
        let alone = vocab.raw_tokens(before)?;
        let both = vocab.raw_tokens(&format!("{before}{part}"))?;
        if let Some(after) = both.strip_prefix(alone.as_slice())
            && vocab.text_of(after) == part.as_bytes()
        {
            return Ok(after.to_vec());
        }
    }
    Ok(tokens)
}

fn byte_tokens(vocab: &dyn PlainVocab, character: &str) -> Result<Vec<TokenId>> {
    let tokens: Option<Vec<TokenId>> =
        character.bytes().map(|byte| vocab.byte_token(byte)).collect();
    let tokens = tokens.filter(|tokens| !tokens.iter().any(|token| vocab.is_reserved(*token)));
    tokens.ok_or_else(|| no_token(character))
}

/// The error for a character that the vocabulary cannot represent.
pub(crate) fn no_token(character: &str) -> Error {
    Error::new(
        Code::InvalidRequest,
        format!(
            "messages: this model's vocabulary has no token for {character:?}, or only a \
             control token; leave the character out"
        ),
    )
}
