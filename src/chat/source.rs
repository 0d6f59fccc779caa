//! Where the text of a chat comes from: llama.cpp in this process, or servers.
//!
//! Both take an [`Order`] and give [`Updates`]; what the pieces mean is the same for both.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use serde_json::Value;

use super::logprobs;
use super::native::Native;
#[cfg(feature = "remote")]
use super::remote::{Reply, Servers};
use crate::api::ChatRequest;
use crate::api::logprobs::SampledToken;
use crate::constraint::ReplyRequirements;
use crate::diagnostic::Diagnostic;
use crate::engine::{Outcome, Token, Update, Vocab};
use crate::error::{Code, Error, Result};
use crate::profile::ModelProfile;
use crate::template::Prompt;

/// What generates.
pub(super) enum Source {
    /// A model in this process.
    Native(Box<Native>),
    /// Others.
    #[cfg(feature = "remote")]
    Remote(Box<Servers>),
}

/// A request with its prompt.
pub(super) struct Order<'a> {
    /// The chat's number.
    pub(super) chat: u64,
    pub(super) request: &'a ChatRequest,
    pub(super) prompt: &'a Prompt,
    /// The prompt's tokens; none where a server makes them.
    pub(super) tokens: &'a [Token],
    pub(super) profile: &'a ModelProfile,
    /// Whether the prompt ends inside reasoning.
    pub(super) reasoning_open: bool,
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) deadline: Option<Instant>,
}

impl Order<'_> {
    /// The bytes of the prompt that the request wrote, in which nothing is a special token.
    pub(super) fn plain(&self) -> Vec<Range<usize>> {
        plain(self.request, self.prompt)
    }

    /// What the reply should be held to.
    pub(super) fn wanted(&self) -> ReplyRequirements<'_> {
        let request = self.request;
        ReplyRequirements {
            tools: &request.tools,
            choice: &request.tool_choice,
            parallel: request.parallel_tool_calls,
            response_format: request.response_format.as_ref(),
            grammar: request.grammar.as_deref(),
            reasoning_open: self.reasoning_open,
            reasons: self.profile.mentions_reasoning(),
        }
    }
}

/// The bytes of a prompt that messages, tools and documents wrote, in order; none where the request
/// wants special tokens found in them.
pub(super) fn plain(request: &ChatRequest, prompt: &Prompt) -> Vec<Range<usize>> {
    if request.parse_special_in_messages {
        return Vec::new();
    }
    // Variables are the application's own words to its template.
    let sent = prompt.spans.iter().filter(|span| !span.path.starts_with("chat_template_kwargs"));
    let mut plain = Vec::with_capacity(prompt.spans.len());
    plain.extend(sent.map(|span| span.start..span.end));
    plain
}

/// A reply that was ordered.
pub(super) struct Started {
    pub(super) updates: Updates,
    /// Whether it obeys a grammar.
    pub(super) held: bool,
    /// Whether what looks like a call in another notation is one only if its arguments obey the
    /// schema.
    pub(super) judged: bool,
    pub(super) diagnostics: Vec<Value>,
}

/// What a request would be, without a reply. None is what cannot be known.
pub(super) struct Foreseen {
    pub(super) prompt_tokens: Option<usize>,
    pub(super) special_tokens: Option<Vec<String>>,
    pub(super) tokens_left: Option<usize>,
    pub(super) grammar: Option<String>,
    pub(super) diagnostics: Vec<Value>,
}

/// The pieces of a reply under way.
pub(super) enum Updates {
    /// Of the engine.
    Native { received: Receiver<Update>, vocab: Arc<dyn Vocab>, prompt_tokens: usize },
    /// Of a server.
    #[cfg(feature = "remote")]
    Remote(Box<Reply>),
}

/// What comes next of a reply.
pub(super) enum Next {
    /// Text, whole characters, stop strings left out.
    Piece { text: String, logprobs: Vec<SampledToken> },
    /// The end.
    Done(Done),
}

/// How a reply ended.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) prompt_tokens: usize,
    /// Whether `outcome` has counted the tokens of reasoning.
    pub(super) reasoning_counted: bool,
    pub(super) diagnostics: Vec<Value>,
}

impl Updates {
    /// Waits for the next one.
    pub(super) fn next(&mut self) -> Result<Next> {
        match self {
            Updates::Native { received, vocab, prompt_tokens } => match received.recv() {
                Ok(Update::Piece { text, logprobs }) => {
                    Ok(Next::Piece { text, logprobs: logprobs::spelt(vocab.as_ref(), logprobs) })
                }
                Ok(Update::Done(outcome)) => Ok(Next::Done(Done {
                    outcome,
                    prompt_tokens: *prompt_tokens,
                    reasoning_counted: true,
                    diagnostics: Vec::new(),
                })),
                Ok(Update::Failed(error)) => Err(error),
                Err(_) => {
                    Err(Error::new(Code::EngineClosed, "the engine of this model has stopped"))
                }
            },
            #[cfg(feature = "remote")]
            Updates::Remote(reply) => reply.next(),
        }
    }
}

/// For a grammar that could not be made, where nothing needs it.
pub(super) fn dropped_constraint(error: &Error) -> Diagnostic {
    let message = format!("the calls of this reply are not constrained: {}", error.message());
    Diagnostic::new("constraint_dropped", message)
}
