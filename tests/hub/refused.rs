//! Refusals of the hub in the codes of the ABI, and the hosts that receive a token.

use llb::error::Code;
use serde_json::json;

use crate::server::{Hub, Repository, Route, answer};
use crate::{User, collect, scripted};

const TOKEN: &str = "hf_ThisIsTheSecretOfTheTest";

fn repository() -> Repository {
    Repository::of([("m.gguf", scripted::text())])
}

/// A hub that answers one route with this. `with_token` says whether the user sends a token.
#[track_caller]
fn check(
    route: Route,
    status: &'static str,
    headers: &'static str,
    with_token: bool,
    code: Code,
    words: &str,
) {
    let hub = Hub::twisted(repository(), move |request, out| {
        let here = request.route == route;
        if here {
            // Like servers that quote the request.
            let echo = request.header("authorization").unwrap_or_default().to_owned();
            answer(
                out,
                status,
                headers,
                json!({ "error": format!("not for you, {echo}") }).to_string().as_bytes(),
            );
        }
        here
    });
    let mut user = User::of(&hub);
    if with_token {
        user = user.with("HF_TOKEN", TOKEN);
    }
    let error = user.fails(&json!({}));
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(words), "{error}");
    assert!(!error.to_json().to_string().contains(TOKEN), "{error}");
}

#[test]
fn error_responses_have_their_codes() {
    use Route::{Api, Resolve};
    let gated = "X-Error-Code: GatedRepo\r\n";
    check(
        Api,
        "401 Unauthorized",
        "X-Error-Code: RepoNotFound\r\n",
        false,
        Code::HubUnauthorized,
        "authentication required",
    );
    check(Api, "401 Unauthorized", "", true, Code::HubUnauthorized, "token was refused");
    check(Api, "403 Forbidden", "", true, Code::HubForbidden, "accept the licence on http");
    check(
        Api,
        "404 Not Found",
        "X-Error-Code: RepoNotFound\r\n",
        true,
        Code::HubNotFound,
        "no such model",
    );
    check(
        Api,
        "404 Not Found",
        "X-Error-Code: RevisionNotFound\r\n",
        false,
        Code::HubNotFound,
        "revision \"main\"",
    );
    check(Api, "451 Unavailable For Legal Reasons", "", false, Code::HubForbidden, "legal");
    check(Api, "418 Teapot", "", false, Code::HubNetwork, "status 418");
    check(Resolve, "401 Unauthorized", gated, false, Code::HubGated, "accept its licence on http");
    check(Resolve, "401 Unauthorized", "", false, Code::HubUnauthorized, "authentication required");
    check(Resolve, "403 Forbidden", gated, true, Code::HubGated, "with the account of the token");
    check(Resolve, "403 Forbidden", "", true, Code::HubForbidden, "accept the licence on http");
    check(
        Resolve,
        "404 Not Found",
        "X-Error-Code: EntryNotFound\r\n",
        false,
        Code::HubNotFound,
        "file \"m.gguf\"",
    );
}

#[test]
fn missing_access_is_reported_before_any_download() {
    let gated = Repository { gated: "auto".into(), ..repository() };
    let private = Repository { private: true, ..repository() };
    for (repository, code) in [(gated, Code::HubGated), (private, Code::HubUnauthorized)] {
        let hub = Hub::start(repository);
        let error = User::of(&hub).fails(&json!({}));
        assert_eq!(
            (error.code(), &error.details().unwrap()["page"]),
            (code, &json!(format!("{}/o/n", hub.url())))
        );
        assert_eq!(hub.seen().len(), 1);
        // With a token the hub decides.
        assert_eq!(User::of(&hub).with("HF_TOKEN", TOKEN).fetches(&json!({}))["from_cache"], false);
    }
}

#[test]
fn a_token_stays_with_the_hub() {
    let hub = Hub::start(Repository { token: Some(TOKEN.to_owned()), ..repository() });
    let named = json!({ "token_env": "MINE", "endpoint_env": "HUB" });
    let user =
        User::of(&hub).with("MINE", TOKEN).with("HUB", &hub.url()).with("HF_TOKEN", "hf_another");
    let (fetched, events) = user.fetch(&named);
    let fetched = fetched.unwrap();
    let shown = format!("{fetched}{events:?}");
    for request in hub.seen() {
        let expected = (request.route != Route::Blob).then(|| format!("Bearer {TOKEN}"));
        assert_eq!(request.header("authorization"), expected.as_deref(), "{request:?}");
    }
    assert!(!hub.at(Route::Blob).is_empty());
    // Neither the token nor the signed address is written anywhere.
    let mut files = Vec::new();
    collect(user.cache.path(), user.cache.path(), &mut files);
    assert!(files.iter().any(|file| file.ends_with(".lock")), "{files:?}");
    for file in files {
        let text = std::fs::read(user.cache.path().join(&file)).unwrap();
        for secret in [TOKEN, "signature=secret"] {
            assert!(
                !text.windows(secret.len()).any(|window| window == secret.as_bytes()),
                "{file}"
            );
            assert!(!file.contains(secret) && !shown.contains(secret), "{shown}");
        }
    }
    assert_eq!(
        User::of(&hub).with("HF_TOKEN", "hf_wrong").fails(&json!({})).code(),
        Code::HubUnauthorized
    );
}
