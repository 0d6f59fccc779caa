//! A chat's hold on its model. The model is in memory while a request uses it, until it has been
//! idle for the time in the option `keep_alive`, or until [`unload`] is called. The next request
//! loads it again.
//!
//! Chats share loaded models (`model_cache`), so the memory is freed once no chat holds the model.
//! Nothing here emits events: what happened is recorded for the log of the next call. One thread of
//! the process watches all idle models, those of embedding handles ([`Kept`]) too. It ends when none
//! is idle.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::exit;
use super::file_identity::{ModelFiles, identify};
use super::log::LogQueue;
use super::memory;
use super::model_cache::{self, LoadedModel};
use crate::api::{CreateOptions, LogLevel, Lora, Speculative};
use crate::engine::{Interrupt, LoadProgress};
use crate::error::{Code, Error, Result};
use crate::gguf::{self, ModelHeader};
use crate::panic;
use crate::process::{self, Shared};

/// The state of a chat that lives in the model's memory.
pub trait KeptState: Send + Sync {
    /// Saves the state before the model is unloaded. If this fails, the model stays loaded.
    fn save(&self) -> Result<()>;

    /// Restores the state in a model that was loaded again.
    fn restore(&self, model: &LoadedModel);
}

/// The model of one chat. Any thread may use it.
pub struct KeptModel {
    options: CreateOptions,
    path: String,
    /// All files of the load, with their identities at that time.
    files: Arc<ModelFiles>,
    /// The process that owns this. In a forked child the lock may be held by a thread of the
    /// parent, which does not exist there.
    forks: usize,
    hold: Mutex<Hold>,
    state: OnceLock<Weak<dyn KeptState>>,
    notes: LogQueue,
}

struct Hold {
    model: Option<Arc<LoadedModel>>,
    /// The model that this chat used last. Other chats may still hold it.
    last: Weak<LoadedModel>,
    /// The number of requests that use the model now.
    uses: usize,
    idle_since: Instant,
}

/// A request's use of a model. The model stays in memory until this is dropped.
pub struct ModelUse(Arc<KeptModel>);

impl Drop for ModelUse {
    fn drop(&mut self) {
        if self.0.forks != process::forks() {
            return;
        }
        let mut hold = self.0.lock();
        hold.uses -= 1;
        hold.idle_since = Instant::now();
        let is_idle = hold.uses == 0;
        drop(hold);
        match self.0.options.keep_alive {
            Some(time) if is_idle && time.is_zero() => drop(self.0.release(Some(time))),
            Some(_) if is_idle => wake_keeper(),
            _ => {}
        }
    }
}

impl Drop for KeptModel {
    fn drop(&mut self) {
        if self.options.keep_alive.is_some() && self.forks == process::forks() {
            look_again();
        }
    }
}

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

impl KeptModel {
    /// Loads the model with these options, or shares a loaded one. Errors are those of a create.
    pub fn open(
        options: &CreateOptions,
        path: &str,
        header: &ModelHeader,
        on_progress: &mut dyn FnMut(LoadProgress) -> bool,
    ) -> Result<Arc<KeptModel>> {
        let path = absolute(path);
        let options = with_absolute_paths(options);
        let identified = ModelFiles::identify(&path, file_paths(&options, &path));
        // Errors name the option that the file belongs to.
        let model = model_cache::open(&options, &path, header, on_progress)?;
        let kept = Arc::new(KeptModel {
            options: CreateOptions { n_ctx: u32::try_from(model.n_ctx).ok(), ..options },
            path,
            files: Arc::new(identified?),
            forks: process::forks(),
            hold: Mutex::new(Hold {
                last: Arc::downgrade(&model),
                model: Some(model),
                uses: 0,
                idle_since: Instant::now(),
            }),
            state: OnceLock::new(),
            notes: LogQueue::default(),
        });
        watch(&kept, &kept.files, kept.options.keep_alive);
        Ok(kept)
    }

    /// Registers a state to save and restore together with the model.
    pub fn keep_state(&self, state: Weak<dyn KeptState>) {
        let _ = self.state.set(state);
    }

    /// Keeps the model in memory for a request, and loads it first if it was unloaded. Errors are
    /// those of a create, `MODEL_INVALID` if a file has changed, and `CANCELLED`.
    pub fn acquire(self: &Arc<Self>, interrupt: &Interrupt) -> Result<ModelUse> {
        let mut hold = self.lock();
        self.loaded_by(&mut hold, interrupt)?;
        hold.uses += 1;
        drop(hold);
        Ok(ModelUse(Arc::clone(self)))
    }

    /// Returns the model, and loads it first if it was unloaded. The returned reference should be
    /// held only briefly.
    pub fn model(&self) -> Result<Arc<LoadedModel>> {
        self.loaded_by(&mut self.lock(), &Interrupt::default())
    }

    /// The model if it is in memory and not being loaded.
    pub fn in_memory(&self) -> Option<Arc<LoadedModel>> {
        self.try_lock()?.model.clone()
    }

