//! Frames on the socket between host and helper: `u8 kind | u32 length, little-endian | payload`.
//!
//! The peer is not trusted: memory grows with the bytes received, not with the announced length,
//! and a peer that never stops sending does not keep the caller from looking at the clock. Writing
//! to a closed socket raises no signal.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// To the helper: a call, as JSON.
    Call = 1,
    /// To the helper: the text that the call is about.
    Text = 2,
    /// To the host: an event.
    Event = 3,
    /// To the host: a piece of a streamed reply.
    Piece = 4,
    /// To the host: the reply. The last frame of a call.
    Reply = 5,
    /// To the host: the error. The last frame of a call.
    Failure = 6,
    /// To the host: the error of a call that the helper cannot run. The last frame of a connection.
    Refusal = 7,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        let known = [
            Kind::Call,
            Kind::Text,
            Kind::Event,
            Kind::Piece,
            Kind::Reply,
            Kind::Failure,
            Kind::Refusal,
        ];
        known.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The side that receives these frames.
    fn receiver(self) -> Side {
        match self {
            Kind::Call | Kind::Text => Side::Helper,
            _ => Side::Host,
        }
    }

    /// The maximum number of bytes in a frame.
    pub(super) fn most_bytes(self) -> usize {
        match self {
            Kind::Call | Kind::Text => MAX_REQUEST,
            // A piece may hold the log probabilities of many tokens, as the start of a tool call.
            Kind::Reply | Kind::Piece => MAX_REPLY,
            Kind::Event | Kind::Failure | Kind::Refusal => MAX_OTHER,
        }
    }
}

/// Whose end of a connection it is. Each side refuses the frames that only the other receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Helper,
}

/// The size of a frame's header in bytes.
const HEAD: usize = 5;
/// The maximum number of bytes that one read receives.
const BLOCK: usize = 64 << 10;
/// How many bytes are received before the caller looks at the clock again.
const BYTES_PER_LOOK: usize = 1 << 20;
/// The maximum number of bytes in a request. The host is trusted, and a text may be long.
const MAX_REQUEST: usize = 1 << 30;
/// The maximum number of bytes in a reply. The host keeps it in memory, and the caller copies it.
/// 20 log probabilities for each of 120,000 tokens fit, and so do the tokens of a text of 20 MB.
const MAX_REPLY: usize = 256 << 20;
/// The maximum number of bytes in an error or an event. A log line may hold a whole prompt.
const MAX_OTHER: usize = 16 << 20;

/// One side of a socket.
pub(super) struct Connection {
    socket: OwnedFd,
    side: Side,
    /// Received bytes, and how many of them have been consumed.
    received: Vec<u8>,
    taken: usize,
    /// Descriptors received with those bytes, not yet taken.
    descriptors: Vec<OwnedFd>,
}

/// Called before each wait of a connection, before each frame, and while a long frame arrives.
/// Returns the deadline of the wait; an error ends it.
pub(super) type Patience<'a> = &'a mut dyn FnMut() -> io::Result<Option<Instant>>;

