//! The settings of one fetch, from its request and the environment: the hub's endpoint, the token,
//! the cache and the proxies.

use std::path::PathBuf;
use std::time::Duration;

use super::cache::read_small;
use super::environment::{Environment, Proxies};
use super::request::{FetchRequest, TOKEN_ENV};
use crate::error::{Error, Result};
use crate::net::secret::{Redactor, Secret};
use crate::net::trust_store::TrustStore;
use crate::net::url::UrlOrigin;

const ENDPOINT: &str = "https://huggingface.co";
/// The maximum time without data from the server.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a token, or of the file that contains it, in bytes.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// The settings of one fetch.
pub(super) struct Settings {
    /// The endpoint without a trailing slash.
    pub(super) endpoint: String,
    pub(super) origin: UrlOrigin,
    pub(super) token: Option<Secret>,
    /// Removes the token and the passwords of the proxies from messages.
    pub(super) redactor: Redactor,
    pub(super) cache: PathBuf,
    pub(super) offline: bool,
    pub(super) read_timeout: Duration,
    pub(super) proxies: Proxies,
    pub(super) trust: TrustStore,
}

impl Settings {
    /// # Errors
    /// `INVALID_REQUEST` with the invalid variable or member.
    pub(super) fn read(request: &FetchRequest, environment: &Environment) -> Result<Settings> {
        let endpoint =
            environment.get(&request.endpoint_env)?.unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        let Some(origin) = UrlOrigin::of(&endpoint).filter(|_| !endpoint.contains(['?', '#', '@']))
        else {
            let problem = format!(
                "the environment variable {} is not the URL of a hub, such as {ENDPOINT}",
                request.endpoint_env
            );
            return Err(Error::invalid("endpoint_env", problem));
        };
        let cache = match &request.cache_dir {
            Some(folder) => Some(environment.expand_home(folder)?),
            None => {
                match environment.first(&[("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", "")])? {
                    None => environment.hf_home()?.map(|home| home.join("hub")),
                    named => named,
                }
            }
        };
        let Some(cache) = cache else {
            return Err(Error::invalid(
                "cache_dir",
                "missing, and neither HF_HOME nor HOME is set; set one of them",
            ));
        };
        let cache =
            std::path::absolute(&cache).map_err(|error| Error::invalid("cache_dir", error))?;
        if cache.to_str().is_none() {
            // The JSON reply could not contain the path of a file in this folder.
            return Err(Error::invalid(
                "cache_dir",
                format!("{}: its path is not UTF-8", cache.display()),
            ));
        }
        let offline = request.offline
            || environment.is_on("HF_HUB_OFFLINE")?
            || environment.is_on("TRANSFORMERS_OFFLINE")?;
        let (proxies, trust) = match offline {
            true => (Proxies::default(), TrustStore::default()),
            false => {
                (Proxies::read(environment)?, TrustStore::read(|name| (environment.read)(name))?)
            }
        };
        let seconds = environment
            .get("HF_HUB_DOWNLOAD_TIMEOUT")?
            .and_then(|seconds| seconds.trim().parse().ok());
        let token = read_token(request, environment)?;
        Ok(Settings {
            redactor: Redactor::new(token.iter().chain(&proxies.passwords())),
            endpoint,
            origin,
            token,
            cache,
            offline,
            read_timeout: seconds
                .filter(|seconds| (1..=3600).contains(seconds))
                .map_or(READ_TIMEOUT, Duration::from_secs),
            proxies,
            trust,
        })
    }
}

/// The token from the variable that the request names, or else from the file that a login wrote.
/// With `HF_HUB_DISABLE_IMPLICIT_TOKEN`, only a variable that the request names is used.
fn read_token(request: &FetchRequest, environment: &Environment) -> Result<Option<Secret>> {
    let is_named = request.token_env != TOKEN_ENV;
    let is_explicit = environment.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")?;
    if !is_named && is_explicit {
        return Ok(None);
    }
    if let Some(text) = environment.get(&request.token_env)? {
        return token(&text, &format!("the environment variable {}", request.token_env)).map(Some);
    }
    if is_explicit {
        return Ok(None);
    }
    let file = match environment.path("HF_TOKEN_PATH")? {
        None => environment.hf_home()?.map(|home| home.join("token")),
        named => named,
    };
    // An unreadable file counts as no token, because public models need none.
    let Some(file) = file else { return Ok(None) };
    match read_small(&file, MAX_TOKEN_BYTES) {
        Some(text) if !text.trim().is_empty() => {
            token(&text, &file.display().to_string()).map(Some)
        }
        _ => Ok(None),
    }
}

