//! The open connections, whose they are, and which of them process a request. If all places are
//! taken, the one that has had no request for the longest time is closed. If all have requests, it is
//! the one whose request has been arriving for the longest time, of the client with the most such
//! connections. No more are opened than the process has file descriptors for.

use std::cmp::Reverse;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::client::Client;
use super::request_end::RequestEnd;

/// A connection is not closed before it has had no request for this long, or has received one for
/// this long.
const MIN_IDLE: Duration = Duration::from_secs(1);
/// How long a closed connection may take to leave its place before the next one is closed.
const PLACE_WAIT: Duration = Duration::from_millis(50);

/// Descriptors that are kept for other uses: files of models, devices, and traces.
const KEPT: usize = 64;
/// The descriptors of a connection: one to use, and one to notice that its client leaves.
const OF_CONNECTION: usize = 2;

#[derive(Default)]
pub(super) struct OpenConnections(Mutex<Vec<Weak<OpenConnection>>>);

pub(super) struct OpenConnection {
    pub(super) client: Client,
    /// The end of its current request.
    pub(super) end: RequestEnd,
    activity: Mutex<Activity>,
    closed: Notify,
}

struct Activity {
    requests: usize,
    /// When the last request began or ended, or when the connection was opened.
    since: Instant,
    is_closing: bool,
}

impl OpenConnections {
    /// Adds a connection, until it is dropped.
    pub(super) fn open(&self, client: Client, end: RequestEnd) -> Arc<OpenConnection> {
        let activity = Activity { requests: 0, since: Instant::now(), is_closing: false };
        let (activity, closed) = (Mutex::new(activity), Notify::new());
        let connection = Arc::new(OpenConnection { client, end, activity, closed });
        let mut all = self.all();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        connection
    }

    /// Waits for a place for a connection, and closes connections until there is one. The first is
    /// closed at once, because many may wait in the backlog, and the next place is for the first of
    /// them.
    pub(super) async fn place(&self, places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        loop {
            if let Ok(place) = Arc::clone(places).try_acquire_owned() {
                return place;
            }
            self.close_one();
            let place = Arc::clone(places).acquire_owned();
            if let Ok(place) = tokio::time::timeout(PLACE_WAIT, place).await {
                return place.expect("the semaphore is never closed");
            }
        }
    }

