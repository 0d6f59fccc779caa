//! The tokens that must come next: the text that a grammar forces, as a tokenizer writes it.

use llguidance::Matcher;
use llguidance::toktrie::{SimpleVob, TokEnv, TokTrie, TokenId, parse_numeric_token};

/// The maximum length of the text that is tokenized, in bytes. A draft is shorter.
const MAX_BYTES: usize = 512;

/// The tokens of the text that must follow `before`, the last token. Empty if nothing is forced.
///
/// Another tokenization of the same text is allowed too, so the tokens are only likely. `matcher`
/// keeps the forced text, and allows the same tokens as before. Only its mask before a control token
/// is empty: use [`control_mask`].
pub(super) fn tokens(matcher: &mut Matcher, before: Option<TokenId>) -> Vec<TokenId> {
    let forced = matcher.compute_ff_bytes();
    match matcher.tok_env() {
        Ok(env) if !forced.is_empty() => tokenized(&env, before, &forced),
        _ => Vec::new(),
    }
}

/// The tokens of a text after the token `before`. A control token is a marker and its number.
pub(super) fn tokenized(env: &TokEnv, mut before: Option<TokenId>, text: &[u8]) -> Vec<TokenId> {
    let is_cut = text.len() > MAX_BYTES;
    let mut text = &text[..text.len().min(MAX_BYTES)];
    let mut tokens = Vec::new();
    while !text.is_empty() {
        if let Some(number) = text.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER]) {
            let Some((length, token)) = parse_numeric_token(number) else { break };
            tokens.push(token);
            text = &number[length..];
        } else {
            let is_marker = |byte: &u8| *byte == TokTrie::SPECIAL_TOKEN_MARKER;
            let end = text.iter().position(is_marker).unwrap_or(text.len());
            tokens.extend(tokenized_text(env, before, &text[..end]));
            text = &text[end..];
        }
        before = tokens.last().copied();
    }
    if is_cut {
        tokens.pop();
    }
    tokens
}

/// The tokens of a text without control tokens.
fn tokenized_text(env: &TokEnv, before: Option<TokenId>, text: &[u8]) -> Vec<TokenId> {
    let trie = env.tok_trie();
    // A tokenizer may write the beginning of a text in another way than its middle, so the token
    // before is included, and left out of the result.
    let mut whole = trie.decode_raw(before.as_slice());
    whole.extend_from_slice(text);
    let mut tokens = env.tokenize_bytes_marker(&whole).0;
    let mut length = 0;
    let begins = tokens.iter().rposition(|token| {
        length += trie.decode_raw(&[*token]).len();
        length >= text.len()
    });
    match begins {
        Some(begins) if length == text.len() => drop(tokens.drain(..begins)),
        // A tokenizer would not begin a token here.
        _ => tokens = trie.greedy_tokenize(text),
    }
    tokens
}

/// The mask of a control token, if that must come next. For a matcher that keeps forced text:
/// llguidance writes a control token in it by its number, which no token of the vocabulary matches.
pub(super) fn control_mask(matcher: &mut Matcher) -> Option<SimpleVob> {
    let forced = matcher.compute_ff_bytes();
    let number = forced.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER])?;
    let (_, token) = parse_numeric_token(number)?;
    Some(matcher.tok_env().ok()?.tok_trie().singleton_token_set(token))
}
