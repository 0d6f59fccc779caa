//! A cancel ends every wait, even if the other side still blocks. The next call completes.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llb::error::Code;
use llb::hub;
use serde_json::json;

use crate::server::{self, Hub, Repository, Request, Route, answer, wait_for_close};
use crate::{User, model_of};

/// The hub behaves like `twist` until the fetch is cancelled, which happens when a request arrives
/// there. `id` is the id to cancel.
#[track_caller]
fn check(
    what: &str,
    id: &str,
    twist: impl Fn(&Request, &[u8], &mut TcpStream) -> bool + Send + Sync + 'static,
) {
    let bytes = Arc::new(model_of(1 << 20));
    let (model, blocked, over) =
        (Arc::clone(&bytes), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_blocked, is_over) = (Arc::clone(&blocked), Arc::clone(&over));
    let hub =
        Hub::twisted(Repository::of([("m-Q8_0.gguf", bytes.to_vec())]), move |request, out| {
            if is_over.load(Ordering::SeqCst) || request.route == Route::Hint {
                return false;
            }
            // The answer may take forever; the cancel comes once it has begun.
            let here = request.route == Route::Blob
                && request.range().is_none_or(|(_, last)| last.is_none());
            is_blocked.fetch_or(here || request.count == 0, Ordering::SeqCst);
            twist(request, &model, out)
        });
    let user = User::of(&hub);
    // Each test has its own model. A cancel by the model's name would end the fetches of other
    // tests, which run concurrently.
    let request =
        json!({ "id": format!("c/n:{}", id.split_once(':').map_or("Q8_0", |(_, quant)| quant)) });
    let error = std::thread::scope(|scope| {
        let fetch = scope.spawn(|| user.fetch(&request));
        while !fetch.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            if blocked.load(Ordering::SeqCst) {
                hub::cancel(id);
            }
        }
        let (fetched, events) = fetch.join().unwrap();
        assert_eq!(events.last().map(String::as_str), Some("fetch_failure:cancelled"), "{what}");
        fetched.unwrap_err()
    });
    assert_eq!(error.code(), Code::Cancelled, "{what}: {error}");
    over.store(true, Ordering::SeqCst);
    let fetched = user.fetches(&request);
    assert_eq!(std::fs::read(fetched["path"].as_str().unwrap()).unwrap(), *bytes, "{what}");
}

#[test]
fn every_wait_ends() {
    let silent = |route: Route| {
        move |request: &Request, _: &[u8], out: &mut TcpStream| {
            let here = request.route == route;
            if here {
                wait_for_close(out);
            }
            here
        }
    };
    check("no response head", "c/n:Q8_0", silent(Route::Api));
    check("no redirect, cancelled by the model's name", "c/n", silent(Route::Resolve));
    check("no blob, cancelled in another case", "c/n:q8_0", silent(Route::Blob));
    check("a body that stops", "c/n:Q8_0", |request, bytes, out| {
        let here =
            request.route == Route::Blob && request.range().is_none_or(|(_, last)| last.is_none());
        if here {
            server::cut(request, bytes, 500_000, out);
            wait_for_close(out);
        }
        here
    });
    check("a hub with Retry-After", "c/n:Q8_0", |_, _, out| {
        answer(out, "429 Too Many Requests", "Retry-After: 200\r\n", b"");
        true
    });
}

#[test]
fn a_wait_for_another_process_ends() {
    let bytes = model_of(1 << 20);
    let hub = Hub::start(Repository::of([("m-F16.gguf", bytes.clone())]));
    let user = User::of(&hub);
    let lock =
        user.cache.path().join(format!("hub/.locks/models--o--n/{}.lock", crate::sha256(&bytes)));
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let file = std::fs::File::create(&lock).unwrap();
    file.lock().unwrap();
    let request = json!({ "id": "o/n:F16" });
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| user.fetch(&request).0);
        while !fetch.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            if !hub.at(Route::Blob).is_empty() {
                hub::cancel("o/n:F16");
            }
        }
        assert_eq!(fetch.join().unwrap().unwrap_err().code(), Code::Cancelled);
    });
    drop(file);
    assert_eq!(user.fetches(&request)["from_cache"], false);
}

#[test]
fn an_event_may_cancel() {
    let hub = Hub::start(Repository::of([("m-BF16.gguf", model_of(8 << 20))]));
    let user = User::of(&hub);
    let request = json!({ "id": "o/n:BF16" });
    let mut events = Vec::new();
    let fetched = user.watch(&request, &mut |event| {
        events.push(event.to_owned());
        if event.starts_with("fetch_progress:") {
            hub::cancel("o/n:BF16");
        }
    });
    assert_eq!(fetched.unwrap_err().code(), Code::Cancelled);
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(user.fetches(&request)["from_cache"], false);
}
