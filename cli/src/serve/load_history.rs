//! The load of the last minutes: a sample of the counters every two seconds, from the start of the
//! server on. The page plots it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::metrics::Metrics;
use super::model_pool::ModelPool;
use super::stamp;

/// The time between two samples.
const INTERVAL: Duration = Duration::from_secs(2);
/// Three minutes of samples.
const MAX_SAMPLES: usize = 90;

/// The samples, oldest first.
#[derive(Default)]
pub(crate) struct LoadHistory(Mutex<VecDeque<Value>>);

impl LoadHistory {
    /// Adds a sample of the counters, with the time in seconds since 1970.
    fn add(&self, pool: &ModelPool, metrics: &Metrics) {
        let models = pool.models();
        let mut sample = metrics.sample();
        sample["time"] = stamp::now().into();
        sample["running"] = models.iter().map(|model| model.running()).sum::<usize>().into();
        sample["waiting"] = models.iter().map(|model| model.waiting()).sum::<usize>().into();
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The reply of `/load`.
    pub(crate) fn json(&self) -> Value {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "object": "list", "interval_seconds": INTERVAL.as_secs(), "data": *samples })
    }
}

/// Adds samples. Never returns.
pub(super) async fn record(history: Arc<LoadHistory>, pool: Arc<ModelPool>, metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        history.add(&pool, &metrics);
    }
}
