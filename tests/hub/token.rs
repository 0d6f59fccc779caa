//! A hub that sends the token back in every place of a reply: no error, event, reply or file of the
//! cache has it.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::server::{COMMIT, Hub, Repository, Request, Route, answer, linked, redirect};
use crate::{User, collect, scripted, sha256};

/// All of it is allowed in file names, etags and commits.
const TOKEN: &str = "hfsecret0abcdefghij0123xyz";

type Answer = Box<dyn Fn(&Request, &mut TcpStream, &str) -> bool + Send + Sync>;

fn at(
    route: Route,
    reply: impl Fn(&Request, &mut TcpStream, &str) + Send + Sync + 'static,
) -> Answer {
    Box::new(move |request, out, token| {
        let here = request.route == route;
        if here {
            reply(request, out, token);
        }
        here
    })
}

/// Each place of a response that can carry a text.
fn places() -> Vec<Answer> {
    let mut places = Vec::new();
    for route in [Route::Api, Route::Resolve, Route::Blob] {
        for status in ["200 OK", "401 No", "403 No", "404 No", "418 No", "451 No"] {
            places.push(at(route, move |_, out, token| {
                let names = ["X-Error-Message", "X-Error-Code", "ETag", "X-Linked-Etag", "Server"];
                let headers = names.map(|name| format!("{name}: \"{token}\"\r\n")).concat();
                answer(out, &format!("{status} {token}"), &headers, token.as_bytes());
            }));
            places.push(at(route, move |_, out, token| {
                let body = format!("{{\"error\": \"bad {token}\"}}");
                answer(out, status, "", body.as_bytes());
            }));
        }
        places.push(at(route, |_, out, token| {
            redirect(out, &format!("http://127.0.0.1:1/{token}?{token}"), "");
        }));
        places.push(at(route, |_, out, token| redirect(out, &format!("ftp://{token}/"), "")));
        places.push(at(route, |_, out, token| drop(write!(out, "{token}\r\n\r\n"))));
        places.push(at(route, |_, out, token| {
            let _ = write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {token}\r\n\r\n");
        }));
    }
    // A listing, whose names become names of files.
    for listing in [
        json!({ "sha": "TOKEN", "siblings": [] }),
        json!({ "sha": COMMIT, "siblings": [{ "rfilename": "TOKEN.gguf" }] }),
        json!({ "sha": COMMIT, "siblings": [{ "rfilename": "TOKEN/m-Q4_K_M.gguf" }] }),
        json!({ "sha": COMMIT, "siblings": [{ "rfilename": "a.gguf TOKEN" }] }),
    ] {
        places.push(at(Route::Api, move |_, out, token| {
            answer(out, "200 OK", "", listing.to_string().replace("TOKEN", token).as_bytes());
        }));
    }
    places
}

/// A model whose header has the token.
fn model(token: &str, template: &str) -> Vec<u8> {
    let mut model = scripted::text_model();
    model.name = format!("The token is {token}");
    model.chat_template = Some(template.replace("TOKEN", token));
    model.to_bytes()
}

/// Answers with a listing of one model, and with the model.
fn serving(model: &[u8], request: &Request, out: &mut TcpStream, token: &str) -> bool {
    let hash = sha256(model);
    match request.route {
        Route::Api => {
            let listing = Repository::of([("m.gguf", model.to_vec())]).listing();
            answer(out, "200 OK", "", listing.to_string().as_bytes());
        }
        Route::Hint => {
            let gguf = json!({ "gguf": { "architecture": token } });
            answer(out, "200 OK", "", gguf.to_string().as_bytes());
        }
        _ => answer(out, "200 OK", &linked(&hash, model.len()), model),
    }
    true
}

fn spellings() -> Vec<String> {
    let escaped = |escape: &dyn Fn(u8) -> String| TOKEN.bytes().map(escape).collect::<String>();
    vec![
        TOKEN.to_owned(),
        TOKEN.to_uppercase(),
        escaped(&|byte| format!("%{byte:02x}")),
        escaped(&|byte| format!("\\u{byte:04x}")),
        // `printf ":$TOKEN" | base64`
        "Omhmc2VjcmV0MGFiY2RlZmdoaWowMTIzeHl6".to_owned(),
    ]
}

/// What the user sees of a fetch: the result, the events, and the names and notes in the cache.
fn seen(hub: &Hub) -> (Value, String) {
    let user = User::of(hub).with("HF_TOKEN", TOKEN).with("HF_HUB_DOWNLOAD_TIMEOUT", "1");
    let (result, events) = user.fetch(&json!({}));
    let reply = result.unwrap_or_else(|error| error.to_json());
    let mut files = Vec::new();
    collect(user.cache.path(), user.cache.path(), &mut files);
    let notes: Vec<String> = files
        .iter()
        .filter(|file| file.ends_with(".json"))
        .map(|file| std::fs::read_to_string(user.cache.path().join(Path::new(file))).unwrap())
        .collect();
    let all = format!("{reply} {events:?} {files:?} {notes:?}");
    (reply, all)
}

#[track_caller]
fn check_no_token(what: &str, seen: &str) {
    let seen = seen.replace("\\\\", "\\").to_lowercase();
    for spelling in spellings() {
        let spelling = spelling.to_lowercase();
        let part = &spelling[spelling.len() / 2..];
        assert!(!seen.contains(part), "{what}: {part} of {spelling} in {seen}");
    }
}

#[test]
fn the_token_comes_back_in_no_error_event_or_file() {
    let check = |place: usize, reply: &Arc<Answer>, token: &str| {
        let (reply, token) = (Arc::clone(reply), token.to_owned());
        let repository = Repository::of([("m.gguf", crate::model_of(4096))]);
        let hub = Hub::twisted(repository, move |request, out| reply(request, out, &token));
        check_no_token(&format!("place {place}"), &seen(&hub).1);
    };
    // At the same time, because a fetch tries several times.
    std::thread::scope(|scope| {
        for (place, reply) in places().into_iter().map(Arc::new).enumerate() {
            for token in spellings() {
                let reply = Arc::clone(&reply);
                scope.spawn(move || check(place, &reply, &token));
            }
        }
    });
}

#[test]
fn the_token_comes_back_in_no_model_information() {
    let refusing = "{{ raise_exception('TOKEN') }}";
    let broken = "{% TOKEN %}";
    for token in spellings() {
        for (template, kind) in
            [(scripted::TOOLS_TEMPLATE, "model_fetched"), (refusing, "error"), (broken, "error")]
        {
            let model = model(&token, template);
            let token = token.clone();
            let hub = Hub::twisted(Repository::default(), move |request, out| {
                serving(&model, request, out, &token)
            });
            let (reply, all) = seen(&hub);
            assert_eq!(reply["type"], kind, "{reply}");
            check_no_token(kind, &all);
        }
    }
}