/// Waits without limit.
pub(super) fn forever() -> io::Result<Option<Instant>> {
    Ok(None)
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, side: Side) -> Connection {
        Connection { socket, side, received: Vec::new(), taken: 0, descriptors: Vec::new() }
    }

    /// Sends one frame, with a descriptor if there is one.
    pub(super) fn send(
        &self,
        kind: Kind,
        payload: &[u8],
        descriptor: Option<BorrowedFd>,
        patience: Patience,
    ) -> io::Result<()> {
        if payload.len() > kind.most_bytes() {
            let most = kind.most_bytes();
            let problem = format!("more than {most} bytes cannot pass to or from a helper process");
            return Err(io::Error::new(ErrorKind::InvalidInput, problem));
        }
        let mut head = [kind as u8, 0, 0, 0, 0];
        head[1..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let mut sent = send_some(&self.socket, &[&head, payload], descriptor, patience)?;
        while sent < HEAD {
            sent += send_some(&self.socket, &[&head[sent..], payload], None, patience)?;
        }
        while sent < HEAD + payload.len() {
            sent += send_some(&self.socket, &[&payload[sent - HEAD..]], None, patience)?;
        }
        Ok(())
    }

    /// Receives the next frame. `UnexpectedEof` if the peer has closed the socket, `InvalidData` if
    /// it sent no frame for this side, `OutOfMemory` if the frame does not fit.
    pub(super) fn receive(&mut self, patience: Patience) -> io::Result<(Kind, Vec<u8>)> {
        patience()?;
        self.fill(HEAD, patience)?;
        let head = &self.received[self.taken..self.taken + HEAD];
        let kind = Kind::of(head[0]).filter(|kind| kind.receiver() == self.side);
        let kind = kind.ok_or(ErrorKind::InvalidData)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > kind.most_bytes() {
            return Err(ErrorKind::InvalidData.into());
        }
        self.taken += HEAD;
        let begin = &self.received[self.taken..];
        let begin = &begin[..begin.len().min(length)];
        self.taken += begin.len();
        let (socket, descriptors) = (&self.socket, &mut self.descriptors);
        let payload = read_payload(length, begin, patience, &mut |buffer, patience| {
            receive_some(socket, buffer, descriptors, patience)
        })?;
        if self.taken == self.received.len() {
            self.taken = 0;
            self.received.clear();
        }
        Ok((kind, payload))
    }

    /// Takes the descriptor that arrived with the frames so far.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop()
    }

    /// Receives until the buffer holds `count` bytes.
    fn fill(&mut self, count: usize, patience: Patience) -> io::Result<()> {
        while self.received.len() - self.taken < count {
            if self.taken > 0 {
                self.received.drain(..self.taken);
                self.taken = 0;
            }
            let start = self.received.len();
            self.received.resize(start + BLOCK, 0);
            let got = receive_some(
                &self.socket,
                &mut self.received[start..],
                &mut self.descriptors,
                patience,
            );
            self.received.truncate(start + *got.as_ref().unwrap_or(&0));
            if got? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// Returns a payload of `length` bytes that begins with `begin`. `read` receives the rest.
fn read_payload(
    length: usize,
    begin: &[u8],
    patience: Patience,
    read: &mut dyn FnMut(&mut [u8], Patience) -> io::Result<usize>,
) -> io::Result<Vec<u8>> {
    let mut payload = Vec::new();
    let reserve = |payload: &mut Vec<u8>, count: usize| {
        payload.try_reserve_exact(count).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))
    };
    reserve(&mut payload, begin.len())?;
    payload.extend_from_slice(begin);
    let mut looked = 0;
    while payload.len() < length {
        let start = payload.len();
        if start - looked >= BYTES_PER_LOOK {
            looked = start;
            patience()?;
        }
        if payload.capacity() == start {
            reserve(&mut payload, start.max(BLOCK).min(length - start))?;
        }
        let end = payload.capacity().min(length).min(start + BLOCK);
        payload.resize(end, 0);
        let got = read(&mut payload[start..], patience)?;
        payload.truncate(start + got);
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(payload)
}

/// Sends as many bytes as the socket accepts. Waits until it accepts at least one.
pub(super) fn send_some(
    socket: impl AsFd,
    parts: &[&[u8]],
    descriptor: Option<BorrowedFd>,
    patience: Patience,
) -> io::Result<usize> {
    let slices: Vec<IoSlice> = parts.iter().map(|part| IoSlice::new(part)).collect();
    loop {
        let descriptors: Vec<BorrowedFd> = descriptor.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&socket, &slices, &mut control, flags) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket.as_fd(), PollFlags::OUT, patience)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the available bytes. Waits until there is at least one; 0 if the peer has closed the
/// socket.
pub(super) fn receive_some(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    patience: Patience,
) -> io::Result<usize> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut slices = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut slices, &mut control, flags) {
            Ok(message) => {
                for part in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = part {
                        *descriptors = rights.collect();
                    }
                }
                return Ok(message.bytes);
            }
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(0),
            Err(Errno::AGAIN) => wait(socket.as_fd(), PollFlags::IN, patience)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for an event on a descriptor. Asks `patience` again at each deadline that it set.
