//! What a repository holds, as the hub's API tells it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cancel::CancelToken;
use super::fault::{HubFault, RequestContext, network, refused};
use super::http::{GetRequest, HubClient};
use super::name;
use crate::error::{Error, Result};

/// Bytes of the answer, and how long it may take.
const MOST_BYTES: usize = 32 << 20;
const MOST_TIME: Duration = Duration::from_secs(60);
/// The hint may be dear to compute for the hub: nobody waits for it.
const MOST_TIME_OF_HINT: Duration = Duration::from_secs(5);
const MOST_BYTES_OF_HINT: usize = 2 << 20;
/// Names that are listed in a message.
const MOST_NAMES: usize = 20;

/// A revision of a repository.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Forty hexadecimal digits.
    pub(super) commit: String,
    pub(super) gated: bool,
    pub(super) private: bool,
    pub(super) files: Vec<ListedFile>,
    /// Names that may not become paths.
    pub(super) refused: Vec<String>,
}

/// A file of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ListedFile {
    pub(super) name: String,
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<String>,
}

/// Asks for a revision; None is the default branch.
pub(super) fn ask(
    client: &HubClient,
    api: &str,
    revision: Option<&str>,
    asked: &RequestContext,
    cancel: &CancelToken,
) -> Result<Listing, HubFault> {
    let revision = revision
        .map(|revision| format!("/revision/{}", name::encoded(revision, false)))
        .unwrap_or_default();
    // With sizes and hashes, which cost the hub little and save a request for each file.
    let url = format!("{api}{revision}?blobs=true");
    let answer = client.get(
        &GetRequest { url: &url, until: Some(Instant::now() + MOST_TIME), ..GetRequest::default() },
        cancel,
    )?;
    if answer.head.status != 200 {
        return Err(refused(&answer.head, &answer.complaint(cancel)?, asked));
    }
    let body = answer.whole(MOST_BYTES, cancel)?;
    read(&body).map_err(|problem| {
        network(&answer.head.host, format_args!("does not answer as a hub: {problem}")).into()
    })
}

fn read(body: &[u8]) -> Result<Listing, String> {
    let json: Value = serde_json::from_slice(body).map_err(|error| format!("no JSON: {error}"))?;
    let commit = json["sha"].as_str().unwrap_or_default();
    if !name::is_commit(commit) {
        return Err("\"sha\" is not a commit".to_owned());
    }
    let siblings = json["siblings"].as_array().ok_or("\"siblings\" is not a list of files")?;
    let mut listing = Listing {
        commit: commit.to_owned(),
        gated: !matches!(json["gated"], Value::Null | Value::Bool(false)),
        private: json["private"] == Value::Bool(true),
        ..Listing::default()
    };
    for file in siblings {
        let name = file["rfilename"].as_str().ok_or("a file has no \"rfilename\"")?;
        if name::check_file(name).is_err() {
            listing.refused.push(name.to_owned());
            continue;
        }
        let lfs = &file["lfs"];
        let sha256 = lfs["sha256"].as_str().or(lfs["oid"].as_str()).map(str::to_ascii_lowercase);
        let sha256 = sha256.filter(|hash| name::is_sha256(hash));
        let size = lfs["size"].as_u64().or(file["size"].as_u64());
        listing.files.push(ListedFile { name: name.to_owned(), size, sha256 });
    }
    Ok(listing)
}

/// What the hub says of the model's GGUF header, for people to read: it knows one of its templates
/// at most. Null where it does not say, or not soon.
pub(super) fn hint(client: &HubClient, api: &str, cancel: &CancelToken) -> Result<Value> {
    let url = format!("{api}?expand=gguf");
    let get = GetRequest {
        url: &url,
        until: Some(Instant::now() + MOST_TIME_OF_HINT),
        ..GetRequest::default()
    };
    let body = client.get(&get, cancel).and_then(|answer| match answer.head.status {
        200 => answer.whole(MOST_BYTES_OF_HINT, cancel),
        _ => Ok(Vec::new()),
    });
    cancel.check()?;
    let json: Value =
        body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let gguf = &json["gguf"];
    if !gguf.is_object() {
        return Ok(Value::Null);
    }
    let text = |value: &Value| value.as_str().map(name::shown);
    Ok(json!({
        "architecture": text(&gguf["architecture"]),
        "context_length": gguf["context_length"].as_u64(),
        "has_chat_template": gguf["chat_template"].is_string(),
    }))
}

/// Some names for a message.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let mut shown: Vec<_> =
        names.iter().take(MOST_NAMES).map(|name| format!("{:?}", name::shown(name))).collect();
    if names.len() > MOST_NAMES {
        shown.push(format!("and {} more", names.len() - MOST_NAMES));
    }
    shown.join(", ")
}

/// `HUB_VERIFY`: the hub names files that may not be written.
pub(super) fn refused_names(repository: &str, listing: &Listing) -> Error {
    let shown = names(listing.refused.iter().map(String::as_str));
    let message = format!(
        "{repository} has file names that are refused, since they could lead out of the cache: {shown}"
    );
    Error::new(crate::error::Code::HubVerify, message).with(
        "files",
        listing.refused.iter().take(MOST_NAMES).map(|n| name::shown(n)).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_listing_is_read_strictly() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let hash = "ab".repeat(32);
        let body = json!({ "sha": sha, "gated": "auto", "private": false, "siblings": [
            { "rfilename": "a.gguf", "size": 5, "lfs": { "size": 7, "sha256": hash.to_uppercase() } },
            { "rfilename": "../b.gguf" },
            { "rfilename": "c.gguf", "size": 3, "lfs": { "sha256": "../../x" } },
        ] });
        let listing = read(body.to_string().as_bytes()).unwrap();
        assert_eq!((&*listing.commit, listing.gated, listing.private), (sha, true, false));
        assert_eq!(listing.refused, ["../b.gguf"]);
        assert_eq!(
            listing.files[0],
            ListedFile { name: "a.gguf".into(), size: Some(7), sha256: Some(hash) }
        );
        assert_eq!(
            listing.files[1],
            ListedFile { name: "c.gguf".into(), size: Some(3), sha256: None }
        );
        for bad in [
            json!([]),
            json!({ "sha": "../../x", "siblings": [] }),
            json!({ "sha": sha }),
            json!({ "sha": sha, "siblings": [{}] }),
            json!({ "sha": sha, "siblings": { "a": 1 } }),
        ] {
            assert!(read(bad.to_string().as_bytes()).is_err(), "{bad}");
        }
        assert!(read(&b"[".repeat(100_000)).is_err());
    }
}
