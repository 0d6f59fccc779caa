//! Slow hubs: those that send bytes for ever which are no part of a body, which is silence, and those
//! that send a body byte by byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use llb::error::Code;
use serde_json::json;

use crate::server::{self, Hub, Repository, Request, Route};
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
        let user = User::of(&hub);
        user.fetches(&json!({}));
        let user = user.with("HF_HUB_DOWNLOAD_TIMEOUT", "1");
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

/// Whether this is a request for the weights, not for the header.
fn is_download(request: &Request) -> bool {
    request.route == Route::Blob && request.range().is_none_or(|(_, last)| last.is_none())
}

#[test]
fn bytes_now_and_then_end_a_fetch() {
    let model = Arc::new(model_of(1 << 20));
    type Drip = fn(&Request, &[u8], &mut TcpStream) -> bool;
    let drips: [(&str, &str, Drip); 3] = [
        ("a byte now and then", "sends less than 1024 bytes per second", |request, model, out| {
            if is_download(request) {
                let (head, _) = server::blob_head(request, model);
                trickle(out, &head, "x");
            }
            is_download(request)
        }),
        ("a byte of each connection", "", |request, model, out| {
            if is_download(request) {
                server::cut(request, model, 1, out);
            }
            is_download(request)
        }),
        ("an error without end", "404", |request, _, out| {
            let here = request.route == Route::Api;
            if here {
                trickle(out, "HTTP/1.1 404 Not Found\r\nContent-Length: 10000\r\n\r\n", "x");
            }
            here
        }),
    ];
    let check = |what: &str, says: &str, drip: Drip| {
        let bytes = Arc::clone(&model);
        let repository = Repository::of([("m.gguf", model.to_vec())]);
        let hub = Hub::twisted(repository, move |request, out| drip(request, &bytes, out));
        let user = User::of(&hub).with("HF_HUB_DOWNLOAD_TIMEOUT", "1");
        let start = Instant::now();
        let error = user.fails(&json!({}));
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", start.elapsed());
        if says == "404" {
            return;
        }
        assert_eq!(error.code(), Code::HubNetwork, "{what}: {error}");
        let message = error.message();
        assert!(message.contains(says) && message.contains("are kept"), "{what}: {message}");
    };
    std::thread::scope(|scope| {
        for (what, says, drip) in drips {
            scope.spawn(move || check(what, says, drip));
        }
    });
}
