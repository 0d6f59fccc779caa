//! The `engine` option: llama.cpp in this process, or remote servers.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// The options of `llb_chat_create_with` that apply to servers. All other options are refused by
/// name.
const ALLOWED: &[&str] = &[
    "engine",
    "model",
    "n_ctx",
    "defaults",
    "chat_template",
    "components",
    "tool_policy",
    "polyfills",
    "template_limits",
    "log",
];

/// The maximum number of servers of one chat.
const MAX_SERVERS: usize = 64;

/// The maximum length of `cache_salt`, in characters, as in vLLM.
const MAX_SALT: usize = 1024;

/// What generates the tokens of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineType {
    Native,
    Completions,
    Tokens(TokenProtocol),
}

/// The program whose protocol exchanges token ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TokenProtocol {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
}

named_enum! {
    /// The API dialect of a completions server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ServerKind {
        /// llama.cpp's server.
        Llama = "llama",
        /// vLLM.
        Vllm = "vllm",
        /// OpenAI's own fields only.
        OpenAi = "openai",
    }
}

named_enum! {
    /// The constraints that a server can enforce on a reply.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Constraints {
        /// Lark grammars, with llguidance.
        Llguidance = "llguidance",
        /// What vLLM accepts, which is found by requests.
        Auto = "auto",
        /// Nothing: replies are only checked afterwards.
        None = "none",
    }
}

/// The address of a server, from a checked `base_url`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BaseUrl {
    /// The scheme, the host and the path before the version, without a final slash:
    /// `http://localhost:8000`.
    pub root: String,
    /// The version in the path: `v1`.
    pub version: String,
    /// The host and port, which identify the server in messages.
    pub host: String,
    /// The address to connect to. None is any of the host's.
    pub address: Option<SocketAddr>,
}

/// `engine` of type `openai_completions`, `vllm` or `sglang`.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The servers; at least one. All serve the same model.
    pub servers: Vec<BaseUrl>,
    /// Whether each address of the servers' names is a server of its own.
    pub each_address: bool,
    /// The model's name on the server. None asks the server.
    pub model: Option<String>,
    /// The environment variable that holds the API key.
    pub api_key_env: Option<String>,
    /// The dialect of the servers. None detects it by asking the server.
    pub kind: Option<ServerKind>,
    /// The constraints that the servers can enforce on a reply.
    pub constraints: Constraints,
    /// The time limit for name resolution, connection and TLS handshake.
    pub connect_timeout: Duration,
    /// The longest wait for the first token, and between two tokens.
    pub read_timeout: Duration,
    /// The BOS token, for a `chat_template` without a model file.
    pub bos_token: Option<String>,
    /// The EOS token, for a `chat_template` without a model file.
    pub eos_token: Option<String>,
    /// Set if prompts are sent and replies received as token ids (types `vllm` and `sglang`).
    pub tokens: Option<TokenOptions>,
}

/// The options of an exchange in token ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenOptions {
    /// What the servers run.
    pub protocol: TokenProtocol,
    /// What separates the prefix cache of these requests from that of others on the server.
    pub cache_salt: Option<String>,
    /// The priority for the server's scheduler: a lower number is served earlier.
    pub priority: i64,
}

impl RemoteOptions {
    /// Reads the option `engine`. None is llama.cpp in this process. With servers, options that
    /// apply only to a model in this process are refused.
    pub(crate) fn read(fields: &mut Fields, options: &Value) -> Result<Option<RemoteOptions>> {
        let Some(value) = fields.get("engine") else { return Ok(None) };
        let engine = &mut Fields::new("engine", value)?;
        let types = [
            ("native", EngineType::Native),
            ("openai_completions", EngineType::Completions),
            ("vllm", EngineType::Tokens(TokenProtocol::Vllm)),
            ("sglang", EngineType::Tokens(TokenProtocol::Sglang)),
        ];
        let engine_type = engine.one_of("type", &types)?;
        let engine_type = engine_type.ok_or_else(|| engine.invalid("type", "missing"))?;
        if engine_type == EngineType::Native {
            engine.refuse_ignored("not an option with `type` \"native\"")?;
            return Ok(None);
        }
        let mut set =
            options.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        if let Some((key, _)) = set.find(|(key, _)| !ALLOWED.contains(&key.as_str())) {
            return Err(fields.invalid(
                key,
                "applies to a model in this process only; leave it out if `engine` is a server",
            ));
        }
        if matches!(engine_type, EngineType::Tokens(_)) && options["model"].is_null() {
            let problem = "servers of this type exchange token ids, so the option `model` is needed: a \
                           GGUF file or a tokenizer.json with the vocabulary of the server's model";
            return Err(engine.invalid("type", problem));
        }
        let milliseconds = |ms: i64| Duration::from_millis(ms as u64);
        let hour = 3_600_000;
        let read = RemoteOptions {
            servers: read_servers(engine)?,
            each_address: engine.boolean("each_address")?.unwrap_or(false),
            model: engine.string("model")?.map(str::to_owned),
            api_key_env: engine.string("api_key_env")?.map(str::to_owned),
            kind: match engine_type {
                EngineType::Tokens(TokenProtocol::Vllm) => Some(ServerKind::Vllm),
                // Only its own route is used.
                EngineType::Tokens(TokenProtocol::Sglang) => Some(ServerKind::OpenAi),
                _ => engine.one_of("server", ServerKind::NAMES)?,
            },
            constraints: engine.one_of("constraints", Constraints::NAMES)?.unwrap_or(
                match engine_type {
                    EngineType::Tokens(_) => Constraints::Auto,
                    _ => Constraints::None,
                },
            ),
            connect_timeout: engine
                .integer("connect_timeout_ms", 1..=hour)?
                .map_or(Duration::from_secs(10), milliseconds),
            read_timeout: engine
                .integer("read_timeout_ms", 1..=hour)?
                .map_or(Duration::from_secs(300), milliseconds),
            bos_token: engine.string("bos_token")?.map(str::to_owned),
            eos_token: engine.string("eos_token")?.map(str::to_owned),
            tokens: match engine_type {
                EngineType::Tokens(protocol) => Some(read_token_options(engine, protocol)?),
                _ => None,
            },
        };
        engine.refuse_ignored("unknown option")?;
        Ok(Some(read))
    }
}

