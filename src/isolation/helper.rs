//! A helper process as the host sees it: starting it, sharing it among chats with the same files,
//! ending it.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, getpid, pidfd_open, waitid};

use super::connection::{
    Connection, Kind, Patience, Side, is_ready_until, receive_some, send_some,
};
use super::message::{Call, Hello, ListenerMessage};
use super::options::HelperKey;
use super::sandbox::Restrictions;
use crate::error::{Code, Error, Result};
use crate::process::{self, Shared};
use crate::sync::lock;

/// The descriptors that a new helper receives.
pub(crate) struct HelperDescriptors<'a> {
    /// The monitor reports the worker's exit here. When the host shuts this down, the monitor ends
    /// the worker and itself.
    pub(crate) control: BorrowedFd<'a>,
    /// The worker receives [`ListenerMessage`]s.
    pub(crate) listener: BorrowedFd<'a>,
    /// When the host shuts this down or ends, the kernel kills monitor and worker, even if they are
    /// stopped.
    pub(crate) life: BorrowedFd<'a>,
    /// The host's process. The monitor waits on it to notice when the host exits.
    pub(crate) host: Option<BorrowedFd<'a>>,
}

/// A helper process that was just started.
pub(crate) struct StartedHelper {
    /// A descriptor of the monitor's process, where the system provides them.
    pub(crate) monitor: Option<OwnedFd>,
}

/// Starts a helper process.
pub(crate) type StartHelper = fn(&HelperDescriptors) -> io::Result<StartedHelper>;

/// How long a call may continue after it was cancelled or reached its deadline.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long a helper may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the host waits for a helper that it ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of idle connections that are kept for later calls.
const MAX_IDLE: usize = 8;

/// A helper process. Dropping it ends the process.
pub(super) struct Helper {
    listener: OwnedFd,
    control: OwnedFd,
    life: OwnedFd,
    monitor: Option<OwnedFd>,
    /// The process id of the worker.
    worker: i32,
    /// What the worker has sent first.
    hello: Hello,
    idle: Mutex<Vec<NumberedConnection>>,
    last_connection: AtomicU64,
    pub(super) last_call: AtomicU64,
    /// The number of running calls without a limit of their processor time.
    pub(super) n_cancellable: AtomicUsize,
    /// The number of calls in a callback of the host.
    pub(super) n_callbacks: AtomicUsize,
    /// Held while states of chats are written to files of the host.
    pub(super) writing_states: Mutex<()>,
    end: Mutex<Option<HelperEnd>>,
    forks: usize,
}

pub(super) struct NumberedConnection {
    pub(super) number: u64,
    pub(super) connection: Connection,
}

/// What the other calls of a helper do, for one that is in no callback of the host.
pub(super) struct OtherCalls {
    /// One that can be cancelled runs. The processor time of the worker may be its own.
    pub(super) compute: bool,
    /// One is in a callback of the host, and may hold what this one waits for.
    pub(super) wait_for_host: bool,
}

pub(super) type HelperSlot = Arc<Mutex<Weak<Helper>>>;

/// All helpers, each with the process that started it. A forked child inherits its parent's
/// entries.
pub(super) static HELPERS: Shared<Vec<(usize, HelperKey, HelperSlot)>> = Shared::new(Vec::new());

impl Helper {
    /// Returns the helper with this key: another chat's, or a new one.
    pub(super) fn shared(
        key: &HelperKey,
        version: &str,
        start: StartHelper,
    ) -> Result<Arc<Helper>> {
        let forks = process::forks();
        let slot = {
            let mut helpers = HELPERS.lock();
            helpers.retain(|(of, _, slot)| {
                *of != forks
                    || Arc::strong_count(slot) > 1
                    || slot.lock().is_ok_and(|helper| helper.strong_count() > 0)
            });
            let known = helpers.iter().find(|(of, known, _)| *of == forks && known == key);
            known.map(|(_, _, slot)| Arc::clone(slot)).unwrap_or_else(|| {
                let slot = HelperSlot::default();
                helpers.push((forks, key.clone(), Arc::clone(&slot)));
                slot
            })
        };
        // Locked while the helper starts, so that a second chat waits for it.
        let mut slot = lock(&slot);
        if let Some(helper) = slot.upgrade().filter(|helper| helper.is_alive()) {
            return Ok(helper);
        }
        let helper = Arc::new(Helper::start(key, version, start)?);
        *slot = Arc::downgrade(&helper);
        Ok(helper)
    }

