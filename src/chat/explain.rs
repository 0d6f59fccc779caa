//! What a request would do: its prompt, what holds its reply, and what of the prompt is computed
//! already.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::native::overflow::{Fitted, Truncated};
use super::source::{Order, Source};
use super::{Chat, Rendered, native};
use crate::api::{ChatRequest, object};
use crate::engine::{Token, Tokenised, Vocab};
use crate::error::Result;
use crate::llama::LoadedModel;
use crate::template::{Prompt, Span};

/// The last request of a chat, to tell what its next one changes.
#[derive(Default)]
pub(super) struct Last(Mutex<Option<Arc<Asked>>>);

/// A request that has gone to the engine.
pub(super) struct Asked {
    tokenised: Tokenised,
    text: String,
    spans: Vec<Span>,
    /// The place that its reply has in the conversation.
    reply: usize,
    reasoned: AtomicBool,
    dropped: Option<Truncated>,
}

impl Last {
    /// Remembers a request of so many messages that has gone to the engine.
    pub(super) fn set(
        &self,
        messages: usize,
        prompt: Prompt,
        tokenised: Tokenised,
        dropped: Option<&Truncated>,
    ) {
        let asked = Asked {
            tokenised,
            text: prompt.text,
            spans: prompt.spans,
            reply: messages,
            reasoned: AtomicBool::new(false),
            dropped: dropped.cloned(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(asked));
    }

    /// None before the first request.
    pub(super) fn get(&self) -> Option<Arc<Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers that its reply has reasoning.
    pub(super) fn reasoned(&self) {
        self.get().iter().for_each(|asked| asked.reasoned.store(true, Ordering::Relaxed));
    }
}

impl Asked {
    /// Its prompt, and the tokens of that.
    pub(super) fn tokenised(&self) -> (&str, &Tokenised) {
        (&self.text, &self.tokenised)
    }
}

/// Where a prompt leaves what is kept, and why.
struct Break {
    at_token: usize,
    because: String,
    path: Option<String>,
}

impl Chat {
    /// What a request would do, without generating a token. Waits for one decode of the engine at
    /// most.
    pub fn explain(&self, request: &str) -> Result<Value> {
        let request = self.read(request)?;
        let explanation = self.foresee(&request);
        self.know(request);
        explanation
    }

    fn foresee(&self, request: &ChatRequest) -> Result<Value> {
        let Fitted { rendered, tokenised, truncated } = self.fit(request)?;
        let Rendered { prompt, polyfills_applied, mut diagnostics } = rendered;
        let order = Order {
            chat: self.id,
            request,
            prompt: &prompt,
            tokens: &tokenised.tokens,
            profile: &self.profile,
            reasoning_open: self.reply_parser(request, &prompt).is_reasoning(),
            cancel: Arc::default(),
            deadline: None,
        };
        let (foreseen, cached, broken) = match &self.source {
            Source::Native(native) => {
                let (cached, broken) = self.kept(&native.model, &order, truncated.as_ref())?;
                (native::foresee(native, &order)?, Some(cached), broken)
            }
            #[cfg(feature = "remote")]
            Source::Remote(servers) => (servers.foresee(&order)?, None, None),
        };
        diagnostics.extend(foreseen.diagnostics);
        let templates = &self.profile.templates;
        let broken =
            broken.map(|Break { at_token, because, path }| json!({ "at_token": at_token, "because": because, "path": path }));
        let mut explanation = object([
            ("type", "explanation".into()),
            ("prompt", prompt.text.as_str().into()),
            ("spans", prompt.spans_json()),
            ("prompt_tokens", foreseen.prompt_tokens.into()),
            ("cached_tokens", cached.into()),
            ("cache_break", broken.into()),
            ("special_tokens", foreseen.special_tokens.into()),
            ("polyfills_applied", polyfills_applied.into()),
            ("caps_used", templates.llama_cpp_caps().caps.to_json()),
            ("template_caps_used", templates.traits().caps.to_json()),
            ("grammar", foreseen.grammar.into()),
            ("output_format", self.profile.output_format()),
            ("stop", request.stop.as_slice().into()),
            ("tokens_left", foreseen.tokens_left.into()),
        ]);
        if let Some(truncated) = truncated {
            explanation["truncated"] = truncated.to_json();
        }
        if !diagnostics.is_empty() {
            explanation["diagnostics"] = json!(diagnostics);
        }
        if !request.ignored_keys.is_empty() {
            explanation["ignored_keys"] = json!(request.ignored_keys);
        }
        Ok(explanation)
    }

