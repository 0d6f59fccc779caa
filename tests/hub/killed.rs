//! A process is killed during a download. The next call completes the cache that it left.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::server::{Hub, Repository, Route, wait_for_close};
use crate::{User, model_of, sha256};

const SETTING: &str = "LLB_TEST_FETCH";

/// The process that is killed: this program with only this test and the addresses to use. Otherwise
/// it does nothing.
#[test]
fn a_child_fetches() {
    let Ok(setting) = std::env::var(SETTING) else { return };
    let (endpoint, home) = setting.split_once(' ').unwrap();
    let environment = llb::hub::Environment::of(&[("HF_ENDPOINT", endpoint), ("HF_HOME", home)]);
    llb::hub::fetch(r#"{"id": "o/n"}"#, &environment, &mut |_| {}).unwrap();
}

#[test]
fn ten_kills() {
    let bytes = model_of(24 << 20);
    let hash = sha256(&bytes);
    let model = bytes.clone();
    // What the hub sends of the model. Then it waits, so that no download ends before its kill.
    let most = Arc::new(AtomicUsize::new(0));
    let sends = Arc::clone(&most);
    let hub = Hub::twisted(Repository::of([("m.gguf", bytes.clone())]), move |request, out| {
        let (first, last) = request.range().unwrap_or((0, None));
        if request.route != Route::Blob || last.is_some() {
            return false;
        }
        let (head, part) = crate::server::blob_head(request, &model);
        let end = sends.load(Ordering::SeqCst).saturating_sub(first).min(part.len());
        let mut sent = out.write_all(head.as_bytes());
        for piece in part[..end].chunks(64 << 10) {
            sent = sent.and_then(|()| out.write_all(piece));
            std::thread::sleep(Duration::from_micros(300));
        }
        if end < part.len() {
            wait_for_close(out);
        }
        true
    });
    let user = User::of(&hub);
    let partial = user.repository().join(format!("blobs/{hash}.incomplete"));
    let length = || std::fs::metadata(&partial).map_or(0, |part| part.len());
    let mut state = std::process::id() | 1;
    let mut lengths = Vec::new();
    for round in 0..10 {
        let last = lengths.last().copied().unwrap_or(0);
        let further = last + u64::from(state) % (bytes.len() as u64 / 20);
        most.store(further as usize + (1 << 20), Ordering::SeqCst);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed::a_child_fetches", "--exact"])
            .env(SETTING, format!("{} {}", hub.url(), user.cache.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // Some are killed at any moment, most at a number of bytes beyond those that the last one
        // left.
        std::thread::sleep(Duration::from_millis(u64::from(state % 60)));
        while round % 3 != 0 && length() <= further && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "round {round}: it was not killed");
        lengths.push(length());
    }
    // The partial file never shrinks: it is resumed, not started again.
    assert!(lengths.is_sorted() && lengths[1] > 0, "{lengths:?}");
    most.store(usize::MAX, Ordering::SeqCst);
    hub.forget();
    let fetched = user.fetches(&json!({}));
    assert_eq!(std::fs::read(fetched["path"].as_str().unwrap()).unwrap(), bytes);
    assert_eq!((user.files().len(), &fetched["sha256"]), (3, &json!(hash)));
    let last = lengths.last().copied().unwrap();
    let begins: Vec<_> = hub
        .at(Route::Blob)
        .iter()
        .filter_map(|request| request.range())
        .filter(|(_, last)| last.is_none())
        .collect();
    assert_eq!(begins, [(last as usize, None)]);
}
