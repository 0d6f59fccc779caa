//! Hubs that send bytes for ever which are no part of a body: silence, after which the cached copy
//! is used.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::server::{Hub, Repository, Route};
use crate::{User, model_of};

/// Sends the same bytes again and again, slowly, until the client has disconnected.
fn trickle(out: &mut TcpStream, first: &str, again: &str) {
    let pause = Some(Duration::from_millis(5));
    let mut sent = out.write_all(first.as_bytes()).and_then(|()| out.set_read_timeout(pause));
    while sent.is_ok() && !matches!(out.read(&mut [0]), Ok(0)) {
        sent = out.write_all(again.as_bytes());
    }
}

#[test]
fn bytes_outside_the_body_are_silence() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let modes = [
        ("a head", "HTTP/1.1 200 OK\r\nX: ".to_owned(), "x"),
        ("informational heads", String::new(), "HTTP/1.1 103 Early Hints\r\n\r\n"),
        ("an extension of a chunk", format!("{HEAD}5;x="), "x"),
        ("trailers", format!("{HEAD}2\r\n{{}}\r\n0\r\nX: "), "x"),
    ];
    let check = |what: &str, first: String, again: &'static str| {
        let is_slow = Arc::new(AtomicBool::new(false));
        let slow = Arc::clone(&is_slow);
        let repository = Repository::of([("m.gguf", model_of(4096))]);
        let hub = Hub::twisted(repository, move |request, out| {
            let here = request.route == Route::Api && slow.load(Ordering::SeqCst);
            if here {
                trickle(out, &first, again);
            }
            here
        });
        let user = User::of(&hub).with("HF_HUB_DOWNLOAD_TIMEOUT", "1");
        user.fetches(&json!({}));
        is_slow.store(true, Ordering::SeqCst);
        let diagnostics = user.fetches(&json!({}))["diagnostics"].to_string();
        assert!(
            diagnostics.contains("hub_unreachable") && diagnostics.contains("silent for too long"),
            "{what}: {diagnostics}"
        );
    };
    std::thread::scope(|scope| {
        for (what, first, again) in modes {
            scope.spawn(move || check(what, first, again));
        }
    });
}