fn wait(fd: BorrowedFd, events: PollFlags, patience: Patience) -> io::Result<()> {
    let until = patience()?;
    let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = remaining.map(|remaining| timespec(remaining + Duration::from_millis(1)));
    match poll(&mut [PollFd::from_borrowed_fd(fd, events)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for an event on a descriptor. Returns false at the deadline.
pub(super) fn is_ready_until(fd: BorrowedFd, events: PollFlags, deadline: Instant) -> bool {
    loop {
        let remaining = timespec(deadline.saturating_duration_since(Instant::now()));
        match poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&remaining)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|n_ready| n_ready > 0),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (Connection, Connection) {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("a pair of sockets");
        (Connection::new(one, Side::Helper), Connection::new(other, Side::Host))
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (one, mut other) = pair();
        // More than a socket buffer holds, so both sides have to wait for each other.
        let long = vec![7; 3 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for payload in [b"".as_slice(), b"abc", &long, b"end"] {
                    one.send(Kind::Piece, payload, None, &mut forever).expect("sent");
                }
            });
            for payload in [b"".as_slice(), b"abc", &long, b"end"] {
                let (kind, received) = other.receive(&mut forever).expect("received");
                assert!(kind == Kind::Piece && received == payload);
            }
        });
        drop(one);
        let gone = other.receive(&mut forever).expect_err("the other side is gone");
        assert_eq!(gone.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_descriptor_comes_with_its_frame() {
        let (mut one, other) = pair();
        let file = tempfile::tempfile().expect("a file");
        other.send(Kind::Call, b"{}", Some(file.as_fd()), &mut forever).expect("sent");
        one.receive(&mut forever).expect("received");
        assert!(one.take_descriptor().is_some() && one.take_descriptor().is_none());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let frame = |kind: u8, length: usize| {
            let length = u32::try_from(length).expect("a length").to_le_bytes();
            [&[kind], length.as_slice()].concat()
        };
        for bytes in [
            frame(9, 0),
            frame(Kind::Reply as u8, u32::MAX as usize),
            frame(Kind::Reply as u8, MAX_REPLY + 1),
            frame(Kind::Piece as u8, MAX_REPLY + 1),
            frame(Kind::Event as u8, MAX_OTHER + 1),
            frame(Kind::Failure as u8, MAX_OTHER + 1),
            frame(Kind::Refusal as u8, MAX_OTHER + 1),
            // Only the helper receives these.
            frame(Kind::Call as u8, 1),
            frame(Kind::Text as u8, 1),
        ] {
            let (one, mut other) = pair();
            send_some(&one.socket, &[&bytes], None, &mut forever).expect("sent");
            let refused = other.receive(&mut forever).expect_err("no frame");
            assert_eq!(refused.kind(), ErrorKind::InvalidData, "{bytes:?}");
        }
        let (one, _other) = pair();
        let event = vec![b' '; MAX_OTHER + 1];
        let refused = one.send(Kind::Event, &event, None, &mut forever).expect_err("too long");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }

    /// Without these looks, a peer that sends without a pause is never asked to stop.
    #[test]
    fn bytes_that_keep_arriving_do_not_hide_the_clock() {
        // All frames are there before the first is received.
        let (one, mut other) = pair();
        for _ in 0..100 {
            one.send(Kind::Piece, b"a", None, &mut forever).expect("sent");
        }
        let (mut frames, mut asked) = (0, 0);
        let mut three_times = || {
            asked += 1;
            if asked > 3 { Err(ErrorKind::TimedOut.into()) } else { Ok(None) }
        };
        while other.receive(&mut three_times).is_ok() {
            frames += 1;
        }
        assert_eq!(frames, 3);
    }

    #[test]
    fn patience_is_asked_while_a_long_frame_arrives() {
        let mut received = 0;
        let ended = read_payload(
            MAX_REPLY,
            b"begin",
            &mut || Err(ErrorKind::TimedOut.into()),
            &mut |buffer, _| {
                received += buffer.len();
                Ok(buffer.len())
            },
        );
        assert_eq!(ended.expect_err("impatient").kind(), ErrorKind::TimedOut);
        assert!((BYTES_PER_LOOK - 5..BYTES_PER_LOOK + BLOCK).contains(&received), "{received}");
    }

    #[test]
    fn a_payload_is_read_whole_into_memory_of_its_size() {
        let mut next = 0_u8;
        let payload = read_payload(300_001, b"abc", &mut forever, &mut |buffer, _| {
            let count = buffer.len().min(1000);
            buffer[..count].fill(next);
            next = next.wrapping_add(1);
            Ok(count)
        });
        let payload = payload.expect("a payload");
        assert_eq!((payload.len(), payload.capacity()), (300_001, 300_001));
        assert!(payload.starts_with(b"abc\0\0") && payload[1003] == 1);
    }

    #[test]
    fn patience_ends_a_wait() {
        let (_one, mut other) = pair();
        let mut asked = 0;
        let ended = other.receive(&mut || {
            asked += 1;
            if asked == 3 { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(Instant::now())) }
        });
        assert_eq!(ended.expect_err("impatient").kind(), ErrorKind::TimedOut);
    }
}
