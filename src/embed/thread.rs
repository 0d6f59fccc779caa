//! The thread that owns an [`Embedder`]. It loads the model, computes, and ends when its owner is
//! dropped. Concurrent calls take turns, so a short call does not wait until a long one has ended.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// How many of them are computed.
    done: usize,
    interrupt: Interrupt,
    answer: SyncSender<ComputedPack>,
}

impl Work {
    fn remaining(&self) -> &[Vec<TokenId>] {
        &self.texts[self.done..]
    }

    /// Sends the next vectors. Returns whether the caller waits for more.
    fn send(&mut self, computed: ComputedPack) -> bool {
        let count = computed.as_ref().ok().and_then(|pack| pack.as_ref().map(Vec::len));
        self.done += count.unwrap_or_default();
        // If the caller no longer waits, sending fails.
        let is_wanted = self.answer.send(computed).is_ok();
        is_wanted && count.is_some() && self.done < self.texts.len()
    }
}

/// The work of all calls. One pack of each is computed in turn.
struct EmbedQueue {
    inbox: Receiver<Work>,
    waiting: VecDeque<Work>,
}

impl EmbedQueue {
    fn new(inbox: Receiver<Work>) -> EmbedQueue {
        EmbedQueue { inbox, waiting: VecDeque::new() }
    }

    /// The work whose turn it is. Without work, calls `rest` and waits for some. `None` when
    /// nobody can send work any more.
    fn next(&mut self, rest: impl FnOnce()) -> Option<Work> {
        self.waiting.extend(self.inbox.try_iter());
        self.waiting.pop_front().or_else(|| {
            rest();
            self.inbox.recv().ok()
        })
    }

    /// Takes back work that has had its turn. What has come meanwhile is before it.
    fn put_back(&mut self, work: Work) {
        self.waiting.extend(self.inbox.try_iter());
        self.waiting.push_back(work);
    }
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
pub(super) struct EmbedThread {
    thread: CommandThread<Work>,
    /// Whether a fault has stopped it.
    broken: Arc<AtomicBool>,
}

impl EmbedThread {
    /// Starts the thread, and returns when `load` has run on it.
    pub(super) fn start<L>(load: L) -> Result<(EmbedThread, ModelFacts)>
    where
        L: FnOnce() -> Result<Embedder> + Send + 'static,
    {
        let (work, inbox) = channel();
        let (report, loaded) = channel();
        let broken = Arc::<AtomicBool>::default();
        let thread = spawn::thread("llb-embed", {
            let broken = Arc::clone(&broken);
            move || run(load, &report, inbox, &broken)
        })?;
        let started = EmbedThread { thread: CommandThread::new(work, thread), broken };
        let facts = loaded.recv().unwrap_or_else(|_| Err(stopped()))?;
        Ok((started, facts))
    }

    /// Whether a fault has stopped it. Every computation then fails.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
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
        if !self.thread.send(Work { texts, done: 0, interrupt, answer }) {
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

fn run<L>(load: L, report: &Sender<Result<ModelFacts>>, inbox: Receiver<Work>, broken: &AtomicBool)
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
    let mut turns = EmbedQueue::new(inbox);
    while let Some(mut work) = turns.next(|| embedder.rest()) {
        if embedder.is_broken() {
            work.send(Err(stopped()));
            continue;
        }
        let compute = || embedder.compute_next(work.remaining(), &|| work.interrupt.is_over());
        let computed = catch_unwind(AssertUnwindSafe(compute))
            .unwrap_or_else(|payload| Err(panic::error(&*payload)));
        broken.store(embedder.is_broken(), Ordering::Release);
        if work.send(computed) {
            turns.put_back(work);
        }
    }
}

/// The error `ENGINE_CLOSED` after a fault has stopped the engine.
fn stopped() -> Error {
    let message = "the engine of this model has stopped after a fault; call llb_embed_create again";
    Error::new(Code::EngineClosed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call with this many texts of one token.
    fn call(token: TokenId, n_texts: usize) -> (Work, Receiver<ComputedPack>) {
        let (answer, computed) = sync_channel(n_texts);
        let interrupt = Interrupt::default();
        (Work { texts: vec![vec![token]; n_texts], done: 0, interrupt, answer }, computed)
    }

    /// Computes one text, and returns its token.
    fn step(turns: &mut EmbedQueue) -> Option<TokenId> {
        let mut work = turns.next(|| ())?;
        let token = work.remaining()[0][0];
        if work.send(Ok(Some(vec![vec![0.0]]))) {
            turns.put_back(work);
        }
        Some(token)
    }

    #[test]
    fn a_short_call_waits_for_one_pack_of_a_long_one() {
        let (sender, inbox) = channel();
        let mut turns = EmbedQueue::new(inbox);
        let (long, long_computed) = call(1, 5);
        sender.send(long).expect("the turns are alive");
        assert_eq!([step(&mut turns), step(&mut turns)], [Some(1); 2]);
        let (short, short_computed) = call(2, 1);
        sender.send(short).expect("the turns are alive");
        let (other, _other_computed) = call(3, 2);
        sender.send(other).expect("the turns are alive");
        drop(sender);
        let order: Vec<_> = std::iter::from_fn(|| step(&mut turns)).collect();
        assert_eq!(order, [1, 2, 3, 1, 3, 1]);
        assert_eq!((long_computed.iter().count(), short_computed.iter().count()), (5, 1));
    }

    #[test]
    fn calls_that_have_ended_get_no_turns() {
        let (sender, inbox) = channel();
        let mut turns = EmbedQueue::new(inbox);
        let (left, computed) = call(1, 5);
        drop(computed);
        let (cancelled, _computed) = call(2, 5);
        let (failed, _failure) = call(3, 5);
        for work in [left, cancelled, failed] {
            sender.send(work).expect("the turns are alive");
        }
        drop(sender);
        assert_eq!(step(&mut turns), Some(1));
        for end in [Ok(None), Err(stopped())] {
            let mut work = turns.next(|| ()).expect("a call waits");
            assert!(!work.send(end));
        }
        assert!(turns.next(|| ()).is_none());
    }
}
