//! The updates of a reply from the engine's channel.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::api::logprobs::{SampledToken, TokenLogprob};
use crate::chat::source::{FinishedReply, ReplyUpdate, ReplyUpdates};
use crate::engine::{JobUpdate, Logprob, SampledLogprobs, Vocab};
use crate::error::{Code, Error, Result};
use crate::process;

pub(super) struct EngineUpdates {
    /// `None` only while it is dropped.
    received: Option<Receiver<JobUpdate>>,
    vocab: Arc<dyn Vocab>,
    prompt_tokens: usize,
    forks: usize,
}

impl EngineUpdates {
    pub(super) fn new(
        received: Receiver<JobUpdate>,
        vocab: Arc<dyn Vocab>,
        prompt_tokens: usize,
    ) -> Self {
        EngineUpdates { received: Some(received), vocab, prompt_tokens, forks: process::forks() }
    }
}

impl Drop for EngineUpdates {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // The engine thread of the parent may have held a lock of the channel.
            std::mem::forget(self.received.take());
        }
    }
}

impl ReplyUpdates for EngineUpdates {
    fn next(&mut self) -> Result<ReplyUpdate> {
        match self.received.as_ref().and_then(|received| received.recv().ok()) {
            Some(JobUpdate::Piece { text, logprobs, control }) => {
                let logprobs = with_bytes(self.vocab.as_ref(), &logprobs);
                Ok(ReplyUpdate::Piece { text, logprobs, control })
            }
            Some(JobUpdate::Done(outcome)) => Ok(ReplyUpdate::Done(FinishedReply {
                outcome,
                prompt_tokens: self.prompt_tokens,
                counts_reasoning: true,
                diagnostics: Vec::new(),
            })),
            Some(JobUpdate::Failed(error)) => Err(error),
            None => Err(Error::new(Code::EngineClosed, "the engine of this model has stopped")),
        }
    }
}

/// Adds the bytes of each token. Those of a control token are its name, whether visible or not.
fn with_bytes(vocab: &dyn Vocab, logprobs: &[SampledLogprobs]) -> Vec<SampledToken> {
    let token = |logprob: &Logprob| TokenLogprob {
        bytes: vocab.piece(logprob.token, true),
        logprob: logprob.logprob,
    };
    let sampled = logprobs.iter();
    sampled
        .map(|each| SampledToken {
            sampled: token(&each.sampled),
            top: each.top.iter().map(token).collect(),
        })
        .collect()
}