    /// Tokens of the prompt that are in the KV cache, and where it leaves what is kept of this
    /// chat, if it does.
    fn kept(
        &self,
        model: &LoadedModel,
        order: &Order,
        truncated: Option<&Truncated>,
    ) -> Result<(usize, Option<Break>)> {
        let Order { request, prompt, tokens, .. } = order;
        let vocab = model.engine.vocab().as_ref();
        let because = |at_token, because: &str| {
            Some(Break { at_token, because: because.to_owned(), path: None })
        };
        if !request.cache_prompt {
            return Ok((0, because(0, "cache_prompt is false")));
        }
        let held = model.engine.held(self.id, tokens.to_vec())?;
        let cached = held.cached;
        // The last token is always computed.
        let reusable = tokens.len() - 1;
        if cached >= reusable || held.own.is_some_and(|(kept, _)| kept <= cached) {
            return Ok((cached, None));
        }
        let Some(last) = self.last.get() else {
            return Ok((cached, because(cached, "first request of this chat")));
        };
        let common = last
            .tokenised
            .tokens
            .iter()
            .zip(&tokens[..reusable])
            .take_while(|(a, b)| a == b)
            .count();
        if cached < common {
            let gone = "evicted: the room of what was kept was needed, or this model's memory cannot be cut there";
            return Ok((cached, because(cached, gone)));
        }
        let now = Now { request, prompt };
        let (why, path) =
            if last.dropped.as_ref().map(|it| &it.dropped) != truncated.map(|it| &it.dropped) {
                let why = "context_overflow leaves out other messages than in the last request"
                    .to_owned();
                (why, now.path_from(byte_of(tokens, cached, &prompt.text, vocab)))
            } else if common < last.tokenised.tokens.len() && !prompt.text.starts_with(&last.text) {
                last.differs_in_prompt(&now)
            } else {
                last.differs_in_reply(&now, byte_of(tokens, cached, &prompt.text, vocab))
            };
        Ok((cached, Some(Break { at_token: cached, because: why, path })))
    }
}

/// The request that is explained.
struct Now<'a> {
    request: &'a ChatRequest,
    prompt: &'a Prompt,
}

impl Now<'_> {
    /// The first member of the request that has a part of the prompt from this byte on.
    fn path_from(&self, byte: usize) -> Option<String> {
        self.prompt.spans.iter().find(|span| span.end > byte).map(|span| span.path.to_string())
    }

    fn shows(&self, path: &str) -> bool {
        self.prompt.spans.iter().any(|span| &*span.path == path)
    }
}

/// The member that this byte of a prompt came from; None where it is the template's.
fn path_at(spans: &[Span], byte: usize) -> Option<&str> {
    spans.iter().find(|span| (span.start..span.end).contains(&byte)).map(|span| &*span.path)
}

impl Asked {
    /// Why a prompt differs from the last one before that ends, and which member of the request
    /// that is.
    fn differs_in_prompt(&self, now: &Now) -> (String, Option<String>) {
        let (old, new) = (self.text.as_bytes(), now.prompt.text.as_bytes());
        let byte = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let (before, after) = (path_at(&self.spans, byte), path_at(&now.prompt.spans, byte));
        let next = now.path_from(byte);
        // What came here first, behind what the template wrote around it.
        let gone =
            self.spans.iter().find(|span| span.end > byte).filter(|span| !now.shows(&span.path));
        if let Some(gone) = gone {
            let sent = member(now.request, &gone.path);
            let why = if sent { "is not rendered any more" } else { "is not in this request" };
            return (format!("{} {why}", gone.path), Some(gone.path.to_string()));
        }
        match (before, after) {
            (_, Some(after)) => (format!("differs in {after}"), Some(after.to_owned())),
            // One text may be the beginning of the other.
            (Some(before), None) => (format!("differs in {before}"), Some(before.to_owned())),
            (None, None) => match next {
                Some(next) => (format!("the template writes other text before {next}"), Some(next)),
                None => ("the template ends the prompt with other text".to_owned(), None),
            },
        }
    }

    /// Why a prompt differs from what the model has answered to the last one.
    fn differs_in_reply(&self, now: &Now, byte: usize) -> (String, Option<String>) {
        let reply = format!("messages[{}]", self.reply);
        let message =
            now.request.messages.get(self.reply).filter(|message| message["role"] == "assistant");
        let Some(message) = message else {
            return ("the last reply is not part of this request".to_owned(), now.path_from(byte));
        };
        let reasoning = format!("{reply}.reasoning_content");
        if self.reasoned.load(Ordering::Relaxed)
            && !now.prompt.spans.iter().any(|span| span.path.starts_with(&reasoning))
        {
            let sent = message.get("reasoning_content").is_some_and(Value::is_string);
            let why = if sent {
                "is not rendered in history"
            } else {
                "of the last reply was not sent back"
            };
            return (format!("{reasoning} {why}"), Some(reasoning));
        }
        match path_at(&now.prompt.spans, byte) {
            Some(path) if path.starts_with(&reply) => {
                (format!("differs in {path} from what the model wrote"), Some(path.to_owned()))
            }
            _ => {
                let why = "the template writes the last reply otherwise than the model did";
                match now.path_from(byte) {
                    Some(path) => (format!("{why}, before {path}"), Some(path)),
                    None => (why.to_owned(), None),
                }
            }
        }
    }
}

/// Whether a request has the member that a path of messages or tools names, at any depth.
fn member(request: &ChatRequest, path: &str) -> bool {
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
            // Arguments are text that holds members.
            _ => return true,
        };
        match inner {
            Some(inner) => value = inner,
            None => return false,
        }
    }
    !value.is_null()
}

/// Where in the text its `n`-th token begins. Tokens spell the text, but for a BOS in front, and
/// blanks that some vocabularies add or take: those are looked over.
fn byte_of(tokens: &[Token], n: usize, text: &str, vocab: &dyn Vocab) -> usize {
    let mut at = 0;
    for (index, token) in tokens[..n].iter().enumerate() {
        let piece = vocab.piece(*token, true);
        let rest = &text.as_bytes()[at..];
        let bare = piece.strip_prefix(b" ").unwrap_or(&piece);
        let blanks = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if rest.starts_with(&piece) {
            at += piece.len();
        } else if rest.starts_with(bare) {
            at += bare.len();
        } else if rest[blanks..].starts_with(bare) {
            at += blanks + bare.len();
        } else if index > 0 {
            at = (at + piece.len()).min(text.len());
        }
    }
    at
}
