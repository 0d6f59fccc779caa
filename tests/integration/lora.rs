//! Tests the option `lora` and the member `lora` of a request. The adapters are made for the
//! scripted model, and change its reply in a known way.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::abi::{Chat, ask, scripted_model};
use crate::scripted::{Adapter, TEXT, TEXT_PIECES, text_model};

fn spelt(indices: impl IntoIterator<Item = usize>) -> String {
    let pieces: Vec<&[u8]> = indices.into_iter().map(|index| TEXT_PIECES[index]).collect();
    String::from_utf8(pieces.concat()).unwrap()
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn open(lora: Value) -> Result<Chat, crate::abi::Refused> {
    Chat::open_with(&json!({ "model": scripted_model("text.gguf"), "n_ctx": 512, "lora": lora }))
}

#[test]
fn adapters_change_the_weights_of_their_chat_only() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "first.gguf", &text_model().adapter(3, 8).to_bytes());
    let second = write(&folder, "second.gguf", &text_model().adapter(8, 11).to_bytes());
    let cases = [
        (json!([]), TEXT.to_owned()),
        (json!([first]), spelt((0..4).chain(8..12))),
        (json!([{ "path": first }]), spelt((0..4).chain(8..12))),
        (
            json!([{ "path": first, "scale": 0.6 }, { "path": second, "scale": 0.4 }]),
            spelt((0..4).chain(8..12)),
        ),
        (json!([{ "path": first, "scale": 0.4 }]), TEXT.to_owned()),
        (json!([{ "path": first, "scale": 0 }]), TEXT.to_owned()),
        (json!([first, second]), spelt((0..4).chain([8, 11]))),
        (json!([second]), spelt((0..9).chain([11]))),
    ];
    // All chats are open at once. Chats on the same file with other adapters do not share its
    // context.
    let chats: Vec<Chat> = cases
        .iter()
        .map(|(lora, _)| open(lora.clone()).unwrap_or_else(|e| panic!("{lora}: {e:?}")))
        .collect();
    for _ in 0..2 {
        for ((lora, text), chat) in cases.iter().zip(&chats) {
            assert_eq!(chat.infer(&ask(json!({})))["text"], *text, "{lora}");
        }
    }
}

#[test]
fn an_unsuitable_adapter_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let good = || text_model().adapter(3, 8);
    let mut truncated = good().to_bytes();
    truncated.truncate(truncated.len() - 64);
    let mut header_only = good().to_bytes();
    header_only.truncate(100);
    let noise: Vec<u8> =
        (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let extra = |name, shape: &[u64], number, bytes| {
        Some((name, shape.to_vec(), number, vec![0_u8; bytes]))
    };
    let (n_embd, n_vocab) = (good().a.len(), good().b.len());
    let files: [(&str, Vec<u8>); 17] = [
        ("general.type", Adapter { kind: "model", ..good() }.to_bytes()),
        ("but the model is", Adapter { architecture: "qwen2", ..good() }.to_bytes()),
        ("adapter.lora.alpha", Adapter { alpha: None, ..good() }.to_bytes()),
        ("adapter.lora.alpha", Adapter { alpha: Some(f32::NAN), ..good() }.to_bytes()),
        ("incorrect shape", Adapter { a: vec![0.0; 2 * n_embd], ..good() }.to_bytes()),
        ("incorrect shape", Adapter { b: vec![0.0; 7], ..good() }.to_bytes()),
        ("does not exist", Adapter { weight: "blk.7.attn_q.weight", ..good() }.to_bytes()),
        (
            "has an ending in its middle",
            Adapter { weight: "blk.0.attn.lora_a_q.weight", ..good() }.to_bytes(),
        ),
        (
            "unexpected suffix",
            Adapter { extra: extra("output.weight", &[32], 0, 128), ..good() }.to_bytes(),
        ),
        (
            "missing one component",
            Adapter { extra: extra("blk.0.attn_q.weight.lora_a", &[32], 0, 128), ..good() }
                .to_bytes(),
        ),
        (
            "\"blk.0.attn_q.weight.lora_b\" has the rank 1025, more than 1024",
            Adapter { extra: extra("blk.0.attn_q.weight.lora_b", &[1025], 0, 4100), ..good() }
                .to_bytes(),
        ),
        (
            "missing one component",
            Adapter { extra: extra("blk.0.attn_q.weight.lora_b", &[1024], 0, 4096), ..good() }
                .to_bytes(),
        ),
        (
            "must be F32",
            Adapter { extra: extra("blk.0.attn_q.weight.lora_a", &[32], 26, 128), ..good() }
                .to_bytes(),
        ),
        // The extents are right, but there is a third dimension, which the model's weight does not
        // have. ggml would fail an assertion.
        (
            "the last two extents of \"blk.0.ffn_up.weight\" in the model are [1, 1]",
            Adapter {
                weight: "blk.0.ffn_up.weight",
                a: vec![0.0; n_embd],
                b: vec![0.0; 32],
                extra: None,
                ..good()
            }
            .stacked(),
        ),
        ("cut short", truncated),
        ("may be cut off", header_only),
        ("", noise),
    ];
    for (says, bytes) in files {
        let path = write(&folder, "bad.gguf", &bytes);
        let refused =
            open(json!([write(&folder, "good.gguf", &good().to_bytes()), path])).err().expect(says);
        assert_eq!(refused.code(), "INVALID_REQUEST", "{says}: {refused:?}");
        assert!(
            refused.message().starts_with("lora") && refused.message().contains(says),
            "{says}: {refused:?}"
        );
        assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options", "{says}");
    }
    assert_eq!(n_vocab, good().b.len());
    // An adapter that is off is checked too, because a request may switch it on.
    let stacked = Adapter {
        weight: "blk.0.ffn_up.weight",
        a: vec![0.0; n_embd],
        b: vec![0.0; 32],
        extra: None,
        ..good()
    };
    let path = write(&folder, "off.gguf", &stacked.stacked());
    let refused = open(json!([{ "path": path, "scale": 0 }])).err().expect("refused");
    assert!(refused.message().contains("has the shape [32, 1, 2, 1]"), "{refused:?}");
    let missing = open(json!([{ "path": "/nowhere/a.gguf" }])).err().expect("refused");
    assert!(missing.message().starts_with("lora[0].path: /nowhere/a.gguf: "), "{missing:?}");
    assert_eq!(
        open(json!([scripted_model("text.gguf")])).err().expect("refused").code(),
        "INVALID_REQUEST"
    );
    // The model itself is unaffected.
    assert_eq!(
        open(json!([])).unwrap_or_else(|e| panic!("{e:?}")).infer(&ask(json!({})))["text"],
        TEXT
    );
}

