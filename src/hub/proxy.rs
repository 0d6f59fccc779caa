//! Which proxy an address is reached by, as curl and huggingface_hub read the environment.
//!
//! In: environment variables. Out: for each address a proxy or none. Addresses of proxies may hold
//! passwords: none is quoted.

use ureq::Proxy;

use super::environment::Environment;
use crate::error::{Error, Result};

/// In the order in which they are looked at.
const OF_HTTPS: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const OF_HTTP: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
const OF_NONE: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// The proxies of an environment.
#[derive(Default)]
pub(super) struct Proxies {
    https: Option<Proxy>,
    http: Option<Proxy>,
    /// Hosts that are reached without.
    none: String,
}

impl Proxies {
    /// # Errors
    /// `INVALID_REQUEST` that names a variable which is no proxy's address: to go without one may
    /// not be what is wanted.
    pub(super) fn read(environment: &Environment) -> Result<Proxies> {
        let first = |names: &[&'static str]| -> Result<Option<(&'static str, String)>> {
            for &name in names {
                if let Some(value) = environment.get(name)? {
                    return Ok(Some((name, value)));
                }
            }
            Ok(None)
        };
        let proxy = |names| -> Result<Option<Proxy>> {
            let Some((name, value)) = first(names)? else { return Ok(None) };
            Proxy::new(value.trim()).map(Some).map_err(|_| {
                Error::invalid(name, "the environment variable is not the address of a proxy")
            })
        };
        let none = first(&OF_NONE)?.map(|(_, value)| value).unwrap_or_default();
        Ok(Proxies { https: proxy(&OF_HTTPS)?, http: proxy(&OF_HTTP)?, none })
    }

    /// For a host as it is written in an address.
    pub(super) fn of(&self, secure: bool, host: &str, port: u16) -> Option<Proxy> {
        let proxy = if secure { &self.https } else { &self.http };
        proxy.clone().filter(|_| !is_listed(&self.none, host, port))
    }
}

/// Whether `NO_PROXY` has a host: `*` has all, `example.com`, `.example.com` and `*.example.com` it
/// and what is below it; a port behind it must be the port.
fn is_listed(list: &str, host: &str, port: u16) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    list.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.to_ascii_lowercase();
        // `::1` has colons and no port.
        let (name, wanted) = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                (name, digits.parse::<u16>().ok())
            }
            _ => (&*entry, None),
        };
        let name = name.trim_matches(['[', ']']);
        let name = name.strip_prefix("*.").or(name.strip_prefix('.')).unwrap_or(name);
        let below = || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
        wanted.is_none_or(|wanted| wanted == port)
            && !name.is_empty()
            && (name == "*" || name == host || below())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_scheme_has_its_own_proxy() {
        let check = |variables: &[(&str, &str)], https: Option<&str>, http: Option<&str>| {
            let proxies = Proxies::read(&Environment::of(variables)).unwrap();
            let host = |secure| {
                proxies.of(secure, "hub.example", 443).map(|proxy| proxy.host().to_owned())
            };
            assert_eq!(
                (host(true).as_deref(), host(false).as_deref()),
                (https, http),
                "{variables:?}"
            );
        };
        check(&[], None, None);
        check(&[("HTTPS_PROXY", "http://a:1")], Some("a"), None);
        check(&[("HTTP_PROXY", "a:1")], None, Some("a"));
        check(&[("ALL_PROXY", "socks5h://a:1"), ("http_proxy", "http://b")], Some("a"), Some("b"));
        check(&[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:1")], Some("b"), None);
        check(
            &[("HTTPS_PROXY", "http://u:p@a:1"), ("NO_PROXY", "localhost, hub.example")],
            None,
            None,
        );
        for bad in ["ftp://hf_secret@a", "http://"] {
            let error = Proxies::read(&Environment::of(&[("HTTPS_PROXY", bad)])).err().unwrap();
            assert_eq!(
                error.message(),
                "HTTPS_PROXY: the environment variable is not the address of a proxy"
            );
        }
    }

    #[test]
    fn hosts_without_a_proxy() {
        let cases = [
            ("*", "hub.example", true),
            ("hub.example", "hub.example", true),
            ("Hub.Example", "hub.example", true),
            ("example", "hub.example", true),
            (".hub.example", "hub.example", true),
            ("*.hub.example", "cdn.hub.example", true),
            ("x, hub.example", "hub.example", true),
            ("ub.example", "hub.example", false),
            ("hub.example.org", "hub.example", false),
            ("hub.example:443", "hub.example", true),
            ("hub.example:80", "hub.example", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "[::1]", true),
            ("[::1]", "[::1]", true),
            ("[::1]:443", "[::1]", true),
            ("", "hub.example", false),
            (",.,", "hub.example", false),
        ];
        for (list, host, expected) in cases {
            assert_eq!(is_listed(list, host, 443), expected, "{list:?} {host}");
        }
    }
}
