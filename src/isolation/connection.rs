//! Frames on the socket between host and helper: `u8 kind | u32 length, little-endian | payload`.
//!
//! The peer is not trusted: memory grows with the bytes received, not with the announced length.
//! Writing to a closed socket raises no signal.

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
}

/// The size of a frame's header in bytes.
const HEAD: usize = 5;
/// The maximum number of bytes that one read receives.
const BLOCK: usize = 64 << 10;
/// The maximum number of bytes in one frame.
const MOST_BYTES: usize = 1 << 30;

/// One side of a socket.
pub(super) struct Connection {
    socket: OwnedFd,
    /// Received bytes, and how many of them have been consumed.
    received: Vec<u8>,
    taken: usize,
    /// Descriptors received with those bytes, not yet taken.
    descriptors: Vec<OwnedFd>,
}

/// Called before each wait of a connection. Returns the deadline of the wait; an error ends it.
pub(super) type Patience<'a> = &'a mut dyn FnMut() -> io::Result<Option<Instant>>;

/// Waits without limit.
pub(super) fn forever() -> io::Result<Option<Instant>> {
    Ok(None)
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Connection {
        Connection { socket, received: Vec::new(), taken: 0, descriptors: Vec::new() }
    }

    /// Sends one frame, with a descriptor if there is one.
    pub(super) fn send(
        &self,
        kind: Kind,
        payload: &[u8],
        descriptor: Option<BorrowedFd>,
        patience: Patience,
    ) -> io::Result<()> {
        if payload.len() > MOST_BYTES {
            let problem =
                format!("more than {MOST_BYTES} bytes cannot be sent to a helper process");
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

    /// Receives the next frame. `UnexpectedEof` if the peer has closed the socket.
    pub(super) fn receive(&mut self, patience: Patience) -> io::Result<(Kind, Vec<u8>)> {
        self.fill(HEAD, patience)?;
        let head = &self.received[self.taken..self.taken + HEAD];
        let kind = Kind::of(head[0]).ok_or(ErrorKind::InvalidData)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > MOST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        self.taken += HEAD;
        self.fill(length, patience)?;
        let payload = self.received[self.taken..self.taken + length].to_vec();
        self.taken += length;
        if self.taken == self.received.len() {
            self.taken = 0;
            self.received.clear();
            // Frees the buffer of a long text, which is rare.
            self.received.shrink_to(BLOCK);
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
pub(super) fn wait(fd: BorrowedFd, events: PollFlags, patience: Patience) -> io::Result<()> {
    let until = patience()?;
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.map(|left| timespec(left + Duration::from_millis(1)));
    match poll(&mut [PollFd::from_borrowed_fd(fd, events)], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
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
        (Connection::new(one), Connection::new(other))
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
        let (one, mut other) = pair();
        let file = tempfile::tempfile().expect("a file");
        one.send(Kind::Call, b"{}", Some(file.as_fd()), &mut forever).expect("sent");
        other.receive(&mut forever).expect("received");
        assert!(other.take_descriptor().is_some() && other.take_descriptor().is_none());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [b"\x09\0\0\0\0".as_slice(), b"\x05\xff\xff\xff\xff"] {
            let (one, mut other) = pair();
            send_some(&one.socket, &[bytes], None, &mut forever).expect("sent");
            let refused = other.receive(&mut forever).expect_err("no frame");
            assert_eq!(refused.kind(), ErrorKind::InvalidData);
        }
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
