//! Tests layers that predict further tokens: a reply is the same with and without them, and right
//! predictions save decodes.

use std::path::Path;

use llb::ffi;
use llb::gguf::GgufValue;
use serde_json::{Value, json};

use crate::abi::{Chat, Refused, ask, call};
use crate::architectures;
use crate::memory_use::allocated;
use crate::model_file::{Content, ModelFile};
use crate::predicting_models;
use crate::rollback;
use crate::scripted::{Model, PLAIN_TEMPLATE, Predicting, long_pieces, long_text};

fn open(path: &Path, members: Value) -> Result<Chat, Refused> {
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

/// The models write only the letters "a" to "d", with high probability, so that each layer drafts, is
/// sometimes right and often wrong.
#[test]
fn replies_of_random_models_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for mut model in models() {
        let output = model.tensors.iter_mut().find(|tensor| tensor.name == "output.weight");
        output.unwrap().content = Content::Rows { first: b'a'.into(), count: 4, factor: 30.0 };
        let [tokens, accepted] = compare(folder.path(), &model);
        let name = model.name;
        assert!(accepted > 20 && tokens - accepted > 20, "{name}: {accepted} of {tokens}");
    }
}

/// Of models whose layers are mostly right, most drafts are accepted.
#[test]
fn right_layers_of_each_architecture_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    for mut model in models() {
        predicting_models::right(&mut model);
        let [tokens, accepted] = compare(folder.path(), &model);
        let name = model.name;
        assert!(accepted > 200 && accepted * 10 > tokens * 9, "{name}: {accepted} of {tokens}");
    }
}

fn models() -> Vec<ModelFile> {
    let models = predicting_models::all(&architectures::all());
    assert_eq!(models.len(), predicting_models::ARCHITECTURES.len());
    models
}

/// Compares conversations with and without the layers, of one chat and of three at once. Returns the
/// numbers of drafted and of accepted tokens of the former.
fn compare(folder: &Path, model: &ModelFile) -> [u64; 2] {
    let path = rollback::write(folder, model);
    let plain = rollback::open(&path, json!({ "speculative": "off" }));
    let all = ["one", "two", "three"].map(|name| rollback::conversation(&plain, name));
    let predicted = || json!({ "speculative": { "type": "mtp", "n_max": 4 } });
    let chats = [(); 3].map(|()| rollback::open(&path, predicted()));
    let counts = all.each_ref().map(|turns| rollback::repeat(&chats[0], turns, &model.name));
    rollback::repeat_at_once(&chats, &all, &model.name);
    counts.into_iter().fold([0, 0], |sum, part| [sum[0] + part[0], sum[1] + part[1]])
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

/// The layers of each architecture, too. Hybrid models keep states for drafts.
#[test]
fn the_memory_of_each_architecture_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let path = rollback::write(folder.path(), &model);
        let options = |speculative: Value| {
            json!({ "model_path": path, "n_ctx": 256, "n_parallel": 2, "n_batch": 128,
                "speculative": speculative })
        };
        let with = |n_max: u32| options(json!({ "type": "mtp", "n_max": n_max }));
        let [one, four] = [1, 4].map(|n_max| call(ffi::llb_memory, &with(n_max)));
        let [weights, cache, compute] = allocated(&with(4));
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let number = |value: &Value| value.as_f64().unwrap();
        // The log has all buffers but that of the hidden states, 128 of the model and one of the layer
        // for each chat.
        let hidden = mib(f64::from(4 * 64 * (128 + 2)));
        let name = &model.name;
        assert!((mib(number(&four["weights"])) - weights).abs() < 0.03, "{name}: {weights} {four}");
        assert!((mib(number(&four["cache"])) - cache).abs() < 0.03, "{name}: {cache} {four}");
        let counted = mib(number(&four["compute"])) - hidden;
        assert!((counted - compute).abs() < 0.05, "{name}: {compute} {four}");
        let states = call(ffi::llb_memory, &options(json!({ "type": "ngram", "n_max": 4 })));
        let fewer = call(ffi::llb_memory, &options(json!({ "type": "ngram", "n_max": 1 })));
        let of_three = |more: &Value, less: &Value| number(&more["cache"]) - number(&less["cache"]);
        assert_eq!(of_three(&four, &one), of_three(&states, &fewer), "{name}");
        assert!(number(&four["draft"]["cache"]) > 0.0, "{name}: {four}");
    }
}

/// Each of these files is refused for "mtp" with a message that has this text.
#[test]
fn wrong_numbers_and_missing_tensors_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let refused = |part: &str, change: &dyn Fn(&mut ModelFile)| {
            let mut model = model.clone();
            change(&mut model);
            let path = rollback::write(folder.path(), &model);
            let refused = open(&path, json!({ "speculative": "mtp" })).err();
            let refused = refused.unwrap_or_else(|| panic!("{}: {part}", model.name));
            assert!(refused.message().contains(part), "{}: {part}: {refused:?}", model.name);
        };
        let predicted = format!("{}.nextn_predict_layers", model.architecture);
        let set = |count: GgufValue| {
            let predicted = predicted.clone();
            move |model: &mut ModelFile| {
                let key = model.keys.iter_mut().find(|(key, _)| *key == predicted);
                key.unwrap().1 = count.clone();
            }
        };
        refused("no layers that predict further tokens", &set(0_u32.into()));
        for count in [3_u32, 4, u32::MAX] {
            refused("nextn_predict_layers", &set(count.into()));
        }
        for name in ["eh_proj", "enorm", "hnorm"].map(|name| format!("blk.2.nextn.{name}.weight")) {
            refused(&name, &|model| model.tensors.retain(|tensor| tensor.name != name));
        }
    }
}
