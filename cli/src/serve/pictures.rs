//! Pictures and sounds of a request: content parts of the library for a model that takes pictures, texts for
//! others, and errors about pictures with the paths of the client's request.

use serde_json::{Value, json};

use super::error::ApiError;
use super::left_out::{LeftOut, Reason};
use super::parts;
use crate::failure::Failure;

/// The member of a converted part that has its path in the client's request.
const CLIENT_PATH: &str = "client_path";

/// The part for a picture. `path` is where its URL or its data is in the client's request.
pub(crate) fn picture(url: &str, path: &str, left_out: &mut LeftOut) -> Value {
    if left_out.takes_pictures() {
        return json!({ "type": "image_url", "image_url": { "url": url }, CLIENT_PATH: path });
    }
    left_out.note(Reason::Replaced, path, "the model takes text");
    json!({ "type": "text", "text": parts::image(url) })
}

/// The part for a sound in base64. `path` is where it is in the client's request.
pub(crate) fn sound(data: &str, path: &str) -> Value {
    json!({ "type": "input_audio", "input_audio": { "data": data }, CLIENT_PATH: path })
}

/// Whether there is a picture or a sound among content parts.
pub(crate) fn has_media(parts: &[Value]) -> bool {
    parts.iter().any(|part| part["type"] == "image_url" || part["type"] == "input_audio")
}

/// Calls a function for each part of the messages that has been converted, with its path.
fn for_converted(messages: &mut Value, mut each: impl FnMut(String, String)) {
    let messages = messages.as_array_mut().into_iter().flatten();
    for (index, message) in messages.enumerate() {
        let parts = message.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten();
        for (number, part) in parts.enumerate() {
            let path = part.as_object_mut().and_then(|members| members.shift_remove(CLIENT_PATH));
            if let Some(Value::String(path)) = path {
                each(format!("messages[{index}].content[{number}]"), path);
            }
        }
    }
}

/// Removes the paths of an earlier request from its messages.
pub(crate) fn forget_paths(messages: &mut Value) {
    for_converted(messages, |_, _| ());
}

/// Where the pictures of a request of the library are in the client's.
#[derive(Default)]
pub(crate) struct PicturePaths(Vec<(String, String)>);

impl PicturePaths {
    /// Takes the paths out of the messages.
    pub(crate) fn take(request: &mut Value) -> PicturePaths {
        let mut paths = PicturePaths::default();
        if let Some(messages) = request.get_mut("messages") {
            for_converted(messages, |library, client| paths.0.push((library, client)));
        }
        paths
    }

    /// The error for a failure of the library.
    pub(crate) fn error(&self, failure: &Failure) -> ApiError {
        let error = ApiError::of_library(failure);
        let of_part = self.0.iter().find_map(|(library, client)| {
            let rest = error.message.strip_prefix(library.as_str())?;
            let problem = rest.starts_with(['.', ':']).then(|| rest.split_once(": "))??.1;
            Some((client, format!("{client}: {problem}")))
        });
        match of_part {
            Some((path, message)) => ApiError { param: Some(path.clone()), message, ..error },
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::left_out::TakenMedia;

    #[test]
    fn errors_have_the_paths_of_the_client() {
        let mut left_out = LeftOut::new(TakenMedia { pictures: true, sound: false });
        let part = picture("data:,", "input[3].image_url", &mut left_out);
        let text = json!({ "type": "text", "text": "a" });
        let message = json!({ "role": "user", "content": [text, part] });
        let mut request = json!({ "messages": [{ "role": "system", "content": "s" }, message] });
        let paths = PicturePaths::take(&mut request);
        let part = json!({ "type": "image_url", "image_url": { "url": "data:," } });
        assert_eq!(request["messages"][1]["content"], json!([text, part]));
        let check = |message: &str, param: &str, expected: &str| {
            let failure =
                Failure::of_library(&json!({ "code": "INVALID_REQUEST", "message": message }));
            let error = paths.error(&failure);
            assert_eq!((error.param.as_deref(), error.message.as_str()), (Some(param), expected));
        };
        check(
            "messages[1].content[1].image_url.url: not a picture",
            "input[3].image_url",
            "input[3].image_url: not a picture",
        );
        check("messages[1].content[1]: no", "input[3].image_url", "input[3].image_url: no");
        let other = "messages[1].content[0]: no";
        check(other, "messages[1].content[0]", other);
    }
}
