//! A file at the hub: its size, its hash, and ranges of its bytes.

use std::time::{Duration, Instant};

use super::fault::{HubFault, MAX_TRIES, network, retry};
use super::http::{GetRequest, HubClient, HubHead};
use super::listing::ListedFile;
use super::name;
use super::refusal::{RequestContext, refused};
use super::running::CancelToken;
use crate::error::{Code, Error, Result};

/// The maximum time for reading a range.
const RANGE_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum number of bytes that are skipped if a server does not support ranges.
const MAX_SKIPPED: u64 = 64 << 20;

/// Where a file is, and how to read it.
pub(super) struct RemoteFile<'a> {
    pub(super) client: &'a HubClient<'a>,
    pub(super) cancel: &'a CancelToken,
    pub(super) context: RequestContext<'a>,
    /// The URL at the endpoint. It redirects to a URL that expires.
    pub(super) url: String,
}

/// The identity of a file's bytes: its size, and its hash or etag.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BlobIdentity {
    pub(super) size: u64,
    /// The name of the blob in the cache: the hash if the hub lists one, otherwise the etag.
    pub(super) blob: String,
    pub(super) sha256: Option<String>,
    /// The etag of the server that stores the bytes, for `If-Range`.
    pub(super) validator: Option<String>,
}

impl BlobIdentity {
    /// The identity according to the listing. `None` if it lacks the size or the hash.
    pub(super) fn of_listed(listed: &ListedFile) -> Option<BlobIdentity> {
        let (size, sha256) = (listed.size?, listed.sha256.clone()?);
        Some(BlobIdentity { size, blob: sha256.clone(), sha256: Some(sha256), validator: None })
    }

    /// The identity according to the listing and a response, which must agree. `what` names the
    /// file in messages.
    fn of(listed: &ListedFile, head: &HubHead, what: &str) -> Result<BlobIdentity> {
        let verify = |problem: String| {
            Error::new(Code::HubVerify, format!("{what}: {problem}")).with("file", &*listed.name)
        };
        let sizes: Vec<u64> =
            [listed.size, head.linked_size, size(head)].into_iter().flatten().collect();
        let Some(&size) = sizes.first() else {
            return Err(network(&head.host, format_args!("does not report the size of {what}")));
        };
        if let Some(other) = sizes.iter().find(|other| **other != size) {
            return Err(verify(format!("the hub lists {size} bytes, but serves {other}")));
        }
        // The hub's own etag is the hash of a large file, or a git hash. Other servers' etags can
        // be anything.
        let etag = if head.linked_etag.is_empty() { &head.hub_etag } else { &head.linked_etag };
        let etag = name::bare_etag(etag);
        let hash = Some(etag).filter(|etag| name::is_sha256(etag));
        if let (Some(listed), Some(hash)) = (&listed.sha256, hash)
            && listed != hash
        {
            return Err(verify(format!("the hub lists sha256 {listed}, but serves {hash}")));
        }
        let sha256 = listed.sha256.clone().or(hash.map(str::to_owned));
        let blob = sha256.clone().unwrap_or_else(|| etag.to_owned());
        if !name::is_blob(&blob) {
            let problem = format!("sent no etag that could name {what} in the cache");
            return Err(network(&head.host, problem));
        }
        Ok(BlobIdentity { size, blob, sha256, validator: strong(&head.etag) })
    }
}

/// The etag, if `If-Range` accepts it. A weak etag does not identify the bytes.
pub(super) fn strong(etag: &str) -> Option<String> {
    (etag.starts_with('"') && etag.len() > 2).then(|| etag.to_owned())
}

/// The size of the whole file according to a response.
pub(super) fn size(head: &HubHead) -> Option<u64> {
    match head.status {
        206 => head.content_range.map(|(_, size)| size),
        _ => head.length,
    }
}

