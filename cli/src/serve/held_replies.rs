//! The memory of replies that wait until their clients read them. All replies together may take
//! `--reply-memory`. If it is exceeded, the reply whose client reads most slowly is dropped and its
//! connection is closed, so that slow clients do not keep the others from being served.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

/// The most bytes that are passed to a connection at a time.
const SLICE: usize = 64 << 10;
/// What the buffers of two systems take at once, whether the client reads or not. A reply that has
/// just begun counts as if its client had read this much.
const HEAD_START: usize = 4 << 20;

/// All replies that wait for their clients.
pub(crate) struct HeldReplies(Arc<Mutex<Replies>>);

struct Replies {
    max_bytes: usize,
    bytes: usize,
    next: u64,
    replies: HashMap<u64, Waiting>,
}

/// What is left of one reply.
struct Waiting {
    parts: VecDeque<Bytes>,
    /// The memory of the parts. A part is freed when all of it was taken.
    bytes: usize,
    /// The bytes that are left.
    left: usize,
    /// The bytes that were taken.
    taken: usize,
    since: Instant,
    is_dropped: bool,
}

impl Waiting {
    /// The seconds that the client would take for the rest at its pace so far.
    fn seconds_left(&self, now: Instant) -> f64 {
        let age = now.duration_since(self.since).as_secs_f64();
        self.left as f64 * age / (self.taken + HEAD_START) as f64
    }
}

impl Replies {
    /// Drops replies until the rest fits. Returns what was dropped, to be freed without the lock.
    fn make_room(&mut self) -> Vec<VecDeque<Bytes>> {
        let now = Instant::now();
        let mut dropped = Vec::new();
        while self.bytes > self.max_bytes {
            let waiting = self.replies.values_mut().filter(|reply| reply.bytes > 0);
            let slowest = waiting
                .max_by(|a, b| a.seconds_left(now).total_cmp(&b.seconds_left(now)))
                .expect("the bytes are those of the replies");
            slowest.is_dropped = true;
            self.bytes -= std::mem::take(&mut slowest.bytes);
            slowest.left = 0;
            dropped.push(std::mem::take(&mut slowest.parts));
        }
        dropped
    }
}

impl HeldReplies {
    /// Replies of at most this many bytes together.
    pub(super) fn new(max_bytes: u64) -> HeldReplies {
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let replies = Replies { max_bytes, bytes: 0, next: 0, replies: HashMap::new() };
        HeldReplies(Arc::new(Mutex::new(replies)))
    }

    /// An empty reply.
    pub(super) fn begin(&self) -> HeldReply {
        let mut all = lock(&self.0);
        let key = all.next;
        all.next += 1;
        let reply = Waiting {
            parts: VecDeque::new(),
            bytes: 0,
            left: 0,
            taken: 0,
            since: Instant::now(),
            is_dropped: false,
        };
        all.replies.insert(key, reply);
        HeldReply { all: Arc::clone(&self.0), key }
    }

    /// A body that holds the whole content of `body`, unless it is short or a stream.
    pub(super) async fn hold(&self, mut body: Body) -> Body {
        let is_long = body.size_hint().exact().is_some_and(|length| length > SLICE as u64);
        if !is_long {
            return body;
        }
        let held = self.begin();
        // All of a body of known length is ready.
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(part) = frame.into_data() {
                held.push(part);
            }
        }
        let left = held.reply(|reply| reply.left);
        Body::new(SizedBody { next: move || held.take_slice(), left: left as u64 })
    }
}

fn lock(replies: &Mutex<Replies>) -> MutexGuard<'_, Replies> {
    replies.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A reply, or what is ready of it, in order. Dropping it frees it.
pub(crate) struct HeldReply {
    all: Arc<Mutex<Replies>>,
    key: u64,
}

impl HeldReply {
    fn reply<T>(&self, read: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut all = lock(&self.all);
        read(all.replies.get_mut(&self.key).expect("only the drop removes it"))
    }

    /// Adds a part at the end. May drop this reply, or others.
    pub(super) fn push(&self, part: Bytes) {
        let mut all = lock(&self.all);
        let reply = all.replies.get_mut(&self.key).expect("only the drop removes it");
        if reply.is_dropped || part.is_empty() {
            return;
        }
        let bytes = part.len();
        reply.bytes += bytes;
        reply.left += bytes;
        reply.parts.push_back(part);
        all.bytes += bytes;
        let dropped = all.make_room();
        drop(all);
        drop(dropped);
    }

    /// Whether the reply was dropped.
    pub(super) fn is_dropped(&self) -> bool {
        self.reply(|reply| reply.is_dropped)
    }

    /// Takes the next part. `None` if there is none now; an error if the reply was dropped.
    pub(super) fn take_part(&self) -> Result<Option<Bytes>, io::Error> {
        self.take(usize::MAX)
    }

    /// Takes the next bytes for a connection: a part, or the next slice of it.
    pub(super) fn take_slice(&self) -> Result<Option<Bytes>, io::Error> {
        self.take(SLICE)
    }