/// Opens a chat with these adapters and these additional options.
fn open_with(lora: &Value, members: Value) -> Chat {
    let mut options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 600, "lora": lora });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// The values of `isolation` to test.
fn isolations() -> Vec<&'static str> {
    if cfg!(target_os = "linux") { vec!["none", "process"] } else { vec!["none"] }
}

fn cached(reply: &Value) -> u64 {
    let cached = &reply["usage"]["prompt_tokens_details"]["cached_tokens"];
    cached.as_u64().unwrap_or_else(|| panic!("{reply}"))
}

/// Values of `lora` for requests to a chat with the adapters 3 to 8 and 8 to 11. Each has the reply
/// that a chat with only these adapters would give.
fn switches() -> [(Value, String); 8] {
    let scales = |first: f64, second: f64| json!([{ "id": 0, "scale": first }, { "id": 1, "scale": second }]);
    [
        (json!([]), TEXT.to_owned()),
        (json!([{ "id": 0, "scale": 1 }]), spelt((0..4).chain(8..12))),
        (json!([{ "id": 1, "scale": 1 }]), spelt((0..9).chain([11]))),
        (scales(1.0, 1.0), spelt((0..4).chain([8, 11]))),
        (json!([{ "id": 1, "scale": 1 }, { "id": 0, "scale": 1 }]), spelt((0..4).chain([8, 11]))),
        (scales(0.6, 0.4), spelt((0..4).chain(8..12))),
        (scales(0.0, 0.0), TEXT.to_owned()),
        (scales(0.4, 1.0), spelt((0..9).chain([11]))),
    ]
}

#[test]
fn a_request_switches_the_adapters_of_one_loaded_model() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "first.gguf", &text_model().adapter(3, 8).to_bytes());
    let second = write(&folder, "second.gguf", &text_model().adapter(8, 11).to_bytes());
    for isolation in isolations() {
        let members = || json!({ "isolation": isolation });
        let own = open_with(&json!([first, { "path": second, "scale": 0 }]), members());
        let other = open_with(&json!([{ "path": first, "scale": 0 }, second]), members());
        let of_own = spelt((0..4).chain(8..12));
        let of_other = spelt((0..9).chain([11]));
        for (lora, text) in switches() {
            for chat in [&own, &other] {
                let reply = chat.infer(&ask(json!({ "lora": lora })));
                assert_eq!(reply["text"], text, "{isolation} {lora}: {reply}");
                assert_eq!(reply.get("ignored_keys"), None, "{reply}");
            }
            // A request without `lora` uses the adapters of its chat.
            for (chat, text) in [(&own, &of_own), (&other, &of_other)] {
                assert_eq!(chat.infer(&ask(json!({})))["text"], *text, "{isolation} {lora}");
                assert_eq!(chat.infer(&ask(json!({ "lora": null })))["text"], *text);
            }
        }
    }
}

