//! What the environment says: where the hub is, who asks, where the cache is. Read here and nowhere
//! else.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::proxy::Proxies;
use super::request::{FetchRequest, TOKEN_ENV};
use super::url::UrlOrigin;
use crate::error::{Error, Result};
use crate::net::trust_store::TrustStore;

const ENDPOINT: &str = "https://huggingface.co";
/// How long the other side may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// A token file holds one line.
const MOST_OF_TOKEN: u64 = 16 << 10;

/// A variable's value by its name.
type ReadVariable = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// Environment variables: the process's, or those of a test.
pub struct Environment {
    read: Box<ReadVariable>,
}

impl Environment {
    /// The process's own. Where it has no `HOME`, that is what the system says of the user.
    pub fn process() -> Environment {
        let read = |name: &str| match (std::env::var_os(name), name) {
            (None, "HOME") => std::env::home_dir().map(PathBuf::into_os_string),
            (value, _) => value,
        };
        Environment { read: Box::new(read) }
    }

    /// Nothing but these.
    pub fn of(variables: &[(&str, &str)]) -> Environment {
        let own = |text: &str| text.to_owned();
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (own(name), own(value))).collect();
        let read = move |name: &str| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.into())
        };
        Environment { read: Box::new(read) }
    }

    /// Empty is absent. `INVALID_REQUEST` for what is not Unicode: to pass it over would be to use
    /// another folder or hub.
    pub(super) fn get(&self, name: &str) -> Result<Option<String>> {
        match (self.read)(name).map(OsString::into_string) {
            Some(Err(_)) => Err(Error::invalid(name, "the environment variable is not UTF-8")),
            Some(Ok(value)) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
            None => Ok(None),
        }
    }

    /// As huggingface_hub reads its switches.
    fn is_on(&self, name: &str) -> Result<bool> {
        Ok(self.get(name)?.is_some_and(|value| {
            matches!(&*value.to_ascii_uppercase(), "1" | "ON" | "YES" | "TRUE")
        }))
    }

    /// A path; a leading `~` is the home folder.
    fn path(&self, name: &str) -> Result<Option<PathBuf>> {
        self.get(name)?.map(|value| self.expand(&value)).transpose()
    }

    fn expand(&self, path: &str) -> Result<PathBuf> {
        Ok(match path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => PathBuf::from(
                self.get("HOME")?.map_or_else(|| path.to_owned(), |home| format!("{home}{rest}")),
            ),
            None => PathBuf::from(path),
        })
    }

    /// The first of these that is set.
    fn first(&self, names: &[(&str, &str)]) -> Result<Option<PathBuf>> {
        for (name, below) in names {
            if let Some(folder) = self.path(name)? {
                return Ok(Some(if below.is_empty() { folder } else { folder.join(below) }));
            }
        }
        Ok(None)
    }

    /// `HF_HOME` and what stands for it.
    fn home(&self) -> Result<Option<PathBuf>> {
        self.first(&[
            ("HF_HOME", ""),
            ("XDG_CACHE_HOME", "huggingface"),
            ("HOME", ".cache/huggingface"),
        ])
    }
}

/// What holds for one fetch.
pub(super) struct Settings {
    /// Without a slash at its end.
    pub(super) endpoint: String,
    pub(super) origin: UrlOrigin,
    pub(super) token: Option<AccessToken>,
    pub(super) cache: PathBuf,
    pub(super) offline: bool,
    pub(super) silence: Duration,
    pub(super) proxies: Proxies,
    pub(super) trust: TrustStore,
}