    /// Takes bytes of the next part, at most this many.
    fn take(&self, most: usize) -> Result<Option<Bytes>, io::Error> {
        let mut all = lock(&self.all);
        let reply = all.replies.get_mut(&self.key).expect("only the drop removes it");
        if reply.is_dropped {
            let message = "the reply was dropped, because its client reads too slowly";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        let Some(part) = reply.parts.front_mut() else { return Ok(None) };
        let taken = part.split_to(part.len().min(most));
        reply.left -= taken.len();
        reply.taken += taken.len();
        if part.is_empty() {
            reply.parts.pop_front();
            // Its memory was counted until its end.
            let freed = reply.bytes - reply.left;
            reply.bytes -= freed;
            all.bytes -= freed;
        }
        Ok(Some(taken))
    }
}

impl Drop for HeldReply {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        let reply = all.replies.remove(&self.key);
        all.bytes -= reply.as_ref().map_or(0, |reply| reply.bytes);
        drop(all);
        drop(reply);
    }
}

/// A body that consists of parts, which are not copied.
pub(super) fn body_of(parts: Vec<Bytes>) -> Body {
    let left = parts.iter().map(|part| part.len() as u64).sum();
    let mut parts = VecDeque::from(parts);
    Body::new(SizedBody { next: move || Ok(parts.pop_front()), left })
}

/// A body whose size is known before its parts are.
struct SizedBody<F> {
    next: F,
    left: u64,
}

impl<F: FnMut() -> io::Result<Option<Bytes>> + Unpin> HttpBody for SizedBody<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = (self.next)().transpose();
        Poll::Ready(next.map(|part| {
            let part = part?;
            self.left -= part.len() as u64;
            Ok(Frame::data(part))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn part(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    /// Makes a reply appear to have begun this many seconds earlier.
    fn age(reply: &HeldReply, seconds: u64) {
        reply.reply(|reply| reply.since -= Duration::from_secs(seconds));
    }

    #[test]
    fn the_slowest_reader_loses_its_reply() {
        let all = HeldReplies::new(1000);
        let [fast, slow, silent] = [0; 3].map(|_| all.begin());
        for reply in [&fast, &slow, &silent] {
            reply.push(part(300));
            age(reply, 10);
        }
        assert_eq!(fast.take(250).unwrap().unwrap().len(), 250);
        assert_eq!(slow.take(10).unwrap().unwrap().len(), 10);
        let new = all.begin();
        new.push(part(400));
        assert!(silent.take(1).is_err());
        assert_eq!(lock(&all.0).bytes, 1000);
        // One more byte takes the memory of the next slowest.
        new.push(part(1));
        assert!(slow.take(1).is_err());
        // What a dropped reply still produces is not kept.
        slow.push(part(300));
        assert_eq!(lock(&all.0).bytes, 701);
        drop((slow, silent));
        assert_eq!(fast.take_part().unwrap().unwrap().len(), 50);
        assert!(fast.take_part().unwrap().is_none());
        assert_eq!(lock(&all.0).bytes, 401);
        drop((fast, new));
        let all = lock(&all.0);
        assert!(all.bytes == 0 && all.replies.is_empty());
    }

    #[test]
    fn a_new_reply_is_not_the_slowest() {
        let all = HeldReplies::new(40 << 20);
        let old = all.begin();
        old.push(part(20 << 20));
        age(&old, 5);
        // As much as the systems take of a reply that nobody reads.
        old.take(3 << 20).unwrap();
        let new = all.begin();
        new.push(part(19 << 20));
        new.reply(|reply| reply.since -= Duration::from_millis(5));
        new.push(part(2 << 20));
        assert!(old.take(1).is_err() && new.take(1).is_ok());
    }

    #[test]
    fn the_memory_of_a_part_is_held_until_its_end() {
        let all = HeldReplies::new(1000);
        let reply = all.begin();
        reply.push(part(100));
        reply.push(part(50));
        let bytes = || lock(&all.0).bytes;
        reply.take(99).unwrap();
        assert_eq!(bytes(), 150);
        assert_eq!(reply.take(99).unwrap().unwrap().len(), 1);
        assert_eq!(bytes(), 50);
        assert_eq!(reply.take_part().unwrap().unwrap().len(), 50);
        assert_eq!(bytes(), 0);
        reply.push(part(1001));
        assert!(reply.take_part().is_err());
        assert_eq!(bytes(), 0);
    }

    #[tokio::test]
    async fn long_bodies_are_passed_on_in_slices() {
        let all = HeldReplies::new(1 << 20);
        let short = all.hold(Body::from("short")).await;
        assert_eq!(short.collect().await.unwrap().to_bytes(), "short");
        assert_eq!(lock(&all.0).next, 0);
        let parts = vec![part(3), part(SLICE), part(2 * SLICE)];
        let mut body = all.hold(body_of(parts)).await;
        assert_eq!(body.size_hint().exact(), Some(3 * SLICE as u64 + 3));
        let mut lengths = Vec::new();
        while let Some(frame) = body.frame().await {
            lengths.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(lengths, [3, SLICE, SLICE, SLICE]);
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(lock(&all.0).bytes, 0);
    }
}