    /// Closes the connection that has had no request for the longest time, if it is long enough.
    /// Without one, closes one that has been receiving its request for long.
    fn close_one(&self) {
        let all: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        let mut slow: Vec<(Client, Instant, &Arc<OpenConnection>)> = Vec::new();
        let mut idle = None;
        for connection in &all {
            let activity = connection.activity();
            let since = activity.since;
            if activity.is_closing || since.elapsed() < MIN_IDLE {
                continue;
            }
            if activity.requests == 0 {
                idle = idle.filter(|(first, _)| *first <= since).or(Some((since, connection)));
            } else if !connection.end.is_received() {
                slow.push((connection.client, since, connection));
            }
        }
        let of_client = |client| slow.iter().filter(|(other, ..)| *other == client).count();
        let slowest =
            || slow.iter().max_by_key(|(client, since, _)| (of_client(*client), Reverse(*since)));
        let closed = idle.map(|(_, it)| it).or_else(|| slowest().map(|(.., it)| *it));
        if let Some(connection) = closed {
            connection.activity().is_closing = true;
            connection.closed.notify_one();
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<OpenConnection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    /// Records a request, until the result is dropped.
    pub(super) fn request(self: &Arc<Self>) -> OpenRequest {
        let mut activity = self.activity();
        activity.requests += 1;
        activity.since = Instant::now();
        drop(activity);
        OpenRequest(Arc::clone(self))
    }

    /// Waits until the connection must be closed.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of a connection.
pub(super) struct OpenRequest(Arc<OpenConnection>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.requests -= 1;
        activity.since = Instant::now();
    }
}

/// The number of connections that can be open at the same time, at most `wanted`. Descriptors are
/// counted only on Linux.
pub(super) fn max_connections(wanted: usize) -> usize {
    available(Path::new("/proc/self")).map_or(wanted, |available| wanted.min(available))
}

/// The number of connections that there are descriptors for, at least 1. `process` is a folder of
/// proc(5).
fn available(process: &Path) -> Option<usize> {
    let limits = fs::read_to_string(process.join("limits")).ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // The soft limit, or "unlimited".
    let limit: usize = limit.split_whitespace().next()?.parse().ok()?;
    let open = fs::read_dir(process.join("fd")).ok()?.count();
    Some((limit.saturating_sub(open + KEPT) / OF_CONNECTION).max(1))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn open(all: &OpenConnections, clients: &[u8]) -> Vec<Arc<OpenConnection>> {
        let open = |last: &u8| {
            let client = Client::new([10, 0, 0, *last].into());
            all.open(client, RequestEnd::default())
        };
        clients.iter().map(open).collect()
    }

    fn since(connection: &OpenConnection, seconds: u64) {
        let since = Instant::now().checked_sub(Duration::from_secs(seconds));
        connection.activity().since = since.expect("the machine runs longer");
    }

    fn closing(connections: &[Arc<OpenConnection>]) -> Vec<usize> {
        let is_closing = |index: &usize| connections[*index].activity().is_closing;
        (0..connections.len()).filter(is_closing).collect()
    }

    #[test]
    fn the_connection_without_a_request_for_the_longest_time_is_closed() {
        let all = OpenConnections::default();
        let connections = open(&all, &[1; 4]);
        all.close_one();
        assert!(closing(&connections).is_empty(), "all are new");
        for (connection, seconds) in connections.iter().zip([40, 20, 30, 10]) {
            since(connection, seconds);
        }
        let request = connections[0].request();
        all.close_one();
        assert_eq!(closing(&connections), [2]);
        drop(request);
        all.close_one();
        assert_eq!(closing(&connections), [1, 2], "the first had a request just now");
    }

    #[test]
    fn the_slowest_request_of_the_client_with_the_most_is_closed() {
        let all = OpenConnections::default();
        let connections = open(&all, &[1, 2, 2, 2, 2]);
        let _requests: Vec<_> = connections.iter().map(OpenConnection::request).collect();
        all.close_one();
        assert!(closing(&connections).is_empty(), "all requests are new");
        for (connection, seconds) in connections.iter().zip([40, 10, 30, 20, 50]) {
            since(connection, seconds);
        }
        // All of this request has arrived.
        connections[4].end.received();
        all.close_one();
        assert_eq!(closing(&connections), [2]);
        all.close_one();
        assert_eq!(closing(&connections), [2, 3]);
        all.close_one();
        assert_eq!(closing(&connections), [0, 2, 3], "as many, but slower");
    }
    #[tokio::test]
    async fn a_new_connection_does_not_wait_before_an_old_one_is_closed() {
        let all = OpenConnections::default();
        let connections = open(&all, &[1; 3]);
        connections.iter().for_each(|connection| since(connection, 10));
        let places = Arc::new(Semaphore::new(0));
        for closed in 1..=3 {
            let mut place = std::pin::pin!(all.place(&places));
            let mut context = Context::from_waker(Waker::noop());
            assert!(place.as_mut().poll(&mut context).is_pending());
            assert_eq!(closing(&connections).len(), closed);
            // The closed connection leaves.
            places.add_permits(1);
            assert!(place.as_mut().poll(&mut context).is_ready());
            places.forget_permits(1);
        }
    }

    #[test]
    fn open_descriptors_are_counted() {
        let process = tempfile::tempdir().unwrap();
        assert_eq!(available(process.path()), None);
        let limits = |limit: &str| {
            // Copied from a process of Linux 6.1.
            let before = "Max processes             15486                15486        processes";
            let text = format!("{before}\nMax open files            {limit:21}4096   files\n");
            fs::write(process.path().join("limits"), text).unwrap();
        };
        limits("1024");
        let open = process.path().join("fd");
        fs::create_dir(&open).unwrap();
        for name in 0..10 {
            fs::write(open.join(name.to_string()), "").unwrap();
        }
        assert_eq!(available(process.path()), Some(475));
        limits("20");
        assert_eq!(available(process.path()), Some(1));
        limits("unlimited");
        assert_eq!(available(process.path()), None);
    }
}
