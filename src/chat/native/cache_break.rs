//! Reports how much of a prompt the KV cache holds, and why it does not hold more: what differs
//! from the last request of the chat.

use serde_json::Value;

use super::NativeSource;
use super::last_request::LastRequest;
use crate::api::ChatRequest;
use crate::chat::source::{CacheBreak, GenerationRequest};
use crate::engine::{TokenId, Vocab};
use crate::error::Result;
use crate::template::{Prompt, Span};

impl NativeSource {
    /// The number of prompt tokens in the KV cache. If the prompt does not continue the cached
    /// conversation of this chat, also where it breaks off and why.
    pub(super) fn cache_use(
        &self,
        generation: &GenerationRequest,
    ) -> Result<(usize, Option<CacheBreak>)> {
        let GenerationRequest { request, prompt, truncation, .. } = generation;
        let tokens = &generation.tokenized.tokens;
        let broken = |at_token, because: &str| {
            Some(CacheBreak { at_token, because: because.to_owned(), path: None })
        };
        if !request.prompt.cache_prompt {
            return Ok((0, broken(0, "cache_prompt is false")));
        }
        let adapters = self.adapters(request)?;
        let model = self.model()?;
        let held = model.engine.look_up(self.chat, tokens.clone(), adapters.clone())?;
        let cached = held.cached;
        // The last token is always computed, because its logits are needed.
        let reusable = tokens.len() - 1;
        if cached >= reusable || held.own.is_some_and(|(kept, _)| kept <= cached) {
            return Ok((cached, None));
        }
        let Some(last) = self.last_request.get() else {
            return Ok((cached, broken(cached, "first request of this chat")));
        };
        if last.adapters != adapters {
            let because = "the adapters differ from those of the last request, and what was \
                           computed with them is of no use to others";
            let path = request.output.lora.is_some().then(|| "lora".to_owned());
            return Ok((
                cached,
                Some(CacheBreak { at_token: cached, because: because.to_owned(), path }),
            ));
        }
        let last_tokens = &last.tokenized.tokens;
        let common =
            last_tokens.iter().zip(&tokens[..reusable]).take_while(|(a, b)| a == b).count();
        if cached < common {
            let evicted = "evicted: another request needed the space, or the last reply was \
                           longer than the context, or this model's memory cannot be cut at this \
                           token";
            return Ok((cached, broken(cached, evicted)));
        }
        let next = NextRequest { request, prompt };
        let byte = || byte_of(tokens, cached, &prompt.text, model.engine.vocab().as_ref());
        let (because, path) =
            if last.dropped.as_ref() != truncation.as_ref().map(|truncation| &truncation.dropped) {
                let because = "context_overflow leaves out other messages than in the last request";
                (because.to_owned(), next.path_from(byte()))
            } else if common < last_tokens.len() && !prompt.text.starts_with(&last.text) {
                last.difference_in_prompt(&next)
            } else {
                last.difference_in_reply(&next, byte())
            };
        Ok((cached, Some(CacheBreak { at_token: cached, because, path })))
    }
}

/// The request that is compared with the last one.
struct NextRequest<'a> {
    request: &'a ChatRequest,
    prompt: &'a Prompt,
}

impl NextRequest<'_> {
    /// The first member of the request whose text in the prompt is at or after this byte.
    fn path_from(&self, byte: usize) -> Option<String> {
        self.prompt.spans.iter().find(|span| span.end > byte).map(|span| span.path.to_string())
    }

    fn renders(&self, path: &str) -> bool {
        self.prompt.spans.iter().any(|span| &*span.path == path)
    }
}

/// The member of the request that this byte of a prompt came from. None for the template's own
/// text.
fn path_at(spans: &[Span], byte: usize) -> Option<&str> {
    spans.iter().find(|span| (span.start..span.end).contains(&byte)).map(|span| &*span.path)
}

