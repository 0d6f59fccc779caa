//! Temporary faults of networks and hubs: downloaded bytes stay, and the rest is requested.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llb::error::Code;
use serde_json::json;

use crate::server::{self, Hub, Repository, Request, Route, answer, cdn_etag, wait_for_close};
use crate::{User, model_of, sha256};

const SIZE: usize = 2 << 20;

/// Whether this is a request for the weights, not for the header.
fn is_download(request: &Request) -> bool {
    request.route == Route::Blob && request.range().is_none_or(|(_, last)| last.is_none())
}

/// Checks that the download succeeds although `twist` answers the first `faults` requests to a
/// route.
#[track_caller]
fn passes(
    what: &str,
    faults: usize,
    twist: impl Fn(&Request, &[u8], &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Hub {
    let bytes = Arc::new(model_of(SIZE));
    let (model, done) = (Arc::clone(&bytes), AtomicUsize::new(0));
    let hub = Hub::twisted(Repository::of([("m.gguf", bytes.to_vec())]), move |request, out| {
        let faulty = done.load(Ordering::SeqCst) < faults && twist(request, &model, out);
        done.fetch_add(usize::from(faulty), Ordering::SeqCst);
        faulty
    });
    let user = User::of(&hub).with("HF_HUB_DOWNLOAD_TIMEOUT", "1");
    let (fetched, events) = user.fetch(&json!({}));
    let fetched = fetched.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(std::fs::read(fetched["path"].as_str().unwrap()).unwrap(), *bytes, "{what}");
    assert_eq!(user.files().len(), 3, "{what}: {:?}", user.files());
    let progress: Vec<usize> = events
        .iter()
        .filter_map(|event| event.strip_prefix("fetch_progress:")?.split('/').next()?.parse().ok())
        .collect();
    assert_eq!((progress.first(), progress.last()), (Some(&0), Some(&bytes.len())), "{what}");
    hub
}

#[test]
fn transient_faults_are_retried() {
    let busy = |route: Route, status: &'static str, headers: &'static str| {
        move |request: &Request, _: &[u8], out: &mut TcpStream| {
            let here = request.route == route;
            if here {
                answer(out, status, headers, b"later");
            }
            here
        }
    };
    passes("too many requests", 2, busy(Route::Api, "429 Too Many Requests", "Retry-After: 0\r\n"));
    let date =
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    passes("too many requests, until a date", 2, busy(Route::Api, "429 Too Many Requests", date));
    passes("a bad gateway", 1, busy(Route::Api, "502 Bad Gateway", ""));
    passes("a busy page", 1, busy(Route::Resolve, "503 Service Unavailable", "Retry-After: 1\r\n"));
    passes("an address that has expired", 1, busy(Route::Blob, "403 Forbidden", ""));
    passes("no hint", 1, busy(Route::Hint, "500 Internal Server Error", ""));
    passes("no ranges at all", usize::MAX, |request, bytes, out| {
        if request.route == Route::Blob {
            answer(out, "200 OK", "ETag: \"x\"\r\n", bytes);
        }
        request.route == Route::Blob
    });
    passes("silence", 1, |request, bytes, out| {
        if is_download(request) {
            server::cut(request, bytes, 1000, out);
            wait_for_close(out);
        }
        is_download(request)
    });
    passes("a slow body", 1, |request, bytes, out| {
        if is_download(request) {
            let (head, part) = server::blob_head(request, bytes);
            let _ = out.write_all(head.as_bytes());
            for piece in part.chunks(SIZE / 20) {
                let _ = out.write_all(piece).and_then(|()| out.flush());
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
        }
        is_download(request)
    });
    passes("a chunked body without a length", 1, |request, bytes, out| {
        if is_download(request) {
            let _ = out.write_all(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            );
            for piece in bytes.chunks(100_000) {
                let _ = write!(out, "{:x}\r\n", piece.len())
                    .and_then(|()| out.write_all(piece))
                    .and_then(|()| out.write_all(b"\r\n"));
            }
            let _ = out.write_all(b"0\r\n\r\n");
        }
        is_download(request)
    });
}

#[test]
fn an_interrupted_body_is_resumed() {
    // More interruptions than tries: each one gains bytes.
    let cuts = 8;
    let hub = passes("cuts", cuts, |request, bytes, out| {
        if is_download(request) {
            server::cut(request, bytes, 150_000, out);
        }
        is_download(request)
    });
    let bytes = model_of(SIZE);
    let downloads: Vec<_> = hub.at(Route::Blob).into_iter().filter(is_download).collect();
    assert_eq!(downloads.len(), cuts + 1);
    assert_eq!((downloads[0].range(), downloads[0].header("if-range")), (None, None));
    for (index, request) in downloads.iter().enumerate().skip(1) {
        assert_eq!(request.range(), Some((150_000 * index, None)));
        assert_eq!(request.header("if-range"), Some(&*cdn_etag(&bytes)));
    }
}

#[test]
fn a_changed_file_is_downloaded_again() {
    // After the interruption the other host has another etag for the same address and answers the
    // range request with the whole file.
    let hub = passes("another etag", 2, |request, bytes, out| {
        if is_download(request) {
            match request.range() {
                None => server::cut(request, bytes, 150_000, out),
                Some(_) => answer(out, "200 OK", "ETag: \"another\"\r\n", bytes),
            }
        }
        is_download(request)
    });
    assert_eq!(hub.at(Route::Blob).into_iter().filter(is_download).count(), 2);
}

#[test]
fn what_gains_nothing_ends() {
    // Every response is the whole file from its start, cut at the same place.
    let bytes = model_of(SIZE);
    let model = bytes.clone();
    let hub = Hub::twisted(Repository::of([("m.gguf", bytes)]), move |request, out| {
        if is_download(request) {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                model.len()
            );
            let _ = out.write_all(head.as_bytes()).and_then(|()| out.write_all(&model[..9000]));
        }
        is_download(request)
    });
    let error = User::of(&hub).fails(&json!({}));
    assert_eq!(
        (error.code(), &error.details().unwrap()["bytes"]),
        (Code::HubNetwork, &json!(9000))
    );
    // A Retry-After of an hour is not waited for.
    let date =
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 09:49:37 GMT\r\n";
    for headers in ["Retry-After: 3600\r\n", date] {
        let hub = Hub::twisted(Repository::of([]), |_, out| {
            answer(out, "429 Too Many Requests", headers, b"");
            true
        });
        let error = User::of(&hub).fails(&json!({}));
        let after = &error.details().unwrap()["retry_after"];
        assert_eq!((error.code(), after, hub.seen().len()), (Code::HubNetwork, &json!(3600), 1));
    }
    // An unreachable hub.
    let user = User::of(&hub).with("GONE", "http://127.0.0.1:9");
    assert_eq!(user.fails(&json!({ "endpoint_env": "GONE" })).code(), Code::HubNetwork);
}

#[test]
fn a_part_of_an_earlier_call_is_checked_again() {
    let bytes = model_of(SIZE);
    let hash = sha256(&bytes);
    let hub = Hub::start(Repository::of([("m.gguf", bytes.clone())]));
    let mut wrong = bytes[..700_000].to_vec();
    wrong[5] ^= 1;
    let mut long = bytes.clone();
    long.push(0);
    // The partial file, and the offsets of the requests that follow.
    type Case<'a> = (&'a str, &'a [u8], &'a [Option<usize>]);
    let cases: [Case; 6] = [
        ("a correct start", &bytes[..700_000], &[Some(700_000)]),
        ("the whole file", &bytes, &[]),
        ("nothing", b"", &[None]),
        ("a wrong start", &wrong, &[Some(700_000), None]),
        ("too much", &long, &[None]),
        ("the right number of wrong bytes", &vec![7; bytes.len()], &[None]),
    ];
    for (what, part, expected) in cases {
        let user = User::of(&hub);
        let blobs = user.repository().join("blobs");
        std::fs::create_dir_all(&blobs).unwrap();
        std::fs::write(blobs.join(format!("{hash}.incomplete")), part).unwrap();
        hub.forget();
        let fetched = user.fetches(&json!({}));
        assert_eq!(std::fs::read(fetched["path"].as_str().unwrap()).unwrap(), bytes, "{what}");
        let begins: Vec<_> = hub
            .at(Route::Blob)
            .iter()
            .filter(|request| is_download(request))
            .map(|request| request.range().map(|range| range.0))
            .collect();
        assert_eq!(begins, expected, "{what}");
        assert_eq!(user.files().len(), 3, "{what}");
    }
    // A blob of the wrong size, as after a loss of power, does not count.
    let user = User::of(&hub);
    let path = user.fetches(&json!({}))["path"].as_str().unwrap().to_owned();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert_eq!(user.fetches(&json!({}))["from_cache"], false);
    assert_eq!(std::fs::read(path).unwrap(), bytes);
}

fn of_size() -> Vec<u8> {
    let mut bytes = model_of(SIZE);
    bytes.truncate(SIZE);
    bytes
}

/// Serves a file outside large file storage, whose hash the hub does not have. The first requests
/// get one etag and the later ones the other, whatever they ask. The first download is cut.
fn unhashed(first: &'static str, then: &'static str) -> Hub {
    let bytes = of_size();
    let etag = "0af5".repeat(10);
    let listed =
        json!({ "sha": server::COMMIT, "siblings": [{ "rfilename": "m.gguf", "size": SIZE }] })
            .to_string();
    let downloads = AtomicUsize::new(0);
    Hub::twisted(Repository::of([]), move |request, out| {
        match request.route {
            Route::Api => answer(out, "200 OK", "", listed.as_bytes()),
            Route::Resolve if request.path != "/bytes" => {
                server::redirect(
                    out,
                    "/bytes",
                    &format!("X-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {SIZE}\r\n"),
                );
            }
            Route::Resolve => {
                let (from, end) = request.range().map_or((0, None), |(from, end)| (from, end));
                let end = end.map_or(SIZE, |end| (end + 1).min(SIZE));
                let is_first =
                    from == 0 && end == SIZE && downloads.fetch_add(1, Ordering::SeqCst) == 0;
                // The later file differs but has the same size.
                let mut body = bytes.clone();
                body[SIZE / 2] ^= u8::from(is_first);
                let etag = if is_first || end < SIZE { first } else { then };
                let status = match request.range() {
                    Some(_) => format!(
                        "206 Partial Content\r\nContent-Range: bytes {from}-{}/{SIZE}",
                        end - 1
                    ),
                    None => "200 OK".to_owned(),
                };
                let etag =
                    if etag.is_empty() { String::new() } else { format!("ETag: {etag}\r\n") };
                let length = end - from;
                let _ = write!(
                    out,
                    "HTTP/1.1 {status}\r\n{etag}Content-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                let _ = out.write_all(&body[from..if is_first { SIZE / 2 + 1 } else { end }]);
            }
            _ => return false,
        }
        true
    })
}

#[test]
fn parts_without_a_hash_are_not_mixed() {
    // The server's name for it, and the offsets of the requests.
    let cases: [(&str, &str, &[usize]); 3] = [
        ("\"a\"", "\"b\"", &[0, SIZE / 2 + 1, 0]),
        ("W/\"a\"", "W/\"a\"", &[0, 0]),
        ("", "", &[0, 0]),
    ];
    for (first, then, expected) in cases {
        let hub = unhashed(first, then);
        let user = User::of(&hub);
        let fetched = user.fetches(&json!({}));
        assert_eq!(fetched["sha256"], sha256(&of_size()), "{first}");
        let begins: Vec<usize> = hub
            .at(Route::Resolve)
            .iter()
            .filter(|request| {
                request.path == "/bytes" && request.range().is_none_or(|(_, last)| last.is_none())
            })
            .map(|request| request.range().map_or(0, |(first, _)| first))
            .collect();
        assert_eq!(begins, expected, "{first}");
    }
    // A partial file of an earlier call is not reused either.
    let hub = unhashed("\"a\"", "\"a\"");
    let user = User::of(&hub);
    std::fs::create_dir_all(user.repository().join("blobs")).unwrap();
    std::fs::write(
        user.repository().join(format!("blobs/{}.incomplete", "0af5".repeat(10))),
        vec![7; SIZE - 5],
    )
    .unwrap();
    user.fetch(&json!({})).0.unwrap();
    let first = hub
        .at(Route::Resolve)
        .into_iter()
        .find(|request| request.path == "/bytes" && request.header("range").is_none());
    assert!(first.is_some());
}
