//! The last request of a chat, which shows what the next one changes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::chat::source::Truncation;
use crate::engine::TokenizedPrompt;
use crate::template::{Prompt, Span};

/// A request that was sent to the engine.
pub(super) struct LastRequest {
    pub(super) tokenized: TokenizedPrompt,
    pub(super) text: String,
    pub(super) spans: Vec<Span>,
    /// The index that its reply gets in `messages`.
    pub(super) reply_index: usize,
    has_reasoning: AtomicBool,
    /// The messages that were left out of its prompt.
    pub(super) dropped: Option<Range<usize>>,
}

impl LastRequest {
    /// The prompt and its tokens.
    pub(super) fn tokenized(&self) -> (&str, &TokenizedPrompt) {
        (&self.text, &self.tokenized)
    }

    /// Whether the reply had reasoning.
    pub(super) fn has_reasoning(&self) -> bool {
        self.has_reasoning.load(Ordering::Relaxed)
    }
}

/// None before the first request.
#[derive(Default)]
pub(super) struct LastRequestSlot(Mutex<Option<Arc<LastRequest>>>);

impl LastRequestSlot {
    pub(super) fn set(
        &self,
        reply_index: usize,
        prompt: Prompt,
        tokenized: TokenizedPrompt,
        truncation: Option<Truncation>,
    ) {
        let request = LastRequest {
            tokenized,
            text: prompt.text,
            spans: prompt.spans,
            reply_index,
            has_reasoning: AtomicBool::new(false),
            dropped: truncation.map(|truncation| truncation.dropped),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(request));
    }

    pub(super) fn get(&self) -> Option<Arc<LastRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that the reply to the last request has reasoning.
    pub(super) fn mark_reasoning(&self) {
        self.get().iter().for_each(|last| last.has_reasoning.store(true, Ordering::Relaxed));
    }
}
