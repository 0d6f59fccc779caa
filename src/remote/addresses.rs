//! The servers behind names: each address of a name is a server of its own (`each_address`).
//!
//! In: the servers of `base_url`. Out: the servers to choose from, resolved again after a while, and
//! sooner after one of them failed. A name that cannot be resolved keeps the addresses that it had;
//! without any, it is a server itself, whose connection then fails.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fault::CallError;
use super::http::CallLimits;
use crate::api::BaseUrl;
use crate::net::wait::{self, WaitEnd};

/// How long resolved addresses are used. The resolver of a cluster has answers for 5 to 30 s.
const FRESH: Duration = Duration::from_secs(10);
/// How long after a resolution the next one may follow, if a server failed.
const MIN_FRESH: Duration = Duration::from_secs(1);
/// The maximum number of addresses of a name. The rest is not used.
const MAX_ADDRESSES: usize = 1024;

/// Finds the addresses of a host and port.
type Lookup = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The servers of a chat.
pub(super) struct ServerAddresses {
    names: Vec<BaseUrl>,
    /// `None` if the names themselves are the servers.
    lookup: Option<Lookup>,
    connect_timeout: Duration,
    resolved: Mutex<ResolvedNames>,
}

#[derive(Default)]
struct ResolvedNames {
    /// For each name, the last servers found. Empty before the first resolution.
    servers: Vec<Vec<BaseUrl>>,
    at: Option<Instant>,
    /// Whether a server failed since.
    has_failed: bool,
}

impl ResolvedNames {
    fn is_fresh(&self) -> bool {
        let fresh = if self.has_failed { MIN_FRESH } else { FRESH };
        self.at.is_some_and(|at| at.elapsed() < fresh)
    }
}

impl ServerAddresses {
    pub(super) fn new(
        names: Vec<BaseUrl>,
        each_address: bool,
        connect_timeout: Duration,
    ) -> ServerAddresses {
        let lookup: Lookup = Arc::new(|host: &str| host.to_socket_addrs().map(Iterator::collect));
        ServerAddresses {
            names,
            lookup: each_address.then_some(lookup),
            connect_timeout,
            resolved: Mutex::default(),
        }
    }

    /// The servers now. A name whose resolution takes longer than the time to connect keeps its last
    /// addresses.
    pub(super) fn now(&self, limits: &CallLimits) -> Result<Vec<BaseUrl>, CallError> {
        let Some(lookup) = &self.lookup else { return Ok(self.names.clone()) };
        if !self.resolved().is_fresh() {
            // Not locked meanwhile: another call can still be cancelled.
            let found = self.resolve(lookup, limits)?;
            let mut resolved = self.resolved();
            resolved.servers.resize(self.names.len(), Vec::new());
            for (servers, found) in resolved.servers.iter_mut().zip(found) {
                if !found.is_empty() {
                    *servers = found;
                }
            }
            (resolved.at, resolved.has_failed) = (Some(Instant::now()), false);
        }
        let resolved = self.resolved();
        let names = self.names.iter().zip(&resolved.servers);
        let mut servers: Vec<BaseUrl> = Vec::new();
        for (name, found) in names {
            let all = if found.is_empty() { std::slice::from_ref(name) } else { found.as_slice() };
            // Two names may have the same addresses.
            all.iter().for_each(|server| {
                if !servers.contains(server) {
                    servers.push(server.clone());
                }
            });
        }
        Ok(servers)
    }

    /// Lets the names be resolved again soon, because a server failed.
    pub(super) fn has_failed(&self) {
        self.resolved().has_failed = true;
    }

    fn resolved(&self) -> MutexGuard<'_, ResolvedNames> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers of each name; none if it was not resolved in time.
    fn resolve(
        &self,
        lookup: &Lookup,
        limits: &CallLimits,
    ) -> Result<Vec<Vec<BaseUrl>>, CallError> {
        let (sender, found) = wait::channel(self.names.len());
        let (names, lookup) = (self.names.clone(), Arc::clone(lookup));
        // The system's resolver cannot be interrupted, so the thread may outlive the call.
        crate::spawn::thread("llb-resolve", move || {
            for (index, name) in names.iter().enumerate() {
                let addresses = lookup(&host_and_port(name)).unwrap_or_default();
                if !sender.send((index, servers_of(name, addresses))) {
                    return;
                }
            }
        })?;
        let late = Instant::now().checked_add(self.connect_timeout);
        let deadline = [limits.deadline, late].into_iter().flatten().min();
        let mut servers = vec![Vec::new(); self.names.len()];
        loop {
            match found.next(deadline, || limits.is_over()) {
                WaitEnd::Next((index, of_name)) => servers[index] = of_name,
                WaitEnd::Closed => return Ok(servers),
                WaitEnd::Late if !limits.is_over() => return Ok(servers),
                WaitEnd::Late | WaitEnd::Cancelled => return Err(CallError::Over),
            }
        }
    }
}

/// The host of a server with its port.
fn host_and_port(server: &BaseUrl) -> String {
    let has_port = server.host.rfind(':').is_some_and(|at| !server.host[at..].contains(']'));
    let port = if server.root.starts_with("https:") { 443 } else { 80 };
    if has_port { server.host.clone() } else { format!("{}:{port}", server.host) }
}

