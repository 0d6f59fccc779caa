//! The files of a repository, from the hub's API.

use std::fmt::{self, Formatter};
use std::time::{Duration, Instant};

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::fault::{HubFault, network};
use super::http::{GetRequest, HubClient, quoted};
use super::name;
use super::refusal::{RequestContext, refused};
use super::running::CancelToken;
use crate::error::{Code, Error, Result};
use crate::net::secret::Redactor;

/// The maximum size of the response in bytes, and the maximum time that it may take.
const MAX_BYTES: usize = 32 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The same limits for the hint. The hub may compute it slowly, and it is not worth a long wait.
const MAX_HINT_BYTES: usize = 2 << 20;
const HINT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of files in a repository.
const MAX_FILES: usize = 50_000;
/// The maximum number of file names in a message.
const MAX_NAMES: usize = 20;

/// The files of one revision of a repository.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The commit: forty hexadecimal digits.
    pub(super) commit: String,
    pub(super) gated: bool,
    pub(super) private: bool,
    pub(super) files: Vec<ListedFile>,
    /// Names that are not safe as paths. These files are ignored.
    pub(super) refused: Vec<String>,
}

/// A file of a repository.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ListedFile {
    pub(super) name: String,
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<String>,
}

impl Listing {
    /// Refuses names that contain a secret, because they would become names of files.
    pub(super) fn without(mut self, redactor: &Redactor) -> Result<Listing> {
        if redactor.finds_in(&self.commit) {
            let problem = "the hub sent the token back as the name of a commit";
            return Err(Error::new(Code::HubVerify, problem));
        }
        let (refused, files): (Vec<_>, Vec<_>) =
            self.files.into_iter().partition(|file| redactor.finds_in(&file.name));
        self.refused.extend(refused.into_iter().map(|file| file.name));
        Ok(Listing { files, ..self })
    }
}

/// Requests the listing of a revision; `None` is the default branch.
pub(super) fn request(
    client: &HubClient,
    api: &str,
    revision: Option<&str>,
    context: &RequestContext,
    cancel: &CancelToken,
) -> Result<Listing, HubFault> {
    let revision = revision
        .map(|revision| format!("/revision/{}", name::encoded(revision, false)))
        .unwrap_or_default();
    // The parameter adds sizes and hashes. It costs the hub little, and saves a request per file.
    let url = format!("{api}{revision}?blobs=true");
    let deadline = Some(Instant::now() + TIMEOUT);
    let request = GetRequest { url: &url, deadline, ..GetRequest::default() };
    let response = client.get(&request, cancel)?;
    if response.head.status != 200 {
        return Err(refused(&response.head, &response.error_body(cancel)?, context));
    }
    let body = response.body(MAX_BYTES, cancel)?;
    parse(&body).map_err(|problem| {
        let problem = format!("the response is not a hub's: {problem}; check HF_ENDPOINT");
        network(&response.head.host, problem).into()
    })
}

fn parse(body: &[u8]) -> Result<Listing, String> {
    // The text of the error is not used: unless it is a syntax error, it quotes the response.
    let revision: Revision = serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let what = if error.is_data() { "a member of another type" } else { "no JSON" };
        format!("{what} at line {line} column {column}")
    })?;
    if revision.siblings.files.len() + revision.siblings.refused.len() > MAX_FILES {
        return Err(format!("more than {MAX_FILES} files"));
    }
    if !name::is_commit(&revision.sha) {
        return Err("\"sha\" is not a commit".to_owned());
    }
    Ok(Listing {
        commit: revision.sha,
        gated: !matches!(revision.gated, None | Some(Gated::Flag(false))),
        private: revision.private,
        ..revision.siblings
    })
}

/// The members that are read. All others are skipped, because a response may consist mostly of
/// unused members.
#[derive(Deserialize)]
struct Revision {
    sha: String,
    gated: Option<Gated>,
    #[serde(default)]
    private: bool,
    #[serde(deserialize_with = "read_files")]
    siblings: Listing,
}

/// The member `gated`: `false`, `"auto"` or `"manual"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Gated {
    Flag(bool),
    Kind(#[expect(dead_code, reason = "any text means gated")] String),
}

