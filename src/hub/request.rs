//! The request of `llb_model_fetch`.

use std::fmt::Display;

use serde_json::Value;

use super::name;
use crate::api::{self, Fields};
use crate::error::Result;

/// The default name of the variable that contains the token.
pub(super) const TOKEN_ENV: &str = "HF_TOKEN";

/// A checked request.
#[derive(Debug)]
pub(super) struct FetchRequest {
    pub(super) id: ModelId,
    /// A branch, tag or commit; `None` is `main`.
    pub(super) revision: Option<String>,
    /// The exact name of the file to fetch, if the request names one.
    pub(super) filename: Option<String>,
    /// The quantization; `None` tries the default order.
    pub(super) quant: Option<String>,
    /// The projector to fetch with the model.
    pub(super) projector: WantedProjector,
    /// The cache folder, which replaces the environment's.
    pub(super) cache_dir: Option<String>,
    pub(super) token_env: String,
    pub(super) endpoint_env: String,
    pub(super) offline: bool,
    pub(super) require_tools: bool,
    pub(super) dry_run: bool,
    /// An existing folder for copies of the headers; only with `dry_run`.
    pub(super) header_dir: Option<String>,
    pub(super) ignored_keys: Vec<String>,
}

/// Which projector is fetched with a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WantedProjector {
    /// The one of the repository, if it has one.
    Auto,
    None,
    /// The file of this name.
    Named(String),
}

/// The id of a model on the hub.
#[derive(Debug)]
pub(super) struct ModelId {
    /// The id as written in the request. It identifies the fetch when it is cancelled.
    pub(super) text: String,
    /// The repository: `org/name`, or a bare `name` for the oldest models.
    pub(super) repository: String,
}

impl FetchRequest {
    /// # Errors
    /// `INVALID_REQUEST` with the path of the member.
    pub(super) fn parse(text: &str) -> Result<FetchRequest> {
        FetchRequest::read(&api::parse(text, "request_json")?)
    }

    /// Like [`FetchRequest::parse`], for a request that is not text.
    pub(super) fn read(request: &Value) -> Result<FetchRequest> {
        let mut fields = Fields::new("", request)?;
        let (id, quant) = read_id(&mut fields)?;
        let revision = read_checked(&mut fields, "revision", name::check_revision)?;
        let filename = read_checked(&mut fields, "filename", name::check_file)?;
        let projector = match read_checked(&mut fields, "projector", name::check_file)? {
            None => WantedProjector::Auto,
            Some(name) if name == "auto" => WantedProjector::Auto,
            Some(name) if name == "none" => WantedProjector::None,
            Some(name) => WantedProjector::Named(name),
        };
        let cache_dir = read_folder(&mut fields, "cache_dir")?;
        let dry_run = fields.boolean("dry_run")?.unwrap_or(false);
        let header_dir = read_folder(&mut fields, "header_dir")?;
        if header_dir.is_some() && !dry_run {
            return Err(fields.invalid("header_dir", "is only for `dry_run`; set it to true"));
        }
        Ok(FetchRequest {
            id,
            revision,
            filename,
            quant,
            projector,
            cache_dir,
            token_env: read_variable_name(&mut fields, "token_env", TOKEN_ENV)?,
            endpoint_env: read_variable_name(&mut fields, "endpoint_env", "HF_ENDPOINT")?,
            offline: fields.boolean("offline")?.unwrap_or(false),
            require_tools: fields.boolean("require_tools")?.unwrap_or(true),
            dry_run,
            header_dir,
            ignored_keys: fields.ignored(),
        })
    }

    /// The requested branch, tag or commit, or the default.
    pub(super) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

/// Reads the model and the quantization, which is in `id` or in `quant`.
fn read_id(fields: &mut Fields) -> Result<(ModelId, Option<String>)> {
    const EXAMPLE: &str = "it looks like \"org/name\" or \"org/name:Q8_0\"";
    let Some(id) = fields.string("id")? else {
        return Err(fields.invalid("id", format_args!("missing: the model on the hub; {EXAMPLE}")));
    };
    let (repository, id_quant) =
        id.split_once(':').map_or((id, None), |(repository, quant)| (repository, Some(quant)));
    let checked = match id_quant {
        // The id is a URL or a path.
        Some(quant) if quant.contains('/') => Err("is not a model id"),
        _ => name::check_repository(repository),
    };
    if let Err(problem) = checked {
        return Err(fields.invalid("id", format_args!("{id:?} {problem}; {EXAMPLE}")));
    }
    let quant = fields.string("quant")?;
    if let (Some(id_quant), Some(quant)) = (id_quant, quant)
        && !id_quant.eq_ignore_ascii_case(quant)
    {
        let problem = format!("is {quant:?}, but the id has {id_quant:?}; remove one of them");
        return Err(fields.invalid("quant", problem));
    }
    let path = if id_quant.is_some() { "id" } else { "quant" };
    let quant = id_quant.or(quant);
    if let Some(quant) = quant
        && (quant.is_empty() || quant.len() > 32 || !is_word(quant))
    {
        let problem = format!("{quant:?} is not a quantisation; it looks like \"Q4_K_M\"");
        return Err(fields.invalid(path, problem));
    }
    let id = ModelId { text: id.to_owned(), repository: repository.to_owned() };
    Ok((id, quant.map(str::to_owned)))
}

fn read_checked<E: Display>(
    fields: &mut Fields,
    key: &'static str,
    check: impl Fn(&str) -> Result<(), E>,
) -> Result<Option<String>> {
    let Some(text) = fields.string(key)? else { return Ok(None) };
    check(text).map_err(|problem| fields.invalid(key, format_args!("{text:?} {problem}")))?;
    Ok(Some(text.to_owned()))
}

fn read_folder(fields: &mut Fields, key: &'static str) -> Result<Option<String>> {
    let folder = fields.string(key)?;
    if folder.is_some_and(|folder| folder.is_empty() || folder.contains('\0')) {
        return Err(fields.invalid(key, "is not the path of a folder"));
    }
    Ok(folder.map(str::to_owned))
}

fn read_variable_name(fields: &mut Fields, key: &'static str, default: &str) -> Result<String> {
    let name = fields.string(key)?.unwrap_or(default);
    // The value is not quoted, because it may be the token itself.
    match !name.is_empty() && is_word(name) {
        true => Ok(name.to_owned()),
        false => Err(fields.invalid(key, "is not the name of an environment variable")),
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_members_have_defaults() {
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
            (r#"{"id": "a/b", "projector": "../x.gguf"}"#, "projector"),
            (r#"{"id": "a/b", "projector": true}"#, "projector"),
            (r#"{"id": "a/b", "cache_dir": ""}"#, "cache_dir"),
            (r#"{"id": "a/b", "token_env": "hf_-secret"}"#, "token_env"),
            (r#"{"id": "a/b", "endpoint_env": "http://x"}"#, "endpoint_env"),
            (r#"{"id": "a/b", "offline": "yes"}"#, "offline"),
        ];
        for (request, path) in cases {
            let error = FetchRequest::parse(request).expect_err(request);
            let member = error.message().split(':').next();
            assert_eq!(
                (error.code(), member),
                (crate::error::Code::InvalidRequest, Some(path)),
                "{request}: {error}"
            );
            assert!(!error.message().contains("secret"), "{error}");
        }
    }
}
