//! Requests with `prompt` instead of `messages`: the prompt is the text itself, or the tokens. Only
//! the spellings around the parts of a text with a gap are llb's own.

use crate::api::{ChatRequest, PlainPrompt};
use crate::engine::Vocab;
use crate::error::{Error, Result};
use crate::template::{Prompt, Span};

/// The prompt of a request that has `prompt`; None if it has messages.
pub(super) fn render(
    request: &ChatRequest,
    fill_spellings: &dyn Fn() -> Option<[String; 3]>,
) -> Result<Option<Prompt>> {
    let Some(PlainPrompt::Text { prompt, suffix }) = &request.plain else {
        // The text of tokens is added where the vocabulary is known.
        return Ok(request.plain.is_some().then(|| written(&[])));
    };
    let Some(suffix) = suffix else {
        return Ok(Some(written(&[(prompt.as_str(), Some("prompt"))])));
    };
    let Some([before, after, gap]) = fill_spellings() else {
        let problem = "this model has no tokens for text with a gap; leave `suffix` out, or use a \
                       model that was trained to fill in the middle";
        return Err(Error::invalid("suffix", problem));
    };
    Ok(Some(written(&[
        (before.as_str(), None),
        (prompt.as_str(), Some("prompt")),
        (after.as_str(), None),
        (suffix.as_str(), Some("suffix")),
        (gap.as_str(), None),
    ])))
}

/// A prompt of parts, each with the member that it comes from.
fn written(parts: &[(&str, Option<&str>)]) -> Prompt {
    let (mut text, mut spans) = (String::new(), Vec::new());
    for (part, path) in parts {
        let start = text.len();
        text.push_str(part);
        let path = path.filter(|_| !part.is_empty());
        spans.extend(path.map(|path| Span { start, end: text.len(), path: path.into() }));
    }
    Prompt { text, spans, generation: Vec::new() }
}

/// The tokens of a request that has them as its prompt, and their text.
pub(super) fn given_tokens(
    request: &ChatRequest,
    vocab: &dyn Vocab,
) -> Result<Option<(Vec<i32>, Prompt)>> {
    let Some(PlainPrompt::Tokens(tokens)) = &request.plain else {
        return Ok(None);
    };
    if tokens.is_empty() {
        return Err(Error::invalid("prompt", "has no tokens"));
    }
    let n_tokens = vocab.len();
    let unknown = |token: &i32| usize::try_from(*token).map_or(true, |token| token >= n_tokens);
    if let Some(index) = tokens.iter().position(unknown) {
        let problem = format!("the model has tokens from 0 to {}", n_tokens.saturating_sub(1));
        return Err(Error::invalid(format!("prompt[{index}]"), problem));
    }
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| vocab.piece(*token, true)).collect();
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some((tokens.clone(), written(&[(&*text, Some("prompt"))]))))
}
