//! URLs: their origins, and the targets of redirects.

use ureq::http::Uri;

/// The origin of a URL: scheme, host and port. The token is sent only to the origin of the
/// endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlOrigin {
    secure: bool,
    host: String,
    port: u16,
}

impl UrlOrigin {
    /// The origin of a URL; `None` unless it is an `http` or `https` URL with a host.
    pub(crate) fn of(url: &str) -> Option<UrlOrigin> {
        let uri: Uri = url.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        let after_host = uri.authority()?.as_str().rsplit('@').next()?.get(host.len()..)?;
        if after_host.len() > 1 && uri.port_u16().is_none() {
            // A port above 65535 makes the URL invalid. The default port is not used.
            return None;
        }
        Some(UrlOrigin {
            secure,
            host,
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        })
    }

    pub(crate) fn parts(&self) -> (bool, &str, u16) {
        (self.secure, &self.host, self.port)
    }

    /// The origin for messages: `host` or `host:port`. Leaves out the path, which may contain a
    /// signature.
    pub(crate) fn shown(&self) -> String {
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }
}

/// The target of a `Location` header. `None` if it is not a web URL, or if it would leave an
/// encrypted connection.
pub(crate) fn follow(from: &str, location: &str) -> Option<String> {
    let scheme = from.split_once("://")?.0;
    let origin = from
        .find('/')
        .and_then(|at| from[at + 2..].find('/').map(|end| &from[..at + 2 + end]))
        .unwrap_or(from);
    let lower = location.to_ascii_lowercase();
    let to = if lower.starts_with("http://") || lower.starts_with("https://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else {
        // Hubs use no other form, and another form could hide a scheme.
        return None;
    };
    let to = to.split('#').next()?.to_owned();
    let (before, after) = (UrlOrigin::of(from)?, UrlOrigin::of(&to)?);
    (after.secure || !before.secure).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |a: &str, b: &str| UrlOrigin::of(a) == UrlOrigin::of(b);
        assert!(same("https://Hub.example/a", "https://hub.example:443/b?c"));
        for other in [
            "http://hub.example",
            "https://hub.example:444",
            "https://cdn.hub.example",
            "https://hub.example.evil",
        ] {
            assert!(!same("https://hub.example", other), "{other}");
        }
        assert_eq!(
            UrlOrigin::of("https://hub.example@evil.example/x")
                .map(|origin| origin.host)
                .as_deref(),
            Some("evil.example")
        );
        for bad in ["file:///etc/passwd", "http://h:99999/", "http://[::1]:99999/", "http://"] {
            assert_eq!(UrlOrigin::of(bad), None, "{bad}");
        }
        for (address, shown) in [
            ("http://[::1]/", "[::1]"),
            ("https://[::1]:8080/x", "[::1]:8080"),
            ("http://h:/", "h"),
        ] {
            assert_eq!(UrlOrigin::of(address).map(|origin| origin.shown()).as_deref(), Some(shown));
        }
        assert_eq!(
            UrlOrigin::of("http://127.0.0.1:8080/x").map(|origin| origin.shown()).as_deref(),
            Some("127.0.0.1:8080")
        );
    }

    #[test]
    fn redirects() {
        let from = "https://hub.example/a/b?c";
        let cases = [
            ("https://cdn.example/x?sig=1#f", Some("https://cdn.example/x?sig=1")),
            ("/api/x", Some("https://hub.example/api/x")),
            ("//cdn.example/x", Some("https://cdn.example/x")),
            ("http://cdn.example/x", None),
            ("file:///etc/passwd", None),
            ("x", None),
            ("", None),
        ];
        for (location, expected) in cases {
            assert_eq!(follow(from, location).as_deref(), expected, "{location}");
        }
        assert_eq!(follow("http://h:1", "/x").as_deref(), Some("http://h:1/x"));
        assert_eq!(follow("http://h:1/y", "http://h:2/x").as_deref(), Some("http://h:2/x"));
    }
}
