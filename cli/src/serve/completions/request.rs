//! Converts requests for completions to the library's.

use std::mem;

use serde_json::{Map, Value, json};

use crate::abi;
use crate::serve::error::ApiError;
use crate::serve::fields::{self, items, wrong};
use crate::serve::left_out::LeftOut;
use crate::serve::left_out::Reason;
use crate::serve::llama_members;
use crate::serve::model::ServedModel;

/// Members that the server reads, and members of the library that clients must not set.
const OWN: [&str; 11] = [
    "model",
    "stream",
    "n",
    "stream_format",
    "prompt",
    "echo",
    "best_of",
    "logprobs",
    "messages",
    "tools",
    "parse_special",
];
/// The most prompts of one request.
const MAX_PROMPTS: usize = 128;
/// The most replies of one request: the choices of all prompts.
const MAX_REPLIES: usize = 128;

/// The prompts before the replies, for `echo`.
pub(super) struct Echo {
    /// Empty if they are not wanted.
    pub(super) texts: Vec<String>,
    /// How many choices each prompt has.
    pub(super) n: usize,
}

impl Echo {
    /// The text before a choice.
    pub(super) fn of(&self, choice: usize) -> &str {
        self.texts.get(choice / self.n).map_or("", String::as_str)
    }
}

/// The prompts of a request: texts, or lists of tokens.
pub(super) fn prompts(body: &mut Value) -> Result<Vec<Value>, ApiError> {
    let prompts = match body.get_mut("prompt").map(Value::take).unwrap_or_default() {
        Value::Null => return Err(ApiError::invalid("prompt", "is missing")),
        Value::Array(list) if list.iter().any(|item| item.is_string() || item.is_array()) => {
            let is_prompt = |item: &Value| item.is_string() || item.is_array();
            if let Some((path, other)) = items("prompt", &list).find(|(_, item)| !is_prompt(item)) {
                return Err(wrong(&path, "a string or an array of tokens", other));
            }
            list
        }
        prompt => vec![prompt],
    };
    if prompts.len() > MAX_PROMPTS {
        let message =
            format!("has {} prompts, more than {MAX_PROMPTS}; send them in parts", prompts.len());
        return Err(ApiError::invalid("prompt", message));
    }
    Ok(prompts)
}

/// Checks how many replies a request has: `n` for each prompt.
pub(super) fn check_replies(prompts: usize, n: usize) -> Result<(), ApiError> {
    let replies = prompts * n;
    if replies <= MAX_REPLIES {
        return Ok(());
    }
    let message = format!(
        "{prompts} prompts have {replies} choices, more than {MAX_REPLIES}; send them in parts"
    );
    Err(ApiError::invalid("n", message))
}

/// The text of each prompt.
pub(super) fn texts(prompts: &[Value], model: &ServedModel) -> Result<Vec<String>, ApiError> {
    let text = |prompt: &Value| match prompt {
        Value::String(text) => Ok(text.clone()),
        tokens => {
            let request = json!({ "model_path": model.options["model"], "ids": tokens });
            let reply = abi::detokenize(&request)
                .map_err(|failure| ApiError::of_library(&failure).renamed("ids", "prompt"))?;
            Ok(reply.value("text").as_str().unwrap_or_default().to_owned())
        }
    };
    prompts.iter().map(text).collect()
}

/// The library's request without its prompt.
pub(super) fn library_request(body: &mut Value, left_out: &mut LeftOut) -> Result<Value, ApiError> {
    llama_members::rename(body);
    fields::check(body, fields::CHAT)?;
    if fields::get(body, "best_of").is_some_and(|best| Some(best) != fields::get(body, "n")) {
        return Err(ApiError::invalid("best_of", "is not supported; choose among n choices"));
    }
    fields::positive(body, "timeout_ms")?;
    let special = fields::boolean(body, "parse_special")?;
    let logprobs = match fields::get(body, "logprobs") {
        None | Some(Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(json!(0)),
        Some(count) if count.is_u64() => Some(count.clone()),
        Some(other) => return Err(wrong("logprobs", "a whole number from 0 to 20", other)),
    };
    if logprobs.is_some() && fields::boolean(body, "echo")? == Some(true) {
        left_out.note(Reason::Item, "echo", "the prompt has no log probabilities");
    }
    let mut request: Map<String, Value> = body.as_object_mut().map(mem::take).unwrap_or_default();
    request.retain(|name, _| !OWN.contains(&name.as_str()));
    if request.get("suffix").is_some_and(|suffix| *suffix == "") {
        request.shift_remove("suffix");
    }
    let mut request = Value::Object(request);
    if let Some(count) = logprobs {
        request["logprobs"] = true.into();
        request["top_logprobs"] = count;
    }
    if let Some(special) = special {
        request["parse_special_in_messages"] = special.into();
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choices_of_all_prompts_are_limited() {
        assert!(check_replies(64, 2).is_ok() && check_replies(1, 128).is_ok());
        let error = check_replies(43, 3).unwrap_err();
        assert_eq!(
            error.message,
            "n: 43 prompts have 129 choices, more than 128; send them in parts"
        );
    }

    #[test]
    fn prompts_are_texts_or_tokens() {
        let read = |prompt: Value| {
            prompts(&mut json!({ "prompt": prompt })).map_err(|error| error.message)
        };
        assert_eq!(read(json!("a")), Ok(vec![json!("a")]));
        assert_eq!(read(json!(["a", "b"])), Ok(vec![json!("a"), json!("b")]));
        assert_eq!(read(json!([1, 2])), Ok(vec![json!([1, 2])]));
        assert_eq!(read(json!([[1], [2, 3]])), Ok(vec![json!([1]), json!([2, 3])]));
        assert_eq!(read(json!(null)), Err("prompt: is missing".to_owned()));
        let mixed = "prompt[1]: expected a string or an array of tokens, not 1";
        assert_eq!(read(json!(["a", 1])), Err(mixed.to_owned()));
        let many = read(json!(vec!["a"; 129])).unwrap_err();
        assert!(many.starts_with("prompt: has 129 prompts"), "{many}");
    }
}
