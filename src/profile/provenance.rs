//! What a header states about the origin of a model: its makers, its licence, its base models.
//!
//! Headers are untrusted. A value of another type, or longer than any name or address, is omitted.

use serde_json::{Map, Value};

use crate::gguf::{GgufValue, ModelHeader};

/// The keys below `general.` in the GGUF specification, and the corresponding members of
/// `llb_model_info`.
const TEXTS: [(&str, &str); 9] = [
    ("author", "author"),
    ("organization", "organization"),
    ("basename", "basename"),
    ("finetune", "finetune"),
    ("size_label", "size_label"),
    ("license.name", "license_name"),
    ("license.link", "license_link"),
    ("url", "url"),
    ("repo_url", "repo_url"),
];
/// The keys of a base model or data set, below `general.base_model.0.`.
const SOURCE_TEXTS: [&str; 8] =
    ["name", "author", "version", "organization", "description", "url", "doi", "repo_url"];
/// The maximum number of base models or data sets to list. Merged models name up to ten.
const MAX_SOURCES: usize = 16;
const MAX_TEXT_BYTES: usize = 1_024;

/// The members of `llb_model_info` about the origin of the model. They are null where the header
/// has no value.
pub(super) fn members(header: &ModelHeader) -> Map<String, Value> {
    let mut members = Map::new();
    for (key, member) in TEXTS {
        members.insert(member.to_owned(), text(header, &format!("general.{key}")).into());
    }
    for name in ["tags", "languages"] {
        members.insert(name.to_owned(), words(header, &format!("general.{name}")).into());
    }
    // Converters of 2024 wrote a list of names.
    let named = words(header, "general.datasets").into_iter().flatten();
    let named: Vec<Value> = named
        .map(|name| Value::Object([("name".to_owned(), name)].into_iter().collect()))
        .collect();
    let datasets = sources(header, "dataset").or(Some(named).filter(|named| !named.is_empty()));
    members.insert("base_models".to_owned(), sources(header, "base_model").into());
    members.insert("datasets".to_owned(), datasets.into());
    members
}

/// The base models or data sets that the header describes.
fn sources(header: &ModelHeader, kind: &str) -> Option<Vec<Value>> {
    let described = (0..MAX_SOURCES).filter_map(|id| {
        let member = |name: &&str| {
            let text = text(header, &format!("general.{kind}.{id}.{name}"))?;
            Some(((*name).to_owned(), text.into()))
        };
        let members: Map<String, Value> = SOURCE_TEXTS.iter().filter_map(member).collect();
        (!members.is_empty()).then_some(Value::Object(members))
    });
    let described: Vec<Value> = described.collect();
    (!described.is_empty()).then_some(described)
}

fn text<'a>(header: &'a ModelHeader, key: &str) -> Option<&'a str> {
    header.get(key)?.as_str().filter(|text| text.len() <= MAX_TEXT_BYTES)
}

/// A list of strings. A single string counts as a list of one.
fn words(header: &ModelHeader, key: &str) -> Option<Vec<Value>> {
    match header.get(key)? {
        GgufValue::Array(_, items) => {
            Some(items.iter().filter_map(GgufValue::as_str).map(Value::from).collect())
        }
        _ => Some(vec![text(header, key)?.into()]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Cursor;

    use serde_json::json;

    use super::*;
    use crate::gguf::gguf_writer::GgufWriter;

    fn header(writer: GgufWriter) -> ModelHeader {
        let bytes = writer.metadata("general.architecture", "llama").to_bytes();
        ModelHeader::read(Cursor::new(&bytes), bytes.len() as u64).unwrap()
    }

    #[track_caller]
    fn check(writer: GgufWriter, expected: &Value) {
        let members = members(&header(writer));
        let expected = expected.as_object().unwrap();
        for (name, value) in &members {
            assert_eq!(value, expected.get(name).unwrap_or(&Value::Null), "{name}");
        }
        assert!(expected.keys().all(|name| members.contains_key(name)));
    }

    fn texts(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn what_the_header_states_is_shown() {
        let file = GgufWriter::new()
            .metadata("general.author", "Ann")
            .metadata("general.organization", "Example")
            .metadata("general.size_label", "7B")
            .metadata("general.license.link", "https://example.org/licence")
            .metadata("general.repo_url", "https://example.org/model")
            .metadata("general.tags", texts(&["chat", "text-generation"]))
            .metadata("general.languages", texts(&["en", "de"]))
            .metadata("general.base_model.count", 2_u32)
            .metadata("general.base_model.0.name", "Base")
            .metadata("general.base_model.0.organization", "Example")
            .metadata("general.base_model.0.repo_url", "https://example.org/base")
            .metadata("general.base_model.1.name", "Other")
            .metadata("general.dataset.0.name", "Corpus");
        let expected = json!({
            "author": "Ann", "organization": "Example", "size_label": "7B",
            "license_link": "https://example.org/licence", "repo_url": "https://example.org/model",
            "tags": ["chat", "text-generation"], "languages": ["en", "de"],
            "base_models": [
                { "name": "Base", "organization": "Example", "repo_url": "https://example.org/base" },
                { "name": "Other" },
            ],
            "datasets": [{ "name": "Corpus" }],
        });
        check(file, &expected);
    }

    #[test]
    fn older_forms_are_read() {
        let file = GgufWriter::new()
            .metadata("general.datasets", texts(&["a/b", "c"]))
            .metadata("general.tags", "chat");
        check(file, &json!({ "datasets": [{ "name": "a/b" }, { "name": "c" }], "tags": ["chat"] }));
        check(GgufWriter::new(), &json!({}));
    }

    #[test]
    fn values_of_a_hostile_header_are_left_out() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let file = GgufWriter::new()
            .metadata("general.author", 7_u32)
            .metadata("general.organization", &*long)
            .metadata("general.tags", vec![1_u32, 2])
            .metadata("general.languages", 1.5_f32)
            .metadata("general.base_model.count", u64::MAX)
            .metadata("general.base_model.0.name", vec![1_u8])
            .metadata("general.base_model.99999.name", "far");
        check(file, &json!({ "tags": [] }));
    }

    #[test]
    fn a_million_tags_are_cut() {
        let tags: Vec<String> = (0..1_000_000).map(|i| format!("tag {i}")).collect();
        let tags = [vec!["y".repeat(300)], tags].concat();
        let members = members(&header(GgufWriter::new().metadata("general.tags", tags)));
        let tags = members["tags"].as_array().unwrap();
        assert_eq!((tags.len(), &tags[0]), (63, &json!("tag 0")));
        let most = GgufWriter::new();
        let most = (0..2 * MAX_SOURCES).fold(most, |file, id| {
            SOURCE_TEXTS.iter().fold(file, |file, name| {
                file.metadata(format!("general.base_model.{id}.{name}"), "z".repeat(MAX_TEXT_BYTES))
            })
        });
        assert_eq!(super::members(&header(most))["base_models"].as_array().unwrap().len(), 16);
    }
}
