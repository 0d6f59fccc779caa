//! When models are unloaded: those of chats and of embedding handles. A model is in memory while
//! something uses it, until it has been idle for the time in the option `keep_alive`, or until
//! [`unload`] is called.
//!
//! One thread of the process watches all idle models. It ends when none is idle.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::file_identity::{ModelFiles, absolute, identify};
use crate::error::{Code, Error, Result};
use crate::llama::raw::machine_memory;
use crate::process::{self, Shared};
use crate::spawn;

/// A model that is unloaded when nothing uses it.
pub(crate) trait Kept: Send + Sync {
    /// Whether something is using or loading it.
    fn is_busy(&self) -> bool;

    /// Releases the model unless something uses it, or it has been idle for less than this time.
    fn release(&self, idle: Option<Duration>) -> Release;
}

/// The result of an attempt to unload a model.
pub(crate) enum Release {
    /// The chat no longer holds the model.
    Done,
    /// The model was not in memory.
    Absent,
    /// A request is using or loading the model.
    Busy,
    /// The idle time has not passed yet.
    Until(Instant),
    /// The state could not be saved.
    Failed(Error),
}

/// A model and its uses. Any thread may use it.
pub(crate) struct HeldModel<M> {
    /// All files of the load, with their identities at that time.
    pub(crate) files: Arc<ModelFiles>,
    /// How long the model stays in memory after a use. `None` is for ever.
    keep_alive: Option<Duration>,
    /// The process that owns this. In a forked child the lock may be held by a thread of the
    /// parent, which does not exist there.
    forks: usize,
    hold: Mutex<ModelHold<M>>,
}

pub(crate) struct ModelHold<M> {
    /// The model, if it is in memory.
    pub(crate) model: Option<Arc<M>>,
    /// The number of uses of the model now.
    pub(crate) uses: usize,
    pub(crate) idle_since: Instant,
}

impl<M> HeldModel<M> {
    /// Holds a model that was just loaded from these files.
    pub(crate) fn new(
        model: Arc<M>,
        files: Arc<ModelFiles>,
        keep_alive: Option<Duration>,
    ) -> HeldModel<M> {
        let hold = ModelHold { model: Some(model), uses: 0, idle_since: Instant::now() };
        let forks = process::forks();
        HeldModel { files, keep_alive, forks, hold: Mutex::new(hold) }
    }