impl RemoteFile<'_> {
    /// Reads up to `length` bytes from `start`, fewer at the end of the file. Also returns the
    /// file's identity.
    pub(super) fn read(
        &self,
        listed: &ListedFile,
        start: u64,
        length: u64,
    ) -> Result<(BlobIdentity, Vec<u8>)> {
        retry(self.cancel, MAX_TRIES, || self.read_once(listed, start, length))
    }

    fn read_once(
        &self,
        listed: &ListedFile,
        start: u64,
        length: u64,
    ) -> Result<(BlobIdentity, Vec<u8>), HubFault> {
        let range = Some(format!("bytes={start}-{}", start.saturating_add(length) - 1));
        let deadline = Some(Instant::now() + RANGE_TIMEOUT);
        let request = GetRequest { url: &self.url, range, deadline, if_range: None };
        let response = self.client.get(&request, self.cancel)?;
        let head = &response.head;
        let mut skip = match (head.status, head.content_range) {
            (206, Some((first, _))) if first == start => 0,
            (206, _) => {
                return Err(network(&head.host, "sent a range that was not requested").into());
            }
            (200, _) if start <= MAX_SKIPPED => start,
            (200, _) => return Err(network(&head.host, "does not support ranges").into()),
            _ => return Err(refused(head, &response.error_body(self.cancel)?, &self.context)),
        };
        let identity = BlobIdentity::of(listed, head, &self.context.what)?;
        if self.client.settings.redactor.finds_in(&identity.blob) {
            return Err(network(&head.host, "sent the token back as an etag").into());
        }
        let expected = length.min(identity.size.saturating_sub(start));
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < expected {
            let Some(received) = response.next(self.cancel)? else {
                return Err(HubFault::again(network(&head.host, "ended its response early")));
            };
            let skipped = skip.min(received.len() as u64);
            skip -= skipped;
            bytes.extend_from_slice(&received[skipped as usize..]);
        }
        bytes.truncate(expected as usize);
        Ok((identity, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_may_not_contradict_itself() {
        let hash = "ab".repeat(32);
        let listed = |size, sha256: Option<&str>| ListedFile {
            name: "x".into(),
            size,
            sha256: sha256.map(str::to_owned),
        };
        let quoted = format!("\"{hash}\"");
        let head = HubHead {
            status: 206,
            content_range: Some((0, 9)),
            linked_etag: quoted.clone(),
            etag: "\"cdn\"".into(),
            ..HubHead::default()
        };
        let expected = BlobIdentity {
            size: 9,
            blob: hash.clone(),
            sha256: Some(hash.clone()),
            validator: Some("\"cdn\"".into()),
        };
        assert_eq!(BlobIdentity::of(&listed(None, None), &head, "x").ok(), Some(expected.clone()));
        assert_eq!(
            BlobIdentity::of(&listed(Some(9), Some(&hash)), &head, "x").ok(),
            Some(expected)
        );
        let code = |listed: &ListedFile, head: &HubHead| {
            BlobIdentity::of(listed, head, "x").err().map(|error| error.code())
        };
        assert_eq!(code(&listed(Some(8), None), &head), Some(Code::HubVerify));
        assert_eq!(code(&listed(None, Some(&"cd".repeat(32))), &head), Some(Code::HubVerify));
        assert_eq!(
            code(&listed(None, None), &HubHead { linked_size: Some(8), ..head.clone() }),
            Some(Code::HubVerify)
        );
        let odd = HubHead { linked_etag: "\"../../x\"".into(), ..head.clone() };
        assert_eq!(code(&listed(None, None), &odd), Some(Code::HubNetwork));
        let silent = HubHead { content_range: None, ..head.clone() };
        assert_eq!(code(&listed(None, None), &silent), Some(Code::HubNetwork));
        // A weak etag does not identify the bytes of a range.
        let small = HubHead {
            linked_etag: String::new(),
            hub_etag: "\"0af\"".into(),
            etag: "W/\"0af\"".into(),
            ..head
        };
        let expected = BlobIdentity { size: 9, blob: "0af".into(), sha256: None, validator: None };
        assert_eq!(BlobIdentity::of(&listed(None, None), &small, "x").ok(), Some(expected));
    }
}
