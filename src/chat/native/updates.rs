//! Receives the updates of a reply from the engine's channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use crate::chat::source::{FinishedReply, ReplyUpdate, ReplyUpdates, reasoning_ended, with_bytes};
use crate::diagnostic::Diagnostic;
use crate::engine::{JobOutcome, JobUpdate, ShiftCounts, Vocab};
use crate::error::{Code, Error, Result};
use crate::llama::{LoadedModel, PrefixStore};
use crate::process;

pub(super) struct EngineUpdates {
    /// `None` only while the value is being dropped.
    received: Option<Receiver<JobUpdate>>,
    vocab: Arc<dyn Vocab>,
    prompt_tokens: usize,
    n_ctx: usize,
    /// The store for prefixes of the prompt, and the number of tokens that were read from it.
    store: Option<(Arc<PrefixStore>, usize)>,
    model: Arc<LoadedModel>,
    forks: usize,
    /// Set to end the job, because no more of the reply is needed.
    enough: Arc<AtomicBool>,
}

impl EngineUpdates {
    pub(super) fn new(
        received: Receiver<JobUpdate>,
        model: Arc<LoadedModel>,
        prompt_tokens: usize,
        store: Option<(Arc<PrefixStore>, usize)>,
        enough: Arc<AtomicBool>,
    ) -> Self {
        let (received, forks) = (Some(received), process::forks());
        let (vocab, n_ctx) = (model.engine.vocab().clone(), model.n_ctx);
        EngineUpdates { received, vocab, prompt_tokens, n_ctx, store, model, forks, enough }
    }

    /// Waits for the next update that is not a prefix. Prefixes are written to the store.
    fn receive(&self) -> Option<JobUpdate> {
        loop {
            match self.received.as_ref()?.recv().ok()? {
                JobUpdate::Prefix(kept) => {
                    if let Some((store, _)) = &self.store {
                        store.write(&self.model, kept);
                    }
                }
                update => return Some(update),
            }
        }
    }

    /// Diagnostics about changes to the reply while it was generated.
    fn diagnostics(&self, outcome: &JobOutcome) -> Vec<Diagnostic> {
        let ended = outcome.reasoning_ended.then(reasoning_ended);
        let ShiftCounts { times, dropped } = outcome.shifts;
        let shifted = (times > 0).then(|| {
            let message = format!(
                "the reply reached the end of the context of {} tokens; {dropped} earlier tokens \
                 were dropped from it so that the reply could go on",
                self.n_ctx
            );
            let shifted = Diagnostic::new("context_shifted", message);
            shifted.with("shifts", times).with("dropped_tokens", dropped)
        });
        ended.into_iter().chain(shifted).collect()
    }
}

impl Drop for EngineUpdates {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // The parent's engine thread may have held a lock of the channel when the process
            // forked.
            std::mem::forget(self.received.take());
        }
    }
}

impl ReplyUpdates for EngineUpdates {
    fn end(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    fn next(&mut self) -> Result<ReplyUpdate> {
        match self.receive() {
            Some(JobUpdate::Piece { text, logprobs, control, tokens }) => {
                let logprobs = with_bytes(self.vocab.as_ref(), &logprobs);
                Ok(ReplyUpdate::Piece { text, logprobs, control, tokens: Some(tokens) })
            }
            Some(JobUpdate::Done(outcome)) => Ok(ReplyUpdate::Done(FinishedReply {
                prompt_tokens: self.prompt_tokens,
                counts_reasoning: true,
                diagnostics: self.diagnostics(&outcome),
                disk_tokens: self.store.as_ref().map(|(_, read)| outcome.cached_tokens.min(*read)),
                outcome,
            })),
            Some(JobUpdate::Failed(error)) => Err(error),
            // `receive` handles prefixes.
            Some(JobUpdate::Prefix(_)) | None => {
                Err(Error::new(Code::EngineClosed, "the engine of this model has stopped"))
            }
        }
    }
}