fn read_token_options(engine: &mut Fields, protocol: TokenProtocol) -> Result<TokenOptions> {
    let cache_salt = engine.string("cache_salt")?.map(str::to_owned);
    if let Some(salt) = &cache_salt
        && !(1..=MAX_SALT).contains(&salt.chars().count())
    {
        let problem = format!("expected 1 to {MAX_SALT} characters");
        return Err(engine.invalid("cache_salt", problem));
    }
    let priority = engine.integer("priority", i64::MIN..=i64::MAX)?.unwrap_or(0);
    Ok(TokenOptions { protocol, cache_salt, priority })
}

/// Reads `base_url`: one URL or a list.
fn read_servers(engine: &mut Fields) -> Result<Vec<BaseUrl>> {
    let one = |engine: &Fields, key: &str, value: &Value| {
        let text =
            value.as_str().ok_or_else(|| engine.invalid(key, expected("a string", value)))?;
        base_url(text).map_err(|problem| engine.invalid(key, problem))
    };
    let servers = match engine.get("base_url") {
        None => return Err(engine.invalid("base_url", "missing")),
        Some(Value::Array(urls)) => {
            let urls = urls.iter().enumerate();
            urls.map(|(index, url)| one(engine, &format!("base_url[{index}]"), url))
                .collect::<Result<Vec<_>>>()?
        }
        Some(url) => vec![one(engine, "base_url", url)?],
    };
    if servers.is_empty() || servers.len() > MAX_SERVERS {
        return Err(engine.invalid(
            "base_url",
            format!("expected 1 to {MAX_SERVERS} servers, got {}", servers.len()),
        ));
    }
    Ok(servers)
}

