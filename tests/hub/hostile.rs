//! Hubs that lie, and hubs that never end: an error with its code, nothing wrong in the cache, and
//! nothing outside it.

use std::io::Write;
use std::net::TcpStream;

use llb::error::Code;
use serde_json::{Value, json};

use crate::server::{
    self, COMMIT, Hub, Repository, Request, Route, answer, endless, linked, redirect,
};
use crate::{User, model_of, scripted, sha256};

fn model() -> Vec<u8> {
    model_of(1 << 20)
}

/// Checks a hub that does this instead of the right thing.
#[track_caller]
fn check(
    what: &str,
    code: Code,
    twist: impl Fn(&Request, &mut TcpStream) -> bool + Send + Sync + 'static,
) {
    let hub = Hub::twisted(Repository::of([("m.gguf", model())]), twist);
    let user = User::of(&hub).with("HF_HUB_DOWNLOAD_TIMEOUT", "1");
    let error = user.fails(&json!({}));
    assert_eq!(error.code(), code, "{what}: {error}");
    let files = user.files();
    assert!(
        files.iter().all(|file| file.ends_with(".incomplete") && code == Code::HubNetwork),
        "{what}: {files:?}"
    );
    let mut around: Vec<_> = std::fs::read_dir(user.cache.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    around.retain(|name| name != "hub");
    assert!(around.is_empty(), "{what}: {around:?}");
}

/// Answers requests to one route.
fn at(
    route: Route,
    reply: impl Fn(&Request, &mut TcpStream),
) -> impl Fn(&Request, &mut TcpStream) -> bool {
    move |request, out| {
        let here = request.route == route;
        if here {
            reply(request, out);
        }
        here
    }
}

/// The API's reply with one changed member.
fn listing(key: &str, value: Value) -> impl Fn(&Request, &mut TcpStream) -> bool {
    let mut listing = Repository::of([("m.gguf", model())]).listing();
    listing[key] = value;
    at(Route::Api, move |_, out| answer(out, "200 OK", "", listing.to_string().as_bytes()))
}

fn siblings(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "rfilename": name })).collect()
}

#[test]
fn listings() {
    check("a commit that is a path", Code::HubNetwork, listing("sha", "../../../../x".into()));
    check("no commit", Code::HubNetwork, listing("sha", Value::Null));
    check("no files", Code::HubNetwork, listing("siblings", Value::Null));
    check(
        "a path out of the cache",
        Code::HubVerify,
        listing("siblings", siblings(&["../../../x-Q4_K_M.gguf"])),
    );
    check("an absolute name", Code::HubVerify, listing("siblings", siblings(&["/tmp/x.gguf"])));
    check(
        "a path out of the cache on another system",
        Code::HubVerify,
        listing("siblings", siblings(&["..\\..\\x.gguf", "C:x.gguf"])),
    );
    check("a name of two lines", Code::HubVerify, listing("siblings", siblings(&["x\n.gguf"])));
    let wrong = |key: &str, value: Value| {
        let mut lfs = json!({ "sha256": sha256(&model()), "size": model().len() });
        lfs[key] = value;
        listing("siblings", json!([{ "rfilename": "m.gguf", "lfs": lfs }]))
    };
    check("a hash other than the file's", Code::HubVerify, wrong("sha256", "ab".repeat(32).into()));
    check("a size other than the file's", Code::HubVerify, wrong("size", 5.into()));
    check(
        "an HTML page",
        Code::HubNetwork,
        at(Route::Api, |_, out| answer(out, "200 OK", "", b"<!doctype html>")),
    );
    check(
        "depth",
        Code::HubNetwork,
        at(Route::Api, |_, out| answer(out, "200 OK", "", &b"[".repeat(1 << 20))),
    );
    check(
        "a compressed body",
        Code::HubNetwork,
        at(Route::Api, |_, out| answer(out, "200 OK", "Content-Encoding: gzip\r\n", b"\x1F\x8B")),
    );
    check(
        "JSON without end",
        Code::HubNetwork,
        at(Route::Api, |_, out| {
            endless(
                out,
                "HTTP/1.1 200 OK\r\n\r\n{\"siblings\": [",
                &br#"{"rfilename": "x"},"#.repeat(4096),
            );
        }),
    );
    check(
        "a head without end",
        Code::HubNetwork,
        at(Route::Api, |_, out| endless(out, "HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n")),
    );
    check(
        "a line without end",
        Code::HubNetwork,
        at(Route::Api, |_, out| endless(out, "HTTP/1.1 200 OK\r\nX-More: ", &[b'x'; 4096])),
    );
    check(
        "no HTTP",
        Code::HubNetwork,
        at(Route::Api, |_, out| drop(out.write_all(b"SSH-2.0-OpenSSH_9\r\n"))),
    );
}

