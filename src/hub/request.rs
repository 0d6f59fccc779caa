//! What `llb_model_fetch` takes.

use super::name;
use crate::api::{self, Fields};
use crate::error::Result;

/// The variable of the token where the request names none.
pub(super) const TOKEN_ENV: &str = "HF_TOKEN";

/// The request, its shapes checked.
#[derive(Debug)]
pub(super) struct FetchRequest {
    pub(super) id: ModelId,
    /// A branch, a tag or a commit; None is `main`.
    pub(super) revision: Option<String>,
    /// Exactly this file.
    pub(super) filename: Option<String>,
    /// Exactly this quantisation; None is the default order.
    pub(super) quant: Option<String>,
    /// In place of the cache that the environment names.
    pub(super) cache_dir: Option<String>,
    pub(super) token_env: String,
    pub(super) endpoint_env: String,
    pub(super) offline: bool,
    pub(super) require_tools: bool,
    pub(super) dry_run: bool,
    pub(super) ignored_keys: Vec<String>,
}

/// A model on the hub.
#[derive(Debug)]
pub(super) struct ModelId {
    /// As it was sent; by this a fetch is cancelled.
    pub(super) text: String,
    /// `org/name`, or a bare `name` of the hub's first days.
    pub(super) repository: String,
}

impl FetchRequest {
    /// # Errors
    /// `INVALID_REQUEST` with the path of the member.
    pub(super) fn parse(text: &str) -> Result<FetchRequest> {
        let value = api::parse(text, "request_json")?;
        let mut fields = Fields::new("", &value)?;
        let Some(id) = fields.string("id")? else {
            return Err(fields.invalid(
                "id",
                "is missing; it is a model of the hub, like \"org/name\" or \"org/name:Q8_0\"",
            ));
        };
        let (repository, short) =
            id.split_once(':').map_or((id, None), |(repository, quant)| (repository, Some(quant)));
        let checked = match short {
            // An address, or a path.
            Some(short) if short.contains('/') => Err("is not the id of a model"),
            _ => name::check_repository(repository),
        };
        if let Err(problem) = checked {
            return Err(fields.invalid(
                "id",
                format_args!("{id:?} {problem}; it is like \"org/name\" or \"org/name:Q8_0\""),
            ));
        }
        let quant = fields.string("quant")?;
        let path = if short.is_some() { "id" } else { "quant" };
        if let (Some(short), Some(quant)) = (short, quant)
            && !short.eq_ignore_ascii_case(quant)
        {
            return Err(fields.invalid(
                "quant",
                format_args!("is {quant:?}, but the id says {short:?}; give one of them"),
            ));
        }
        let quant = short.or(quant);
        if let Some(quant) = quant
            && (quant.is_empty()
                || quant.len() > 32
                || !quant.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        {
            return Err(fields.invalid(
                path,
                format_args!("{quant:?} is no quantisation; it is like \"Q4_K_M\""),
            ));
        }
        let revision = fields.string("revision")?;
        if let Some(revision) = revision
            && let Err(problem) = name::check_revision(revision)
        {
            return Err(fields.invalid("revision", format_args!("{revision:?} {problem}")));
        }
        let filename = fields.string("filename")?;
        if let Some(filename) = filename
            && let Err(problem) = name::check_file(filename)
        {
            return Err(fields.invalid("filename", format_args!("{filename:?} {problem}")));
        }
        let cache_dir = fields.string("cache_dir")?;
        if cache_dir.is_some_and(|folder| folder.is_empty() || folder.contains('\0')) {
            return Err(fields.invalid("cache_dir", "is not the path of a folder"));
        }
        let mut variable = |key: &'static str, default: &str| -> Result<String> {
            let name = fields.string(key)?.unwrap_or(default);
            let plain =
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            // Not quoted: somebody may have put the token itself here.
            if plain {
                Ok(name.to_owned())
            } else {
                Err(fields.invalid(key, "is not the name of an environment variable"))
            }
        };
        let token_env = variable("token_env", TOKEN_ENV)?;
        let endpoint_env = variable("endpoint_env", "HF_ENDPOINT")?;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let request = FetchRequest {
            id: ModelId { text: id.to_owned(), repository: repository.to_owned() },
            revision: owned(revision),
            filename: owned(filename),
            quant: owned(quant),
            cache_dir: owned(cache_dir),
            token_env,
            endpoint_env,
            offline: fields.boolean("offline")?.unwrap_or(false),
            require_tools: fields.boolean("require_tools")?.unwrap_or(true),
            dry_run: fields.boolean("dry_run")?.unwrap_or(false),
            ignored_keys: fields.ignored(),
        };
        Ok(request)
    }

    /// The branch, tag or commit that is meant.
    pub(super) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_a_default() {
        let request = FetchRequest::parse(
            r#"{"id": "o/n:q8_0", "quant": "Q8_0", "filename": null, "odd": 1}"#,
        )
        .expect("a request");
        assert_eq!(
            (&*request.id.text, &*request.id.repository, request.quant.as_deref()),
            ("o/n:q8_0", "o/n", Some("q8_0"))
        );
        assert_eq!(
            (request.revision(), &*request.token_env, &*request.endpoint_env),
            ("main", "HF_TOKEN", "HF_ENDPOINT")
        );
        assert_eq!((request.offline, request.require_tools, request.dry_run), (false, true, false));
        assert_eq!(request.ignored_keys, ["odd"]);
    }

    #[test]
    fn errors_name_the_member() {
        let cases = [
            ("[]", "request"),
            ("{}", "id"),
            (r#"{"id": 7}"#, "id"),
            (r#"{"id": "a/b/c"}"#, "id"),
            (r#"{"id": "../b"}"#, "id"),
            (r#"{"id": "a/b:"}"#, "id"),
            (r#"{"id": "a/b:../x"}"#, "id"),
            (r#"{"id": "https://hub.example/a/b"}"#, "id"),
            (r#"{"id": "a/b:Q8_0", "quant": "Q4_0"}"#, "quant"),
            (r#"{"id": "a/b", "quant": "Q4 0"}"#, "quant"),
            (r#"{"id": "a/b", "revision": "../main"}"#, "revision"),
            (r#"{"id": "a/b", "filename": "../x.gguf"}"#, "filename"),
            (r#"{"id": "a/b", "filename": "/x.gguf"}"#, "filename"),
            (r#"{"id": "a/b", "cache_dir": ""}"#, "cache_dir"),
            (r#"{"id": "a/b", "token_env": "hf_-secret"}"#, "token_env"),
            (r#"{"id": "a/b", "endpoint_env": "http://x"}"#, "endpoint_env"),
            (r#"{"id": "a/b", "offline": "yes"}"#, "offline"),
        ];
        for (request, path) in cases {
            let error = FetchRequest::parse(request).expect_err(request);
            let named = error.message().split(':').next();
            assert_eq!(
                (error.code(), named),
                (crate::error::Code::InvalidRequest, Some(path)),
                "{request}: {error}"
            );
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
