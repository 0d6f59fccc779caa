//! Converts pairs of a query and a document to tokens: by the template of the file, or with the
//! tokens that the vocabulary puts around texts.

use std::ops::Range;
use std::sync::Arc;

use super::texts::{TextLimit, TextTokenizer, TokenizedTexts, TruncatedText, about, too_long};
use crate::engine::{Interrupt, TokenId};
use crate::error::{Code, Error, Result};

const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";

/// How a model expects a query and a document.
pub(super) enum PairFormat {
    /// A text with `{query}` and `{document}` (llama.cpp, `tokenizer.chat_template.rerank`).
    Template(Arc<str>),
    /// `[CLS] query [SEP] document [SEP]`, or the equivalent in the vocabulary.
    Enclosed,
}

impl PairFormat {
    /// The format given by the file's template. Without a template, `Enclosed`.
    pub(super) fn of(template: Option<&str>) -> PairFormat {
        template.map_or(PairFormat::Enclosed, |text| PairFormat::Template(text.into()))
    }

    /// The tokens of each pair of `query` and a document.
    pub(super) fn pairs(
        &self,
        tokenizer: &TextTokenizer,
        query: &str,
        documents: &[String],
        limit: TextLimit,
        interrupt: &Interrupt,
    ) -> Result<TokenizedTexts> {
        let mut pairs = TokenizedTexts::default();
        for (index, document) in documents.iter().enumerate() {
            let pair = |document: &str| {
                let tokens = self.pair(tokenizer, query, document, interrupt);
                tokens.map_err(|error| about(error, &format!("documents[{index}]")))
            };
            let mut tokens = pair(document)?;
            let n_tokens = tokens.len();
            if n_tokens > limit.n_ctx {
                if !limit.truncate {
                    let with = " with the query";
                    return Err(too_long("documents", index, n_tokens, with, limit.n_ctx));
                }
                let mut kept = document.as_str();
                while tokens.len() > limit.n_ctx {
                    if kept.is_empty() {
                        return Err(Error::new(
                            Code::ContextOverflow,
                            format!(
                                "query: has {} tokens with what the model puts around it, but the \
                                 context has {}; shorten it",
                                tokens.len(),
                                limit.n_ctx
                            ),
                        ));
                    }
                    kept = shortened(kept, tokens.len(), limit.n_ctx);
                    tokens = pair(kept)?;
                }
                pairs.truncated.push(TruncatedText { index, tokens: n_tokens });
            }
            pairs.push("documents", tokens)?;
        }
        Ok(pairs)
    }

    fn pair(
        &self,
        tokenizer: &TextTokenizer,
        query: &str,
        document: &str,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        match self {
            PairFormat::Enclosed => tokenizer.pair(query, document, interrupt),
            PairFormat::Template(template) => {
                let (prompt, plain) = fill(template, query, document);
                tokenizer.prompt(&prompt, plain, interrupt)
            }
        }
    }
}

/// Puts both texts into the template. Returns the result and the ranges of the texts. Placeholders
/// inside a text are not replaced.
fn fill(template: &str, query: &str, document: &str) -> (String, Vec<Range<usize>>) {
    let (mut prompt, mut plain) = (String::new(), Vec::new());
    let mut rest = template;
    let next = |rest: &str| {
        let found = [(QUERY, query), (DOCUMENT, document)];
        let found = found.map(|(name, text)| rest.find(name).map(|at| (at, name, text)));
        found.into_iter().flatten().min_by_key(|(at, ..)| *at)
    };
    while let Some((at, name, text)) = next(rest) {
        prompt.push_str(&rest[..at]);
        plain.push(prompt.len()..prompt.len() + text.len());
        prompt.push_str(text);
        rest = &rest[at + name.len()..];
    }
    prompt.push_str(rest);
    if plain.is_empty() {
        // An empty list would mean that no text of the prompt is plain.
        plain.push(prompt.len()..prompt.len());
    }
    (prompt, plain)
}

/// Cuts a text so that it should have at most `most` tokens. `tokens` is how many it has now.
fn shortened(text: &str, tokens: usize, most: usize) -> &str {
    // The estimate assumes tokens of equal length. The text gets shorter in any case.
    let share = text.len() as f64 * most as f64 / tokens as f64;
    let kept = (share as usize).min(text.len().saturating_sub(1));
    let kept = (0..=kept).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..kept]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_once() {
        let check = |template: &str, prompt: &str, plain: &[&str]| {
            let (found, ranges) = fill(template, "q {document}", "d {query}");
            assert_eq!(found, prompt);
            let texts: Vec<&str> = ranges.into_iter().map(|range| &found[range]).collect();
            assert_eq!(texts, plain);
        };
        check(
            "Q: {query} D: {document}.",
            "Q: q {document} D: d {query}.",
            &["q {document}", "d {query}"],
        );
        check("{document}{query}", "d {query}q {document}", &["d {query}", "q {document}"]);
        check("neither", "neither", &[""]);
    }

    #[test]
    fn texts_get_shorter_until_they_fit() {
        let mut text = "äöü".repeat(100);
        let mut steps = 0;
        while text.chars().count() > 10 {
            let shorter = shortened(&text, text.chars().count(), 10).to_owned();
            assert!(shorter.len() < text.len());
            text = shorter;
            steps += 1;
        }
        assert!(steps < 5 && text.chars().count() >= 8, "{steps} {text}");
        assert_eq!(shortened("a", 100, 99), "");
    }
}