impl Settings {
    /// # Errors
    /// `INVALID_REQUEST` that names the variable, or the member, that is wrong.
    pub(super) fn read(request: &FetchRequest, environment: &Environment) -> Result<Settings> {
        let endpoint =
            environment.get(&request.endpoint_env)?.unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        let Some(origin) = UrlOrigin::of(&endpoint).filter(|_| !endpoint.contains(['?', '#', '@']))
        else {
            let problem = format!(
                "the environment variable {} is not the address of a hub",
                request.endpoint_env
            );
            return Err(Error::invalid("endpoint_env", problem));
        };
        let cache = match &request.cache_dir {
            Some(folder) => Some(environment.expand(folder)?),
            None => {
                match environment.first(&[("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", "")])? {
                    None => environment.home()?.map(|home| home.join("hub")),
                    named => named,
                }
            }
        };
        let Some(cache) = cache else {
            return Err(Error::invalid(
                "cache_dir",
                "no folder is known for the cache; give one, or set HF_HOME or HOME",
            ));
        };
        let cache =
            std::path::absolute(&cache).map_err(|error| Error::invalid("cache_dir", error))?;
        if cache.to_str().is_none() {
            // The reply could not name a file in it.
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
        Ok(Settings {
            endpoint,
            origin,
            token: AccessToken::read(request, environment)?,
            cache,
            offline,
            silence: seconds
                .filter(|seconds| (1..=3600).contains(seconds))
                .map_or(SILENCE, Duration::from_secs),
            proxies,
            trust,
        })
    }
}

/// A token, which no message and no debug output shows.
#[derive(Clone)]
pub(super) struct AccessToken(String);

impl AccessToken {
    /// From the environment, else from the file that logging in wrote;
    /// `HF_HUB_DISABLE_IMPLICIT_TOKEN` leaves what the request itself names.
    fn read(request: &FetchRequest, environment: &Environment) -> Result<Option<AccessToken>> {
        let named = request.token_env != TOKEN_ENV;
        if !named && environment.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")? {
            return Ok(None);
        }
        if let Some(token) = environment.get(&request.token_env)? {
            return AccessToken::of(&token, || {
                format!("the environment variable {}", request.token_env)
            })
            .map(Some);
        }
        if environment.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")? {
            return Ok(None);
        }
        let file = match environment.path("HF_TOKEN_PATH")? {
            None => environment.home()?.map(|home| home.join("token")),
            named => named,
        };
        // A file that cannot be read is no token: public models need none.
        let text = file
            .as_deref()
            .and_then(|file| read_short(file, MOST_OF_TOKEN).map(|text| (file, text)));
        match text {
            Some((file, text)) if !text.trim().is_empty() => {
                AccessToken::of(&text, || file.display().to_string()).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn of(text: &str, source: impl Fn() -> String) -> Result<AccessToken> {
        let text = text.trim();
        if text.len() as u64 > MOST_OF_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid(
                "token_env",
                format!("{} holds what no HTTP header can carry", source()),
            ));
        }
        Ok(AccessToken(text.to_owned()))
    }

    /// The header's value.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// A text of a server without the token, should it have sent it back.
    pub(super) fn hide(&self, text: &str) -> String {
        text.replace(&self.0, "[token]")
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// A regular file of few bytes.
pub(super) fn read_short(path: &Path, most: u64) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > most {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn settings(request: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(&FetchRequest::parse(request).unwrap(), &Environment::of(variables))
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_looks() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            assert_eq!(settings(r#"{"id": "a/b"}"#, variables).unwrap().cache, Path::new(expected));
        };
        let home = ("HOME", "/h");
        check(&[home], "/h/.cache/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "~/f")], "/h/f/hub");
        check(&[home, ("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old");
        check(&[home, ("HF_HUB_CACHE", "/c"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/c");
        let own =
            settings(r#"{"id": "a/b", "cache_dir": "/mine"}"#, &[("HF_HUB_CACHE", "/c")]).unwrap();
        assert_eq!(own.cache, Path::new("/mine"));
        assert!(settings(r#"{"id": "a/b"}"#, &[]).is_err());
    }

    #[test]
    fn tokens_come_from_variable_or_file_and_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let token = |request: &str, variables: &[(&str, &str)]| {
            settings(request, variables).unwrap().token.map(|token| token.0)
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
            "token_env: the environment variable HF_TOKEN holds what no HTTP header can carry"
        );
        assert_eq!(format!("{:?}", AccessToken("hf_x".into())), "Token");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_not_unicode_is_not_passed_over() {
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
    fn endpoints_are_addresses() {
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
