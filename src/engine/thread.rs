//! The engine thread: loads the model, runs the scheduler, ends when its last owner is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::backend::Token;
use super::backend::{Backend, Vocab};
use super::job::{Job, Update};
use super::prefix_cache::Held;
use super::scheduler::Scheduler;
use crate::error::{Code, Error, Result};

/// What a load reports while it runs: the share of the work that is done, 0 to 1.
pub type Progress = f32;

type Loaded = (Box<dyn Backend>, Arc<dyn Vocab>);

enum Loading {
    Progress(Progress),
    Finished(Result<Arc<dyn Vocab>>),
}

/// What callers send to the engine thread.
enum Message {
    Job(Box<Job>),
    /// Asks what is held for a prompt of a chat.
    Held {
        chat: u64,
        prompt: Vec<Token>,
        answer: Sender<Held>,
    },
}

/// A loaded model with its thread. Dropping it ends the thread and frees the model.
pub struct Engine {
    inbox: Option<Sender<Message>>,
    vocab: Arc<dyn Vocab>,
    thread: Option<JoinHandle<()>>,
    broken: Arc<AtomicBool>,
}

impl Engine {
    /// Starts a thread, loads on it, and returns when the model is ready. `on_progress` is called on this thread.
    pub fn start<L>(load: L, on_progress: &mut dyn FnMut(Progress)) -> Result<Engine>
    where
        L: FnOnce(&mut dyn FnMut(Progress)) -> Result<Loaded> + Send + 'static,
    {
        let (sender, inbox) = channel();
        let (report, loading) = channel();
        let broken = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("llb-engine".into())
            .spawn({
                let broken = Arc::clone(&broken);
                move || run(load, &report, &inbox, &broken)
            })
            .map_err(|error| Error::new(Code::OutOfMemory, "cannot start the engine thread").caused_by(error))?;
        loop {
            match loading.recv() {
                Ok(Loading::Progress(done)) => on_progress(done),
                Ok(Loading::Finished(Ok(vocab))) => {
                    return Ok(Engine { inbox: Some(sender), vocab, thread: Some(thread), broken });
                }
                Ok(Loading::Finished(Err(error))) => {
                    let _ = thread.join();
                    return Err(error);
                }
                Err(_) => {
                    let _ = thread.join();
                    return Err(stopped());
                }
            }
        }
    }

    /// Hands a job to the engine; its updates come through the job's channel.
    pub fn submit(&self, job: Job) -> Result<()> {
        self.send(Message::Job(Box::new(job)))
    }

    /// What the KV cache holds for a prompt (one token or more) of a chat. Answered between two decodes: waits for one at most.
    pub fn held(&self, chat: u64, prompt: Vec<Token>) -> Result<Held> {
        let (answer, answered) = channel();
        self.send(Message::Held { chat, prompt, answer })?;
        answered.recv().map_err(|_| stopped())
    }

    fn send(&self, message: Message) -> Result<()> {
        let sent = self.inbox.as_ref().is_some_and(|inbox| inbox.send(message).is_ok());
        if sent && !self.broken.load(Ordering::Acquire) { Ok(()) } else { Err(stopped()) }
    }

    /// Whether a fault has stopped it; a new one can be made.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The model's vocabulary.
    pub fn vocab(&self) -> &Arc<dyn Vocab> {
        &self.vocab
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.inbox.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<L>(load: L, report: &Sender<Loading>, inbox: &Receiver<Message>, broken: &AtomicBool)
where
    L: FnOnce(&mut dyn FnMut(Progress)) -> Result<Loaded>,
{
    let _quiet = crate::panic::Quiet::enter();
    let mut progress = |done: Progress| {
        let _ = report.send(Loading::Progress(done));
    };
    let loaded = catch_unwind(AssertUnwindSafe(|| load(&mut progress)));
    let (backend, vocab) = match loaded {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(error)) => return drop(report.send(Loading::Finished(Err(error)))),
        Err(payload) => return drop(report.send(Loading::Finished(Err(crate::panic::error(&*payload))))),
    };
    let mut scheduler = Scheduler::new(backend, Arc::clone(&vocab));
    let _ = report.send(Loading::Finished(Ok(vocab)));
    let fault = match catch_unwind(AssertUnwindSafe(|| serve(&mut scheduler, inbox))) {
        Ok(Served::ToTheEnd) => return,
        Ok(Served::UntilAFault) => stopped(),
        Err(payload) => crate::panic::error(&*payload),
    };
    broken.store(true, Ordering::Release);
    let again = || Error::new(fault.code(), fault.message());
    scheduler.fail_all(again);
    // Jobs that were sent before the flag was seen; later ones are refused by `submit`.
    for message in inbox.iter() {
        if let Message::Job(job) = message {
            let _ = job.updates.send(Update::Failed(again()));
        }
    }
}

enum Served {
    /// Nobody is left to send a job.
    ToTheEnd,
    /// The backend is broken.
    UntilAFault,
}

fn serve(scheduler: &mut Scheduler, inbox: &Receiver<Message>) -> Served {
    while !scheduler.is_broken() {
        if scheduler.is_idle() {
            match inbox.recv() {
                Ok(message) => take(scheduler, message),
                Err(_) => return Served::ToTheEnd,
            }
        }
        for message in inbox.try_iter() {
            take(scheduler, message);
        }
        scheduler.step();
    }
    Served::UntilAFault
}

fn take(scheduler: &mut Scheduler, message: Message) {
    match message {
        Message::Job(job) => scheduler.add(*job),
        // Nobody may be waiting any more.
        Message::Held { chat, prompt, answer } => drop(answer.send(scheduler.held(chat, &prompt))),
    }
}

fn stopped() -> Error {
    Error::new(Code::EngineClosed, "the engine of this model has stopped after a fault; create the chat again")
}