/// Parses a URL such as `http://localhost:8000/v1`. Errors never quote the URL, which may contain a
/// password.
fn base_url(text: &str) -> Result<BaseUrl, &'static str> {
    const SHAPE: &str = "expected a URL such as http://localhost:8000/v1";
    let (scheme, rest) = text.split_once("://").ok_or(SHAPE)?;
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "http" && scheme != "https" {
        return Err("the scheme must be http or https");
    }
    let rest = rest.trim_end_matches('/');
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if rest.contains('@') {
        return Err(
            "must not contain a user or password; name the key's variable in `api_key_env`",
        );
    }
    if rest.contains(['?', '#']) {
        return Err("must not have a query or fragment");
    }
    if host.is_empty()
        || !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte))
    {
        return Err(SHAPE);
    }
    // The colons of an IPv6 address are in brackets.
    let (name, port) = match host.rfind(':').filter(|at| !host[*at..].contains(']')) {
        Some(at) => (&host[..at], Some(&host[at + 1..])),
        None => (host, None),
    };
    let is_name = match name.strip_prefix('[') {
        // A zone id may follow the address.
        Some(rest) => rest.strip_suffix(']').is_some_and(|address| {
            address.split('%').next().is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
        }),
        None => !name.is_empty() && !name.contains([':', ']']),
    };
    if !is_name || port.is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        return Err(SHAPE);
    }
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    let (before, version) = match path.rsplit_once('/') {
        Some((before, last)) if is_version(last) => (before, last),
        _ => (path, "v1"),
    };
    let host = host.to_ascii_lowercase();
    Ok(BaseUrl {
        root: format!("{scheme}://{host}{before}"),
        version: version.to_owned(),
        host,
        address: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::CreateOptions;
    use serde_json::json;

    #[test]
    fn base_urls_may_omit_the_version() {
        let cases = [
            ("http://localhost:8000/v1", "http://localhost:8000", "v1", "localhost:8000"),
            ("http://localhost:8000", "http://localhost:8000", "v1", "localhost:8000"),
            ("HTTPS://Example.org/openai/v2//", "https://example.org/openai", "v2", "example.org"),
            ("http://[::1]:80/v1/", "http://[::1]:80", "v1", "[::1]:80"),
            ("http://[::1]/vllm", "http://[::1]/vllm", "v1", "[::1]"),
        ];
        for (text, root, version, host) in cases {
            let url = base_url(text).expect(text);
            assert_eq!((&*url.root, &*url.version, &*url.host), (root, version, host), "{text}");
        }
    }

    #[track_caller]
    fn refused(engine: Value, message: &str) {
        let error = CreateOptions::read(&json!({"chat_template": "x", "engine": engine}))
            .expect_err("refused");
        assert_eq!(error.message(), message);
    }

    #[test]
    fn errors_name_the_member() {
        let with = |url: Value| json!({"type": "openai_completions", "base_url": url});
        refused(json!({"base_url": "http://a"}), "engine.type: missing");
        refused(
            json!({"type": "native", "model": "m"}),
            "engine.model: not an option with `type` \"native\"",
        );
        refused(json!({"type": "openai_completions"}), "engine.base_url: missing");
        refused(with(json!([])), "engine.base_url: expected 1 to 64 servers, got 0");
        refused(with(json!(["http://a", 1])), "engine.base_url[1]: expected a string, got 1");
        refused(with(json!("ftp://a")), "engine.base_url: the scheme must be http or https");
        refused(with(json!("http://a/?k=1")), "engine.base_url: must not have a query or fragment");
        for url in [
            "localhost:80",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:99999",
            "http://a b",
            "http://a:b:80",
            "http://[]",
            "http://[::1",
            "http://[::1]x",
            "http://[a]:80",
            "http://a\nb",
        ] {
            refused(
                with(json!(url)),
                "engine.base_url: expected a URL such as http://localhost:8000/v1",
            );
        }
        let secret = "engine.base_url: must not contain a user or password; name the key's variable in `api_key_env`";
        refused(with(json!("http://user:secret@a/v1")), secret);
        let unknown = json!({"type": "openai_completions", "base_url": "http://a", "api_key": "x"});
        refused(unknown, "engine.api_key: unknown option; did you mean `api_key_env`?");
    }

    #[test]
    fn token_ids_need_a_vocabulary() {
        let vllm = |members: Value| {
            let mut engine = json!({"type": "vllm", "base_url": "http://a"});
            engine
                .as_object_mut()
                .expect("an object")
                .extend(members.as_object().expect("an object").clone());
            engine
        };
        refused(
            vllm(json!({})),
            "engine.type: servers of this type exchange token ids, so the option `model` is needed: a \
             GGUF file or a tokenizer.json with the vocabulary of the server's model",
        );
        let read = |engine: Value| CreateOptions::read(&json!({"model": "m", "engine": engine}));
        let engine = read(vllm(json!({"cache_salt": "s", "priority": -3}))).expect("valid").engine;
        let engine = engine.expect("an engine");
        let tokens = TokenOptions {
            protocol: TokenProtocol::Vllm,
            cache_salt: Some("s".into()),
            priority: -3,
        };
        assert_eq!((engine.kind, engine.tokens), (Some(ServerKind::Vllm), Some(tokens)));
        for (members, message) in [
            (json!({"cache_salt": ""}), "engine.cache_salt: expected 1 to 1024 characters"),
            (json!({"server": "llama"}), "engine.server: unknown option"),
        ] {
            assert_eq!(read(vllm(members)).expect_err("refused").message(), message);
        }
        let text = json!({"type": "openai_completions", "base_url": "http://a", "priority": 1});
        refused(text, "engine.priority: unknown option");
    }

    #[test]
    fn a_template_may_be_composed() {
        let engine = json!({"type": "openai_completions", "base_url": "http://a"});
        let options = CreateOptions::read(&json!({"engine": engine, "components": {}}));
        assert_eq!(options.expect("valid").template.components, Some(json!({})));
    }

    #[test]
    fn options_for_a_model_in_this_process_are_refused() {
        for (key, value) in [
            ("n_threads", json!(2)),
            ("use_mlock", json!(true)),
            ("lora", json!([])),
            ("n_parallel", json!(4)),
        ] {
            let engine = json!({"type": "openai_completions", "base_url": "http://a"});
            let error =
                CreateOptions::read(&json!({"engine": engine, "chat_template": "x", key: value}))
                    .expect_err(key);
            assert!(
                error
                    .message()
                    .starts_with(&format!("{key}: applies to a model in this process only")),
                "{}",
                error.message()
            );
        }
    }
}