/// An entry of `siblings`.
#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Default, Deserialize)]
struct Lfs {
    sha256: Option<String>,
    oid: Option<String>,
    size: Option<u64>,
}

/// Reads `siblings` one by one.
fn read_files<'de, D: Deserializer<'de>>(json: D) -> Result<Listing, D::Error> {
    struct Read;
    impl<'de> Visitor<'de> for Read {
        type Value = Listing;
        fn expecting(&self, f: &mut Formatter) -> fmt::Result {
            f.write_str("a list of files")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<Listing, A::Error> {
            let mut listing = Listing::default();
            while listing.files.len() + listing.refused.len() <= MAX_FILES {
                let Some(file) = files.next_element::<Sibling>()? else { return Ok(listing) };
                if name::check_file(&file.rfilename).is_err() {
                    listing.refused.push(file.rfilename);
                    continue;
                }
                let lfs = file.lfs.unwrap_or_default();
                let sha256 = lfs.sha256.or(lfs.oid).map(|hash| hash.to_ascii_lowercase());
                let sha256 = sha256.filter(|hash| name::is_sha256(hash));
                let size = lfs.size.or(file.size);
                listing.files.push(ListedFile { name: file.rfilename, size, sha256 });
            }
            while files.next_element::<IgnoredAny>()?.is_some() {}
            Ok(listing)
        }
    }
    json.deserialize_seq(Read)
}

/// Requests what the hub reports about the model's GGUF header. This is information for people,
/// because the hub knows at most one template. Null if the hub does not answer soon.
pub(super) fn hint(client: &HubClient, api: &str, cancel: &CancelToken) -> Result<Value> {
    let url = format!("{api}?expand=gguf");
    let deadline = Some(Instant::now() + HINT_TIMEOUT);
    let request = GetRequest { url: &url, deadline, ..GetRequest::default() };
    let body = client.get(&request, cancel).and_then(|response| match response.head.status {
        200 => response.body(MAX_HINT_BYTES, cancel),
        _ => Ok(Vec::new()),
    });
    cancel.check()?;
    let hint: Option<Hint> = body.ok().and_then(|body| serde_json::from_slice(&body).ok());
    let Some(gguf) = hint.and_then(|hint| hint.gguf) else { return Ok(Value::Null) };
    Ok(json!({
        "architecture": gguf.architecture.as_deref().map(quoted),
        "context_length": gguf.context_length,
        "has_chat_template": gguf.chat_template.is_some(),
    }))
}

#[derive(Deserialize)]
struct Hint {
    gguf: Option<HintedHeader>,
}

#[derive(Deserialize)]
struct HintedHeader {
    architecture: Option<String>,
    context_length: Option<u64>,
    chat_template: Option<String>,
}

/// Joins file names for a message.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let mut shown: Vec<_> =
        names.iter().take(MAX_NAMES).map(|name| format!("{:?}", quoted(name))).collect();
    if names.len() > MAX_NAMES {
        shown.push(format!("and {} more", names.len() - MAX_NAMES));
    }
    shown.join(", ")
}

/// The error `HUB_VERIFY`: the hub lists names that are not safe as paths.
pub(super) fn refused_names(repository: &str, listing: &Listing) -> Error {
    let shown = names(listing.refused.iter().map(String::as_str));
    let message = format!(
        "{repository} has file names that are refused because they could lead out of the cache: {shown}"
    );
    Error::new(Code::HubVerify, message).with(
        "files",
        listing.refused.iter().take(MAX_NAMES).map(|n| quoted(n)).collect::<Vec<_>>(),
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
        let listing = parse(body.to_string().as_bytes()).unwrap();
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
            assert!(parse(bad.to_string().as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(&b"[".repeat(100_000)).is_err());
        let many =
            json!({ "sha": sha, "siblings": vec![json!({ "rfilename": "a" }); MAX_FILES + 1] });
        let error = parse(many.to_string().as_bytes()).unwrap_err();
        assert!(error.contains("more than 50000 files"), "{error}");
    }
}
