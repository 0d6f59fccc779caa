//! The open connections, and which of them process a request. If all places are taken, the one that
//! has had no request for the longest time is closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A connection is not closed before it has had no request for this long.
const MIN_IDLE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct OpenConnections(Mutex<Vec<Weak<OpenConnection>>>);

pub(super) struct OpenConnection {
    activity: Mutex<Activity>,
    closed: Notify,
}

struct Activity {
    requests: usize,
    /// When the last request ended, or when the connection was opened.
    since: Instant,
    is_closing: bool,
}

impl OpenConnections {
    /// Adds a connection, until it is dropped.
    pub(super) fn open(&self) -> Arc<OpenConnection> {
        let activity = Activity { requests: 0, since: Instant::now(), is_closing: false };
        let connection =
            Arc::new(OpenConnection { activity: Mutex::new(activity), closed: Notify::new() });
        let mut all = self.all();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        connection
    }

    /// Closes the connection that has had no request for the longest time, if it is long enough.
    pub(super) fn close_idle(&self) {
        let all: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        let idle = all.iter().filter_map(|connection| {
            let activity = connection.activity();
            let is_idle = activity.requests == 0 && !activity.is_closing;
            let since = activity.since;
            (is_idle && since.elapsed() >= MIN_IDLE).then_some((since, connection))
        });
        if let Some((_, connection)) = idle.min_by_key(|(since, _)| *since) {
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
        self.activity().requests += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_without_a_request_for_the_longest_time_is_closed() {
        let all = OpenConnections::default();
        let connections: Vec<_> = (0..4).map(|_| all.open()).collect();
        let closing = || -> Vec<bool> {
            connections.iter().map(|connection| connection.activity().is_closing).collect()
        };
        all.close_idle();
        assert_eq!(closing(), [false; 4], "all are new");
        for (connection, seconds) in connections.iter().zip([40, 20, 30, 10]) {
            let since = Instant::now().checked_sub(Duration::from_secs(seconds));
            connection.activity().since = since.expect("the machine runs longer");
        }
        let request = connections[0].request();
        all.close_idle();
        assert_eq!(closing(), [false, false, true, false]);
        drop(request);
        all.close_idle();
        assert_eq!(closing(), [false, true, true, false], "the first had a request just now");
    }
}
