//! Models the channel between callers and the engine thread. Every accepted job gets one end, and
//! every question an answer, even if the engine stops after a fault.

use std::sync::Arc;

use shuttle::rand::Rng;
use shuttle::thread as threads;

use crate::api::AdapterScales;
use crate::error::{Code, Error};
use crate::sync::mpsc::{Sender, channel};

#[path = "../../src/engine/thread.rs"]
mod thread;

use thread::{Engine, Loaded};

/// The parts of other modules that `src/engine/thread.rs` uses.
mod backend {
    pub type TokenId = i32;
    pub trait Backend {
        /// The number of steps after which the backend is broken.
        fn steps(&self) -> usize;
    }
}

mod vocab {
    pub trait Vocab: Send + Sync {}
}

mod speculate {
    pub struct Speculation;
}

mod prefix_cache {
    use super::backend::TokenId;
    use crate::api::AdapterScales;

    pub struct CacheKey<'a> {
        pub tokens: &'a [TokenId],
        pub adapters: &'a AdapterScales,
    }
    pub struct CacheLookup;
    #[derive(Clone)]
    pub struct SavedSequence;
}

mod job {
    use super::{Error, Sender};

    pub struct Job {
        pub updates: Sender<JobUpdate>,
    }

    pub enum JobUpdate {
        Piece,
        Done,
        Failed(Error),
    }
}

/// A scheduler that writes one piece of the oldest job in a step, and ends that job in the next
/// step.
mod scheduler {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::backend::Backend;
    use super::job::{Job, JobUpdate};
    use super::prefix_cache::{CacheKey, CacheLookup, SavedSequence};
    use super::speculate::Speculation;
    use super::vocab::Vocab;
    use crate::error::{Error, Result};

    pub struct Scheduler {
        steps_left: usize,
        waiting: VecDeque<Job>,
        running: Option<Job>,
    }

    impl Scheduler {
        pub fn new(
            backend: Box<dyn Backend>,
            _: Arc<dyn Vocab>,
            _: Option<Speculation>,
        ) -> Scheduler {
            Scheduler { steps_left: backend.steps(), waiting: VecDeque::new(), running: None }
        }

        pub fn add(&mut self, job: Job) {
            self.waiting.push_back(job);
        }

        pub fn look_up(&mut self, _: u64, key: CacheKey) -> CacheLookup {
            let CacheKey { tokens: _, adapters: _ } = key;
            CacheLookup
        }

        pub fn save(&mut self, _: u64) -> Result<Option<SavedSequence>> {
            Ok(Some(SavedSequence))
        }

        pub fn restore(&mut self, _: u64, _: &SavedSequence) -> Result<()> {
            Ok(())
        }

        pub fn is_idle(&self) -> bool {
            self.waiting.is_empty() && self.running.is_none()
        }

        pub fn rest(&self) {}

        pub fn is_broken(&self) -> bool {
            self.steps_left == 0
        }

        pub fn fail_all(&mut self, error: impl Fn() -> Error) {
            for job in self.waiting.drain(..).chain(self.running.take()) {
                let _ = job.updates.send(JobUpdate::Failed(error()));
            }
        }

        pub fn step(&mut self) {
            self.steps_left = self.steps_left.saturating_sub(1);
            if self.is_broken() {
                return;
            }
            match self.running.take() {
                Some(job) => drop(job.updates.send(JobUpdate::Done)),
                None => {
                    self.running = self.waiting.pop_front();
                    self.running.iter().for_each(|job| {
                        let _ = job.updates.send(JobUpdate::Piece);
                    });
                }
            }
        }
    }
}

use job::{Job, JobUpdate};

struct Steps(usize);

impl backend::Backend for Steps {
    fn steps(&self) -> usize {
        self.0
    }
}

struct NoVocab;

impl vocab::Vocab for NoVocab {}

fn start(steps: usize) -> Engine {
    let load = move |progress: &mut dyn FnMut(f32) -> bool| {
        assert!(progress(0.5), "the caller waits");
        let vocab: Arc<dyn vocab::Vocab> = Arc::new(NoVocab);
        Ok(Loaded { backend: Box::new(Steps(steps)), vocab, speculation: None })
    };
    let mut seen = 0;
    let mut see = |_| {
        seen += 1;
        true
    };
    let engine = Engine::start(load, &mut see);
    assert_eq!(seen, 1, "the progress of the load");
    engine.unwrap_or_else(|error| panic!("{error}"))
}

/// Submits a job and waits for its end. Returns whether the job was computed.
fn run(engine: &Engine) -> bool {
    let (updates, inbox) = channel();
    if let Err(error) = engine.submit(Job { updates }) {
        assert_eq!(error.code(), Code::EngineClosed);
        assert!(engine.is_broken(), "only a broken engine refuses a job");
        return false;
    }
    let mut ends = Vec::new();
    while let Ok(update) = inbox.recv() {
        match update {
            JobUpdate::Piece => assert!(ends.is_empty(), "a piece after the end"),
            JobUpdate::Done => ends.push(true),
            JobUpdate::Failed(error) => {
                assert!(engine.is_broken(), "a failed job of a sound engine: {error}");
                ends.push(false);
            }
        }
    }
    assert_eq!(ends.len(), 1, "the ends of a job");
    ends[0]
}

/// Asks a question that is answered at once.
fn ask(engine: &Engine) {
    let answered = match shuttle::rand::thread_rng().gen_range(0..3) {
        0 => engine.look_up(1, vec![1], AdapterScales).map(drop),
        1 => engine.save(1, None).map(drop),
        _ => engine.restore(1, prefix_cache::SavedSequence),
    };
    match answered {
        Ok(()) => {}
        Err(error) => assert!(engine.is_broken(), "a sound engine answers: {error}"),
    }
}

fn calls(steps: usize, breaks: bool) {
    let engine = Arc::new(start(steps));
    let callers = (0..3).map(|_| {
        let engine = Arc::clone(&engine);
        threads::spawn(move || {
            assert!(run(&engine) || breaks, "a job of a sound engine");
            ask(&engine);
            drop(engine);
        })
    });
    callers.collect::<Vec<_>>().into_iter().for_each(|caller| caller.join().unwrap());
    // The last owner joins the thread.
    drop(engine);
}

pub fn model() {
    calls(usize::MAX, false);
}

/// The engine breaks after a step, while jobs are waiting and running.
pub fn with_a_fault() {
    let steps = shuttle::rand::thread_rng().gen_range(1..8);
    calls(steps, true);
}
