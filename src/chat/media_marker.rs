//! The content part that stands for media while a template is rendered.

use std::borrow::Cow;

use serde_json::Value;

/// The text that a media part has while the template is rendered.
pub(super) const MARKER: &str = "<__media__>";
/// The type of such a part. Templates that take typed content get it as text.
pub(super) const MARKER_TYPE: &str = "media_marker";
/// Gives templates that take typed content the markers as text.
pub(super) fn typed_markers(messages: &[Value]) -> Cow<'_, [Value]> {
    let is_marker = |part: &Value| part["type"] == MARKER_TYPE;
    let has_marker = |message: &Value| {
        message["content"].as_array().is_some_and(|parts| parts.iter().any(is_marker))
    };
    if !messages.iter().any(has_marker) {
        return Cow::Borrowed(messages);
    }
    let mut messages = messages.to_vec();
    let contents = messages.iter_mut().filter_map(|message| message["content"].as_array_mut());
    for part in contents.flatten().filter(|part| is_marker(part)) {
        part["type"] = "text".into();
    }
    Cow::Owned(messages)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn markers_become_text_where_content_is_typed() {
        let messages = [json!({ "role": "user", "content": [
            { "type": MARKER_TYPE, "text": MARKER }, { "type": "text", "text": "a" }] })];
        let typed = typed_markers(&messages);
        assert_eq!(typed[0]["content"][0], json!({ "type": "text", "text": MARKER }));
        let plain = [json!({ "role": "user", "content": "a" })];
        assert!(matches!(typed_markers(&plain), Cow::Borrowed(_)));
    }
}