    pub(super) fn start(key: &HelperKey, version: &str, start: StartHelper) -> Result<Helper> {
        let failed = |error: io::Error| {
            let message = format!("cannot start the helper process of the model: {error}");
            let code = match error.kind() {
                // The first is EAGAIN: the user has too many processes and threads.
                ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Code::OutOfMemory,
                _ => Code::InferenceFailed,
            };
            Error::new(code, message).caused_by(error)
        };
        let (control, monitor_control) = pair(SocketType::STREAM).map_err(failed)?;
        let (listener, worker_listener) = pair(SocketType::SEQPACKET).map_err(failed)?;
        let (life, monitor_life) = pair(SocketType::STREAM).map_err(failed)?;
        let host = pidfd_open(getpid(), PidfdFlags::empty()).ok();
        let started = start(&HelperDescriptors {
            control: monitor_control.as_fd(),
            listener: worker_listener.as_fd(),
            life: monitor_life.as_fd(),
            host: host.as_ref().map(AsFd::as_fd),
        });
        drop((monitor_control, worker_listener, monitor_life));
        let mut helper = Helper {
            listener,
            control,
            life,
            monitor: started.map_err(failed)?.monitor,
            worker: 0,
            hello: Hello::default(),
            idle: Mutex::default(),
            last_connection: AtomicU64::new(0),
            last_call: AtomicU64::new(0),
            n_cancellable: AtomicUsize::new(0),
            n_callbacks: AtomicUsize::new(0),
            writing_states: Mutex::new(()),
            end: Mutex::new(None),
            forks: process::forks(),
        };
        let deadline = Instant::now() + START_TIMEOUT;
        let mut patience = || still(deadline);
        helper.worker = helper.read_number(&mut patience).ok_or_else(|| helper.ended())?;
        if helper.worker < 0 {
            return Err(failed(io::Error::from_raw_os_error(-helper.worker)));
        }
        let files = key.files.iter().map(|file| file.path.clone()).collect();
        let call = json_bytes(&Call::Start { files, backend: key.backend.clone() });
        let NumberedConnection { number, mut connection } =
            helper.connect().map_err(|_| helper.ended())?;
        let hello = connection
            .send(Kind::Call, &call, None, &mut patience)
            .and_then(|()| connection.receive(&mut patience));
        let (_, hello) = hello.map_err(|_| helper.ended())?;
        helper.hello = crate::json::typed(&hello).map_err(|_| helper.ended())?;
        if helper.hello.version != version {
            let message = format!(
                "the helper process is {:?}, but the host has {version:?}; install libllb.so of \
                 the same build",
                helper.hello.version
            );
            return Err(Error::new(Code::InferenceFailed, message));
        }
        helper.keep_idle(NumberedConnection { number, connection });
        Ok(helper)
    }

    /// The process id of the worker.
    pub(super) fn worker(&self) -> i32 {
        self.worker
    }

    /// The restrictions that apply to the worker.
    pub(super) fn restrictions(&self) -> &Restrictions {
        &self.hello.restrictions
    }

    /// Cancels a call if it is still running.
    pub(super) fn cancel(&self, connection: u64, call: u64) {
        self.tell(&ListenerMessage::Cancel { connection, call });
    }

    /// Sends a message about a call on another connection.
    pub(super) fn tell(&self, message: &ListenerMessage) {
        let message = message.to_bytes();
        // A full socket is not waited for: the call itself ends a helper that does not read.
        let mut once = || Err(ErrorKind::TimedOut.into());
        let _ = send_some(self.listener.as_fd(), &[&message], None, &mut once);
    }

    /// Keeps a connection for a later call.
    pub(super) fn keep_idle(&self, connection: NumberedConnection) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    /// A connection for one call: an idle one, or a new one.
    pub(super) fn connect(&self) -> io::Result<NumberedConnection> {
        if let Some(idle) = lock(&self.idle).pop() {
            return Ok(idle);
        }
        let (own, other) = pair(SocketType::STREAM)?;
        let number = self.last_connection.fetch_add(1, Ordering::Relaxed) + 1;
        let message = ListenerMessage::Connect(number).to_bytes();
        let deadline = Instant::now() + GRACE;
        let mut patience = || still(deadline);
        send_some(self.listener.as_fd(), &[&message], Some(other.as_fd()), &mut patience)?;
        Ok(NumberedConnection { number, connection: Connection::new(own, Side::Host) })
    }

    /// Ends the helper because it misbehaved. `deed` says how and becomes part of the message.
    pub(super) fn kill(&self, deed: &str) {
        let message = format!("the helper process of the model {deed}, and was ended");
        lock(&self.end).get_or_insert(HelperEnd::told(message));
        self.ended();
        self.end_now();
    }

    /// Ends the monitor and the worker without their help.
    fn end_now(&self) {
        let _ = shutdown(&self.life, Shutdown::Both);
    }

    /// Tells the helper to close a chat, and does not wait for it.
    pub(super) fn give_up_chat(&self, chat: u64) {
        let Ok(NumberedConnection { connection, .. }) = self.connect() else { return };
        let mut once = || Err(ErrorKind::TimedOut.into());
        let _ = connection.send(Kind::Call, &json_bytes(&Call::Close { chat }), None, &mut once);
    }

