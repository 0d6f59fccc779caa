//! The disk becomes full during a download: the error says so, and the next call resumes the
//! partial file.

use std::process::Command;

use llb::error::Code;
use llb::hub::{Environment, fetch};
use serde_json::json;

use crate::server::{Hub, Repository, Route};
use crate::{User, model_of, sha256};

const SETTING: &str = "LLB_TEST_FULL";

/// The process with a limit on file size: this program with only this test. Otherwise it does
/// nothing.
#[test]
fn a_child_fills_the_disk() {
    let Ok(setting) = std::env::var(SETTING) else { return };
    let (endpoint, home) = setting.split_once(' ').unwrap();
    let environment = Environment::of(&[("HF_ENDPOINT", endpoint), ("HF_HOME", home)]);
    let error = fetch(r#"{"id": "o/n"}"#, &environment, &mut |_| {}).unwrap_err();
    assert_eq!(
        (error.code(), &error.details().unwrap()["resource"]),
        (Code::OutOfMemory, &json!("disk")),
        "{error}"
    );
    assert!(error.message().contains("no room on the disk"), "{error}");
}

#[cfg(unix)]
#[test]
fn what_fits_stays() {
    let bytes = model_of(3 << 20);
    let hub = Hub::start(Repository::of([("m.gguf", bytes.clone())]));
    let user = User::of(&hub);
    // A shell's limit on files, in blocks of 512 or 1024 bytes. With its signal ignored, the write
    // fails instead.
    let mut child = Command::new("sh");
    child.args([
        "-c",
        "trap '' XFSZ; ulimit -f 2000; exec \"$0\" full::a_child_fills_the_disk --exact",
    ]);
    let setting = format!("{} {}", hub.url(), user.cache.path().display());
    let output =
        child.arg(std::env::current_exe().unwrap()).env(SETTING, setting).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let part = user.repository().join(format!("blobs/{}.incomplete", sha256(&bytes)));
    let kept = std::fs::metadata(part).unwrap().len() as usize;
    assert!(kept >= 500_000, "{kept}");
    hub.forget();
    let fetched = user.fetches(&json!({}));
    assert_eq!(std::fs::read(fetched["path"].as_str().unwrap()).unwrap(), bytes);
    assert_eq!(hub.at(Route::Blob).last().unwrap().range(), Some((kept, None)));
}
