//! The option `cache_dir`: decides which prefix of a prompt is read from disk, and which prefixes
//! are written.
//!
//! A prefix ends where prompts differ from each other. One ends before the first message that is
//! not a system message; other conversations share it. The other ends before the opening of the
//! reply, where the next turn of this conversation continues. It is written if it is at least a
//! quarter longer than the longest stored one, so all files of a conversation together have only a
//! few times the size of the last.

use crate::api::{AdapterScales, ChatRequest};
use crate::engine::{OPENING, TokenId, TokenizedPrompt, Vocab};
use crate::error::Code;
use crate::llama::{LoadedModel, PrefixStore};
use crate::template::{Prompt, Span};

/// The minimum number of tokens in a file, alone or in addition to a shorter prefix.
const MIN: usize = 64;

/// What was read from disk for a request, and what to write.
#[derive(Debug, Default)]
pub(super) struct StoredPrefix {
    /// The number of tokens that were read because they were not in memory.
    pub(super) read: usize,
    /// The lengths of the prefixes to write.
    pub(super) lengths: Vec<usize>,
}

impl StoredPrefix {
    /// Reads the longest stored prefix of this prompt, if it is longer than the one in memory. A
    /// prefix that cannot be read is computed instead.
    pub(super) fn read(
        store: &PrefixStore,
        (chat, model): (u64, &LoadedModel),
        tokens: &[TokenId],
        adapters: &AdapterScales,
        boundary: usize,
    ) -> StoredPrefix {
        let mut prompt = store.find(model, tokens, adapters);
        let mut read = 0;
        while prompt.longest() > 0 {
            let held = model.engine.look_up(chat, tokens.to_vec(), adapters.clone());
            let Ok(held) = held else { break };
            let Some(kept) = store.read(model, &mut prompt, held.cached) else { break };
            let length = kept.tokens.len();
            match model.engine.restore(chat, kept) {
                Ok(()) => {
                    read = length;
                    break;
                }
                // Other requests need the space in the KV cache.
                Err(error) if error.code() == Code::Busy => break,
                Err(error) => store.refuse(&mut prompt, error.message()),
            }
        }
        let lengths = lengths_to_write(boundary, tokens.len(), prompt.longest());
        StoredPrefix { read, lengths }
    }
}

/// The lengths of the prefixes to write. `tokens` is the length of the prompt, and `longest` that
/// of its longest prefix on disk.
fn lengths_to_write(boundary: usize, tokens: usize, longest: usize) -> Vec<usize> {
    let opening = tokens.saturating_sub(OPENING);
    let mut before = longest;
    let mut lengths = Vec::new();
    for length in [boundary, opening] {
        if length <= opening && length >= before + MIN.max(before / 4) {
            lengths.push(length);
            before = length;
        }
    }
    lengths
}

/// How many tokens of a prompt precede its first message that is not a system message. The result
/// may be slightly smaller, because the last of these tokens may depend on the text that follows.
pub(super) fn end_of_system(
    request: &ChatRequest,
    prompt: &Prompt,
    tokenized: &TokenizedPrompt,
    vocab: &dyn Vocab,
) -> usize {
    let is_system =
        |message: &serde_json::Value| message["role"] == "system" || message["role"] == "developer";
    let first = request.messages.iter().position(|message| !is_system(message));
    let Some(first) = first else { return 0 };
    let path = format!("messages[{first}].");
    let span = prompt.spans.iter().find(|span: &&Span| span.path.starts_with(&path));
    let Some(end) = span.map(|span| span.start) else { return 0 };
    let (mut tokens, mut at) = tokenized.boundary_before(end);
    let certain = tokens;
    for token in &tokenized.tokens[tokens..] {
        at += vocab.piece(*token, true).len();
        if at > end {
            break;
        }
        tokens += 1;
    }
    // If another text followed, the last token might be a different one.
    tokens.saturating_sub(1).max(certain)
}

#[cfg(test)]
mod tests {
    use super::lengths_to_write;

    #[test]
    fn a_conversation_writes_a_file_when_it_has_grown_by_a_quarter() {
        assert_eq!(lengths_to_write(100, 400, 0), [100, 384]);
        // Both prefixes exist.
        assert_eq!(lengths_to_write(100, 400, 384), [0; 0]);
        // Another conversation with the same system message.
        assert_eq!(lengths_to_write(100, 400, 100), [384]);
        // The next turns.
        assert_eq!(lengths_to_write(100, 495, 384), [0; 0]);
        assert_eq!(lengths_to_write(100, 496, 384), [480]);
        // Too short for one file, or for a second one.
        assert_eq!(lengths_to_write(40, 79, 0), [0; 0]);
        assert_eq!(lengths_to_write(40, 80, 0), [64]);
        assert_eq!(lengths_to_write(100, 150, 0), [100]);
        // The question is shorter than the opening.
        assert_eq!(lengths_to_write(100, 110, 0), [94]);
    }
}
