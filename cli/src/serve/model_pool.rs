//! The server's models, and which of them are in memory. A model is loaded by the first request
//! that needs it. It is unloaded when it has not been used for a while, or when another model needs
//! the memory. Loads run one after another, in the order of the requests for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use llb::llama::{MachineMemory, give_back_memory};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::error::ApiError;
use super::fair_queue::Group;
use super::limits::PoolLimits;
use super::model::{LoadState, LoadedModel, ServedModel};
use super::slot::{Lease, Slot};
use crate::failure::Result;
use crate::terminal;

/// How often to look for idle models.
const WATCH: Duration = Duration::from_secs(1);
/// The share of the machine's memory that should stay free, as a divisor. Unused models are
/// unloaded to keep it free.
const FREE_SHARE: u64 = 20;

pub(crate) struct ModelPool {
    models: Vec<Arc<ServedModel>>,
    limits: PoolLimits,
    /// Whether no model is ever loaded, because the server only renders.
    renders_only: bool,
    /// Held while models are loaded and unloaded. Served in order of arrival.
    loading: Arc<Mutex<()>>,
    /// Signals that a lease has ended. The holder of `loading` waits for it.
    lease_ended: Arc<Notify>,
    is_logged: bool,
}

impl ModelPool {
    pub(super) fn new(
        models: Vec<Arc<ServedModel>>,
        limits: PoolLimits,
        renders_only: bool,
        is_logged: bool,
    ) -> Arc<ModelPool> {
        let (loading, lease_ended) = (Arc::default(), Arc::default());
        Arc::new(ModelPool { models, limits, renders_only, loading, lease_ended, is_logged })
    }

    pub(crate) fn models(&self) -> &[Arc<ServedModel>] {
        &self.models
    }

    pub(crate) fn limits(&self) -> PoolLimits {
        self.limits
    }

    /// Loads the first model before the server accepts requests. Blocks.
    pub(super) fn load_first(&self) -> Result<()> {
        let Some(first) = self.models.first().filter(|_| !self.renders_only) else {
            return Ok(());
        };
        let progress = terminal::progress(&first.name);
        let loaded = LoadedModel::open(first.purpose, &first.options, progress)?;
        first.state().keep(loaded);
        Ok(())
    }

    /// Waits for a slot of a model, which is loaded if it is not in memory.
    ///
    /// If the queue is full or the wait takes longer than `time`, the error has status 429.
    /// Dropping the future leaves the queue.
    pub(crate) async fn slot(
        self: &Arc<ModelPool>,
        model: &Arc<ServedModel>,
        group: Group,
        time: Duration,
    ) -> std::result::Result<Slot, ApiError> {
        let waiter = model.queue(group)?;
        let slot = async {
            let lease = self.lease_in_time(model).await?;
            Slot::wait(lease, waiter).await.map_err(|full| model.full(full))
        };
        in_time(time, model, slot).await
    }

    /// Waits until a model is in memory, at most this time. The lease keeps it there.
    pub(crate) async fn lease(
        self: &Arc<ModelPool>,
        model: &Arc<ServedModel>,
        time: Duration,
    ) -> std::result::Result<Lease, ApiError> {
        in_time(time, model, self.lease_in_time(model)).await
    }