impl LastRequest {
    /// Why a prompt differs from this one before its end, and the member that causes the
    /// difference.
    fn difference_in_prompt(&self, next: &NextRequest) -> (String, Option<String>) {
        let (old, new) = (self.text.as_bytes(), next.prompt.text.as_bytes());
        let byte = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        // The member that wrote the text at this byte, or the next one after it.
        let here = self.spans.iter().find(|span| span.end > byte);
        if let Some(gone) = here.filter(|span| !next.renders(&span.path)) {
            let sent = has_member(next.request, &gone.path);
            let why = if sent { "is not rendered any more" } else { "is not in this request" };
            return (format!("{} {why}", gone.path), Some(gone.path.to_string()));
        }
        let (before, after) = (path_at(&self.spans, byte), path_at(&next.prompt.spans, byte));
        // One of the texts may be a prefix of the other.
        match (after.or(before), next.path_from(byte)) {
            (Some(path), _) => (format!("differs in {path}"), Some(path.to_owned())),
            (None, Some(path)) => {
                (format!("the template writes other text before {path}"), Some(path))
            }
            (None, None) => ("the template ends the prompt with other text".to_owned(), None),
        }
    }

    /// Why a prompt differs from the reply to this one, and the member that causes the difference.
    fn difference_in_reply(&self, next: &NextRequest, byte: usize) -> (String, Option<String>) {
        let messages = &next.request.messages;
        let reply = messages.get(self.reply_index).filter(|reply| reply["role"] == "assistant");
        let Some(reply) = reply else {
            return ("the last reply is not part of this request".to_owned(), next.path_from(byte));
        };
        let path = format!("messages[{}]", self.reply_index);
        let reasoning = format!("{path}.reasoning_content");
        let renders_reasoning =
            next.prompt.spans.iter().any(|span| span.path.starts_with(&reasoning));
        if self.has_reasoning() && !renders_reasoning {
            let why = if reply.get("reasoning_content").is_some_and(Value::is_string) {
                "is not rendered in history"
            } else {
                "of the last reply was not sent back"
            };
            return (format!("{reasoning} {why}"), Some(reasoning));
        }
        match path_at(&next.prompt.spans, byte).filter(|at| at.starts_with(&path)) {
            Some(path) => {
                (format!("differs in {path} from what the model wrote"), Some(path.to_owned()))
            }
            None => {
                let why = "the template writes the last reply differently from the model";
                match next.path_from(byte) {
                    Some(path) => (format!("{why}, before {path}"), Some(path)),
                    None => (why.to_owned(), None),
                }
            }
        }
    }
}

/// Whether a request has the member with this path in its messages or tools.
fn has_member(request: &ChatRequest, path: &str) -> bool {
    let mut steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let list = match steps.next() {
        Some("messages") => request.messages.as_slice(),
        Some("tools") => request.tools.as_slice(),
        _ => return false,
    };
    let Some(mut value) = steps
        .next()
        .and_then(|index| index.parse::<usize>().ok())
        .and_then(|index| list.get(index))
    else {
        return false;
    };
    for step in steps {
        let inner = match value {
            Value::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Object(members) => members.get(step),
            // Arguments may be JSON text, and the rest of the path is then inside that text.
            _ => return true,
        };
        match inner {
            Some(inner) => value = inner,
            None => return false,
        }
    }
    !value.is_null()
}

/// The byte of the text at which token `n` begins. The tokens spell the text, apart from a BOS
/// before it and whitespace that some vocabularies add or remove.
fn byte_of(tokens: &[TokenId], n: usize, text: &str, vocab: &dyn Vocab) -> usize {
    let mut at = 0;
    for (index, token) in tokens[..n].iter().enumerate() {
        let piece = vocab.piece(*token, true);
        let rest = &text.as_bytes()[at..];
        let bare = piece.strip_prefix(b" ").unwrap_or(&piece);
        let whitespace = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if rest.starts_with(&piece) {
            at += piece.len();
        } else if rest.starts_with(bare) {
            at += bare.len();
        } else if rest[whitespace..].starts_with(bare) {
            at += whitespace + bare.len();
        } else if index > 0 {
            at = (at + piece.len()).min(text.len());
        }
    }
    at
}
