//! Chooses the server for a request.
//!
//! A request whose prefix may be in a server's cache goes to the server that this prefix belongs to,
//! as long as that has no more than its share of the running requests. Any other request goes to the
//! server with the fewest running requests of this process, and among equals to the least recently
//! used one. A server that failed is chosen last for a while. The counts are global, because each
//! chat runs only one request at a time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::BaseUrl;
use crate::process::{Shared, SharedGuard};

/// How long a failed server is chosen last.
pub(super) const REST: Duration = Duration::from_secs(10);

/// The running requests with which a server never counts as full.
const MIN_SHARE: usize = 8;

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
    /// Chooses the best of these servers; `None` if the iterator is empty. `prefix` is the beginning
    /// of the conversation, if the request should go where that is cached.
    pub(super) fn take<'a>(
        servers: impl Iterator<Item = &'a BaseUrl> + Clone,
        prefix: Option<PrefixHash>,
    ) -> Option<ServerLease> {
        let mut loads = loads();
        let loads = loads.get_or_insert_default();
        let now = Instant::now();
        let load = |server: &BaseUrl| loads.servers.get(server).cloned().unwrap_or_default();
        let running: usize = servers.clone().map(|server| load(server).running).sum();
        let most = share(running + 1, servers.clone().count());
        let rank = |server: &BaseUrl| {
            let load = load(server);
            let is_resting = load.resting_until.is_some_and(|until| until > now);
            match prefix {
                None => (is_resting, load.running, load.last, Reverse(0)),
                // Below its share, only the weight decides.
                Some(prefix) => {
                    let excess = (load.running + 1).saturating_sub(most);
                    (is_resting, excess, 0, Reverse(prefix.weight(server)))
                }
            }
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

/// The number of running requests up to which a server is chosen by its prefixes: a quarter more than
/// the mean. A few requests at once are no burden to any server.
fn share(requests: usize, servers: usize) -> usize {
    (requests * 5 / 4).checked_div(servers).unwrap_or(0).max(MIN_SHARE)
}

/// The hash of the beginning of a conversation. It is the same in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixHash(u64);

impl PrefixHash {
    /// The hash of a text.
    pub fn of(text: &str) -> PrefixHash {
        PrefixHash(fnv1a(0xCBF2_9CE4_8422_2325, text.as_bytes()))
    }

    /// The weight of a server for this prefix. The prefix belongs to the server with the greatest
    /// (rendezvous hashing), so without a server only the prefixes of that server move.
    fn weight(self, server: &BaseUrl) -> u64 {
        let mut hash = fnv1a(self.0, server.root.as_bytes());
        if let Some(address) = server.address {
            hash = fnv1a(hash, address.to_string().as_bytes());
        }
        // MurmurHash3's finalizer: FNV-1a alone mixes the last bytes too little.
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        hash ^ (hash >> 33)
    }
}

/// Continues a hash with bytes (FNV-1a).
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
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
            address: None,
        }
    }

    #[test]
    fn the_least_loaded_server_is_taken_round_robin() {
        let servers = ["a", "b", "c"].map(server);
        let take = || ServerLease::take(servers.iter(), None).expect("a server");
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
        let only = ServerLease::take(servers[2..].iter(), None)
            .expect("a resting server is better than none");
        rest(&only.server, Duration::ZERO);
        drop(only);
        assert_eq!(
            (take().server.host.clone(), take().server.host.clone()),
            ("a".into(), "b".into())
        );
        assert_eq!(take().server.host, "c");
        assert!(ServerLease::take(std::iter::empty(), None).is_none());
    }

    #[test]
    fn a_prefix_belongs_to_one_server() {
        let servers = ["p", "q", "r"].map(server);
        let host = |servers: &[BaseUrl], number: usize| {
            let prefix = PrefixHash::of(&format!("conversation {number}"));
            ServerLease::take(servers.iter(), Some(prefix)).expect("a server").server.host.clone()
        };
        let of = |servers: &[BaseUrl]| (0..300).map(|n| host(servers, n)).collect::<Vec<_>>();
        let all = of(&servers);
        assert_eq!(of(&servers), all);
        for server in &servers {
            let count = all.iter().filter(|host| **host == server.host).count();
            assert!((70..130).contains(&count), "{} has {count} of 300", server.host);
        }
        // Without a server, only its own prefixes move.
        for (before, after) in all.iter().zip(of(&servers[1..])) {
            assert!(*before == after || *before == servers[0].host, "{before} {after}");
        }
    }

    #[test]
    fn a_server_with_more_than_its_share_is_passed_over() {
        let servers = ["s", "t"].map(server);
        let prefix = Some(PrefixHash::of("busy"));
        let take = || ServerLease::take(servers.iter(), prefix).expect("a server");
        let running: Vec<ServerLease> = (0..64).map(|_| take()).collect();
        let count = |host: &str| running.iter().filter(|it| it.server.host == host).count();
        assert_eq!(count("s").max(count("t")), 40, "a quarter more than the mean");
        assert_eq!([share(1, 3), share(24, 3), share(48, 3), share(1, 0)], [8, 10, 20, 8]);
    }
}
