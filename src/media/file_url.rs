//! URLs of files: `file:///home/me/cat.png` (RFC 8089).

use percent_encoding::percent_decode_str;

/// The path in a `file:` URL.
///
/// # Errors
/// A message.
pub(super) fn path(url: &str) -> Result<String, &'static str> {
    let rest = url.split_once(':').map_or(url, |(_, rest)| rest);
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => match rest.find('/') {
            Some(at) if ["", "localhost"].contains(&&*rest[..at].to_ascii_lowercase()) => {
                &rest[at..]
            }
            _ => return Err("a file: URL with a host; write file:///path"),
        },
    };
    if path.contains(['?', '#']) {
        return Err("a file: URL with `?` or `#`; in a name they are %3F and %23");
    }
    // A drive: /C:/cat.png.
    let path = if cfg!(windows) { path.strip_prefix('/').unwrap_or(path) } else { path };
    let decoded = percent_decode_str(path).decode_utf8();
    decoded.map(|path| path.into_owned()).map_err(|_| "a file: URL that is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(windows))]
    fn paths() {
        for (url, expected) in [
            ("file:///a/b.png", Ok("/a/b.png")),
            ("FILE:/a/b.png", Ok("/a/b.png")),
            ("file://LocalHost/a", Ok("/a")),
            ("file:///a%20b%2F%C3%A9%23", Ok("/a b/é#")),
            ("file:///100%", Ok("/100%")),
            // Refused later, because it is not absolute.
            ("file:a", Ok("a")),
            ("file:", Ok("")),
            ("file:////a", Ok("//a")),
            ("file://host/a", Err("a file: URL with a host; write file:///path")),
            ("file://a.png", Err("a file: URL with a host; write file:///path")),
            ("file:///%FF", Err("a file: URL that is not UTF-8")),
            ("file:///a#b", Err("a file: URL with `?` or `#`; in a name they are %3F and %23")),
        ] {
            assert_eq!(path(url).as_deref().map_err(|problem| *problem), expected, "{url}");
        }
    }
}
