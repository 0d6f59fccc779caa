//! The request of `llb_rank`.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, expected};
use super::output_control::read_timeout;
use crate::error::Result;

/// A checked request with its defaults filled in.
#[derive(Debug)]
pub struct RankRequest {
    /// The text that the documents are compared with.
    pub query: String,
    /// The documents; at least one.
    pub documents: Vec<String>,
    /// How many results to return. `None` returns all.
    pub top_n: Option<usize>,
    /// Whether each result contains its document.
    pub return_documents: bool,
    /// Whether to cut a document that is too long. Otherwise such a document is an error.
    pub truncate: bool,
    /// When to end the call without a reply.
    pub timeout: Option<Duration>,
    /// The unknown members, by path.
    pub ignored_keys: Vec<String>,
}

impl RankRequest {
    /// Reads a request from its JSON text.
    pub fn parse(request: &str) -> Result<RankRequest> {
        RankRequest::read(&super::parse(request, "request_json")?)
    }

    /// Reads a request. Errors name the JSON path of the member.
    pub fn read(request: &Value) -> Result<RankRequest> {
        let mut fields = Fields::new("", request)?;
        let query = fields.string("query")?;
        let query = query.ok_or_else(|| fields.invalid("query", "missing; expected a string"))?;
        let top_n = fields.integer("top_n", 1..=i64::from(i32::MAX))?;
        Ok(RankRequest {
            query: query.to_owned(),
            documents: read_documents(&mut fields)?,
            top_n: top_n.map(|number| number as usize),
            return_documents: fields.boolean("return_documents")?.unwrap_or(false),
            truncate: fields.boolean("truncate")?.unwrap_or(false),
            timeout: read_timeout(&mut fields)?,
            // Members of other APIs that have no meaning here are accepted and reported as ignored.
            ignored_keys: fields.ignored(),
        })
    }
}

/// Reads texts, or objects with a text as in Jina's and Cohere's APIs.
fn read_documents(fields: &mut Fields) -> Result<Vec<String>> {
    const KEY: &str = "documents";
    let items = fields.array(KEY)?;
    let items =
        items.ok_or_else(|| fields.invalid(KEY, "missing; expected an array of strings"))?;
    if items.is_empty() {
        return Err(fields.invalid(KEY, "is empty; expected at least one text"));
    }
    let text = |(index, item): (usize, &Value)| {
        let text = item.as_str().or_else(|| item.get("text")?.as_str());
        text.map(str::to_owned).ok_or_else(|| {
            let what = "a string, or an object with a string `text`";
            fields.invalid(&format!("{KEY}[{index}]"), expected(what, item))
        })
    };
    items.iter().enumerate().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(request: &str, message: &str) {
        assert_eq!(RankRequest::parse(request).expect_err("refused").message(), message);
    }

    #[test]
    fn errors_name_the_member() {
        refused("{}", "query: missing; expected a string");
        refused(r#"{"query":1}"#, "query: expected a string, got 1");
        refused(r#"{"query":"q"}"#, "documents: missing; expected an array of strings");
        refused(r#"{"query":"q","documents":"d"}"#, r#"documents: expected an array, got "d""#);
        refused(
            r#"{"query":"q","documents":[]}"#,
            "documents: is empty; expected at least one text",
        );
        refused(
            r#"{"query":"q","documents":["a",{"body":"b"}]}"#,
            r#"documents[1]: expected a string, or an object with a string `text`, got {"body":"b"}"#,
        );
        refused(
            r#"{"query":"q","documents":["a"],"top_n":0}"#,
            "top_n: must be from 1 to 2147483647, got 0",
        );
    }

    #[test]
    fn documents_may_be_objects() {
        let request =
            RankRequest::parse(r#"{"query":"q","documents":["a",{"text":"b"}],"model":"m"}"#);
        let request = request.expect("valid");
        assert_eq!(request.documents, ["a", "b"]);
        assert_eq!(request.ignored_keys, ["model"]);
    }
}
