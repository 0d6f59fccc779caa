//! Tests calls to helpers that misbehave. The helper is a thread of the test. Its worker is a shell,
//! whose use of the processor is measured.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::net::{SendFlags, send};
use serde_json::json;

use super::chat::IsolatedChat;
use super::connection::{Connection, Kind, Side, forever, receive_some};
use super::helper::{Helper, HelperDescriptors, StartHelper, StartedHelper};
use super::helper_call::{HelperCallLimits, HelperError, ProgressLimits, Request};
use super::message::{Call, Hello};
use super::options::HelperKey;
use crate::api::CreateOptions;
use crate::error::Code;

const SLEEPS: &str = "exec sleep 1000";
const COMPUTES: &str = "while :; do :; done";

/// Answers a frame with this text.
type Answer = fn(&Connection, &str) -> io::Result<()>;

/// Starts a helper whose worker runs a program. It answers its calls by `answer`.
fn start(
    descriptors: &HelperDescriptors,
    program: &str,
    answer: Answer,
) -> io::Result<StartedHelper> {
    let control = descriptors.control.try_clone_to_owned()?;
    let listener = descriptors.listener.try_clone_to_owned()?;
    let worker = Command::new("/bin/sh").args(["-c", program]).spawn()?;
    send(&control, &worker.id().to_ne_bytes(), SendFlags::NOSIGNAL)?;
    thread::spawn(move || monitor(&control, worker));
    thread::spawn(move || serve(&listener, answer));
    Ok(StartedHelper { monitor: None })
}

/// Ends the worker when the host asks for it.
fn monitor(control: &OwnedFd, mut worker: Child) {
    let _ = receive_some(control.as_fd(), &mut [0], &mut Vec::new(), &mut forever);
    let _ = worker.kill().and_then(|()| worker.wait());
    let _ = send(control, &libc::SIGKILL.to_ne_bytes(), SendFlags::NOSIGNAL);
}

fn serve(listener: &OwnedFd, answer: Answer) -> io::Result<()> {
    let mut descriptors = Vec::new();
    receive_some(listener.as_fd(), &mut [0; 17], &mut descriptors, &mut forever)?;
    let Some(socket) = descriptors.pop() else { return Ok(()) };
    let mut connection = Connection::new(socket, Side::Helper);
    connection.receive(&mut forever)?;
    let hello = Hello { version: "test".into(), ..Hello::default() };
    connection.send(Kind::Reply, json!(hello).to_string().as_bytes(), None, &mut forever)?;
    loop {
        let (_, text) = connection.receive(&mut forever)?;
        answer(&connection, &String::from_utf8_lossy(&text))?;
    }
}

fn send_text(connection: &Connection, kind: Kind, text: &str) -> io::Result<()> {
    connection.send(kind, text.as_bytes(), None, &mut forever)
}

fn no_answer(_: &Connection, _: &str) -> io::Result<()> {
    Ok(())
}

/// Sends one event until the host closes the connection.
fn repeat(connection: &Connection, event: &str) -> io::Result<()> {
    loop {
        send_text(connection, Kind::Event, event)?;
    }
}

/// Runs a call on such a helper. Returns the message of its error, and how many frames came before.
#[track_caller]
fn call(start: StartHelper, limits: &HelperCallLimits) -> (Result<String, String>, usize) {
    let key = HelperKey { files: Vec::new(), backend: None };
    let helper = Helper::start(&key, "test", start).expect("a helper");
    let request = Request { call: &|_| Call::Unload, text: None, descriptor: None };
    let mut frames = 0;
    let reply = helper.call(&request, limits, &mut |_, _| frames += 1);
    let message = reply.map_err(|error| match error {
        HelperError::Answered(error, _) | HelperError::Ended(error) => error.message().to_owned(),
    });
    (message, frames)
}

#[track_caller]
fn check(start: StartHelper, limits: &HelperCallLimits, deed: &str) {
    let (reply, _) = call(start, limits);
    let expected = format!("the helper process of the model {deed}, and was ended");
    assert_eq!(reply, Err(expected));
}

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(1000);

fn limits(work: Option<Duration>, idle: Duration) -> HelperCallLimits<'static> {
    let progress = ProgressLimits { work, disk: None, idle };
    HelperCallLimits { progress, ..HelperCallLimits::default() }
}

#[test]
fn a_helper_that_sleeps_is_ended() {
    let silent: StartHelper = |it| start(it, SLEEPS, no_answer);
    check(silent, &limits(Some(LONG), SHORT), "did nothing for 0 s");
    check(silent, &limits(None, SHORT), "did nothing for 0 s");
    // Events are no progress.
    let logs: StartHelper = |it| start(it, SLEEPS, |to, _| repeat(to, "log:info:x"));
    check(logs, &limits(None, SHORT), "did nothing for 0 s");
    let half: StartHelper = |it| start(it, SLEEPS, |to, _| repeat(to, "load_progress:0.5"));
    check(half, &limits(Some(LONG), SHORT), "did nothing for 0 s");
}

#[test]
fn a_helper_that_was_stopped_is_ended() {
    let stopped: StartHelper = |it| start(it, "kill -STOP $$", no_answer);
    check(stopped, &limits(Some(LONG), SHORT), "did nothing for 0 s");
}