    /// False in a forked child of the process that loaded the model.
    pub(crate) fn is_own(&self) -> bool {
        self.forks == process::forks()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.try_lock().is_none_or(|hold| hold.uses > 0)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ModelHold<M>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while another thread loads the model.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, ModelHold<M>>> {
        match self.hold.try_lock() {
            Ok(hold) => Some(hold),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends a use of the model. Calls `release` if the model is to be unloaded at once.
    pub(crate) fn end_use(&self, release: impl FnOnce(Duration)) {
        let mut hold = self.lock();
        hold.uses -= 1;
        hold.idle_since = Instant::now();
        let is_idle = hold.uses == 0;
        drop(hold);
        match self.keep_alive {
            Some(time) if is_idle && time.is_zero() => release(time),
            Some(_) if is_idle => wake_keeper(true),
            _ => {}
        }
    }

    /// The lock if nothing uses the model, and it has been idle for this time. Otherwise the reason
    /// not to release the model.
    pub(crate) fn lock_idle(
        &self,
        idle: Option<Duration>,
    ) -> Result<MutexGuard<'_, ModelHold<M>>, Release> {
        let hold = self.try_lock().ok_or(Release::Busy)?;
        if hold.model.is_none() {
            return Err(Release::Absent);
        }
        if hold.uses > 0 {
            return Err(Release::Busy);
        }
        match idle.and_then(|idle| hold.idle_since.checked_add(idle)) {
            Some(end) if Instant::now() < end => Err(Release::Until(end)),
            _ => Ok(hold),
        }
    }

    /// Drops the model. If this was the last reference, waits until its thread has freed it.
    pub(crate) fn unload(mut hold: MutexGuard<'_, ModelHold<M>>) {
        let model = hold.model.take();
        drop(hold);
        free(model);
    }
}

impl<M> Drop for HeldModel<M> {
    fn drop(&mut self) {
        if !self.is_own() {
            return;
        }
        if self.keep_alive.is_some() {
            wake_keeper(false);
        }
        free(self.hold.get_mut().unwrap_or_else(PoisonError::into_inner).model.take());
    }
}

/// Drops a reference to a model. The last one frees the model, and returns its memory to the system.
fn free<M>(model: Option<Arc<M>>) {
    if model.and_then(Arc::into_inner).is_some() {
        machine_memory::give_back_memory();
    }
}

/// Registers a model of this process, which `kept` holds, for `keep_alive` and [`unload`].
pub(crate) fn watch<T: Kept + 'static, M>(kept: &Arc<T>, held: &HeldModel<M>) {
    let model: Weak<T> = Arc::downgrade(kept);
    let (files, keep_alive) = (Arc::clone(&held.files), held.keep_alive);
    let mut keeper = KEEPER.lock();
    keeper.models.retain(|watched| watched.model.strong_count() > 0);
    keeper.models.push(Watched { forks: held.forks, files, keep_alive, model });
}

/// Unloads a model for all chats and embedding handles of this process that hold it, and returns
/// their number. The next request of each loads the model again.
///
/// # Errors
/// `BUSY` if one of these chats is running a request; nothing is unloaded then. Also the error of a
/// state that could not be saved.
pub fn unload(path: &str) -> Result<usize> {
    let path = absolute(path);
    let identity = identify(Path::new(&path)).ok();
    let is_of = |watched: &Watched| watched.files.is_of(&path, identity.as_ref());
    let models: Vec<_> =
        own_models(is_of).iter().filter_map(|watched| watched.model.upgrade()).collect();
    let busy = || {
        let problem = "a request runs on this model; cancel it, or call again when it has ended";
        Error::new(Code::Busy, problem).about(&path)
    };
    if models.iter().any(|model| model.is_busy()) {
        return Err(busy());
    }
    let mut unloaded = 0;
    for model in models {
        match model.release(None) {
            Release::Done => unloaded += 1,
            Release::Absent | Release::Until(_) => {}
            Release::Busy => return Err(busy()),
            Release::Failed(error) => return Err(error),
        }
    }
    Ok(unloaded)
}

/// A model, and what decides whether it is released. Only a model that may be released now is
/// referenced: a reference would keep it in memory after its chat was destroyed.
#[derive(Clone)]
struct Watched {
    /// The process that owns it.
    forks: usize,
    files: Arc<ModelFiles>,
    keep_alive: Option<Duration>,
    model: Weak<dyn Kept>,
}

/// The models of all chats, and the thread that watches the ones with `keep_alive`.
struct Keeper {
    models: Vec<Watched>,
    /// The thread, and the process it runs in.
    thread: Option<(usize, Thread)>,
    /// Whether a model has become idle since the thread last checked.
    woken: bool,
}

static KEEPER: Shared<Keeper> =
    Shared::new(Keeper { models: Vec::new(), thread: None, woken: false });

/// The models of this process that `is_wanted` accepts.
fn own_models(is_wanted: impl Fn(&Watched) -> bool) -> Vec<Watched> {
    let forks = process::forks();
    let keeper = KEEPER.lock();
    let own = keeper.models.iter().filter(|watched| watched.forks == forks);
    own.filter(|watched| is_wanted(watched)).cloned().collect()
}

/// Makes the thread check again. Starts it if it is not running and `may_start` is true.
fn wake_keeper(may_start: bool) {
    let forks = process::forks();
    let mut keeper = KEEPER.lock();
    keeper.woken = true;
    match &keeper.thread {
        Some((of, thread)) if *of == forks => thread.unpark(),
        _ if may_start => {
            let watch = move || {
                while let Some(end) = release_idle() {
                    std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
                }
            };
            // If the thread cannot be started, idle models stay until the next request ends.
            let thread = spawn::thread("llb-keep-alive", watch).ok();
            keeper.thread = thread.map(|thread| (forks, thread.thread().clone()));
        }
        _ => {}
    }
}

/// Releases the models whose idle time is over. Returns when the next one is due; `None` if no
/// model is idle, which ends the thread.
fn release_idle() -> Option<Instant> {
    loop {
        KEEPER.lock().woken = false;
        let ends = own_models(|watched| watched.keep_alive.is_some());
        let ends = ends.iter().filter_map(|watched| {
            let idle = watched.keep_alive?;
            match watched.model.upgrade()?.release(Some(idle)) {
                Release::Until(end) => Some(end),
                Release::Failed(_) => Instant::now().checked_add(idle),
                _ => None,
            }
        });
        let next = ends.min();
        let mut keeper = KEEPER.lock();
        if next.is_some() {
            return next;
        }
        if !keeper.woken {
            keeper.thread = None;
            return None;
        }
    }
}
