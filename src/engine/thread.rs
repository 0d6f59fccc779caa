//! The engine thread: loads the model, runs the scheduler, and ends when its owner is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::backend::{Backend, TokenId};
use super::job::{Job, JobUpdate};
use super::prefix_cache::{CacheKey, CacheLookup, SavedSequence};
use super::scheduler::Scheduler;
use super::speculate::Speculation;
use super::vocab::Vocab;
use crate::api::AdapterScales;
use crate::error::{Code, Error, Result};
use crate::process;
use crate::sync::JoinHandle;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::mpsc::{Receiver, Sender, channel};

/// The loaded share of a model, from 0 to 1.
pub type LoadProgress = f32;

/// A loaded model.
pub struct Loaded {
    /// The backend that computes logits.
    pub backend: Box<dyn Backend>,
    /// The vocabulary of the model.
    pub vocab: Arc<dyn Vocab>,
    /// Speculative decoding; `None` if it is off.
    pub speculation: Option<Speculation>,
}

enum LoadMessage {
    Progress(LoadProgress),
    Finished(Result<Arc<dyn Vocab>>),
}

/// A request to the thread.
enum EngineCommand {
    Run(Box<Job>),
    Ask(SchedulerQuestion),
}

/// Receives the scheduler between two decodes, or the fault that has stopped it.
type SchedulerQuestion = Box<dyn FnOnce(Result<&mut Scheduler>) + Send>;

/// A loaded model and its thread. Dropping it ends the thread and frees the model.
pub struct Engine {
    thread: CommandThread<EngineCommand>,
    vocab: Arc<dyn Vocab>,
    broken: Arc<AtomicBool>,
}

/// A thread that runs commands. Dropping this ends it and waits for its end.
pub(crate) struct CommandThread<C> {
    /// `None` only while this is dropped, as is `thread`.
    commands: Option<Sender<C>>,
    thread: Option<JoinHandle<()>>,
    /// The number of forks when the thread was started ([`process::forks`]). In a forked child the
    /// thread does not exist.
    forks: usize,
}

impl<C> CommandThread<C> {
    /// The thread that receives what `commands` sends, and ends when `commands` is dropped.
    pub(crate) fn new(commands: Sender<C>, thread: JoinHandle<()>) -> CommandThread<C> {
        CommandThread { commands: Some(commands), thread: Some(thread), forks: process::forks() }
    }

    /// Returns false if the thread has ended.
    pub(crate) fn send(&self, command: C) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok())
    }
}

impl<C> Drop for CommandThread<C> {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // The thread may have held a lock of the channel when the parent process forked.
            return std::mem::forget((self.commands.take(), self.thread.take()));
        }
        drop(self.commands.take());
        // While the process exits, the thread frees nothing, and may be in a call that never
        // returns.
        if let Some(thread) = self.thread.take().filter(|_| !process::is_exiting()) {
            let _ = thread.join();
        }
    }
}