    async fn lease_in_time(
        self: &Arc<ModelPool>,
        model: &Arc<ServedModel>,
    ) -> std::result::Result<Lease, ApiError> {
        if self.renders_only {
            let message = "this server loads no weights (--render); send the request to a server \
                           that does, or use /v1/chat/completions/render";
            return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, message));
        }
        if model.state().awaited == 0
            && let Some(lease) = self.lease_of_loaded(model)
        {
            return Ok(lease);
        }
        let awaited = Undo::awaited(model);
        let asked = Instant::now();
        let turn = Arc::clone(&self.loading).lock_owned().await;
        if let Some(lease) = self.lease_of_loaded(model) {
            return Ok(lease);
        }
        // Requests that waited for a failed attempt share its failure instead of each trying again.
        if let Some((time, failure)) = &model.state().failure
            && *time >= asked
        {
            return Err(ApiError::of_library(failure));
        }
        self.make_room(model).await;
        // The load continues even if this client leaves, because others may wait for the model.
        let task = tokio::spawn(load(Arc::clone(self), Arc::clone(model), turn));
        let result = task.await.map_err(|_| stopped())?;
        drop(awaited);
        result
    }

    /// A lease, if the model is in memory and is not about to be unloaded.
    fn lease_of_loaded(&self, model: &Arc<ServedModel>) -> Option<Lease> {
        let mut state = model.state();
        let loaded = state.loaded.clone().filter(|_| !state.is_leaving)?;
        Some(Lease::new(model, &mut state, loaded, &self.lease_ended))
    }

    /// Unloads models until there is room for one more. Unused models go first, least recently used
    /// first.
    async fn make_room(&self, model: &ServedModel) {
        while let Some(other) = self.next_to_leave(model) {
            let leaving = Undo::leaving(&other);
            while other.state().leases > 0 {
                self.lease_ended.notified().await;
            }
            let unused = take_unused(&other);
            drop(leaving);
            self.unload(&other, unused).await;
        }
    }

    /// The next model to unload, if there is no room for `model` beside the ones in memory.
    fn next_to_leave(&self, model: &ServedModel) -> Option<Arc<ServedModel>> {
        let loaded = || self.models.iter().filter(|other| other.is_loaded());
        let bytes = loaded().map(|other| other.bytes()).sum::<u64>() + model.bytes();
        let available = MachineMemory::read().available.unwrap_or(u64::MAX);
        let fits = loaded().count() < self.limits.max_loaded
            && bytes <= self.limits.max_bytes
            && model.bytes() <= available;
        if fits {
            return None;
        }
        let order = |other: &&Arc<ServedModel>| {
            let state = other.state();
            (state.leases > 0, state.last_use)
        };
        loaded().min_by_key(order).cloned()
    }

    /// Unloads unused models. Never returns.
    pub(super) async fn watch(self: Arc<ModelPool>) {
        loop {
            tokio::time::sleep(WATCH).await;
            // Skipped while a load is running.
            let Ok(turn) = Arc::clone(&self.loading).try_lock_owned() else { continue };
            let memory = MachineMemory::read();
            let mut is_short = memory
                .total
                .zip(memory.available)
                .is_some_and(|(total, available)| available < total / FREE_SHARE);
            let mut models: Vec<_> = self.models.iter().filter(|model| model.is_loaded()).collect();
            models.sort_by_key(|model| model.state().last_use);
            for model in models {
                let idle = model.state().last_use.elapsed();
                let is_over = self.limits.idle.is_some_and(|most| idle >= most);
                if (is_over || is_short)
                    && let Some(unused) = take_unused(model)
                {
                    self.unload(model, Some(unused)).await;
                    // The next check shows whether this was enough.
                    is_short = false;
                }
            }
            drop(turn);
        }
    }

    async fn unload(&self, model: &ServedModel, loaded: Option<Arc<LoadedModel>>) {
        let was_loaded = loaded.is_some();
        let freed = spawn_blocking(move || {
            drop(loaded);
            give_back_memory();
        });
        let _ = freed.await;
        if was_loaded && self.is_logged {
            say!("llb: unloaded {}", model.name);
        }
    }
}

/// Loads a model. The lease is created before the turn ends, so no other load can reclaim the
/// memory.
async fn load(
    pool: Arc<ModelPool>,
    model: Arc<ServedModel>,
    _turn: OwnedMutexGuard<()>,
) -> std::result::Result<Lease, ApiError> {
    let started = Instant::now();
    let (purpose, options) = (model.purpose, model.options.clone());
    let open = move || LoadedModel::open(purpose, &options, Box::new(|_| ()));
    let result = spawn_blocking(open).await;
    match result.map_err(|_| stopped())? {
        Ok(loaded) => {
            if pool.is_logged {
                say!("llb: loaded {} in {} ms", model.name, started.elapsed().as_millis());
            }
            let mut state = model.state();
            let loaded = state.keep(loaded);
            Ok(Lease::new(&model, &mut state, loaded, &pool.lease_ended))
        }
        Err(failure) => {
            let error = ApiError::of_library(&failure);
            model.state().failure = Some((Instant::now(), failure));
            Err(error)
        }
    }
}

/// Takes a model out of service unless a request uses it.
fn take_unused(model: &ServedModel) -> Option<Arc<LoadedModel>> {
    let mut state = model.state();
    if state.leases == 0 { state.loaded.take() } else { None }
}

async fn in_time<T>(
    time: Duration,
    model: &ServedModel,
    result: impl Future<Output = std::result::Result<T, ApiError>>,
) -> std::result::Result<T, ApiError> {
    let late = || model.overloaded("the request waited too long for the model");
    // A time-out of zero does not end what is ready.
    if time.is_zero() {
        return Err(late());
    }
    tokio::time::timeout(time, result).await.map_err(|_| late())?
}

fn stopped() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
}

/// Undoes a change of a model's state when it is dropped.
struct Undo<'a>(&'a ServedModel, fn(&mut LoadState));

impl<'a> Undo<'a> {
    /// Counts a request that waits for a load.
    fn awaited(model: &'a ServedModel) -> Undo<'a> {
        model.state().awaited += 1;
        Undo(model, |state| state.awaited -= 1)
    }

    /// Refuses new requests for a model that is about to be unloaded.
    fn leaving(model: &'a ServedModel) -> Undo<'a> {
        model.state().is_leaving = true;
        Undo(model, |state| state.is_leaving = false)
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.state());
    }
}