#[test]
fn requests_with_other_adapters_run_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "first.gguf", &text_model().adapter(3, 8).to_bytes());
    let second = write(&folder, "second.gguf", &text_model().adapter(8, 11).to_bytes());
    let lora = json!([first, second]);
    for options in [json!({}), json!({ "n_parallel": 2 }), json!({ "speculative": "ngram" })] {
        let cases = switches();
        let chats: Vec<Chat> = cases.iter().map(|_| open_with(&lora, options.clone())).collect();
        std::thread::scope(|scope| {
            for (shift, chat) in chats.iter().enumerate() {
                let cases = &cases;
                scope.spawn(move || {
                    for round in 0..2 * cases.len() {
                        let (lora, text) = &cases[(round + shift) % cases.len()];
                        let reply = chat.infer(&ask(json!({ "lora": lora })));
                        assert_eq!(reply["text"], *text, "{lora}: {reply}");
                    }
                });
            }
        });
    }
}

#[test]
fn a_cached_prefix_belongs_to_its_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "first.gguf", &text_model().adapter(3, 8).to_bytes());
    let state = folder.path().join("state");
    let members = json!({ "n_parallel": 4, "state_file": state });
    let chat = open_with(&json!([first]), members.clone());
    let with = |scale: f64| ask(json!({ "lora": [{ "id": 0, "scale": scale }] }));
    let text = |scale: f64| if scale > 0.5 { spelt((0..4).chain(8..12)) } else { TEXT.to_owned() };
    let prompt = chat.infer(&with(1.0))["usage"]["prompt_tokens"].as_u64().unwrap();
    let off = chat.explain(&with(0.0));
    assert_eq!(off["cached_tokens"], 0, "{off}");
    assert_eq!(off["cache_break"]["path"], "lora", "{off}");
    // The scale is changed and changed back: each set of scales has its own sequence.
    for (scale, kept) in
        [(0.0, 0), (1.0, prompt - 1), (0.0, prompt - 1), (0.7, 0), (1.0, prompt - 1)]
    {
        let explained = chat.explain(&with(scale));
        assert_eq!(explained["cached_tokens"], kept, "{scale}: {explained}");
        let reply = chat.infer(&with(scale));
        assert_eq!((&reply["text"], cached(&reply)), (&json!(text(scale)), kept), "{scale}");
    }
    // A chat with other scales shares the model, and finds the prefix that was computed with its
    // own scales.
    let other = open_with(&json!([{ "path": first, "scale": 0.25 }]), json!({ "n_parallel": 4 }));
    assert_eq!(cached(&other.infer(&with(1.0))), prompt - 1);
    assert_eq!(cached(&other.infer(&ask(json!({})))), 0);
    // The state file contains the scales that its tokens were computed with.
    chat.infer(&with(0.0));
    drop((chat, other));
    let chat = open_with(&json!([first]), members);
    for (scale, kept) in [(1.0, 0), (0.0, prompt - 1)] {
        let reply = chat.infer(&with(scale));
        assert_eq!((&reply["text"], cached(&reply)), (&json!(text(scale)), kept), "{scale}");
    }
}

#[test]
fn a_switch_that_is_wrong_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "first.gguf", &text_model().adapter(3, 8).to_bytes());
    for isolation in isolations() {
        let members = || json!({ "isolation": isolation });
        let [none, one] = [json!([]), json!([first])].map(|lora| open_with(&lora, members()));
        let id = |id: i64| json!([{ "id": id, "scale": 1 }]);
        let cases = [
            (&none, id(0), "lora[0].id: there is no adapter 0; the chat was created with none"),
            (&one, id(1), "lora[0].id: there is no adapter 1; the chat was created with one"),
            (&one, id(-1), "lora[0].id: must be from 0 to 15"),
            (&one, json!([{ "id": 0, "scale": "1" }]), "lora[0].scale: expected a number"),
            (&one, json!([{ "id": 0, "scale": 1e9 }]), "lora[0].scale: must be from -100 to 100"),
            (&one, json!([{ "id": 0 }]), "lora[0].scale: missing"),
            (&one, json!({ "id": 0, "scale": 1 }), "lora: expected an array"),
            (&one, json!([0]), "lora[0]: expected an object"),
        ];
        for (chat, lora, says) in cases {
            let request = ask(json!({ "lora": lora }));
            for reply in [chat.infer(&request), chat.explain(&request)] {
                assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{reply}");
                let message = reply["error"]["message"].as_str().unwrap();
                assert!(message.starts_with(says), "{message}");
            }
            assert_eq!(chat.infer(&ask(json!({ "lora": [] })))["text"], TEXT);
        }
    }
}
