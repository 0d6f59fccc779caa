//! The last request of a chat. The next request is compared with it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::api::AdapterScales;
use crate::chat::source::Truncation;
use crate::engine::TokenizedPrompt;
use crate::sync::lock;
use crate::template::{Prompt, Span};

/// A request that was sent to the engine.
pub(super) struct LastRequest {
    pub(super) tokenized: TokenizedPrompt,
    pub(super) text: String,
    pub(super) spans: Vec<Span>,
    /// The adapters that the request was computed with.
    pub(super) adapters: AdapterScales,
    /// The index that the reply will have in `messages`.
    pub(super) reply_index: usize,
    has_reasoning: AtomicBool,
    /// The messages that were left out of the prompt.
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

/// Holds the last request; None before the first one.
#[derive(Default)]
pub(super) struct LastRequestSlot(Mutex<Option<Arc<LastRequest>>>);

impl LastRequestSlot {
    pub(super) fn set(
        &self,
        reply_index: usize,
        prompt: Prompt,
        tokenized: TokenizedPrompt,
        adapters: AdapterScales,
        truncation: Option<Truncation>,
    ) {
        let request = LastRequest {
            tokenized,
            text: prompt.text,
            spans: prompt.spans,
            adapters,
            reply_index,
            has_reasoning: AtomicBool::new(false),
            dropped: truncation.map(|truncation| truncation.dropped),
        };
        *lock(&self.0) = Some(Arc::new(request));
    }

    pub(super) fn get(&self) -> Option<Arc<LastRequest>> {
        lock(&self.0).clone()
    }

    /// Records that the reply to the last request has reasoning.
    pub(super) fn mark_reasoning(&self) {
        self.get().iter().for_each(|last| last.has_reasoning.store(true, Ordering::Relaxed));
    }
}
