//! What the environment says: where the hub is, who asks, where the cache is. Read here and nowhere else.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::address::Origin;
use super::request::Request;
use crate::error::{Error, Result};

const ENDPOINT: &str = "https://huggingface.co";
/// How long the other side may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// A token file holds one line.
const MOST_OF_TOKEN: u64 = 16 << 10;

/// A variable's value by its name.
type Read = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Environment variables: the process's, or those of a test.
pub struct Environment {
    read: Box<Read>,
    /// Whether the proxies of the process's environment are used.
    proxies: bool,
}

impl Environment {
    /// The process's own. A variable that is not Unicode counts as absent.
    pub fn process() -> Environment {
        Environment { read: Box::new(|name| std::env::var(name).ok()), proxies: true }
    }

    /// Nothing but these.
    pub fn of(variables: &[(&str, &str)]) -> Environment {
        let own = |text: &str| text.to_owned();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (own(name), own(value))).collect();
        let read = move |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        Environment { read: Box::new(read), proxies: false }
    }

    /// Empty is absent.
    fn get(&self, name: &str) -> Option<String> {
        (self.read)(name).filter(|value| !value.trim().is_empty())
    }

    /// As huggingface_hub reads its switches.
    fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| matches!(&*value.to_ascii_uppercase(), "1" | "ON" | "YES" | "TRUE"))
    }

    /// A path; a leading `~` is the home folder.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(|value| self.expand(&value))
    }

    fn expand(&self, path: &str) -> PathBuf {
        match (path.strip_prefix('~'), self.get("HOME")) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => PathBuf::from(format!("{home}{rest}")),
            _ => PathBuf::from(path),
        }
    }

    /// `HF_HOME` and what stands for it.
    fn home(&self) -> Option<PathBuf> {
        self.path("HF_HOME")
            .or_else(|| Some(self.path("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(self.path("HOME")?.join(".cache/huggingface")))
    }
}

/// What holds for one fetch.
pub(super) struct Settings {
    /// Without a slash at its end.
    pub(super) endpoint: String,
    pub(super) origin: Origin,
    pub(super) token: Option<Token>,
    pub(super) cache: PathBuf,
    pub(super) offline: bool,
    pub(super) silence: Duration,
    pub(super) proxies: bool,
}

impl Settings {
    /// # Errors
    /// `INVALID_REQUEST` that names the variable, or the member, that is wrong.
    pub(super) fn read(request: &Request, environment: &Environment) -> Result<Settings> {
        let endpoint = environment.get(&request.endpoint_env).unwrap_or_else(|| ENDPOINT.to_owned());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        let Some(origin) = Origin::of(&endpoint).filter(|_| !endpoint.contains(['?', '#', '@'])) else {
            let problem = format!("the environment variable {} is not the address of a hub", request.endpoint_env);
            return Err(Error::invalid("endpoint_env", problem));
        };
        let cache = match &request.cache_dir {
            Some(folder) => Some(environment.expand(folder)),
            None => environment
                .path("HF_HUB_CACHE")
                .or_else(|| environment.path("HUGGINGFACE_HUB_CACHE"))
                .or_else(|| Some(environment.home()?.join("hub"))),
        };
        let Some(cache) = cache else {
            return Err(Error::invalid("cache_dir", "no folder is known for the cache; give one, or set HF_HOME or HOME"));
        };
        let cache = std::path::absolute(&cache).map_err(|error| Error::invalid("cache_dir", error))?;
        let seconds = environment.get("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|seconds| seconds.trim().parse().ok());
        Ok(Settings {
            endpoint,
            origin,
            token: Token::read(request, environment)?,
            cache,
            offline: request.offline || environment.is_on("HF_HUB_OFFLINE") || environment.is_on("TRANSFORMERS_OFFLINE"),
            silence: seconds.filter(|seconds| (1..=3600).contains(seconds)).map_or(SILENCE, Duration::from_secs),
            proxies: environment.proxies,
        })
    }
}

/// A token, which no message and no debug output shows.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// From the environment, else from the file that logging in wrote.
    fn read(request: &Request, environment: &Environment) -> Result<Option<Token>> {
        if let Some(token) = environment.get(&request.token_env) {
            return Token::of(&token, || format!("the environment variable {}", request.token_env)).map(Some);
        }
        if environment.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            return Ok(None);
        }
        let file = environment.path("HF_TOKEN_PATH").or_else(|| Some(environment.home()?.join("token")));
        // A file that cannot be read is no token: public models need none.
        let text = file.as_deref().and_then(|file| read_short(file).map(|text| (file, text)));
        match text {
            Some((file, text)) if !text.trim().is_empty() => Token::of(&text, || file.display().to_string()).map(Some),
            _ => Ok(None),
        }
    }

    fn of(text: &str, source: impl Fn() -> String) -> Result<Token> {
        let text = text.trim();
        if text.len() as u64 > MOST_OF_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid("token_env", format!("{} holds what no HTTP header can carry", source())));
        }
        Ok(Token(text.to_owned()))
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

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Token")
    }
}

fn read_short(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MOST_OF_TOKEN {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn settings(request: &str, variables: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(&Request::parse(request).unwrap(), &Environment::of(variables))
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
        let own = settings(r#"{"id": "a/b", "cache_dir": "/mine"}"#, &[("HF_HUB_CACHE", "/c")]).unwrap();
        assert_eq!(own.cache, Path::new("/mine"));
        assert!(settings(r#"{"id": "a/b"}"#, &[]).is_err());
    }

    #[test]
    fn tokens_come_from_variable_or_file_and_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let token =
            |request: &str, variables: &[(&str, &str)]| settings(request, variables).unwrap().token.map(|token| token.0);
        let plain = r#"{"id": "a/b"}"#;
        assert_eq!(token(plain, &[("HF_HOME", home)]), None);
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        std::fs::write(folder.path().join("other"), "hf_other\n").unwrap();
        let other = folder.path().join("other");
        let other = ("HF_TOKEN_PATH", other.to_str().unwrap());
        assert_eq!(token(plain, &[("HF_HOME", home)]).as_deref(), Some("hf_file"));
        assert_eq!(token(plain, &[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(token(plain, &[("HF_HOME", home), other]).as_deref(), Some("hf_other"));
        assert_eq!(token(plain, &[("HF_HOME", home), other, ("HF_TOKEN", " hf_env ")]).as_deref(), Some("hf_env"));
        let named = r#"{"id": "a/b", "token_env": "MINE"}"#;
        let both = [("HF_HOME", home), ("HF_TOKEN", "hf_env"), ("MINE", "hf_mine")];
        assert_eq!(token(named, &both).as_deref(), Some("hf_mine"));
        let error = settings(plain, &[("HF_HOME", home), ("HF_TOKEN", "hf\nx")]).err().unwrap();
        assert_eq!(error.message(), "token_env: the environment variable HF_TOKEN holds what no HTTP header can carry");
        assert_eq!(format!("{:?}", Token("hf_x".into())), "Token");
    }

    #[test]
    fn endpoints_are_addresses() {
        let at = |endpoint: &str| settings(r#"{"id": "a/b"}"#, &[("HF_ENDPOINT", endpoint), ("HOME", "/h")]);
        assert_eq!(at("").unwrap().endpoint, ENDPOINT);
        assert_eq!(at("http://127.0.0.1:80/hub/").unwrap().endpoint, "http://127.0.0.1:80/hub");
        for bad in ["ftp://x", "huggingface.co", "https://", "http://u:p@x", "http://x?y"] {
            assert!(at(bad).err().unwrap().message().starts_with("endpoint_env: "), "{bad}");
        }
    }
}
