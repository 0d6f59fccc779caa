//! Tests sampling parameters that a model file recommends and that the option `defaults` sets, in
//! requests that do not set them.

use std::ffi::CString;

use llb::ffi;
use llb::gguf::GgufValue;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, call, model_info, scripted_model};
use crate::scripted::{TEXT, text_model};

/// A file that recommends a high temperature, at which the scripted text is lost, and keeps every
/// token.
struct WildFile {
    _folder: tempfile::TempDir,
    path: String,
}

fn wild_file(further: Vec<(&str, GgufValue)>) -> WildFile {
    let mut model = text_model();
    let wild = vec![
        ("sampling.temp", 100.0_f32.into()),
        ("sampling.top_k", 0_i32.into()),
        ("sampling.top_p", 1.0_f32.into()),
        ("sampling.min_p", 0.0_f32.into()),
    ];
    let all = wild.into_iter().chain(further);
    model.metadata = all.map(|(key, value)| (format!("general.{key}"), value)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wild.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    WildFile { path: path.to_str().unwrap().to_owned(), _folder: folder }
}

fn open(path: &str, defaults: Value) -> Chat {
    Chat::open_with(&json!({ "model": path, "n_ctx": 1024, "defaults": defaults }))
        .unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// A request without any sampling parameter except the seed.
fn silent(members: Value) -> Value {
    let mut request = json!({ "messages": [{ "role": "user", "content": "Hello" }], "seed": 1, "max_tokens": 24 });
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    request
}

#[test]
fn a_file_decides_what_request_and_defaults_leave_out() {
    let file = wild_file(vec![]);
    let wild = silent(json!({ "temperature": 100, "top_k": 0, "top_p": 1, "min_p": 0 }));
    let asked = Chat::open(&scripted_model("text.gguf")).infer(&wild);
    let (expected, diagnostics) = (&asked["text"], &asked["diagnostics"]);
    assert_ne!(expected, TEXT);
    // With both functions, and with and without a stream.
    let path = CString::new(file.path.as_str()).unwrap();
    for chat in [open(&file.path, Value::Null), Chat::open_path(Some(&path)).unwrap()] {
        let reply = chat.infer(&silent(json!({})));
        assert_eq!((&reply["text"], &reply["diagnostics"]), (expected, diagnostics));
        assert_eq!(chat.stream(&silent(json!({})), &Recorder::default())["text"], *expected);
        assert_eq!(chat.infer(&silent(json!({ "temperature": 0 })))["text"], TEXT);
        assert_eq!(chat.infer(&silent(json!({ "top_k": 1 })))["text"], TEXT);
    }
    let chat = open(&file.path, json!({ "temperature": 0, "max_tokens": 2 }));
    assert_eq!(chat.infer(&silent(json!({})))["text"], TEXT);
    let mut request = silent(json!({}));
    request.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(chat.infer(&request)["usage"]["completion_tokens"], 2);
    assert_eq!(chat.infer(&silent(json!({ "temperature": 100 })))["text"], *expected);
}

#[test]
fn explain_shows_what_is_in_force_and_who_set_it() {
    let file = wild_file(vec![("sampling.penalty_repeat", 1.1_f32.into())]);
    let chat = open(&file.path, json!({ "top_k": 7, "presence_penalty": 0.5 }));
    let explained = chat.explain(&silent(json!({ "temperature": 0.3 })));
    let sampling = &explained["sampling"];
    for (name, value) in [
        ("temperature", json!(0.3)),
        ("top_k", json!(7)),
        ("top_p", json!(1.0)),
        ("repeat_penalty", json!(1.1)),
        ("presence_penalty", json!(0.5)),
        ("typical_p", json!(1.0)),
        ("seed", json!(1)),
    ] {
        assert_eq!(sampling[name], value, "{name}");
    }
    assert_eq!(
        explained["sampling_set_by"],
        json!({
            "temperature": "request", "seed": "request", "top_k": "defaults",
            "presence_penalty": "defaults", "top_p": "model", "min_p": "model",
            "repeat_penalty": "model",
        })
    );
}

#[test]
fn wrong_values_of_a_file_fail_no_request() {
    let mut model = text_model();
    model.metadata = vec![
        ("general.sampling.temp".to_owned(), GgufValue::from(f32::NAN)),
        ("general.sampling.top_k".to_owned(), "many".into()),
        ("general.sampling.top_p".to_owned(), 7.5_f32.into()),
        ("general.sampling.min_p".to_owned(), 0.5_f32.into()),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let path = path.to_str().unwrap();
    let info = model_info(path);
    assert_eq!(info["sampling"], json!({ "min_p": 0.5 }));
    let findings = info["findings"].as_array().unwrap();
    for key in ["temp", "top_k", "top_p"] {
        let named = format!("general.sampling.{key}: ");
        let names = |finding: &&Value| {
            finding["code"] == "sampling_value"
                && finding["message"].as_str().unwrap().starts_with(&named)
        };
        assert_eq!(findings.iter().filter(names).count(), 1, "{key}");
    }
    let chat = open(path, Value::Null);
    assert_eq!(chat.infer(&silent(json!({})))["text"], TEXT);
    let sampling = &chat.explain(&silent(json!({})))["sampling"];
    assert_eq!((&sampling["temperature"], &sampling["min_p"]), (&json!(0.7), &json!(0.5)));
}

#[test]
fn model_info_shows_origin_and_sampling() {
    let words = |words: &[&str]| {
        GgufValue::from(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    };
    let file = wild_file(vec![
        ("tags", words(&["chat"])),
        ("languages", words(&["en", "de"])),
        ("organization", "Example".into()),
        ("base_model.count", 1_u32.into()),
        ("base_model.0.name", "Base".into()),
        ("sampling.sequence", "top_k;dry".into()),
    ]);
    let info = model_info(&file.path);
    assert_eq!((&info["tags"], &info["languages"]), (&json!(["chat"]), &json!(["en", "de"])));
    assert_eq!((&info["organization"], &info["author"]), (&json!("Example"), &Value::Null));
    assert_eq!(info["base_models"], json!([{ "name": "Base" }]));
    assert_eq!(
        (&info["sampling"]["temperature"], &info["sampling"]["samplers"]),
        (&json!(100.0), &json!(["top_k", "dry"]))
    );
    let of_template = call(ffi::llb_template_info, &json!({ "gguf": file.path }));
    assert_eq!(of_template["sampling"], info["sampling"]);
    assert_eq!(of_template["findings"], info["findings"]);
    let without = call(ffi::llb_template_info, &json!({ "chat_template": "{{ messages }}" }));
    assert_eq!(without.get("sampling"), None);
    assert_eq!(model_info(&scripted_model("text.gguf"))["sampling"], Value::Null);
}

#[test]
fn defaults_are_checked_when_the_chat_is_created() {
    for (defaults, message) in [
        (json!({ "temperature": "hot" }), "defaults.temperature: expected a number, got \"hot\""),
        (
            json!({ "temprature": 1 }),
            "defaults.temprature: unknown option; did you mean `temperature`?",
        ),
        (json!([]), "defaults: expected an object, got []"),
    ] {
        let options = json!({ "model": scripted_model("text.gguf"), "defaults": defaults });
        let refused = Chat::open_with(&options).err().expect("refused");
        assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
        assert_eq!(refused.message(), message);
    }
}
