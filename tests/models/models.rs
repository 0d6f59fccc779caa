//! Models of what the library's threads share: the handle table, the request queue, and the channel
//! between callers and the engine thread. A model checker runs their threads in random orders, and
//! finds deadlocks and violated guarantees.
//!
//! The modules are the library's own source files. Here, `crate::sync` and `crate::process` are
//! built from the checker's locks, and everything else that the files use is replaced by the
//! minimum that works. Deadlines and forks are not modelled: no call here has a deadline.
//!
//! `LLB_MODEL_SECONDS` is the time for each model (10). `LLB_MODEL_SEED` is the first seed (1).
#![allow(dead_code, reason = "the files have more functions than the models use")]

#[macro_use]
#[path = "../../src/named.rs"]
mod named;

#[path = "../../src/error.rs"]
mod error;
mod handles;
mod jobs;
mod requests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The parts of the requests that the files refer to.
mod api {
    #[derive(Clone, Default)]
    pub struct AdapterScales;
}

/// The model checker's types in place of the standard library's.
mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
    pub(crate) use shuttle::thread::JoinHandle;
}

/// A process that neither forks nor exits.
mod process {
    use std::sync::PoisonError;
    use std::time::Instant;

    use crate::sync::{Mutex, MutexGuard};

    pub(crate) fn forks() -> usize {
        0
    }

    pub(crate) fn is_exiting() -> bool {
        false
    }

    pub(crate) fn exit_deadline() -> Option<Instant> {
        None
    }

    pub(crate) struct Shared<T>(Mutex<T>);

    impl<T> Shared<T> {
        pub(crate) const fn new(value: T) -> Self {
            Shared(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

mod spawn {
    use crate::error::Result;
    use crate::sync::JoinHandle;

    pub(crate) fn thread<T: Send + 'static>(
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        let thread = shuttle::thread::Builder::new().name(name.to_owned());
        Ok(thread.spawn(run).expect("a thread of the checker"))
    }
}

mod panic {
    use std::any::Any;

    use crate::error::{Code, Error};

    pub(crate) fn error(_: &(dyn Any + Send)) -> Error {
        Error::new(Code::InternalBridgeError, "a panic")
    }
}

/// The number of orders between two checks of the time.
const BATCH: usize = 500;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Runs a model in new orders until its time is over. Returns the number of orders, and the failure
/// if there was one.
fn check(model: fn(), time: Duration) -> (usize, Option<String>) {
    let (start, mut orders) = (Instant::now(), 0);
    let mut seed = setting("LLB_MODEL_SEED", 1);
    while orders == 0 || start.elapsed() < time {
        let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(seed, BATCH);
        let runner = shuttle::Runner::new(scheduler, shuttle::Config::default());
        let run = catch_unwind(AssertUnwindSafe(|| runner.run(model)));
        if let Err(payload) = run {
            let message = payload.downcast_ref::<String>().cloned();
            let message = message.or(payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let message = message.unwrap_or_else(|| "a panic".to_owned());
            return (orders, Some(format!("seed {seed}: {message}")));
        }
        orders += BATCH;
        seed += 1;
    }
    (orders, None)
}

fn main() -> ExitCode {
    let models: [(&str, fn()); 6] = [
        ("handle table", handles::model),
        ("request queue: cancel and close", requests::cancel_and_close),
        ("request queue: cancel a call that waits", requests::cancel_waiting),
        ("request queue: a call that never returns", requests::give_up),
        ("engine: jobs", jobs::model),
        ("engine: jobs and a fault", jobs::with_a_fault),
    ];
    let time = Duration::from_secs(setting("LLB_MODEL_SECONDS", 10));
    let (mut all, mut failed) = (0, 0);
    for (name, model) in models {
        let (orders, failure) = check(model, time);
        all += orders;
        match failure {
            None => println!("{name}: {orders} orders"),
            Some(failure) => {
                failed += 1;
                println!("{name}: FAILED after {orders} orders: {failure}");
            }
        }
    }
    println!("harden: inputs={all} wrong={failed}");
    ExitCode::from(u8::from(failed > 0))
}
