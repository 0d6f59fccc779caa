//! Calls of the library, which block, on threads of their own. Few of those that need no weights
//! (templates, tokens, counts) run at once, so that many clients do not take the memory of many
//! replies.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use super::error::ApiError;

/// How many run at once. The others wait.
const AT_ONCE: usize = 4;

/// Runs a call on another thread.
pub(super) async fn on_thread<T: Send + 'static, E: Send + Into<ApiError> + 'static>(
    call: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    let ended = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread ended");
    tokio::task::spawn_blocking(call).await.map_err(ended)?.map_err(E::into)
}

pub(super) struct WeightlessCalls(Arc<Semaphore>);

impl Default for WeightlessCalls {
    fn default() -> Self {
        WeightlessCalls(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl WeightlessCalls {
    /// Runs a call on another thread, when there is a place. Fails after `time`. If that is over, or
    /// the client leaves, the call keeps its place until it ends.
    pub(super) async fn run<T: Send + 'static, E: Send + Into<ApiError> + 'static>(
        &self,
        time: Duration,
        call: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let reply = async {
            // Never closed, so this does not fail.
            let place = Arc::clone(&self.0).acquire_owned().await.ok();
            on_thread(move || {
                let _place = place;
                call()
            })
            .await
        };
        tokio::time::timeout(time, reply).await.unwrap_or_else(|_| Err(too_late()))
    }
}

fn too_late() -> ApiError {
    let message = "the request reached its time limit";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_call_fails_at_its_time_limit() {
        let calls = WeightlessCalls::default();
        let (hold, held) = channel::<()>();
        let call = move || Ok::<_, ApiError>(held.recv().is_ok());
        let error = calls.run(Duration::ZERO, call).await.unwrap_err();
        assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(hold);
        let time = Duration::from_secs(3600);
        assert_eq!(calls.run(time, || Ok::<_, ApiError>(1)).await.unwrap(), 1);
    }

    #[test]
    fn few_calls_run_at_once_and_the_others_wait() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
        let calls = Arc::new(WeightlessCalls::default());
        let (started, starts) = channel();
        let mut holds = Vec::new();
        let running: Vec<_> = (0..2 * AT_ONCE)
            .map(|number| {
                let (hold, held) = channel::<()>();
                holds.push(hold);
                let (calls, started) = (Arc::clone(&calls), started.clone());
                runtime.spawn(async move {
                    let call = move || {
                        started.send(number).expect("the test waits");
                        held.recv().expect_err("the test drops the other end");
                        Ok::<usize, ApiError>(number)
                    };
                    calls.run(Duration::from_secs(3600), call).await
                })
            })
            .collect();
        let first: Vec<usize> = starts.iter().take(AT_ONCE).collect();
        assert!(starts.recv_timeout(Duration::from_millis(200)).is_err(), "{first:?} were enough");
        // A call whose client has left keeps its place.
        running[first[0]].abort();
        assert!(starts.recv_timeout(Duration::from_millis(200)).is_err());
        holds.clear();
        assert_eq!(starts.iter().take(AT_ONCE).count(), AT_ONCE);
        for (number, call) in running.into_iter().enumerate().filter(|(it, _)| *it != first[0]) {
            let ended = runtime.block_on(call).expect("not aborted");
            assert_eq!(ended.ok(), Some(number));
        }
    }
}
