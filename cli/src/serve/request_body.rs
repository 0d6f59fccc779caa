//! The body of a request, as bytes. It is received with limits on size and time, and counts
//! against a budget for all bodies of the server. It is not parsed here.

use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use super::error::ApiError;
use super::memory_budget::{MemoryBudget, MemoryShare};

/// Smaller bodies are not counted. The number of connections limits their memory.
const MIN_COUNTED: usize = 64 << 10;
/// The largest body that is read although nothing needs it.
const MAX_DISCARDED: usize = 64 << 10;
/// A guess, in seconds: bodies wait until requests before them have run.
const RETRY_AFTER: u64 = 5;

/// Receives a body, which must arrive within `time`. Before its bytes are read, it waits as long
/// for its share of the memory. Returns the share with the bytes.
pub(super) async fn receive(
    body: Body,
    max_bytes: usize,
    time: Duration,
    budget: &MemoryBudget,
) -> Result<(Bytes, Option<MemoryShare>), ApiError> {
    // The length that the client declared.
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > max_bytes {
        return Err(too_large(max_bytes));
    }
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    let mut share = None;
    if declared > MIN_COUNTED {
        share = Some(in_time(time, budget.share(declared as u64)).await?);
        bytes.try_reserve_exact(declared).map_err(|_| no_memory())?;
    }
    let mut end = tokio::time::Instant::now() + time;
    loop {
        let frame = tokio::time::timeout_at(end, body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| unreadable(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        if share.is_none() && bytes.len() + data.len() > MIN_COUNTED {
            let begin = tokio::time::Instant::now();
            share = Some(in_time(time, budget.share(max_bytes as u64)).await?);
            end += begin.elapsed();
        }
        bytes.try_reserve(data.len()).map_err(|_| no_memory())?;
        bytes.extend_from_slice(&data);
    }
    bytes.shrink_to_fit();
    if let Some(share) = &mut share {
        share.shrink(bytes.len() as u64);
    }
    Ok((bytes.into(), share))
}

/// Reads a body that nothing needs, if it is small and arrives within `time`. Otherwise the connection
/// would be closed, and a client would lose the request that it sends next.
pub(super) async fn discard(body: Body, time: Duration) {
    let mut body = Limited::new(body, MAX_DISCARDED);
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    // Without the rest of the body, the connection is closed.
    let _ = tokio::time::timeout(time, read).await;
}

async fn in_time(
    time: Duration,
    share: impl Future<Output = MemoryShare>,
) -> Result<MemoryShare, ApiError> {
    tokio::time::timeout(time, share).await.map_err(|_| no_memory())
}

/// The error for a request that found no memory in time.
pub(super) fn no_memory() -> ApiError {
    let message = "other requests take the memory for requests; try again later";
    let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
    error.retry_after = Some(RETRY_AFTER);
    error.with_code("rate_limit_exceeded")
}

fn too_large(max_bytes: usize) -> ApiError {
    let message = format!("the body has more than {max_bytes} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body comes too slowly")
}

fn unreadable(error: &axum::Error) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn bodies_beyond_the_budget_wait_and_are_refused() {
        // Its largest share is 128 KiB.
        let budget = MemoryBudget::new(256 << 10);
        let body = |bytes: usize| Body::from(vec![b' '; bytes]);
        let receive = |body, time| super::receive(body, 1 << 20, time, &budget);
        run(async {
            let first = receive(body(100 << 10), TIME).await.expect("the budget is unused");
            let short = Duration::from_millis(20);
            let error = receive(body(100 << 10), short).await.err().expect("no memory");
            assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
            assert!(error.retry_after.is_some());
            // Small bodies are not counted.
            assert!(receive(body(MIN_COUNTED), short).await.is_ok());
            let second = receive(body(100 << 10), TIME);
            let (second, ()) = tokio::join!(second, async { drop(first) });
            assert_eq!(second.ok().map(|(bytes, _)| bytes.len()), Some(100 << 10));
        });
    }

    #[test]
    fn a_body_without_a_length_is_counted_too() {
        let budget = MemoryBudget::new(256 << 10);
        run(async {
            let parts = (0..50).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 2 << 10])));
            let body = Body::from_stream(Parts(parts));
            let received = receive(body, 128 << 10, TIME, &budget).await;
            let (bytes, share) = received.expect("the budget is unused");
            assert_eq!(bytes.len(), 100 << 10);
            assert!(share.is_some());
        });
    }

    struct Parts<I>(I);

    impl<I: Iterator<Item = T> + Unpin, T> futures_core::Stream for Parts<I> {
        type Item = T;

        fn poll_next(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            std::task::Poll::Ready(self.get_mut().0.next())
        }
    }
}
