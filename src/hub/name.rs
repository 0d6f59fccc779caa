//! Checks names from a caller or from the hub that become paths and URLs.
//!
//! A name is accepted or refused, and never repaired. An accepted name cannot lead out of the cache
//! on any system.

/// The maximum size of a path segment and of a path, in bytes.
const MAX_SEGMENT_BYTES: usize = 200;
const MAX_PATH_BYTES: usize = 1000;

/// Checks `org/name` or `name` against the characters that the hub allows.
pub(super) fn check_repository(repository: &str) -> Result<(), &'static str> {
    let segment = |text: &str| {
        !text.is_empty()
            && text.len() <= 96
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && !text.starts_with(['.', '-'])
            && !text.ends_with(['.', '-'])
            && !text.contains("..")
            // Otherwise two models could share a folder of the cache.
            && !text.contains("--")
    };
    match repository.split('/').count() {
        1 | 2 if repository.split('/').all(segment) => Ok(()),
        _ => Err("is not a model id"),
    }
}

/// Checks a branch, tag or commit, which becomes a path below `refs`.
pub(super) fn check_revision(revision: &str) -> Result<(), &'static str> {
    match revision.len() <= MAX_SEGMENT_BYTES
        && !revision.contains([' ', '~', '^'])
        && check_file(revision).is_ok()
    {
        true => Ok(()),
        false => Err("is not a branch, tag or commit"),
    }
}

/// Checks a file name below a snapshot. It must be a relative path without `..`, in characters that
/// no file system interprets.
pub(super) fn check_file(path: &str) -> Result<(), &'static str> {
    let reserved =
        |c: char| c.is_control() || matches!(c, '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    // Invisible characters, and characters that change the direction of text.
    let hidden = |c: char| matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}');
    if path.len() > MAX_PATH_BYTES
        || path.split('/').any(|segment| segment.len() > MAX_SEGMENT_BYTES)
    {
        return Err("is too long for a file name");
    }
    if path.split('/').any(|segment| segment.is_empty() || segment.trim_matches('.').is_empty()) {
        return Err("leads out of its folder");
    }
    if path.chars().any(|c| reserved(c) || hidden(c)) {
        return Err("has characters that are not safe in a file name");
    }
    if path.split('/').any(|segment| segment.ends_with(['.', ' ']) || segment.starts_with(' ')) {
        return Err("begins or ends with a space, or ends with a dot");
    }
    if path.split('/').any(is_device) {
        return Err("is the name of a device on Windows");
    }
    Ok(())
}

/// Whether a segment is a device on Windows, such as `NUL`, `aux.gguf` and `com1.x` in every
/// folder.
fn is_device(segment: &str) -> bool {
    let stem = segment.split('.').next().unwrap_or(segment).trim_end().to_ascii_lowercase();
    let numbered = |rest: &str| {
        matches!(rest.chars().next(), Some('0'..='9' | '\u{B9}' | '\u{B2}' | '\u{B3}'))
            && rest.chars().count() == 1
    };
    matches!(&*stem, "con" | "prn" | "aux" | "nul" | "conin$" | "conout$")
        || stem.strip_prefix("com").or(stem.strip_prefix("lpt")).is_some_and(numbered)
}

/// Whether a text is a commit as the hub writes it: forty hexadecimal digits.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && is_hex(text)
}

/// Whether a text is the sha256 of a file as the hub writes it.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether an etag is safe as a file name.
pub(super) fn is_blob(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The value of an etag: `x` for `W/"x"` and for `"x"`.
pub(super) fn bare_etag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Percent-encodes a part of a URL. `keep_slash` is true for paths.
pub(super) fn encoded(text: &str, keep_slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte))
            }
            b'/' if keep_slash => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_or_refused() {
        for good in ["Qwen/Qwen2.5-0.5B-Instruct-GGUF", "gpt2", "a_b/c.d"] {
            assert_eq!(check_repository(good), Ok(()), "{good}");
        }
        for bad in [
            "", "/", "a/", "/a", "a/b/c", "../x", "a/..", "a/.b", "a--b/c", "a b/c", "a/b\n",
            "a/b?x", "a/ü", "a\\b",
        ] {
            assert!(check_repository(bad).is_err(), "{bad:?}");
        }
        for good in [
            "main",
            "v1.0",
            "refs/pr/7",
            "fix/#1@x=2",
            "größe",
            "0123456789abcdef0123456789abcdef01234567",
        ] {
            assert_eq!(check_revision(good), Ok(()), "{good}");
        }
        for bad in [
            "", "../x", "/x", "a//b", "a/../b", "x y", "x\0", "x?y", "a/..", "main~1", "x^",
            "a\\b", "a:b",
        ] {
            assert!(check_revision(bad).is_err(), "{bad:?}");
        }
        for good in [
            "model.gguf",
            "Q4_K_M/model-00001-of-00002.gguf",
            "größe.gguf",
            "a b(1).gguf",
            ".gitattributes",
            "com10",
            "nul1",
        ] {
            assert_eq!(check_file(good), Ok(()), "{good}");
        }
        let bad = [
            "",
            "..",
            "../x",
            "a/../x",
            "/etc/passwd",
            "a//b",
            "a/",
            "./a",
            "C:\\x",
            "C:x",
            "\\\\host\\x",
            "a\nb",
            "a\0b",
            "...",
            "x.gguf ",
            "x.gguf.",
            " x",
            "\u{202E}fugg.x",
            "a/.../b",
            "a*b",
            "NUL",
            "aux.gguf",
            "a/com1.tar.gz",
            "lpt².gguf",
        ];
        for bad in bad {
            assert!(check_file(bad).is_err(), "{bad:?}");
        }
        assert!(check_file(&"x".repeat(201)).is_err());
        assert!(check_file(&"x/".repeat(600)).is_err());
    }

    #[test]
    fn etags_and_url_parts() {
        assert_eq!([bare_etag("\"a\""), bare_etag("W/\"a\""), bare_etag("a")], ["a"; 3]);
        assert!(!is_blob("../x") && !is_blob("") && is_blob("0af-3"));
        assert!(is_sha256(&"0f".repeat(32)) && !is_sha256(&"0F".repeat(32)) && !is_commit("main"));
        assert_eq!(encoded("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(encoded("a b/ü?.gguf", true), "a%20b/%C3%BC%3F.gguf");
    }
}