#[test]
fn a_helper_that_computes_is_ended_only_if_its_work_is_limited() {
    let silent: StartHelper = |it| start(it, COMPUTES, no_answer);
    check(silent, &limits(Some(SHORT), LONG), "computed for 0 s without progress");
    let half: StartHelper = |it| start(it, COMPUTES, |to, _| repeat(to, "load_progress:0.5"));
    check(half, &limits(Some(SHORT), LONG), "computed for 0 s without progress");
    // A call without that limit may compute for as long as it takes.
    let late: StartHelper = |it| {
        start(it, COMPUTES, |to, _| {
            thread::sleep(4 * SHORT);
            send_text(to, Kind::Reply, "{}")
        })
    };
    assert_eq!(call(late, &limits(None, SHORT)).0, Ok("{}".to_owned()));
}

#[test]
fn progress_of_the_load_is_counted_in_percent() {
    // Each step is larger than the one before, but there is no end of them.
    let steps: StartHelper = |it| {
        start(it, SLEEPS, |to, _| {
            for step in 1_u64.. {
                let progress = 0.5 + step as f64 / 1e15;
                send_text(to, Kind::Event, &format!("load_progress:{progress}"))?;
            }
            Ok(())
        })
    };
    check(steps, &limits(Some(LONG), SHORT), "did nothing for 0 s");
    // Pieces do not belong to a load.
    let pieces: StartHelper = |it| {
        start(it, SLEEPS, |to, _| {
            loop {
                send_text(to, Kind::Piece, "a")?;
            }
        })
    };
    check(pieces, &limits(Some(LONG), SHORT), "did nothing for 0 s");
    // A load that grows goes on, although all of it takes longer than the limit.
    let grows: StartHelper = |it| {
        start(it, SLEEPS, |to, _| {
            for percent in 1..=8 {
                thread::sleep(SHORT / 4);
                send_text(to, Kind::Event, &format!("load_progress:0.0{percent}"))?;
            }
            send_text(to, Kind::Reply, "{}")
        })
    };
    let (reply, frames) = call(grows, &limits(Some(LONG), 4 * SHORT));
    assert_eq!((reply, frames), (Ok("{}".to_owned()), 8));
}

#[test]
fn a_flood_does_not_hide_the_deadline_and_a_cancel() {
    let flood: StartHelper = |it| start(it, COMPUTES, |to, _| repeat(to, "log:info:x"));
    let deed = "did not end a cancelled call within 5 s";
    thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Some(Instant::now());
            check(flood, &HelperCallLimits { deadline, ..HelperCallLimits::default() }, deed);
        });
        scope.spawn(|| {
            let cancel = AtomicBool::new(true);
            check(
                flood,
                &HelperCallLimits { cancel: Some(&cancel), ..HelperCallLimits::default() },
                deed,
            );
        });
    });
}

#[test]
fn a_callback_of_the_host_takes_none_of_the_time() {
    let event: StartHelper = |it| {
        start(it, SLEEPS, |to, _| {
            send_text(to, Kind::Event, "log:info:x")?;
            send_text(to, Kind::Reply, "{}")
        })
    };
    let key = HelperKey { files: Vec::new(), backend: None };
    let helper = Helper::start(&key, "test", event).expect("a helper");
    let request = Request { call: &|_| Call::Unload, text: None, descriptor: None };
    // On a busy machine the event may take a part of the time.
    let idle = 2 * SHORT;
    let reply = helper.call(&request, &limits(None, idle), &mut |_, _| thread::sleep(2 * idle));
    assert!(reply.is_ok_and(|reply| reply == "{}"));
}

/// Answers a create and one request. The text of an error with this code follows the request.
fn fail_once(to: &Connection, text: &str) -> io::Result<()> {
    match text {
        text if text.contains("n_gpu_layers") => send_text(to, Kind::Reply, r#"{"chat":1}"#),
        text if text.contains("messages") => {
            let fault = r#"{"code":"INTERNAL_BRIDGE_ERROR","message":"a fault"}"#;
            send_text(to, Kind::Failure, fault)
        }
        _ => Ok(()),
    }
}

#[test]
fn a_chat_with_a_fault_is_closed_without_waiting() {
    let model = tempfile::NamedTempFile::new().expect("a file");
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let json = json!({ "model": model.path(), "state_file": state, "isolation": "process" });
    let options = CreateOptions::read(&json).expect("valid options");
    let faulty: StartHelper = |it| start(it, SLEEPS, fail_once);
    let chat = IsolatedChat::create(&options, &json, Box::new(|_| {}), "test", faulty);
    let Ok(chat) = chat else { panic!("no chat") };
    let error = chat.infer(r#"{"messages":[]}"#, None).err().expect("an error");
    assert_eq!(error.code(), Code::InternalBridgeError);
    let start = Instant::now();
    chat.close();
    drop(chat);
    // A call that hangs takes 120 s.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "nothing was written");
}

#[test]
fn a_close_that_hangs_ends_soon() {
    let model = tempfile::NamedTempFile::new().expect("a file");
    let json = json!({ "model": model.path(), "isolation": "process" });
    let options = CreateOptions::read(&json).expect("valid options");
    let hangs: StartHelper = |it| start(it, SLEEPS, fail_once);
    let chat = IsolatedChat::create(&options, &json, Box::new(|_| {}), "test", hangs);
    let Ok(chat) = chat else { panic!("no chat") };
    let start = Instant::now();
    chat.close();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn what_is_no_reply_ends_the_helper() {
    let text: StartHelper = |it| {
        start(it, SLEEPS, |to, _| {
            // A frame that is meant for a helper.
            send_text(to, Kind::Call, "{}")
        })
    };
    check(text, &limits(None, LONG), "sent an invalid reply");
}
