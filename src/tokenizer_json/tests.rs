#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::engine::{Interrupt, TokenId, Vocab};

/// Files and ids of Python's tokenizers (scripts/tokenizer-ids.py).
const CASES: &str = include_str!("../../tests/data/tokenizers.json");

fn vocab_of(document: &Value, config: &TokenizerConfiguration) -> Result<TokenizerVocab> {
    TokenizerVocab::new(TokenizerDocument::parse(document.to_string().as_bytes())?, config)
}

fn tokens(vocab: &TokenizerVocab, text: &str, parse_special: bool) -> Vec<TokenId> {
    vocab.tokenize(text, parse_special, &Interrupt::default()).unwrap()
}

fn cases() -> Vec<Value> {
    let cases: Value = crate::json::value(CASES).unwrap();
    cases["cases"].as_array().unwrap().clone()
}

#[test]
fn ids_are_those_of_the_package_for_python() {
    for case in cases() {
        let vocab = vocab_of(&case["tokenizer"], &TokenizerConfiguration::default()).unwrap();
        for text in case["texts"].as_array().unwrap() {
            let expected: Vec<TokenId> = text["ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| TokenId::try_from(id.as_i64().unwrap()).unwrap())
                .collect();
            let text = text["text"].as_str().unwrap();
            assert_eq!(tokens(&vocab, text, true), expected, "{}: {text:?}", case["name"]);
        }
    }
}

#[test]
fn pieces_are_the_text() {
    // Without normalizers, a text is that of its tokens. The words of two cases are another text.
    let is_kept = |case: &&Value| {
        case["tokenizer"]["normalizer"].is_null()
            && case["name"] != "roberta"
            && case["name"] != "others"
    };
    for case in cases().iter().filter(is_kept) {
        let vocab = vocab_of(&case["tokenizer"], &TokenizerConfiguration::default()).unwrap();
        for text in case["texts"].as_array().unwrap() {
            let text = text["text"].as_str().unwrap();
            // These tokens take whitespace around them.
            if !["<pad>", "<tool>"].iter().any(|added| text.contains(added)) {
                let ids = tokens(&vocab, text, false);
                let bytes: Vec<u8> = ids.iter().flat_map(|id| vocab.piece(*id, true)).collect();
                assert_eq!(String::from_utf8_lossy(&bytes), text, "{}", case["name"]);
            }
        }
    }
}

#[test]
fn text_of_a_request_has_no_reserved_tokens() {
    for case in cases() {
        let vocab = vocab_of(&case["tokenizer"], &TokenizerConfiguration::default()).unwrap();
        let special = vocab.special_tokens();
        let start = tokens(&vocab, "<s>", true);
        assert_eq!(start.len(), 1);
        for text in ["<s>", "a<s><e>", "<<s>s>", "<s", " <e> <tool> <unk>"] {
            let prompt = format!("<s>{text}<e>");
            let plain = std::iter::once(3..3 + text.len()).collect();
            let tokenized =
                special.tokenize(&vocab, &prompt, plain, None, &Interrupt::default()).unwrap();
            let reserved =
                tokenized.tokens.iter().filter(|id| special.reserved(**id).is_some()).count();
            assert_eq!(reserved, 2, "{}: {prompt:?}", case["name"]);
        }
    }
}

/// A vocabulary of letters, whose merges make `<s>`.
fn small() -> Value {
    json!({
        "added_tokens": [{ "id": 7, "content": "<s>", "special": true }],
        "model": {
            "type": "BPE",
            "vocab": { "<": 0, "s": 1, ">": 2, "a": 3, "<s": 4, "aa": 5, "<e": 6, "<s>": 7, "e": 8,
                "<e>": 9 },
            "merges": ["< s", ["<s", ">"], "a a", "< e", "<e >"],
        },
    })
}

#[test]
fn merges_make_no_reserved_token() {
    let config = TokenizerConfiguration { eos_token: Some("<e>".into()), ..Default::default() };
    let vocab = vocab_of(&small(), &config).unwrap();
    assert_eq!(tokens(&vocab, "aa<s>aa", true), [5, 7, 5]);
    for text in ["aa<s>aa", "<e>", "<s><e>"] {
        let ids = tokens(&vocab, text, false);
        assert!(ids.iter().all(|id| ![7, 9].contains(id)), "{text}: {ids:?}");
        let bytes: Vec<u8> = ids.iter().flat_map(|id| vocab.piece(*id, true)).collect();
        assert_eq!(bytes, text.as_bytes());
    }
    assert_eq!((vocab.is_end_of_generation(9), vocab.is_end_of_generation(7)), (true, false));
    // A control token prints nothing.
    assert_eq!((vocab.piece(7, false), vocab.piece(7, true)), (Vec::new(), b"<s>".to_vec()));
    assert_eq!(vocab.control_tokens(), ["<s>"]);
}

/// The error for a file with another value at this place.
#[track_caller]
fn refused(pointer: &str, value: Value, says: &str) {
    let mut document = small();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[name] = value;
    let error = vocab_of(&document, &TokenizerConfiguration::default()).err().expect(says);
    assert_eq!(error.code(), Code::ModelInvalid);
    assert!(error.message().contains(says), "{}", error.message());
}

#[test]
fn a_broken_file_is_refused() {
    for (text, says) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "not a JSON object"),
        (r#"[null, null, null, null, [], {"vocab": {"a": 1}, "merges": []}]"#, "not a JSON object"),
        ("{}", "missing field `model`"),
        (r#"{"model": {"vocab": {"a": -1}}}"#, "invalid value"),
        (r#"{"model": {"vocab": {"a": 1e9}}}"#, "invalid type"),
        (r#"{"model": {"vocab": {"a": 1}, "merges": ["a"]}}"#, "a merge is not two tokens"),
        (r#"{"model": {"vocab": {"a": 1}, "merges": [["a"]]}}"#, "a merge is not two tokens"),
        (r#"{"model": {"vocab": {"a": 1}, "merges": [["a", "a", "a"]]}}"#, "not two tokens"),
        (r#"{"added_tokens": [{"id": 1}], "model": {}}"#, "missing field `content`"),
    ] {
        let error = TokenizerDocument::parse(text.as_bytes()).err().expect(text);
        assert!(error.message().contains(says), "{text}: {}", error.message());
    }
    let nested = format!(r#"{{"normalizer": {}"#, "[".repeat(100_000));
    let many = format!("[{}0]", "0,".repeat(4 << 20));
    for (text, says) in [(nested, "recursion limit"), (many, "too many values")] {
        let error = TokenizerDocument::parse(text.as_bytes()).err().expect(says);
        assert!(error.message().contains(says), "{}", error.message());
    }
}

#[test]
fn a_vocabulary_that_contradicts_itself_is_refused() {
    refused("/model/vocab", json!({}), "no vocabulary");
    refused("/model/vocab", json!([["a", 0.5]]), "no vocabulary");
    refused("/model/vocab", json!({ "a": 4_000_000_000_u32 }), "the id 4000000000 is too large");
    refused("/model/vocab", json!({ "a": 1, "b": 1 }), "\"a\" and \"b\" both have the id 1");
    let twice = r#"{"model": {"type": "BPE", "vocab": {"a": 1, "a": 2}, "merges": []}}"#;
    let document = TokenizerDocument::parse(twice.as_bytes()).unwrap();
    let error = TokenizerVocab::new(document, &TokenizerConfiguration::default()).err().unwrap();
    assert_eq!(error.message(), "the vocabulary has the token \"a\" twice");
    refused("/model/merges", json!(["a x"]), "x");
    refused("/model/merges", json!(["aa aa"]), "the merge of \"aa\" and \"aa\" makes no token");
    let added = |id: u32| json!([{ "id": id, "content": "x" }]);
    refused("/added_tokens", added(3), "has the id 3, and its place in the vocabulary is 10");
    refused("/added_tokens", added(u32::MAX), "has the id 4294967295");
    let again = json!([{ "id": 10, "content": "x" }, { "id": 10, "content": "x" }]);
    refused("/added_tokens", again, "the added token \"x\" is there twice");
}

#[test]
fn other_pipelines_are_refused() {
    refused("/model/type", json!("Unigram"), "its model is of type \"Unigram\"");
    // That of WordLevel.
    refused("/model", json!({ "vocab": { "a": 0 }, "unk_token": "a" }), "its model is of type");
    refused("/model/dropout", json!(0.1), "dropout");
    refused("/model/end_of_word_suffix", json!("</w>"), "end_of_word_suffix");
    refused("/model/continuing_subword_prefix", json!("##"), "continuing_subword_prefix");
    refused("/normalizer", json!({ "type": "Nmt" }), "normalizer has the component \"Nmt\"");
    refused("/normalizer", json!([]), "without a type");
    refused("/normalizer", json!({ "type": "Sequence" }), "a sequence without a list");
    let replace =
        |text: &str| json!({ "type": "Replace", "pattern": { "String": "a" }, "content": text });
    refused("/normalizer", replace(&"b".repeat(17)), "too long");
    let twice = json!({ "type": "Sequence", "normalizers": [replace("bbbbb"), replace("ccccc")] });
    refused("/normalizer", twice, "too long");
    let regex = json!({ "type": "Replace", "pattern": { "Regex": "a" }, "content": "b" });
    refused("/normalizer", regex, "regular expressions");
    let many: Vec<Value> = (0..65).map(|_| json!({ "type": "NFC" })).collect();
    refused("/normalizer", json!({ "type": "Sequence", "normalizers": many }), "too many");
    refused("/normalizer", json!({ "type": "Prepend" }), "prepend");
    let split = |pattern: &str| {
        json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated",
            "invert": false })
    };
    refused("/pre_tokenizer", split("("), "pre_tokenizer: llb does not run the expression \"(\"");
    refused("/pre_tokenizer", split(r"(?:(a+)+\1)$b"), "backreferences");
    let mut odd = split("a");
    odd["behavior"] = "x".into();
    refused("/pre_tokenizer", odd, "unknown variant `x`");
    refused("/pre_tokenizer", json!({ "type": "BertPreTokenizer" }), "BertPreTokenizer");
    refused("/decoder", json!({ "type": "WordPiece" }), "WordPiece");
    refused("/decoder", replace("b"), "decoder has the component \"Replace\"");
    let word = json!([{ "id": 10, "content": "x", "single_word": true }]);
    refused("/added_tokens", word, "as a word only");
}

#[test]
fn a_token_that_the_normalizer_changes_is_refused() {
    let mut document = small();
    document["normalizer"] = json!({ "type": "Prepend", "prepend": "a" });
    assert!(vocab_of(&document, &TokenizerConfiguration::default()).is_ok());
    document["added_tokens"][0]["normalized"] = true.into();
    let error = vocab_of(&document, &TokenizerConfiguration::default()).err().unwrap();
    assert!(error.message().contains("in normalized text"), "{}", error.message());
}

/// Every value of a small file, replaced by values of other types, and every beginning of its text.
#[test]
fn no_file_is_a_panic() {
    fn places(value: &Value, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        match value {
            Value::Object(members) => {
                let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
                members.iter().for_each(|(name, value)| {
                    places(value, &format!("{path}/{}", escaped(name)), all);
                });
            }
            Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| {
                places(value, &format!("{path}/{index}"), all);
            }),
            _ => {}
        }
    }
    let mut document = small();
    document["normalizer"] = json!({ "type": "Sequence", "normalizers": [{ "type": "NFC" },
        { "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" }] });
    document["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": "a" }, "behavior": "Isolated", "invert": true },
        { "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "first",
            "split": false },
        { "type": "ByteLevel", "add_prefix_space": true, "use_regex": true,
            "trim_offsets": false }] });
    document["post_processor"] = json!({ "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }] });
    let mut all = Vec::new();
    places(&document, "", &mut all);
    let run = |text: &str| {
        let document = TokenizerDocument::parse(text.as_bytes())?;
        let vocab = TokenizerVocab::new(document, &TokenizerConfiguration::default())?;
        vocab.tokenize("<s>a aa\u{2581}\u{FB01}\0 b", true, &Interrupt::default())
    };
    let mut broken = 0;
    for place in &all {
        for value in [
            json!(null),
            json!(-1),
            json!(4e9),
            json!(""),
            json!("\u{2581}"),
            json!([]),
            json!({}),
            json!(true),
            json!([[]]),
        ] {
            let mut document = document.clone();
            *document.pointer_mut(place).unwrap() = value;
            broken += usize::from(run(&document.to_string()).is_err());
        }
    }
    assert!(broken > all.len(), "{broken} of {}", all.len());
    let text = document.to_string();
    assert!(run(&text).is_ok());
    for (end, _) in text.char_indices() {
        assert!(run(&text[..end]).is_err());
    }
}

#[test]
fn the_files_beside_it_are_read() {
    let held = tempfile::tempdir().unwrap();
    let folder = held.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("tokenizer.json", &small().to_string());
    let read = || TokenizerFiles::read(folder);
    let files = read().unwrap();
    assert_eq!((files.template, files.eos_token), (None, None));
    write(
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "default", "template": "A"},
                {"name": "tool_use", "template": "B"}],
            "eos_token": {"content": "<e>"}, "bos_token": "<s>", "add_bos_token": true}"#,
    );
    write("generation_config.json", r#"{"eos_token_id": [5]}"#);
    let files = read().unwrap();
    assert_eq!(
        (files.template.as_deref(), files.tool_use_template.as_deref()),
        (Some("A"), Some("B"))
    );
    let ends: Vec<TokenId> = (0..10).filter(|id| files.vocab.is_end_of_generation(*id)).collect();
    assert_eq!((ends, files.vocab.required_bos()), (vec![5, 9], Some(7)));
    // The same files have the same vocabulary.
    let again = TokenizerFiles::read(&folder.join("tokenizer.json")).unwrap();
    assert_eq!(again.template.as_deref(), Some("A"));
    write("chat_template.jinja", "C");
    assert_eq!(read().unwrap().template.as_deref(), Some("C"));
    write("tokenizer_config.json", "{");
    let error = read().err().unwrap();
    assert!(error.message().contains("tokenizer_config.json: EOF"), "{}", error.message());
    write("tokenizer.json", "{");
    write("tokenizer_config.json", "{}");
    let error = read().err().unwrap();
    assert!(error.message().contains("tokenizer.json: EOF"), "{}", error.message());
    fs::remove_file(folder.join("tokenizer.json")).unwrap();
    assert_eq!(read().err().unwrap().code(), Code::ModelNotFound);
}
