//! Tests layers that predict further tokens: a reply is the same with and without them, and right
//! predictions save decodes.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Refused, ask, call};
use crate::architectures;
use crate::memory_use::allocated;
use crate::model_file::Content;
use crate::predicting_models;
use crate::scripted::{Model, PLAIN_TEMPLATE, Predicting, long_pieces, long_text};

fn open(path: &std::path::Path, members: Value) -> Result<Chat, Refused> {
    let mut options = json!({ "model": path, "n_ctx": 1024, "tool_policy": "any" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options)
}

/// The numbers of drafted and of accepted tokens.
fn drafted(reply: &Value) -> [u64; 2] {
    ["draft_n", "draft_n_accepted"].map(|name| reply["timings"][name].as_u64().unwrap_or_default())
}

fn long(predicting: Predicting) -> Model {
    let name = "Counts with a second head";
    Model { predicting, ..Model::new(name, long_pieces(), Some(PLAIN_TEMPLATE)) }
}

#[test]
fn right_layers_save_decodes_and_wrong_ones_become_rare() {
    let folder = tempfile::tempdir().unwrap();
    let [right, wrong] = [Predicting::Right, Predicting::Wrong].map(|predicting| {
        let path = folder.path().join(format!("{predicting:?}.gguf"));
        std::fs::write(&path, long(predicting).to_bytes()).unwrap();
        path
    });
    let request = ask(json!({ "max_tokens": 400 }));
    let reply = |path, members| {
        let reply = open(path, members).unwrap().infer(&request);
        assert_eq!(reply["text"], long_text(), "{reply}");
        drafted(&reply)
    };
    assert_eq!(reply(&right, json!({ "speculative": "off" })), [0, 0]);
    // Three tokens of each four are drafted.
    let [tokens, accepted] = reply(&right, json!({ "speculative": "mtp" }));
    assert!(accepted >= 220 && tokens <= accepted + 3, "{accepted} of {tokens}");
    let one = json!({ "speculative": { "type": "mtp", "n_max": 1 } });
    let [tokens, accepted] = reply(&right, one);
    assert!((148..=152).contains(&accepted) && tokens <= accepted + 1, "{accepted} of {tokens}");
    // Not by default, and the text has no repetition of four tokens.
    assert_eq!(reply(&right, json!({})), [0, 0]);
    let [tokens, accepted] = reply(&wrong, json!({ "speculative": "mtp" }));
    assert!(accepted == 0 && (1..40).contains(&tokens), "{accepted} of {tokens}");
}

/// Several turns of several chats, whose prompts share beginnings. The models only write the letters
/// "a" to "d", with high probability, so that each layer drafts, is sometimes right and often wrong.
#[test]
fn replies_of_random_models_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let models = predicting_models::all(&architectures::all());
    assert_eq!(models.len(), predicting_models::ARCHITECTURES.len());
    for mut model in models {
        let output = model.tensors.iter_mut().find(|tensor| tensor.name == "output.weight");
        output.unwrap().content = Content::Rows { first: b'a'.into(), count: 4, factor: 30.0 };
        let path = folder.path().join(format!("{}.gguf", model.name));
        std::fs::write(&path, model.to_bytes()).unwrap();
        let options = |speculative: Value| {
            json!({ "speculative": speculative, "n_ctx": 480, "n_parallel": 2, "n_batch": 64,
                "n_threads": 1 })
        };
        let [plain, predicted] =
            [json!("off"), json!({ "type": "mtp", "n_max": 4 })].map(|choice| {
                open(&path, options(choice))
                    .unwrap_or_else(|error| panic!("{}: {error:?}", model.name))
            });
        let [mut tokens, mut accepted] = [0, 0];
        for seed in 0..6 {
            let question = "Why? ".repeat(5 + 8 * (seed % 3));
            let sampling = match seed % 2 {
                0 => json!({ "temperature": 0 }),
                _ => json!({ "temperature": 1.5, "seed": seed }),
            };
            let mut request = json!({ "max_tokens": 40,
                "messages": [{ "role": "user", "content": question }] });
            request.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
            for _ in 0..2 {
                let [reply, same] = [&plain, &predicted].map(|chat| chat.infer(&request));
                assert_ne!(reply["type"], "error", "{}: {reply}", model.name);
                assert_eq!(reply["text"], same["text"], "{} {request}", model.name);
                let [more, right] = drafted(&same);
                (tokens, accepted) = (tokens + more, accepted + right);
                let messages = request["messages"].as_array_mut().unwrap();
                messages.push(json!({ "role": "assistant", "content": reply["text"] }));
                messages.push(json!({ "role": "user", "content": "And?" }));
            }
        }
        let name = model.name;
        assert!(accepted > 0 && tokens - accepted > 20, "{name}: {accepted} of {tokens}");
    }
}

#[test]
fn a_file_without_such_layers_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.gguf");
    std::fs::write(&path, long(Predicting::None).to_bytes()).unwrap();
    let refused = open(&path, json!({ "speculative": "mtp" })).err().unwrap();
    assert_eq!(refused.code(), "INVALID_REQUEST");
    assert_eq!(
        refused.message(),
        "speculative: \"mtp\" cannot be used: the model has no layers that predict further tokens; \
         use \"auto\" or \"off\""
    );
}

#[test]
fn their_memory_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("right.gguf");
    std::fs::write(&path, long(Predicting::Right).to_bytes()).unwrap();
    let options = |choice: &str| {
        json!({ "model_path": path, "n_ctx": 1024, "n_parallel": 1, "n_batch": 512,
            "speculative": choice })
    };
    let [off, mtp, auto] =
        ["off", "mtp", "auto"].map(|choice| call(ffi::llb_memory, &options(choice)));
    let number = |value: &Value| value.as_u64().unwrap();
    let parts = ["weights", "cache", "compute", "total"];
    for part in parts {
        assert_eq!(off[part], auto[part], "{part}");
    }
    assert!(off.get("draft").is_none(), "{off}");
    let [weights, cache, compute, total] =
        parts.map(|part| [number(&mtp["draft"][part]), number(&mtp[part]) - number(&off[part])]);
    // Vectors have 320 numbers. The layer has seven matrices with 32 of them, a matrix for twice as
    // many inputs, four norms of vectors, and two of heads. llama.cpp loads the last three of the
    // seven matrices with "off" too.
    let layer = 4 * (7 * 32 * 320 + 2 * 320 * 320 + 4 * 320 + 2 * 32);
    assert_eq!(weights, [layer, layer - 4 * 3 * 32 * 320]);
    // One more layer with one head of 32 keys and 32 values of two bytes.
    assert_eq!(cache, [1024 * 64 * 2; 2]);
    assert_eq!(compute[0], compute[1]);
    assert_eq!(
        total,
        [weights, cache, compute]
            .into_iter()
            .fold([0, 0], |sum, part| { [sum[0] + part[0], sum[1] + part[1]] })
    );
    // The log has all buffers but that of the hidden states, 512 of the model and one of the layer.
    let [.., known_cache, known] = allocated(&options("mtp"));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let hidden = mib(4 * 320 * (512 + 1));
    assert!((mib(number(&mtp["cache"])) - known_cache).abs() < 0.03, "{known_cache}: {mtp}");
    assert!((mib(number(&mtp["compute"])) - known - hidden).abs() < 0.03, "{known}: {mtp}");
}
