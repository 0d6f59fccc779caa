//! Which architectures `context_overflow` "shift" refuses, and why. (tests/integration has the
//! replies of those that it takes.)

use serde_json::json;

use crate::abi::Chat;
use crate::architectures;

#[test]
fn a_context_that_cannot_be_moved_is_refused_with_the_reason() {
    const POSITIONS: &str = "llama.cpp cannot move the tokens of this model to other positions";
    const INDEXER: &str = "the keys of this model's indexer cannot be moved to other positions";
    const STATE: &str = "this model keeps one state for all tokens";
    let models = architectures::all();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for (architecture, reason) in [
        ("llama", None),
        ("gemma3", None),
        // Several positions for each token (M-RoPE, by `llama_model_rope_type` of llama.cpp).
        ("qwen2vl", Some(POSITIONS)),
        ("qwen3vl", Some(POSITIONS)),
        ("qwen3vlmoe", Some(POSITIONS)),
        ("deepseek32", Some(INDEXER)),
        ("glm-dsa", Some(INDEXER)),
        ("mamba", Some(STATE)),
        ("jamba", Some(STATE)),
        ("lfm2", Some(STATE)),
    ] {
        let model = models.iter().find(|model| model.name == architecture);
        let model = model.unwrap_or_else(|| panic!("{architecture} is not in the table"));
        std::fs::write(&path, model.to_bytes()).unwrap();
        let open = |overflow: &str| {
            let options = json!({ "model": path, "n_ctx": 256, "n_threads": 1, "tool_policy": "any", "context_overflow": overflow });
            Chat::open_with(&options)
        };
        match reason {
            None => drop(open("shift").unwrap_or_else(|no| panic!("{architecture}: {no:?}"))),
            Some(reason) => {
                let refused = open("shift").err().unwrap_or_else(|| panic!("{architecture}"));
                let (code, message) = (refused.code(), refused.message());
                assert_eq!(code, "INVALID_REQUEST", "{architecture}: {message}");
                let names = message.starts_with("context_overflow: ") && message.contains(reason);
                assert!(names, "{architecture}: {message}");
                assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
                // Without a shift the model is taken.
                drop(open("error").unwrap_or_else(|no| panic!("{architecture}: {no:?}")));
            }
        }
    }
}