impl Engine {
    /// Starts a thread, loads the model on it, and returns when the model is ready. `on_progress`
    /// is called on the caller's thread and returns whether to continue. If it returns false, the
    /// error is `CANCELLED`.
    pub fn start<L>(load: L, on_progress: &mut dyn FnMut(LoadProgress) -> bool) -> Result<Engine>
    where
        L: FnOnce(&mut dyn FnMut(LoadProgress) -> bool) -> Result<Loaded> + Send + 'static,
    {
        let (commands, inbox) = channel();
        let (report, loading) = channel();
        let broken = Arc::new(AtomicBool::new(false));
        let thread = crate::spawn::thread("llb-engine", {
            let broken = Arc::clone(&broken);
            move || run(load, &report, &inbox, &broken)
        })?;
        loop {
            match loading.recv() {
                Ok(LoadMessage::Progress(done)) if on_progress(done) => {}
                Ok(LoadMessage::Progress(_)) => {
                    // The thread ends when it next reports progress.
                    return Err(Error::new(
                        Code::Cancelled,
                        "cancelled while the model was loaded",
                    ));
                }
                Ok(LoadMessage::Finished(Ok(vocab))) => {
                    let thread = CommandThread::new(commands, thread);
                    return Ok(Engine { thread, vocab, broken });
                }
                Ok(LoadMessage::Finished(Err(error))) => {
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

    /// Submits a job. Its updates arrive on the job's channel.
    pub fn submit(&self, job: Job) -> Result<()> {
        self.send(EngineCommand::Run(Box::new(job)))
    }

    /// Looks up what the KV cache holds for a prompt of a chat with these adapters. The prompt must
    /// not be empty. Waits for the running decode.
    pub fn look_up(
        &self,
        chat: u64,
        prompt: Vec<TokenId>,
        adapters: AdapterScales,
    ) -> Result<CacheLookup> {
        let held = self.ask(move |scheduler| {
            Ok(scheduler.look_up(chat, CacheKey { tokens: &prompt, adapters: &adapters }))
        })?;
        held.recv().ok().and_then(Result::ok).ok_or_else(stopped)
    }

    /// Saves the sequence of a chat's last job. `None` if it is no longer cached. Waits for the
    /// running decode, at most until `deadline`.
    pub fn save(&self, chat: u64, deadline: Option<Instant>) -> Result<Option<SavedSequence>> {
        let kept = self.ask(move |scheduler| scheduler.save(chat))?;
        let answered = match deadline {
            Some(deadline) => {
                kept.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
            }
            None => kept.recv().ok(),
        };
        answered.unwrap_or_else(|| Err(stopped()))
    }

    /// Restores a sequence from [`Engine::save`] of an engine with the same model and options, so
    /// that later prompts can begin with it. Waits for the running decode.
    pub fn restore(&self, chat: u64, kept: SavedSequence) -> Result<()> {
        let restored = self.ask(move |scheduler| scheduler.restore(chat, &kept))?;
        restored.recv().unwrap_or_else(|_| Err(stopped()))
    }

    /// Asks the scheduler. The answer is an error if a fault has stopped it.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Scheduler) -> Result<T> + Send + 'static,
    ) -> Result<Receiver<Result<T>>> {
        let (sender, answer) = channel();
        self.send(EngineCommand::Ask(Box::new(move |scheduler: Result<&mut Scheduler>| {
            // If the caller no longer waits, sending fails. That is ignored.
            let _ = sender.send(scheduler.and_then(question));
        })))?;
        Ok(answer)
    }

    fn send(&self, command: EngineCommand) -> Result<()> {
        // The thread answers commands that arrive after this, and gives the reason of a fault.
        let sent = !self.is_broken() && self.thread.send(command);
        if sent { Ok(()) } else { Err(stopped()) }
    }

    /// Whether a fault has stopped the engine. A new engine can be started.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// The model's vocabulary.
    pub fn vocab(&self) -> &Arc<dyn Vocab> {
        &self.vocab
    }
}

fn run<L>(
    load: L,
    report: &Sender<LoadMessage>,
    inbox: &Receiver<EngineCommand>,
    broken: &AtomicBool,
) where
    L: FnOnce(&mut dyn FnMut(LoadProgress) -> bool) -> Result<Loaded>,
{
    let mut progress = |done: LoadProgress| report.send(LoadMessage::Progress(done)).is_ok();
    let loaded = catch_unwind(AssertUnwindSafe(|| load(&mut progress)));
    let Loaded { backend, vocab, speculation } = match loaded {
        Ok(Ok(loaded)) => loaded,
        Ok(Err(error)) => return drop(report.send(LoadMessage::Finished(Err(error)))),
        Err(payload) => {
            return drop(report.send(LoadMessage::Finished(Err(crate::panic::error(&*payload)))));
        }
    };
    let mut scheduler = Scheduler::new(backend, Arc::clone(&vocab), speculation);
    let _ = report.send(LoadMessage::Finished(Ok(vocab)));
    let fault = match catch_unwind(AssertUnwindSafe(|| serve(&mut scheduler, inbox))) {
        Ok(ServeEnd::Closed) => return,
        Ok(ServeEnd::Broken) => stopped(),
        Err(payload) => crate::panic::error(&*payload),
    };
    broken.store(true, Ordering::Release);
    let again = || Error::new(fault.code(), fault.message());
    scheduler.fail_all(again);
    // Answers the commands that were sent before the flag was seen. `send` refuses later ones.
    for command in inbox.iter() {
        match command {
            EngineCommand::Run(job) => drop(job.updates.send(JobUpdate::Failed(again()))),
            EngineCommand::Ask(question) => question(Err(again())),
        }
    }
}

enum ServeEnd {
    /// All senders are dropped.
    Closed,
    /// The backend is broken.
    Broken,
}

fn serve(scheduler: &mut Scheduler, inbox: &Receiver<EngineCommand>) -> ServeEnd {
    while !scheduler.is_broken() {
        if scheduler.is_idle() {
            scheduler.rest();
            match inbox.recv() {
                Ok(command) => handle(scheduler, command),
                Err(_) => return ServeEnd::Closed,
            }
        }
        for command in inbox.try_iter() {
            handle(scheduler, command);
        }
        scheduler.step();
    }
    ServeEnd::Broken
}

fn handle(scheduler: &mut Scheduler, command: EngineCommand) {
    match command {
        EngineCommand::Run(job) => scheduler.add(*job),
        EngineCommand::Ask(question) => question(Ok(scheduler)),
    }
}

/// The error `ENGINE_CLOSED` after a fault has stopped the engine.
pub(crate) fn stopped() -> Error {
    Error::new(
        Code::EngineClosed,
        "the engine of this model has stopped after a fault; create the chat again",
    )
}
