//! Calls of the library, which block, on threads of their own. Few of those that need no weights
//! (templates, tokens, counts) run at once, so that many clients do not take the memory of many
//! replies. One client's calls leave half of the places to others, and those of one route leave
//! half of the client's to its other routes. Clients that have no place get spare ones.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;

use super::error::ApiError;
use super::fair_queue::{FairQueue, Group, QueueFull, Shares};

/// How many run at once. The others wait, as long as they have connections.
const SHARES: Shares =
    Shares { places: 4, spare: 4, min_clients: 2, kinds: 2, max_waiting: usize::MAX };

/// Runs a call on another thread.
pub(super) async fn on_thread<T: Send + 'static, E: Send + Into<ApiError> + 'static>(
    call: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, ApiError> {
    let ended = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread ended");
    tokio::task::spawn_blocking(call).await.map_err(ended)?.map_err(E::into)
}

pub(super) struct WeightlessCalls(Arc<FairQueue>);

impl Default for WeightlessCalls {
    fn default() -> Self {
        WeightlessCalls(FairQueue::new(SHARES))
    }
}

impl WeightlessCalls {
    /// Runs a call on another thread, when it is its turn. Fails after `time`. If that is over, or
    /// the client leaves, the call keeps its place until it ends.
    pub(super) async fn run<T: Send + 'static, E: Send + Into<ApiError> + 'static>(
        &self,
        group: Group,
        time: Duration,
        call: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let reply = async {
            let waiter = self.0.join(group).map_err(full)?;
            let place = waiter.place().await.map_err(full)?;
            on_thread(move || {
                let _place = place;
                call()
            })
            .await
        };
        tokio::time::timeout(time, reply).await.unwrap_or_else(|_| Err(too_late()))
    }
}

fn full(_: QueueFull) -> ApiError {
    let message = "too many requests of this client wait; try again later";
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("rate_limit_exceeded")
}

fn too_late() -> ApiError {
    let message = "the request reached its time limit";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::client::Client;
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn group(client: u8, kind: &'static str) -> Group {
        Group { client: Client::new([10, 0, 0, client].into()), kind }
    }

    #[tokio::test]
    async fn a_call_fails_at_its_time_limit() {
        let calls = WeightlessCalls::default();
        let (hold, held) = channel::<()>();
        let call = move || Ok::<_, ApiError>(held.recv().is_ok());
        let error = calls.run(group(1, "/a"), Duration::ZERO, call).await.unwrap_err();
        assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(hold);
        assert_eq!(calls.run(group(1, "/a"), HOUR, || Ok::<_, ApiError>(1)).await.unwrap(), 1);
    }

    #[test]
    fn slow_calls_of_a_client_hold_up_only_their_kind() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
        let calls = Arc::new(WeightlessCalls::default());
        let (started, starts) = channel();
        let mut holds = Vec::new();
        let mut run = |group: Group| {
            let (hold, held) = channel::<()>();
            holds.push(hold);
            let (calls, started) = (Arc::clone(&calls), started.clone());
            let call = move || {
                started.send(group).expect("the test waits");
                held.recv().expect_err("the test drops the other end");
                Ok::<Group, ApiError>(group)
            };
            runtime.spawn(async move { calls.run(group, HOUR, call).await })
        };
        let pause = Duration::from_millis(200);
        let slow = [(); 4].map(|()| run(group(1, "/slow")));
        assert_eq!(starts.recv(), Ok(group(1, "/slow")));
        assert!(starts.recv_timeout(pause).is_err(), "one of its kind is enough");
        // A call whose client has left keeps its place.
        slow.iter().for_each(tokio::task::JoinHandle::abort);
        assert!(starts.recv_timeout(pause).is_err());
        for other in [group(1, "/other"), group(2, "/slow"), group(2, "/other")] {
            drop(run(other));
            assert_eq!(starts.recv(), Ok(other));
        }
        for other in [3, 4, 5, 6].map(|client| group(client, "/slow")) {
            drop(run(other));
            assert_eq!(starts.recv(), Ok(other), "spare places");
        }
        let last = run(group(3, "/other"));
        assert!(starts.recv_timeout(pause).is_err(), "all places are taken");
        holds.clear();
        assert_eq!(starts.recv(), Ok(group(3, "/other")));
        assert_eq!(runtime.block_on(last).expect("not aborted").ok(), Some(group(3, "/other")));
    }
}
