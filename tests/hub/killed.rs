//! A process is killed during a download. The next call completes the cache that it left.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::server::{Hub, Repository, Route};
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
    // Slow enough for a kill in the middle.
    let hub = Hub::twisted(Repository::of([("m.gguf", bytes.clone())]), move |request, out| {
        use std::io::Write;
        if request.route != Route::Blob {
            return false;
        }
        let (head, part) = crate::server::blob_head(request, &model);
        let mut sent = out.write_all(head.as_bytes());
        for piece in part.chunks(64 << 10) {
            sent = sent.and_then(|()| out.write_all(piece));
            std::thread::sleep(Duration::from_micros(300));
        }
        true
    });
    let user = User::of(&hub);
    let partial = user.repository().join(format!("blobs/{hash}.incomplete"));
    let length = || std::fs::metadata(&partial).map_or(0, |part| part.len());
    let mut state = std::process::id() | 1;
    let mut killed = 0;
    let mut lengths = Vec::new();
    for round in 0..10 {
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
        let further =
            lengths.last().copied().unwrap_or(0) + u64::from(state) % (bytes.len() as u64 / 10);
        while round % 3 != 0 && length() <= further && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        lengths.push(length());
    }
    assert!(killed > 5 && lengths.iter().any(|length| *length > 0), "{killed} {lengths:?}");
    // The partial file never shrinks: it is resumed, not started again.
    assert!(lengths.is_sorted() || !partial.exists(), "{lengths:?}");
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
    if last > 0 {
        assert_eq!(begins, [(last as usize, None)]);
    }
}