    /// Takes the recorded log lines of at least this level.
    pub fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        let mut lines = self.notes.take(least);
        lines.extend(self.in_memory().iter().flat_map(|model| model.log.take(least)));
        lines
    }

    fn loaded_by(&self, hold: &mut Hold, interrupt: &Interrupt) -> Result<Arc<LoadedModel>> {
        if let Some(model) = &hold.model {
            return Ok(Arc::clone(model));
        }
        let shared = hold.last.upgrade().filter(|model| !model.engine.is_broken());
        let model = match shared {
            Some(model) => model,
            None => {
                let start = Instant::now();
                let model = self.load_again(interrupt)?;
                let seconds = start.elapsed().as_secs_f64();
                self.notes.push(LogLevel::Info, format!("model: loaded again in {seconds:.1} s"));
                if let Some(state) = self.state.get().and_then(Weak::upgrade) {
                    state.restore(&model);
                }
                model
            }
        };
        hold.last = Arc::downgrade(&model);
        hold.model = Some(Arc::clone(&model));
        Ok(model)
    }

    fn load_again(&self, interrupt: &Interrupt) -> Result<Arc<LoadedModel>> {
        self.files.check_unchanged("the chat was created; create it again")?;
        let header = ModelHeader::read_file(Path::new(&self.path))?;
        header.check_before_load(Path::new(&self.path))?;
        model_cache::open(&self.options, &self.path, &header, &mut |_| !interrupt.is_over())
    }

    fn lock(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while another thread loads the model.
    fn try_lock(&self) -> Option<MutexGuard<'_, Hold>> {
        match self.hold.try_lock() {
            Ok(hold) => Some(hold),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Kept for KeptModel {
    fn is_busy(&self) -> bool {
        self.try_lock().is_none_or(|hold| hold.uses > 0)
    }

    fn release(&self, idle: Option<Duration>) -> Release {
        {
            let Some(mut hold) = self.try_lock() else { return Release::Busy };
            if hold.model.is_none() {
                return Release::Absent;
            }
            if hold.uses > 0 {
                return Release::Busy;
            }
            if let Some(end) = idle.and_then(|idle| hold.idle_since.checked_add(idle))
                && Instant::now() < end
            {
                return Release::Until(end);
            }
            // The state is saved without holding the lock, using the model that is about to be
            // released.
            hold.uses += 1;
        }
        let saved = self.state.get().and_then(Weak::upgrade).map_or(Ok(()), |state| state.save());
        let mut hold = self.lock();
        hold.uses -= 1;
        if let Err(error) = saved {
            hold.idle_since = Instant::now();
            self.notes.push(LogLevel::Error, format!("model: stays loaded: {}", error.message()));
            return Release::Failed(error);
        }
        if hold.uses > 0 {
            return Release::Busy;
        }
        let model = hold.model.take();
        drop(hold);
        // Dropping the last reference waits until the engine thread has freed the model.
        if model.and_then(Arc::into_inner).is_some() {
            memory::give_back();
        }
        let why = match idle {
            Some(idle) => format!("after {} s without a request", idle.as_secs_f64()),
            None => "by llb_model_unload".to_owned(),
        };
        self.notes.push(LogLevel::Info, format!("model: unloaded {why}"));
        Release::Done
    }
}

/// Registers a model of this process for [`unload`], and for `keep_alive`: how long it stays in
/// memory after a use. `None` is for ever.
pub(crate) fn watch<T: Kept + 'static>(
    kept: &Arc<T>,
    files: &Arc<ModelFiles>,
    keep_alive: Option<Duration>,
) {
    let model: Weak<T> = Arc::downgrade(kept);
    let files = Arc::clone(files);
    let mut keeper = KEEPER.lock();
    keeper.models.retain(|watched| watched.model.strong_count() > 0);
    keeper.models.push(Watched { forks: process::forks(), files, keep_alive, model });
}

/// The options with absolute paths, so that a later load does not depend on the working directory.
pub(crate) fn with_absolute_paths(options: &CreateOptions) -> CreateOptions {
    let lora = options.lora.iter();
    let lora = lora.map(|lora| Lora { path: absolute(&lora.path), scale: lora.scale }).collect();
    let speculative = match &options.speculative {
        Speculative::Draft { model, n_max } => {
            Speculative::Draft { model: absolute(model), n_max: *n_max }
        }
        other => other.clone(),
    };
    CreateOptions { lora, speculative, chat_template: None, components: None, ..options.clone() }
}

/// The absolute path, or the path itself if the system cannot make it absolute.
pub(crate) fn absolute(path: &str) -> String {
    let absolute =
        std::path::absolute(path).ok().and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| path.to_owned())
}

/// All files that a load reads.
pub(crate) fn file_paths(options: &CreateOptions, path: &str) -> Vec<PathBuf> {
    let mut paths = gguf::part_paths(Path::new(path));
    paths.extend(options.lora.iter().map(|lora| PathBuf::from(&lora.path)));
    if let Speculative::Draft { model, .. } = &options.speculative {
        paths.extend(gguf::part_paths(Path::new(model)));
    }
    paths
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
    let models: Vec<_> = own_models(is_of).iter().filter_map(Watched::upgrade).collect();
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

impl Watched {
    fn upgrade(&self) -> Option<Arc<dyn Kept>> {
        self.model.upgrade()
    }
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

/// Makes the thread check again, if it is running.
pub(crate) fn look_again() {
    let mut keeper = KEEPER.lock();
    keeper.woken = true;
    if let Some((of, thread)) = &keeper.thread
        && *of == process::forks()
    {
        thread.unpark();
    }
}

/// Starts the thread, or makes it check again.
pub(crate) fn wake_keeper() {
    let forks = process::forks();
    let mut keeper = KEEPER.lock();
    keeper.woken = true;
    match &keeper.thread {
        Some((of, thread)) if *of == forks => thread.unpark(),
        _ => {
            let watch = move || {
                exit::block_signals();
                while let Some(end) = release_idle() {
                    std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
                }
            };
            // If the thread cannot be started, idle models stay until the next request ends.
            let thread = panic::spawn_quiet("llb-keep-alive", watch).ok();
            keeper.thread = thread.map(|thread| (forks, thread.thread().clone()));
        }
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
            match watched.upgrade()?.release(Some(idle)) {
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
