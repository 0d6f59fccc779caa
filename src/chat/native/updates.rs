//! The updates of a reply from the engine's channel.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::api::logprobs::{SampledToken, TokenLogprob};
use crate::chat::source::{FinishedReply, ReplyUpdate, ReplyUpdates};
use crate::engine::{JobUpdate, Logprob, SampledLogprobs, Vocab};
use crate::error::{Code, Error, Result};

pub(super) struct EngineUpdates {
    pub(super) received: Receiver<JobUpdate>,
    pub(super) vocab: Arc<dyn Vocab>,
    pub(super) prompt_tokens: usize,
}

impl ReplyUpdates for EngineUpdates {
    fn next(&mut self) -> Result<ReplyUpdate> {
        match self.received.recv() {
            Ok(JobUpdate::Piece { text, logprobs }) => {
                let logprobs = with_bytes(self.vocab.as_ref(), &logprobs);
                Ok(ReplyUpdate::Piece { text, logprobs })
            }
            Ok(JobUpdate::Done(outcome)) => Ok(ReplyUpdate::Done(FinishedReply {
                outcome,
                prompt_tokens: self.prompt_tokens,
                counts_reasoning: true,
                diagnostics: Vec::new(),
            })),
            Ok(JobUpdate::Failed(error)) => Err(error),
            Err(_) => Err(Error::new(Code::EngineClosed, "the engine of this model has stopped")),
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