fn token(text: &str, source: &str) -> Result<Secret> {
    let secret =
        Secret::new(text, "[token]").filter(|_| text.trim().len() as u64 <= MAX_TOKEN_BYTES);
    secret.ok_or_else(|| {
        let problem = format!("{source} has characters that an HTTP header cannot carry");
        Error::invalid("token_env", problem)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::ffi::OsString;

    use super::*;

    fn settings(request: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(&FetchRequest::parse(request).unwrap(), &Environment::of(variables))
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_looks() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            let cache = settings(r#"{"id": "a/b"}"#, variables).unwrap().cache;
            assert_eq!(cache, std::path::absolute(expected).unwrap());
        };
        let home = ("HOME", "/h");
        check(&[home], "/h/.cache/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/f")], "/h/f/hub");
        check(&[home, ("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old");
        check(&[home, ("HF_HUB_CACHE", "/c"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/c");
        let own =
            settings(r#"{"id": "a/b", "cache_dir": "/mine"}"#, &[("HF_HUB_CACHE", "/c")]).unwrap();
        assert_eq!(own.cache, std::path::absolute("/mine").unwrap());
        assert!(settings(r#"{"id": "a/b"}"#, &[]).is_err());
    }

    #[test]
    fn a_token_comes_from_a_variable_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let token = |request: &str, variables: &[(&str, &str)]| {
            let token = settings(request, variables).unwrap().token;
            token.map(|token| token.bearer().replace("Bearer ", ""))
        };
        let plain = r#"{"id": "a/b"}"#;
        assert_eq!(token(plain, &[("HF_HOME", home)]), None);
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        std::fs::write(folder.path().join("other"), "hf_other\n").unwrap();
        let other = folder.path().join("other");
        let other = ("HF_TOKEN_PATH", other.to_str().unwrap());
        assert_eq!(token(plain, &[("HF_HOME", home)]).as_deref(), Some("hf_file"));
        let implicit = ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
        assert_eq!(token(plain, &[("HF_HOME", home), ("HF_TOKEN", "hf_env"), implicit]), None);
        assert_eq!(token(plain, &[("HF_HOME", home), other]).as_deref(), Some("hf_other"));
        assert_eq!(
            token(plain, &[("HF_HOME", home), other, ("HF_TOKEN", " hf_env ")]).as_deref(),
            Some("hf_env")
        );
        let named = r#"{"id": "a/b", "token_env": "MINE"}"#;
        let both = [("HF_HOME", home), ("HF_TOKEN", "hf_env"), ("MINE", "hf_mine"), implicit];
        assert_eq!(token(named, &both).as_deref(), Some("hf_mine"));
        let error = settings(plain, &[("HF_HOME", home), ("HF_TOKEN", "hf\nx")]).err().unwrap();
        assert_eq!(
            error.message(),
            "token_env: the environment variable HF_TOKEN has characters that an HTTP header cannot carry"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_unicode_is_an_error() {
        use std::os::unix::ffi::OsStringExt;
        let odd = |wanted: &'static str| Environment {
            read: Box::new(move |name: &str| match name {
                "HOME" if wanted != "HOME" => Some("/h".into()),
                _ => (name == wanted).then(|| OsString::from_vec(b"/data/\xFF".to_vec())),
            }),
        };
        for name in [
            "HF_HOME",
            "HF_HUB_CACHE",
            "HF_ENDPOINT",
            "HF_TOKEN",
            "HF_HUB_OFFLINE",
            "https_proxy",
            "HOME",
        ] {
            let error =
                Settings::read(&FetchRequest::parse(r#"{"id": "a/b"}"#).unwrap(), &odd(name))
                    .err()
                    .unwrap();
            assert_eq!(error.message(), format!("{name}: the environment variable is not UTF-8"));
        }
    }

    #[test]
    fn endpoints_are_urls() {
        let at = |endpoint: &str| {
            settings(r#"{"id": "a/b"}"#, &[("HF_ENDPOINT", endpoint), ("HOME", "/h")])
        };
        assert_eq!(at("").unwrap().endpoint, ENDPOINT);
        assert_eq!(at("http://127.0.0.1:80/hub/").unwrap().endpoint, "http://127.0.0.1:80/hub");
        for bad in [
            "ftp://x",
            "huggingface.co",
            "https://",
            "http://u:p@x",
            "http://x?y",
            "http://x:99999",
        ] {
            assert!(at(bad).err().unwrap().message().starts_with("endpoint_env: "), "{bad}");
        }
    }
}