#[test]
fn a_requested_commit_must_be_returned() {
    let hub = Hub::start(Repository::of([("m.gguf", model())]));
    let user = User::of(&hub);
    let other = "f".repeat(40);
    assert_eq!(user.fails(&json!({ "revision": other })).code(), Code::HubVerify);
    assert_eq!((user.files(), hub.seen().len()), (vec![], 1));
    assert_eq!(user.fetches(&json!({ "revision": COMMIT }))["revision"], COMMIT);
}

#[test]
fn redirects() {
    check(
        "a redirect loop",
        Code::HubNetwork,
        at(Route::Resolve, |request, out| redirect(out, &request.path, "")),
    );
    check(
        "a redirect to a file",
        Code::HubNetwork,
        at(Route::Resolve, |_, out| redirect(out, "file:///etc/passwd", "")),
    );
    check(
        "a redirect without a location",
        Code::HubNetwork,
        at(Route::Resolve, |_, out| answer(out, "302 Found", "", b"")),
    );
    check(
        "a redirect to an invalid address",
        Code::HubNetwork,
        at(Route::Api, |_, out| redirect(out, "http://[", "")),
    );
}

#[test]
fn bytes() {
    let body = |reply: fn(&Request, &[u8], &mut TcpStream)| {
        let model = model();
        at(Route::Blob, move |request, out| match request.range() {
            // The header is served correctly.
            Some((_, Some(_))) => server::blob(request, &model, out),
            _ => reply(request, &model, out),
        })
    };
    check(
        "wrong bytes",
        Code::HubVerify,
        body(|request, model, out| {
            let mut wrong = model.to_vec();
            *wrong.last_mut().unwrap() ^= 1;
            server::blob(request, &wrong, out);
        }),
    );
    check(
        "too few bytes",
        Code::HubVerify,
        body(|_, model, out| answer(out, "200 OK", "", &model[1..])),
    );
    check(
        "too many bytes",
        Code::HubVerify,
        body(|_, model, out| answer(out, "200 OK", "", &[model, b"x"].concat())),
    );
    check(
        "an endless body",
        Code::HubVerify,
        body(|_, model, out| endless(out, "HTTP/1.1 200 OK\r\n\r\n", model)),
    );
    check(
        "another range",
        Code::HubNetwork,
        body(|_, model, out| {
            let head = format!("Content-Range: bytes 5-{}/{}\r\n", model.len() - 1, model.len());
            answer(out, "206 Partial Content", &head, &model[5..]);
        }),
    );
    check(
        "a compressed body",
        Code::HubNetwork,
        body(|_, model, out| answer(out, "200 OK", "Content-Encoding: br\r\n", model)),
    );
    check("another size in X-Linked-Size", Code::HubVerify, |request, out| {
        let link = linked(&sha256(&model()), 7);
        match request.route {
            Route::Resolve if request.path == "/elsewhere" => answer(out, "200 OK", "", &model()),
            Route::Resolve => redirect(out, "/elsewhere", &link),
            _ => return false,
        }
        true
    });
    check("an etag that is a path", Code::HubNetwork, |request, out| {
        match request.route {
            Route::Api => {
                let listing =
                    json!({ "sha": COMMIT, "gated": false, "siblings": siblings(&["m.gguf"]) });
                answer(out, "200 OK", "", listing.to_string().as_bytes());
            }
            Route::Resolve => {
                answer(out, "200 OK", "X-Linked-Etag: \"../../../../../x\"\r\n", &model())
            }
            _ => return false,
        }
        true
    });
    check("nothing", Code::ModelInvalid, |request, out| {
        match request.route {
            Route::Api => answer(
                out,
                "200 OK",
                "",
                Repository::of([("m.gguf", vec![])]).listing().to_string().as_bytes(),
            ),
            Route::Hint => answer(out, "404 Not Found", "", b""),
            _ => answer(out, "416 Range Not Satisfiable", "Content-Range: bytes */0\r\n", b""),
        }
        true
    });
    check("not a model", Code::ModelInvalid, |request, out| {
        let page = b"<!doctype html><title>Log in</title>";
        match request.route {
            Route::Api => answer(
                out,
                "200 OK",
                "",
                Repository::of([("m.gguf", page.to_vec())]).listing().to_string().as_bytes(),
            ),
            Route::Resolve => answer(out, "200 OK", &linked(&sha256(page), page.len()), page),
            _ => return false,
        }
        true
    });
}

