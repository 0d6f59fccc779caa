//! Content that a model of text cannot take, as text that says what it was: `[image: 640x480 png]`.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use super::fields::brief;

/// The beginning of an image that is searched for its size. It must be a multiple of 4.
const MAX_HEADER: usize = 1 << 18;
/// A longer text without a space is data, not text.
const MAX_WORD: usize = 400;
/// Members that say nothing to a model.
const HIDDEN: [&str; 10] = [
    "annotations",
    "cache_control",
    "call_id",
    "caller",
    "encrypted_content",
    "fingerprint",
    "id",
    "signature",
    "status",
    "type",
];
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An image by its URL, which may be a data URL.
pub(crate) fn image(url: &str) -> String {
    match data_url(url) {
        Some((media_type, data)) => image_data(media_type, data),
        None => "[image]".to_owned(),
    }
}

/// An image in base64.
pub(crate) fn image_data(media_type: &str, data: &str) -> String {
    let header = data.get(..data.len().min(MAX_HEADER)).unwrap_or_default();
    let header = BASE64.decode(header).unwrap_or_default();
    let named = subtype(media_type);
    match imagesize::blob_size(&header) {
        Ok(size) => labelled("image", format!("{}x{} {named}", size.width, size.height).trim_end()),
        Err(_) => labelled("image", &named),
    }
}

/// Sound. `format` is "wav", "mp3" or another name.
pub(crate) fn sound(format: &str) -> String {
    labelled("audio", &subtype(format))
}

/// The format of a sound in base64, by its first bytes. `None` if they are not those of a sound.
pub(crate) fn sound_format(data: &str) -> Option<&'static str> {
    let head = BASE64.decode(data.get(..16)?).ok()?;
    match head.as_slice() {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E'] => Some("wav"),
        [b'f', b'L', b'a', b'C', ..] => Some("flac"),
        [b'I', b'D', b'3', ..] => Some("mp3"),
        [0xff, second, ..] if *second >= 0xe0 => Some("mp3"),
        _ => None,
    }
}

/// A file: its text, if it is a text in base64, after its name.
pub(crate) fn file(name: &str, media_type: &str, data: &str) -> String {
    let is_text = media_type.starts_with("text/") || media_type == "application/json";
    let text = BASE64.decode(data).ok().filter(|_| is_text).map(String::from_utf8);
    let label = labelled("file", &brief(name));
    match text {
        Some(Ok(text)) => format!("{label}\n{text}"),
        _ => label,
    }
}

/// The media type and the base64 of a data URL.
pub(crate) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    Some((media_type.split(';').next().unwrap_or_default(), data))
}

/// An item or block that only another service understands: its kind, and what can be read in it.
pub(crate) fn other(kind: &str, item: &Value) -> String {
    match readable(item) {
        Some(text) => labelled(&brief(kind), &text.to_string()),
        None => labelled(&brief(kind), ""),
    }
}

/// The value without data, identifiers and empty members.
fn readable(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) if text.len() > MAX_WORD && !text.contains(char::is_whitespace) => None,
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(readable).collect();
            (!items.is_empty()).then(|| items.into())
        }
        Value::Object(members) => {
            let shown = members.iter().filter(|(name, _)| !HIDDEN.contains(&name.as_str()));
            let members: Map<String, Value> =
                shown.filter_map(|(name, value)| Some((name.clone(), readable(value)?))).collect();
            (!members.is_empty()).then(|| members.into())
        }
        other => Some(other.clone()),
    }
}

fn labelled(kind: &str, text: &str) -> String {
    if text.is_empty() { format!("[{kind}]") } else { format!("[{kind}: {text}]") }
}

/// `png` of `image/png`.
fn subtype(media_type: &str) -> String {
    let name = media_type.rsplit('/').next().unwrap_or_default();
    brief(name).chars().filter(|c| c.is_ascii_alphanumeric() || "+.-".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The header of a PNG of 640 by 480 pixels.
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAIAAAA=";

    #[test]
    fn an_image_has_its_size() {
        assert_eq!(image(&format!("data:image/png;base64,{PNG}")), "[image: 640x480 png]");
        assert_eq!(image_data("image/jpeg", "iVBORw0KGgo="), "[image: jpeg]");
        assert_eq!(image_data("image/png\n", "é"), "[image: png]");
        assert_eq!(image("https://example.com/a.png"), "[image]");
    }

    #[test]
    fn a_sound_is_recognized() {
        for (bytes, format) in [
            (&b"RIFF\0\0\0\0WAVEfmt "[..], Some("wav")),
            (b"RIFF\0\0\0\0WEBPVP8 ", None),
            (b"fLaC\0\0\0\x22\x10\0\x10\0", Some("flac")),
            (b"ID3\x04\0\0\0\0\0\0\0\0", Some("mp3")),
            (b"\xff\xfb\x90\0\0\0\0\0\0\0\0\0", Some("mp3")),
            (b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01", None),
            (b"\x89PNG\r\n\x1a\n\0\0\0\r", None),
            (b"fLaC", None),
        ] {
            assert_eq!(sound_format(&BASE64.encode(bytes)), format, "{bytes:?}");
        }
        assert_eq!(sound_format("éééééééééééé"), None);
    }

    #[test]
    fn a_text_file_is_read() {
        let (media_type, data) = data_url("data:text/plain;charset=utf-8;base64,aMOpbA==").unwrap();
        assert_eq!(file("a.txt", media_type, data), "[file: a.txt]\nhél");
        assert_eq!(file("a.pdf", "application/pdf", "JVBERi0="), "[file: a.pdf]");
        assert_eq!(file("", "text/plain", "/w=="), "[file]", "not UTF-8");
    }

    #[test]
    fn other_items_show_what_can_be_read() {
        let item = json!({
            "type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": { "type": "search", "query": "rust", "sources": [] }, "data": "A".repeat(500),
        });
        assert_eq!(other("web_search", &item), r#"[web_search: {"action":{"query":"rust"}}]"#);
        assert_eq!(other("x", &json!({ "type": "x", "encrypted_content": "abc" })), "[x]");
    }
}
