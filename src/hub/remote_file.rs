//! A file at the hub: what it is, and ranges of its bytes.

use std::time::{Duration, Instant};

use super::cancel::CancelToken;
use super::fault::{HubFault, RequestContext, TRIES, network, refused, retry};
use super::http::{GetRequest, HubClient, HubHead};
use super::listing::ListedFile;
use super::name;
use crate::error::{Code, Error, Result};

/// How long a range that is wanted for its own sake may take.
const MOST_TIME: Duration = Duration::from_secs(120);
/// Bytes that are read over where a server knows no ranges.
const MOST_SKIPPED: u64 = 64 << 20;

/// Where a file is, and for whom it is read.
pub(super) struct RemoteFile<'a> {
    pub(super) client: &'a HubClient<'a>,
    pub(super) cancel: &'a CancelToken,
    pub(super) asked: RequestContext<'a>,
    /// Below the endpoint; it leads to the bytes by redirects that hold for a time.
    pub(super) url: &'a str,
}

/// What the bytes must be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BlobIdentity {
    pub(super) size: u64,
    /// The name of its blob in the cache: the hash where the hub has one, else its etag.
    pub(super) blob: String,
    pub(super) sha256: Option<String>,
    /// The etag of whoever serves the bytes, for `If-Range`.
    pub(super) validator: Option<String>,
}

impl BlobIdentity {
    /// From the listing alone, if that is enough.
    pub(super) fn of_listed(listed: &ListedFile) -> Option<BlobIdentity> {
        let (size, sha256) = (listed.size?, listed.sha256.clone()?);
        Some(BlobIdentity { size, blob: sha256.clone(), sha256: Some(sha256), validator: None })
    }

    /// From the listing and an answer, which must not contradict each other.
    fn of(listed: &ListedFile, head: &HubHead, shown: &str) -> Result<BlobIdentity> {
        let verify = |problem: String| {
            Error::new(Code::HubVerify, format!("{shown}: {problem}")).with("file", &*listed.name)
        };
        let sizes: Vec<u64> =
            [listed.size, head.linked_size, size(head)].into_iter().flatten().collect();
        let Some(&size) = sizes.first() else {
            return Err(network(&head.host, format_args!("does not say how large {shown} is")));
        };
        if let Some(other) = sizes.iter().find(|other| **other != size) {
            return Err(verify(format!("the hub says {size} bytes, and {other} bytes are served")));
        }
        // A hub's own etag of a large file is its hash, else a git hash; other servers' etags are
        // anything.
        let told = if head.linked_etag.is_empty() { &head.hub_etag } else { &head.linked_etag };
        let told = name::bare_etag(told);
        let hash = Some(told).filter(|told| name::is_sha256(told));
        if let (Some(listed), Some(hash)) = (&listed.sha256, hash)
            && listed != hash
        {
            return Err(verify(format!("the hub lists sha256 {listed}, and serves {hash}")));
        }
        let sha256 = listed.sha256.clone().or(hash.map(str::to_owned));
        let blob = sha256.clone().unwrap_or_else(|| told.to_owned());
        if !name::is_blob(&blob) {
            return Err(network(
                &head.host,
                format_args!("{shown} has no etag that could name it in the cache"),
            ));
        }
        Ok(BlobIdentity { size, blob, sha256, validator: strong(&head.etag) })
    }
}

/// An etag that `If-Range` may have: a weak one promises nothing about bytes.
pub(super) fn strong(etag: &str) -> Option<String> {
    (etag.starts_with('"') && etag.len() > 2).then(|| etag.to_owned())
}

/// Bytes of the whole file, as its answer says.
pub(super) fn size(head: &HubHead) -> Option<u64> {
    match head.status {
        206 => head.content_range.map(|(_, size)| size),
        _ => head.length,
    }
}

impl RemoteFile<'_> {
    /// At most `length` bytes from `start` on, fewer at the end, and what the file is.
    pub(super) fn read(
        &self,
        listed: &ListedFile,
        start: u64,
        length: u64,
    ) -> Result<(BlobIdentity, Vec<u8>)> {
        retry(self.cancel, TRIES, || self.read_once(listed, start, length))
    }

    fn read_once(
        &self,
        listed: &ListedFile,
        start: u64,
        length: u64,
    ) -> Result<(BlobIdentity, Vec<u8>), HubFault> {
        let range = Some(format!("bytes={start}-{}", start.saturating_add(length) - 1));
        let get = GetRequest {
            url: self.url,
            range,
            until: Some(Instant::now() + MOST_TIME),
            if_range: None,
        };
        let answer = self.client.get(&get, self.cancel)?;
        let head = &answer.head;
        let mut skip = match (head.status, head.content_range) {
            (206, Some((first, _))) if first == start => 0,
            (206, _) => {
                return Err(
                    network(&head.host, "answers with another range than was asked for").into()
                );
            }
            (200, _) if start <= MOST_SKIPPED => start,
            (200, _) => return Err(network(&head.host, "knows no ranges").into()),
            _ => return Err(refused(head, &answer.complaint(self.cancel)?, &self.asked)),
        };
        let identity = BlobIdentity::of(listed, head, self.asked.what)?;
        let want = length.min(identity.size.saturating_sub(start));
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < want {
            let Some(piece) = answer.next(self.cancel)? else {
                return Err(HubFault::Again {
                    error: network(&head.host, "ends its answer early"),
                    after: None,
                });
            };
            let cut = skip.min(piece.len() as u64);
            skip -= cut;
            bytes.extend_from_slice(&piece[cut as usize..]);
        }
        bytes.truncate(want as usize);
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
        // A weak etag is none for ranges.
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
