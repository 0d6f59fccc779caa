//! The option `lora`: adapters made for the scripted model, which change its reply in a known way.

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
    // All at once: chats on the same file with other adapters do not share its context.
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
    let files: [(&str, Vec<u8>); 14] = [
        ("general.type", Adapter { kind: "model", ..good() }.to_bytes()),
        ("but the model is", Adapter { architecture: "qwen2", ..good() }.to_bytes()),
        ("adapter.lora.alpha", Adapter { alpha: None, ..good() }.to_bytes()),
        ("adapter.lora.alpha", Adapter { alpha: Some(f32::NAN), ..good() }.to_bytes()),
        ("incorrect shape", Adapter { a: vec![0.0; 2 * n_embd], ..good() }.to_bytes()),
        ("incorrect shape", Adapter { b: vec![0.0; 7], ..good() }.to_bytes()),
        ("does not exist", Adapter { weight: "blk.7.attn_q.weight", ..good() }.to_bytes()),
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
            "must be F32",
            Adapter { extra: extra("blk.0.attn_q.weight.lora_a", &[32], 26, 128), ..good() }
                .to_bytes(),
        ),
        // The right extents, but with a third dimension, which the model's weight lacks: an
        // assertion in ggml.
        (
            "GGML_ASSERT",
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