#[test]
fn a_size_beyond_any_disk_is_refused() {
    let size = 1_u64 << 60;
    let model = model_of(300 << 10);
    let hash = sha256(&model);
    let hub = Hub::twisted(Repository::of([]), move |request, out| {
        match request.route {
            Route::Api => {
                let file =
                    json!({ "rfilename": "m.gguf", "lfs": { "sha256": hash, "size": size } });
                answer(
                    out,
                    "200 OK",
                    "",
                    json!({ "sha": COMMIT, "siblings": [file] }).to_string().as_bytes(),
                );
            }
            Route::Resolve => {
                let range = format!("Content-Range: bytes 0-{}/{size}\r\n", model.len() - 1);
                answer(out, "206 Partial Content", &range, &model);
            }
            _ => return false,
        }
        true
    });
    let user = User::of(&hub);
    let error = user.fails(&json!({}));
    let details = error.details().unwrap();
    assert_eq!(
        (error.code(), &details["resource"], &details["needed_bytes"]),
        (Code::OutOfMemory, &json!("disk"), &json!(size))
    );
    assert_eq!(user.files(), Vec::<String>::new());
}

#[test]
fn a_file_outside_large_file_storage() {
    // Its etag is a git hash, which names the blob. Only the size can be compared.
    let etag = "0af5".repeat(10);
    let model = scripted::text();
    let listed =
        json!({ "sha": COMMIT, "siblings": [{ "rfilename": "m.gguf", "size": model.len() }] });
    let (named, bytes) = (etag.clone(), model.clone());
    let hub = Hub::twisted(Repository::of([]), move |request, out| {
        match request.route {
            Route::Api => answer(out, "200 OK", "", listed.to_string().as_bytes()),
            Route::Resolve => answer(
                out,
                "200 OK",
                &format!("ETag: \"{named}\"\r\nX-Repo-Commit: {COMMIT}\r\n"),
                &bytes,
            ),
            _ => return false,
        }
        true
    });
    let user = User::of(&hub);
    let fetched = user.fetches(&json!({}));
    assert_eq!(
        (&fetched["sha256"], user.files()[0].as_str()),
        (&json!(sha256(&model)), &*format!("blobs/{etag}"))
    );
    assert_eq!(user.fetches(&json!({}))["sha256"], fetched["sha256"]);
}

#[cfg(unix)]
#[test]
fn planted_links_in_the_cache_are_not_followed() {
    let model = model();
    let hub = Hub::start(Repository::of([("m.gguf", model.clone())]));
    let user = User::of(&hub);
    let others = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&others, b"theirs").unwrap();
    let hash = sha256(&model);
    for planted in [
        format!("models--o--n/blobs/{hash}.incomplete"),
        format!(".locks/models--o--n/{hash}.lock"),
        "CACHEDIR.TAG".into(),
    ] {
        let path = user.cache.path().join("hub").join(planted);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&others, path).unwrap();
    }
    let fetched = user.fetches(&json!({}));
    assert_eq!(std::fs::read(fetched["path"].as_str().unwrap()).unwrap(), model);
    assert_eq!(std::fs::read(&others).unwrap(), b"theirs");
}
