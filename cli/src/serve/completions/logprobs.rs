//! Log probabilities as OpenAI's older API has them: parallel lists, with the place of each token in
//! the text.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::json;

/// The lists for the entries of the library. `offset` is the number of characters of the text so
/// far, which grows.
pub(super) fn lists(logprobs: &Bytes, offset: &mut usize) -> Value {
    let entries = json::value(logprobs).unwrap_or_default();
    let (mut tokens, mut values) = (Vec::new(), Vec::new());
    let (mut tops, mut offsets) = (Vec::new(), Vec::new());
    for entry in entries["content"].as_array().into_iter().flatten() {
        let token = entry["token"].as_str().unwrap_or_default();
        offsets.push(*offset);
        *offset += token.chars().count();
        tokens.push(token.to_owned());
        values.push(entry["logprob"].clone());
        let alternatives = entry["top_logprobs"].as_array().into_iter().flatten();
        let top = alternatives
            .filter_map(|each| Some((each["token"].as_str()?.to_owned(), each["logprob"].clone())));
        tops.push(Value::Object(top.collect::<Map<_, _>>()));
    }
    json!({
        "tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_places() {
        let entries = json!({ "content": [
            { "token": "né", "logprob": -0.5, "top_logprobs": [{ "token": "né", "logprob": -0.5 }] },
            { "token": "e", "logprob": -1, "top_logprobs": [] },
        ] });
        let mut offset = 3;
        let lists = lists(&Bytes::from(entries.to_string()), &mut offset);
        let expected = json!({
            "tokens": ["né", "e"], "token_logprobs": [-0.5, -1],
            "top_logprobs": [{ "né": -0.5 }, {}], "text_offset": [3, 5],
        });
        assert_eq!((lists, offset), (expected, 6));
    }
}
