//! The thread that owns an [`Embedder`]. It loads the model, computes, and ends when its owner is
//! dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crate::engine::{CommandThread, Interrupt, TokenId};
use crate::error::{Code, Error, Result};
use crate::llama::{Embedder, LlamaVocab};
use crate::panic;
use crate::spawn;

/// The vectors of the next texts. Those of one text are concatenated. `None` if the call was
/// interrupted.
type ComputedPack = Result<Option<Vec<Vec<f32>>>>;

/// Texts to compute, and the channel for their vectors.
struct Work {
    texts: Vec<Vec<TokenId>>,
    interrupt: Interrupt,
    answer: SyncSender<ComputedPack>,
}

/// Facts about the model that callers need.
pub(super) struct ModelFacts {
    pub(super) vocab: Arc<LlamaVocab>,
    /// The maximum number of tokens in a text.
    pub(super) n_ctx: usize,
    /// The length of a vector, or the number of scores.
    pub(super) width: usize,
}

/// A loaded model and its thread. Dropping it ends the thread and frees the model.
pub(super) struct EmbedThread(CommandThread<Work>);

impl EmbedThread {
    /// Starts the thread, and returns when `load` has run on it.
    pub(super) fn start<L>(load: L) -> Result<(EmbedThread, ModelFacts)>
    where
        L: FnOnce() -> Result<Embedder> + Send + 'static,
    {
        let (work, inbox) = channel();
        let (report, loaded) = channel();
        let thread = spawn::thread("llb-embed", move || run(load, &report, &inbox))?;
        let started = EmbedThread(CommandThread::new(work, thread));
        let facts = loaded.recv().unwrap_or_else(|_| Err(stopped()))?;
        Ok((started, facts))
    }

    /// Computes the vectors of texts. Each text has 1 to `n_ctx` tokens. Passes the concatenated
    /// vectors of each text to `take`, in order, while the next texts are computed. The computation
    /// waits if `take` is slower. An error of `take` ends it. `CANCELLED` if the call was
    /// interrupted.
    pub(super) fn compute(
        &self,
        texts: Vec<Vec<TokenId>>,
        interrupt: Interrupt,
        mut take: impl FnMut(Vec<f32>) -> Result<()>,
    ) -> Result<()> {
        let (answer, computed) = sync_channel(1);
        let n_texts = texts.len();
        if !self.0.send(Work { texts, interrupt, answer }) {
            return Err(stopped());
        }
        let mut taken = 0;
        while taken < n_texts {
            let pack = computed.recv().unwrap_or_else(|_| Err(stopped()))?;
            let interrupted = || Error::new(Code::Cancelled, "interrupted");
            for vector in pack.ok_or_else(interrupted)? {
                take(vector)?;
                taken += 1;
            }
        }
        Ok(())
    }
}

fn run<L>(load: L, report: &Sender<Result<ModelFacts>>, inbox: &Receiver<Work>)
where
    L: FnOnce() -> Result<Embedder>,
{
    let loaded = catch_unwind(AssertUnwindSafe(load));
    let mut embedder = match loaded.unwrap_or_else(|payload| Err(panic::error(&*payload))) {
        Ok(embedder) => embedder,
        Err(error) => return drop(report.send(Err(error))),
    };
    let (n_ctx, width) = (embedder.n_ctx(), embedder.width());
    let _ = report.send(Ok(ModelFacts { vocab: Arc::clone(embedder.vocab()), n_ctx, width }));
    for Work { texts, interrupt, answer } in inbox {
        if embedder.is_broken() {
            let _ = answer.send(Err(stopped()));
            continue;
        }
        let mut done = 0;
        while done < texts.len() {
            let compute = || embedder.compute_next(&texts[done..], &|| interrupt.is_over());
            let computed = catch_unwind(AssertUnwindSafe(compute))
                .unwrap_or_else(|payload| Err(panic::error(&*payload)));
            let count = computed.as_ref().ok().and_then(|pack| pack.as_ref().map(Vec::len));
            // If the caller no longer waits, sending fails.
            let is_wanted = answer.send(computed).is_ok();
            match count.filter(|_| is_wanted) {
                Some(count) => done += count,
                None => break,
            }
        }
        embedder.rest();
    }
}

/// The error `ENGINE_CLOSED` after a fault has stopped the engine.
fn stopped() -> Error {
    let message = "the engine of this model has stopped after a fault; call llb_embed_create again";
    Error::new(Code::EngineClosed, message)
}