    pub(super) fn other_calls(&self) -> OtherCalls {
        OtherCalls {
            compute: self.n_cancellable.load(Ordering::Relaxed) > 0,
            wait_for_host: self.n_callbacks.load(Ordering::Relaxed) > 0,
        }
    }

    /// Ends the helper unless it has already ended, and returns the reason.
    pub(super) fn ended(&self) -> Error {
        let mut end = lock(&self.end);
        // The monitor ends the worker if it is still running. A worker that has ended keeps its
        // reason.
        let _ = shutdown(&self.control, Shutdown::Write);
        let end = end.get_or_insert_with(|| {
            let deadline = Instant::now() + END_TIMEOUT;
            match self.read_number(&mut || still(deadline)) {
                Some(status) => HelperEnd::of(status),
                None => {
                    self.end_now();
                    HelperEnd::told("the helper process of the model has ended".to_owned())
                }
            }
        });
        end.error()
    }

    /// Whether the helper can still be called, as far as this process knows. Always false in a
    /// forked child of the host.
    pub(super) fn is_alive(&self) -> bool {
        self.forks == process::forks() && lock(&self.end).is_none()
    }

    /// Reads a number from the monitor: first the worker's process id, or a negative errno if it
    /// could not be started, then its exit status.
    fn read_number(&self, patience: Patience) -> Option<i32> {
        let (mut bytes, mut descriptors) = ([0; 4], Vec::new());
        let mut read = 0;
        while read < bytes.len() {
            let rest = &mut bytes[read..];
            read += match receive_some(self.control.as_fd(), rest, &mut descriptors, patience) {
                Ok(count @ 1..) => count,
                _ => return None,
            };
        }
        Some(i32::from_ne_bytes(bytes))
    }
}

impl Helper {
    /// Waits until the monitor has ended. Returns false if it takes too long.
    fn ends_in_time(&self) -> bool {
        let deadline = Instant::now() + END_TIMEOUT;
        match &self.monitor {
            // Readable when the process has ended.
            Some(monitor) => is_ready_until(monitor.as_fd(), PollFlags::IN, deadline),
            None => {
                while self.read_number(&mut || still(deadline)).is_some() {}
                Instant::now() < deadline
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // The helper belongs to the parent.
            return;
        }
        let _ = shutdown(&self.control, Shutdown::Write);
        if !self.ends_in_time() {
            self.end_now();
            self.ends_in_time();
        }
        if let Some(monitor) = &self.monitor {
            // Orphaned processes are adopted by init, or by a process that asked for them. That may
            // be the host, which must not keep a zombie.
            let exited = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::PidFd(monitor.as_fd()), exited);
        }
    }
}

/// Returns the deadline, or an error once it has passed.
fn still(deadline: Instant) -> io::Result<Option<Instant>> {
    if Instant::now() >= deadline {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(Some(deadline))
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

pub(super) fn json_bytes(call: &Call) -> Vec<u8> {
    serde_json::to_vec(call).expect("a call has only texts and numbers")
}

/// Why a helper ended.
#[derive(Debug, Clone)]
pub(super) struct HelperEnd {
    message: String,
    /// The member added to the error's details: the exit status or the signal.
    detail: Option<(&'static str, i32)>,
}

impl HelperEnd {
    /// An end that the host observed, with its own message.
    pub(super) fn told(message: String) -> HelperEnd {
        HelperEnd { message, detail: None }
    }

    /// The error for the calls that were running.
    pub(super) fn error(&self) -> Error {
        let error = Error::new(Code::InferenceFailed, self.message.clone());
        match self.detail {
            Some((key, value)) => error.with(key, value),
            None => error,
        }
    }

    /// From a status of `waitpid`.
    pub(super) fn of(status: i32) -> HelperEnd {
        let what = "the helper process of the model ended";
        let signal = status & 0x7f;
        if signal == 0 {
            let code = (status >> 8) & 0xff;
            let message = format!("{what} with exit status {code}");
            return HelperEnd { message, detail: Some(("exit_status", code)) };
        }
        let name = signal_name(signal).map(|name| format!(" ({name})")).unwrap_or_default();
        let message = format!("{what} by signal {signal}{name}");
        HelperEnd { message, detail: Some(("signal", signal)) }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    names.into_iter().find(|(number, _)| *number == signal).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        for (status, expected) in [
            (11, "the helper process of the model ended by signal 11 (SIGSEGV)"),
            (0x86, "the helper process of the model ended by signal 6 (SIGABRT)"),
            (9, "the helper process of the model ended by signal 9 (SIGKILL)"),
            (63, "the helper process of the model ended by signal 63"),
            (0x300, "the helper process of the model ended with exit status 3"),
        ] {
            assert_eq!(HelperEnd::of(status).message, expected);
        }
    }
}
