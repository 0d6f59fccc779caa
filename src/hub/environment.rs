//! Environment variables: texts, switches, folders, and the proxy of each host. No other module of
//! `hub` reads them.
//!
//! Messages never quote the URL of a proxy, because it may contain a password.

use std::ffi::OsString;
use std::path::PathBuf;

use ureq::Proxy;

use crate::error::{Error, Result};
use crate::net::secret::Secret;

/// The variables that curl and huggingface_hub read for `https` URLs. The first one that is set counts.
const HTTPS_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
const HTTP_VARIABLES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
const NO_PROXY_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// Returns the value of a variable.
type ReadVariable = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// The environment variables of the process, or of a test.
pub struct Environment {
    pub(super) read: Box<ReadVariable>,
}

impl Environment {
    /// The variables of the process. If `HOME` is absent, the system provides the user's home
    /// folder.
    pub fn process() -> Environment {
        let read = |name: &str| match (std::env::var_os(name), name) {
            (None, "HOME") => std::env::home_dir().map(PathBuf::into_os_string),
            (value, _) => value,
        };
        Environment { read: Box::new(read) }
    }

    /// Only these variables, for tests.
    pub fn of(variables: &[(&str, &str)]) -> Environment {
        let owned = |text: &str| text.to_owned();
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (owned(name), owned(value))).collect();
        let read = move |name: &str| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.into())
        };
        Environment { read: Box::new(read) }
    }

    /// The value of a variable. An empty value counts as absent. Fails with `INVALID_REQUEST` if
    /// the value is not Unicode, because ignoring it would use another folder or hub.
    pub(super) fn get(&self, name: &str) -> Result<Option<String>> {
        match (self.read)(name).map(OsString::into_string) {
            Some(Err(_)) => Err(Error::invalid(name, "the environment variable is not UTF-8")),
            Some(Ok(value)) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
            None => Ok(None),
        }
    }

    /// Reads a switch as huggingface_hub does.
    pub(super) fn is_on(&self, name: &str) -> Result<bool> {
        Ok(self.get(name)?.is_some_and(|value| {
            matches!(&*value.to_ascii_uppercase(), "1" | "ON" | "YES" | "TRUE")
        }))
    }

    /// Reads a path. A leading `~` means the home folder.
    pub(super) fn path(&self, name: &str) -> Result<Option<PathBuf>> {
        self.get(name)?.map(|value| self.expand_home(&value)).transpose()
    }

    pub(super) fn expand_home(&self, path: &str) -> Result<PathBuf> {
        Ok(
            match path
                .strip_prefix('~')
                .filter(|rest| rest.is_empty() || rest.starts_with(std::path::is_separator))
            {
                Some(rest) => PathBuf::from(
                    self.get("HOME")?
                        .map_or_else(|| path.to_owned(), |home| format!("{home}{rest}")),
                ),
                None => PathBuf::from(path),
            },
        )
    }

    /// The folder inside the first of these variables that is set.
    pub(super) fn first(&self, names: &[(&str, &str)]) -> Result<Option<PathBuf>> {
        for (name, subfolder) in names {
            if let Some(folder) = self.path(name)? {
                let is_whole = subfolder.is_empty();
                return Ok(Some(if is_whole { folder } else { folder.join(subfolder) }));
            }
        }
        Ok(None)
    }

    /// The value of `HF_HOME`, or its default.
    pub(super) fn hf_home(&self) -> Result<Option<PathBuf>> {
        self.first(&[
            ("HF_HOME", ""),
            ("XDG_CACHE_HOME", "huggingface"),
            ("HOME", ".cache/huggingface"),
        ])
    }
}

/// The proxies of an environment.
#[derive(Default)]
pub(super) struct Proxies {
    https: Option<Proxy>,
    http: Option<Proxy>,
    /// Hosts that are reached without a proxy.
    no_proxy: String,
}

impl Proxies {
    /// # Errors
    /// `INVALID_REQUEST` with the variable whose value is not the URL of a proxy. It is not
    /// ignored, because connecting without a proxy may be unwanted.
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
                Error::invalid(name, "the environment variable is not the URL of a proxy")
            })
        };
        let no_proxy = first(&NO_PROXY_VARIABLES)?.map(|(_, value)| value).unwrap_or_default();
        Ok(Proxies { https: proxy(&HTTPS_VARIABLES)?, http: proxy(&HTTP_VARIABLES)?, no_proxy })
    }

    /// The passwords in the URLs, to be removed from messages.
    pub(super) fn passwords(&self) -> Vec<Secret> {
        let proxies = [&self.https, &self.http].into_iter().flatten();
        let password = |proxy: &Proxy| Secret::new(proxy.password()?, "[proxy password]");
        proxies.filter_map(password).collect()
    }

    /// The proxy for a host. The host is spelled as in a URL.
    pub(super) fn of(&self, secure: bool, host: &str, port: u16) -> Option<Proxy> {
        let proxy = if secure { &self.https } else { &self.http };
        proxy.clone().filter(|_| !is_listed(&self.no_proxy, host, port))
    }
}

/// Whether `NO_PROXY` lists a host. `*` lists every host; `example.com`, `.example.com` and
/// `*.example.com` list it and its subdomains. A port after the name must match.
fn is_listed(list: &str, host: &str, port: u16) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    list.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.to_ascii_lowercase();
        // `::1` has colons but no port.
        let (name, listed_port) = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                (name, digits.parse::<u16>().ok())
            }
            _ => (&*entry, None),
        };
        let name = name.trim_matches(['[', ']']);
        let name = name.strip_prefix("*.").or(name.strip_prefix('.')).unwrap_or(name);
        let is_subdomain = || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
        listed_port.is_none_or(|listed| listed == port)
            && !name.is_empty()
            && (name == "*" || name == host || is_subdomain())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn each_scheme_has_its_own_proxy() {
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
                "HTTPS_PROXY: the environment variable is not the URL of a proxy"
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