/// The servers at these addresses. A server with addresses of both families is listed with each, so
/// only those of one family are used: IPv4, if there are any.
fn servers_of(name: &BaseUrl, mut addresses: Vec<SocketAddr>) -> Vec<BaseUrl> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    let server = |address: SocketAddr| BaseUrl {
        host: format!("{} ({})", name.host, address.ip()),
        address: Some(address),
        ..name.clone()
    };
    addresses.into_iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use std::collections::HashMap;

    fn name(root: &str) -> BaseUrl {
        let host = root.split_once("://").unwrap().1.to_owned();
        BaseUrl { root: root.into(), version: "v1".into(), host, address: None }
    }

    /// Names and their addresses, which a test changes. A name without any is unknown.
    type Zone = Arc<Mutex<HashMap<&'static str, Vec<&'static str>>>>;

    fn addresses(names: &[&str], zone: &Zone) -> ServerAddresses {
        let zone = Arc::clone(zone);
        let lookup: Lookup = Arc::new(move |host: &str| {
            let zone = zone.lock().unwrap();
            let found = zone.get(host).ok_or(io::ErrorKind::NotFound)?;
            Ok(found.iter().map(|address| address.parse().unwrap()).collect())
        });
        let names = names.iter().map(|root| name(root)).collect();
        ServerAddresses {
            lookup: Some(lookup),
            ..ServerAddresses::new(names, true, Duration::from_secs(60))
        }
    }

    #[track_caller]
    fn check(addresses: &ServerAddresses, expected: &[&str]) {
        let servers = addresses.now(&CallLimits::default()).unwrap();
        let shown: Vec<String> = servers
            .iter()
            .map(|server| {
                let address = server.address.map(|address| address.to_string());
                format!("{} {}", server.root, address.unwrap_or_default())
            })
            .collect();
        assert_eq!(shown, expected);
    }

    /// Lets the next call resolve again.
    fn expire(addresses: &ServerAddresses) {
        addresses.resolved.lock().unwrap().at = None;
    }

    #[test]
    fn each_address_of_a_name_is_a_server() {
        let zone = Zone::default();
        let both = vec!["10.0.0.2:8000", "[fd00::1]:8000", "10.0.0.1:8000", "10.0.0.2:8000"];
        zone.lock().unwrap().insert("vllm:8000", both);
        zone.lock().unwrap().insert("six:443", vec!["[fd00::2]:443"]);
        let names = ["http://vllm:8000", "https://six", "http://gone:1"];
        let addresses = addresses(&names, &zone);
        check(
            &addresses,
            &[
                "http://vllm:8000 10.0.0.1:8000",
                "http://vllm:8000 10.0.0.2:8000",
                "https://six [fd00::2]:443",
                "http://gone:1 ",
            ],
        );
        let servers = addresses.now(&CallLimits::default()).unwrap();
        assert_eq!(servers[0].host, "vllm:8000 (10.0.0.1)");
    }

    #[test]
    fn names_are_resolved_again() {
        let zone = Zone::default();
        zone.lock().unwrap().insert("vllm:80", vec!["10.0.0.1:80"]);
        let addresses = addresses(&["http://vllm"], &zone);
        let (one, two) = ("http://vllm 10.0.0.1:80", "http://vllm 10.0.0.2:80");
        check(&addresses, &[one]);
        zone.lock().unwrap().insert("vllm:80", vec!["10.0.0.1:80", "10.0.0.2:80"]);
        check(&addresses, &[one]);
        expire(&addresses);
        check(&addresses, &[one, two]);
        // A name server that fails changes nothing.
        zone.lock().unwrap().clear();
        expire(&addresses);
        check(&addresses, &[one, two]);
        zone.lock().unwrap().insert("vllm:80", vec!["10.0.0.2:80"]);
        expire(&addresses);
        check(&addresses, &[two]);
    }

    #[test]
    fn a_failure_shortens_the_time_to_the_next_resolution() {
        let zone = Zone::default();
        zone.lock().unwrap().insert("vllm:80", vec!["10.0.0.1:80"]);
        let addresses = addresses(&["http://vllm"], &zone);
        check(&addresses, &["http://vllm 10.0.0.1:80"]);
        zone.lock().unwrap().insert("vllm:80", vec!["10.0.0.2:80"]);
        let between = Instant::now().checked_sub(MIN_FRESH * 2);
        addresses.resolved.lock().unwrap().at = between;
        check(&addresses, &["http://vllm 10.0.0.1:80"]);
        addresses.has_failed();
        check(&addresses, &["http://vllm 10.0.0.2:80"]);
    }

    #[test]
    fn a_resolution_can_be_cancelled() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Mutex::new(held);
        let lookup: Lookup = Arc::new(move |_: &str| {
            let _ = held.lock().unwrap().recv();
            Ok(Vec::new())
        });
        let addresses = ServerAddresses {
            lookup: Some(lookup),
            ..ServerAddresses::new(vec![name("http://slow")], true, Duration::from_secs(600))
        };
        let limits = CallLimits { deadline: Some(Instant::now()), ..CallLimits::default() };
        assert!(matches!(addresses.now(&limits), Err(CallError::Over)));
        let limits = CallLimits::default();
        limits.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(addresses.now(&limits), Err(CallError::Over)));
        drop(release);
    }

    #[test]
    fn names_without_the_option_are_servers() {
        let names = vec![name("http://vllm:8000")];
        let addresses = ServerAddresses::new(names.clone(), false, Duration::from_secs(1));
        assert_eq!(addresses.now(&CallLimits::default()).unwrap(), names);
    }
}
