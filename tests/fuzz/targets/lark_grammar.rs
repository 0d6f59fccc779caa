//! Fuzzes the `grammar` of a request: rules, terminals, regular expressions, parameters, conditions
//! and directives of Lark. The grammar is compiled, and constrains a short reply.
#![no_main]

#[path = "../../scripted/mod.rs"]
mod scripted;

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::CreateOptions;
use llb::chat::Chat;
use llb::error::Code;
use llb_fuzz::{in_time, lark, rarely, sound};
use scripted::random::{Memory, random};
use serde_json::json;

static CHAT: LazyLock<Chat> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, random(Memory::Dense)).expect("a small file fits");
    let options = json!({ "model": path, "n_ctx": 512, "n_threads": 1, "tool_policy": "any",
        "use_mmap": false });
    let chat = Chat::create(CreateOptions::read(&options), Box::new(|_| ()));
    chat.map_err(|failure| failure.error).expect("a valid model opens")
});

#[derive(Debug)]
struct Input(String);

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        Ok(Input(if rarely(u, 32)? { u.arbitrary()? } else { lark::grammar(u)? }))
    }
}

fuzz_target!(|input: Input| {
    let Input(grammar) = input;
    if std::env::var_os("LLB_FUZZ_SHOW").is_some() {
        eprintln!("{grammar}");
    }
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let request = json!({ "messages": messages, "grammar": grammar, "seed": 1, "temperature": 1,
        "max_tokens": 6, "timeout_ms": 10_000 });
    let request = request.to_string();
    let infer = || in_time(|| CHAT.infer(&request, None));
    match infer() {
        Ok(reply) => {
            if std::env::var_os("LLB_FUZZ_SHOW").is_some() {
                eprintln!("-- compiled");
            }
            let first = json!(reply);
            // The second reply is that of the cached grammar.
            let second = json!(infer().expect("a grammar that compiled compiles again"));
            if first["finish_reason"] != "cancelled" && second["finish_reason"] != "cancelled" {
                assert_eq!(first["text"], second["text"], "the second reply equals the first");
            }
        }
        Err(error) => {
            if std::env::var_os("LLB_FUZZ_SHOW").is_some() {
                eprintln!("-- {error}");
            }
            sound(&error);
            let code = error.code();
            let expected = [Code::SchemaUnsupported, Code::InvalidRequest, Code::InferenceFailed];
            assert!(expected.contains(&code), "{error}");
        }
    }
});
