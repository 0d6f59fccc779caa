//! Tests broken files. Each gives an error code, and nothing crashes.

use std::path::Path;

use serde_json::json;

use crate::abi::{Chat, ask, model_info, scripted_model};
use crate::scripted::{Model, PLAIN_TEMPLATE};

/// An xorshift64 generator. The mutations are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Flips bits of the header, sets bytes to significant values, or truncates the file.
fn mutate(original: &[u8], header: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = original.to_vec();
    if random.below(6) == 0 {
        bytes.truncate(random.below(bytes.len()));
        return bytes;
    }
    for _ in 0..[1, 1, 2, 4, 16][random.below(5)] {
        let at = random.below(header);
        bytes[at] = match random.below(4) {
            0 => 0,
            1 => 0xFF,
            2 => random.below(256) as u8,
            _ => bytes[at] ^ 1 << random.below(8),
        };
    }
    bytes
}

#[test]
fn two_thousand_broken_headers_are_survived() {
    let original = std::fs::read(scripted_model("text.gguf")).unwrap();
    // The bytes before this contain metadata, vocabulary and tensor table; the rest is tensor data.
    let header = original.windows(11).position(|name| name == b"output.weig").unwrap() + 64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.gguf");
    let path = path.to_str().unwrap();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..2_000 {
        std::fs::write(Path::new(path), mutate(&original, header, &mut random)).unwrap();
        let info = model_info(path);
        assert_eq!(info["type"], "model_info");
        assert!(info["error"].is_null() || info["message"].is_string());
        match Chat::open_with(
            &json!({ "model": path, "n_ctx": 128, "n_threads": 1, "tool_policy": "any" }),
        ) {
            Ok(chat) => {
                opened += 1;
                let reply = chat.infer(&ask(json!({ "max_tokens": 2 })));
                assert!(
                    reply["type"] == "assistant_text" || reply["error"]["code"].is_string(),
                    "{reply}"
                );
            }
            Err(failure) => {
                refused += 1;
                assert!(
                    failure.events.last().unwrap().starts_with("create_failure:"),
                    "{failure:?}"
                );
            }
        }
    }
    assert!(
        refused > 200 && opened > 50,
        "mutations must give both refused and opened files: {refused} refused, {opened} opened"
    );
}

#[test]
fn an_assertion_of_llama_cpp_is_an_error() {
    // llama.cpp asserts that no two tokens have the same text. Here "0" becomes a second "1".
    let mut bytes = std::fs::read(scripted_model("text.gguf")).unwrap();
    let zero =
        bytes.windows(18).position(|w| w == b"\x01\0\0\0\0\0\0\x000\x01\0\0\0\0\0\0\x001").unwrap();
    bytes[zero + 8] = b'1';
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twins.gguf");
    std::fs::write(&path, bytes).unwrap();
    let refused = Chat::open_with(&json!({ "model": path })).err().expect("refused");
    assert_eq!(refused.events.last().map(String::as_str), Some("create_failure:load_model"));
    assert!(refused.message().contains("GGML_ASSERT"), "{}", refused.message());
    // Both the process and the library continue to work.
    assert_eq!(
        Chat::open(&scripted_model("text.gguf")).infer(&ask(json!({})))["finish_reason"],
        "stop"
    );
}

/// llama.cpp logs why a file cannot be loaded.
#[test]
fn a_failed_load_has_the_reason() {
    let original = std::fs::read(scripted_model("text.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.gguf");
    let check = |from: &[u8], to: &[u8], reason: &str| {
        let mut bytes = original.clone();
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        std::fs::write(&path, bytes).unwrap();
        let refused = Chat::open_with(&json!({ "model": path })).err().expect("refused");
        let message = refused.message();
        assert_eq!(refused.code(), "MODEL_INVALID", "{message}");
        assert_eq!(
            message,
            format!("llama.cpp could not load the model: error loading model: {reason}")
        );
    };
    check(
        b"blk.0.attn_q.weight",
        b"blk.0.attn_x.weight",
        "check_tensor_dims: tensor 'blk.0.attn_q.weight' not found",
    );
    check(
        b"\x05\0\0\0\0\0\0\0gpt-2",
        b"\x05\0\0\0\0\0\0\0gpt-9",
        "error loading model vocabulary: unknown pre-tokenizer type: 'gpt-9'",
    );
}

#[test]
fn an_exception_of_llama_cpp_is_an_error() {
    // A SentencePiece vocabulary without byte tokens. llama.cpp looks up the token for a space,
    // which no token spells, and throws std::out_of_range.
    let mut model = Model::new("no bytes", [b"ab", b"cd"], Some(PLAIN_TEMPLATE));
    model.tokenizer = "llama";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no_bytes.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let chat = Chat::open_with(&json!({ "model": path, "tool_policy": "any" })).unwrap();
    for _ in 0..3 {
        let reply = chat.infer(&ask(json!({})));
        assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains("no token for \" \""), "{message}");
    }
}
