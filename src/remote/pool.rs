//! Chooses the server for a request.
//!
//! Chooses the server with the fewest running requests of this process, and among equals the least
//! recently used one. A server that failed is chosen last for a while. The counts are global,
//! because each chat runs only one request at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::BaseUrl;
use crate::process::{Shared, SharedGuard};

/// How long a failed server is chosen last.
pub(super) const REST: Duration = Duration::from_secs(10);

/// Beyond this number of servers, those without running requests are forgotten.
const MAX_KNOWN: usize = 1024;

#[derive(Debug, Default, Clone)]
struct ServerLoad {
    running: usize,
    /// The sequence number of the last request.
    last: u64,
    resting_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct ServerLoads {
    requests: u64,
    /// The load of each server that was used.
    servers: HashMap<BaseUrl, ServerLoad>,
}

static LOADS: Shared<Option<ServerLoads>> = Shared::new(None);

fn loads() -> SharedGuard<'static, Option<ServerLoads>> {
    LOADS.lock()
}

/// Counts as a running request of its server until it is dropped.
#[derive(Debug)]
pub(super) struct ServerLease {
    pub(super) server: BaseUrl,
}

impl ServerLease {
    /// Chooses the best of these servers; `None` if the iterator is empty.
    pub(super) fn take<'a>(servers: impl Iterator<Item = &'a BaseUrl>) -> Option<ServerLease> {
        let mut loads = loads();
        let loads = loads.get_or_insert_default();
        let now = Instant::now();
        let rank = |server: &BaseUrl| {
            let load = loads.servers.get(server).cloned().unwrap_or_default();
            (load.resting_until.is_some_and(|limits| limits > now), load.running, load.last)
        };
        let server = servers.min_by_key(|server| rank(server))?.clone();
        if loads.servers.len() >= MAX_KNOWN {
            loads.servers.retain(|_, load| load.running > 0);
        }
        loads.requests += 1;
        let load = loads.servers.entry(server.clone()).or_default();
        load.running += 1;
        load.last = loads.requests;
        Some(ServerLease { server })
    }
}

/// Makes a server the last choice for this long. Zero ends an earlier rest.
pub(super) fn rest(server: &BaseUrl, time: Duration) {
    if let Some(load) = loads().as_mut().and_then(|loads| loads.servers.get_mut(server)) {
        load.resting_until = Instant::now().checked_add(time);
    }
}

impl Drop for ServerLease {
    fn drop(&mut self) {
        if let Some(load) = loads().as_mut().and_then(|loads| loads.servers.get_mut(&self.server)) {
            load.running = load.running.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> BaseUrl {
        BaseUrl {
            root: format!("http://pool-test-{name}"),
            version: "v1".into(),
            host: name.into(),
        }
    }

    #[test]
    fn the_least_loaded_server_is_taken_round_robin() {
        let servers = ["a", "b", "c"].map(server);
        let take = || ServerLease::take(servers.iter()).expect("a server");
        let (a, b, c) = (take(), take(), take());
        assert_eq!([&a, &b, &c].map(|lease| &*lease.server.host), ["a", "b", "c"]);
        drop(b);
        let b = take();
        assert_eq!(b.server.host, "b", "it has no running request");
        drop((a, b, c));
        let hosts: Vec<String> = (0..4).map(|_| take().server.host.clone()).collect();
        assert_eq!(
            hosts,
            ["a", "c", "b", "a"],
            "round robin among equals, the one used last at the end"
        );
        rest(&take().server, REST);
        let hosts: Vec<String> = (0..3).map(|_| take().server.host.clone()).collect();
        assert_eq!(hosts, ["b", "a", "b"], "c rests");
        let only =
            ServerLease::take(servers[2..].iter()).expect("a resting server is better than none");
        rest(&only.server, Duration::ZERO);
        drop(only);
        assert_eq!(
            (take().server.host.clone(), take().server.host.clone()),
            ("a".into(), "b".into())
        );
        assert_eq!(take().server.host, "c");
        assert!(ServerLease::take(std::iter::empty()).is_none());
    }
}
