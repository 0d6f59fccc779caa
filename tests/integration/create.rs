//! Tests `llb_chat_create*`: events, the tool-capability check, and every kind of failure.

use std::ffi::CString;

use llb::api::CreateOptions;
use llb::error::Code;
use llb::gguf::ModelHeader;
use llb::llama::{KeptModel, files_of};
use serde_json::{Value, json};

use crate::abi::{Chat, ask, last_error, scripted_model};
use crate::scripted::gguf_writer::GgufWriter;
use crate::scripted::{N_CTX, text_model};

#[track_caller]
fn check(options: Value, event: &str, code: &str, says: &str) {
    let refused = Chat::open_with(&options).err().expect("refused");
    let failures: Vec<&String> =
        refused.events.iter().filter(|line| line.starts_with("create_failure:")).collect();
    assert_eq!(failures, [&format!("create_failure:{event}")]);
    assert_eq!(refused.events.first().map(String::as_str), Some("create_start"));
    assert_eq!(refused.events.last(), Some(failures[0]), "the failure is the last event");
    assert_eq!(refused.code(), code);
    assert!(refused.message().contains(says), "{:?} does not say {says:?}", refused.message());
}

#[test]
fn a_capable_model_is_opened() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let events = chat.events();
    assert_eq!(events.first().map(String::as_str), Some("create_start"));
    assert_eq!(events.last().map(String::as_str), Some("create_success"));
    let progress: Vec<f64> = events
        .iter()
        .filter_map(|line| line.strip_prefix("load_progress:"))
        .map(|share| share.parse().unwrap())
        .collect();
    assert!(progress.is_sorted() && progress.last() == Some(&1.0), "{progress:?}");
}

#[test]
fn a_file_that_changes_after_its_header_was_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (model, adapter) = (path("model.gguf"), path("adapter.gguf"));
    std::fs::copy(scripted_model("text.gguf"), &model).unwrap();
    std::fs::write(&adapter, text_model().adapter(3, 8).to_bytes()).unwrap();
    let options = json!({ "model": model, "n_threads": 1, "n_ctx": 512, "lora": [adapter] });
    let options = CreateOptions::read(&options).unwrap();
    for replaced in [&model, &adapter] {
        let files = files_of(&options, model.to_str().unwrap());
        let header = ModelHeader::read_file(&model).unwrap();
        // The content is the same, but the file is another one, as after a download.
        std::fs::copy(replaced, path("new")).unwrap();
        std::fs::rename(path("new"), replaced).unwrap();
        let error = KeptModel::open(&options, files, &header, &mut |_| true).err().unwrap();
        assert_eq!(error.code(), Code::ModelInvalid);
        let says = format!("{}: the file has changed since it was checked", replaced.display());
        assert!(error.message().starts_with(&says), "{}", error.message());
    }
}

#[test]
fn incapable_models_are_refused_before_weights_are_read() {
    let refused = Chat::open_with(&json!({ "model": scripted_model("no_tools.gguf") }))
        .err()
        .expect("refused");
    // Without load_progress, no weights were read.
    assert_eq!(refused.events, ["create_start", "create_failure:tools_unsupported"]);
    assert_eq!(refused.code(), "MODEL_NOT_TOOL_CAPABLE");
    let details = &refused.error["error"]["details"];
    assert_eq!(details["caps"]["supports_tools"], false);
    assert_eq!(details["template_variant"], "default");
    assert_eq!(details["evidence"]["supports_tools"]["status"], "no");
    assert!(details["next"].as_str().is_some_and(|next| next.contains("tool_policy")));
}

#[test]
fn incapable_models_are_refused_without_weights() {
    // The model profile needs only the header, so a file that is truncated inside its tensors is
    // refused as well.
    let bytes = std::fs::read(scripted_model("no_tools.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.gguf");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    check(json!({ "model": path }), "tools_unsupported", "MODEL_NOT_TOOL_CAPABLE", "tools");
}

#[test]
fn other_policies_and_templates_open_incapable_models() {
    let model = scripted_model("no_tools.gguf");
    assert!(
        Chat::open_with(&json!({ "model": model, "tool_policy": "any", "n_ctx": 512 })).is_ok()
    );
    let template = crate::scripted::TOOLS_TEMPLATE;
    assert!(
        Chat::open_with(&json!({ "model": model, "chat_template": template, "n_ctx": 512 }))
            .is_ok()
    );
    assert!(
        Chat::open_with(&json!({ "model": scripted_model("tool_use.gguf"), "n_ctx": 512 })).is_ok()
    );
}

#[test]
fn every_failure_has_its_event() {
    let text = scripted_model("text.gguf");
    check(json!({}), "null_path", "INVALID_REQUEST", "NULL");
    check(json!({ "model": null }), "null_path", "INVALID_REQUEST", "NULL");
    check(
        json!({ "model": "/no/such/model.gguf" }),
        "model_not_found",
        "MODEL_NOT_FOUND",
        "/no/such/model.gguf",
    );
    for (model, problem) in [
        ("", "model: the path is empty; pass the path of a GGUF file"),
        ("/", "model: /: is a directory, not a regular file"),
    ] {
        check(json!({ "model": model }), "model_not_found", "MODEL_NOT_FOUND", problem);
    }
    check(
        json!({ "model": scripted_model("truncated.gguf") }),
        "load_model",
        "MODEL_INVALID",
        "cut short",
    );
    check(json!({ "model": file!() }), "load_model", "MODEL_INVALID", "GGUF");
    check(
        json!({ "model": scripted_model("bad_template.gguf") }),
        "chat_template",
        "TEMPLATE_ERROR",
        "",
    );
    check(
        json!({ "model": text, "chat_template": "{% if %}" }),
        "chat_template",
        "TEMPLATE_ERROR",
        "",
    );
    check(
        json!({ "model": scripted_model("no_template.gguf") }),
        "tools_unsupported",
        "MODEL_NOT_TOOL_CAPABLE",
        "no chat template",
    );
    // A quantized V cache needs flash attention.
    check(
        json!({ "model": text, "flash_attn": "off", "cache_type_v": "q8_0" }),
        "init_context",
        "INFERENCE_FAILED",
        "flash",
    );
    check(json!({ "model": text, "n_ctx": i32::MAX }), "oom", "OUT_OF_MEMORY", "smaller n_ctx");
    // 512 layers with a state of 64 MiB for each of 64 sequences. It may have as many numbers as the
    // weights of a layer have bytes.
    let file = tempfile::NamedTempFile::new().unwrap();
    let weights = vec![0.0; 4_100_000];
    let states = GgufWriter::new()
        .metadata("general.architecture", "mamba2")
        .metadata("tokenizer.chat_template", "{{ messages[0].content }}")
        .metadata("mamba2.block_count", 512_u32)
        .metadata("mamba2.embedding_length", 8_u32)
        .metadata("mamba2.ssm.inner_size", 16_000_u32)
        .metadata("mamba2.ssm.state_size", 1_000_u32)
        .tensor("token_embd.weight", &[1, 16_000], &[0.0; 16_000])
        .tensor("blk.0.ssm_in.weight", &[4_100_000], &weights);
    std::fs::write(file.path(), states.to_bytes()).unwrap();
    check(
        json!({ "model": file.path(), "tool_policy": "any", "n_parallel": 64, "n_ctx": 512 }),
        "oom",
        "OUT_OF_MEMORY",
        "n_parallel: the states of the sequences do not fit into memory",
    );
    // Each token of a batch takes six tensors of 4 MiB: 384 GiB in all.
    let wide = GgufWriter::new()
        .metadata("general.architecture", "mamba2")
        .metadata("tokenizer.chat_template", "{{ messages[0].content }}")
        .metadata("mamba2.block_count", 1_u32)
        .metadata("mamba2.embedding_length", 1_u32 << 20)
        .tensor("token_embd.weight", &[1 << 20], &vec![0.0; 1 << 20]);
    std::fs::write(file.path(), wide.to_bytes()).unwrap();
    check(
        json!({ "model": file.path(), "tool_policy": "any", "n_ctx": 16_384, "n_batch": 16_384 }),
        "oom",
        "OUT_OF_MEMORY",
        "MiB are available; set a smaller n_batch",
    );
    check(
        json!({ "model": text, "n_ctx": 0 }),
        "invalid_options",
        "INVALID_REQUEST",
        "n_ctx: must be from 16",
    );
    check(
        json!({ "model": text, "ctx": 1 }),
        "invalid_options",
        "INVALID_REQUEST",
        "ctx: unknown option",
    );
    check(
        json!({ "model": 7 }),
        "invalid_options",
        "INVALID_REQUEST",
        "model: expected a string, got 7",
    );
    check(json!([]), "invalid_options", "INVALID_REQUEST", "expected an object");
}

#[test]
fn create_takes_just_a_path() {
    let path = CString::new(scripted_model("text.gguf")).unwrap();
    assert!(Chat::open_path(Some(&path)).is_ok());
    let refused = Chat::open_path(None).err().expect("refused");
    assert_eq!(refused.events, ["create_start", "create_failure:null_path"]);
    let refused = Chat::open_path(Some(c"\xFF\xFE")).err().expect("refused");
    assert_eq!(refused.events, ["create_start", "create_failure:invalid_options"]);
    assert_eq!(refused.code(), "INVALID_REQUEST");
}

#[test]
fn the_last_error_belongs_to_its_thread() {
    Chat::open_path(None).err().expect("refused");
    let elsewhere = std::thread::spawn(last_error).join().unwrap();
    assert_eq!(elsewhere, json!({ "type": "error", "error": null }));
    assert_eq!(last_error()["error"]["code"], "INVALID_REQUEST");
}

#[test]
fn logs_go_to_the_event_callback_on_request() {
    let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 96, "log": "debug" });
    let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    let levels = ["log:debug:", "log:info:", "log:warn:", "log:error:"];
    assert!(
        chat.events().iter().any(|line| levels.iter().any(|level| line.starts_with(level))),
        "{:?}",
        chat.events()
    );
    let quiet = Chat::open(&scripted_model("text.gguf"));
    assert!(!quiet.events().iter().any(|line| line.starts_with("log:")));
}

/// The scripted models are trained for `N_CTX` tokens.
#[test]
fn a_context_beyond_training_is_said_once_in_log_and_reply() {
    let model = scripted_model("text.gguf");
    for (n_ctx, expected) in [(N_CTX, 0), (N_CTX + 1, 1)] {
        let options = json!({ "model": model, "n_ctx": n_ctx, "log": "warn" });
        let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
        let said = |reply: &Value| {
            let diagnostics = reply["diagnostics"].as_array().unwrap().iter();
            diagnostics.filter(|each| each["code"] == "n_ctx_beyond_training").count()
        };
        assert_eq!(said(&chat.infer(&ask(json!({})))), expected);
        assert_eq!(said(&chat.infer(&ask(json!({})))), 0);
        let lines = chat.events();
        let lines = lines.iter().filter(|line| line.starts_with("log:warn:n_ctx: "));
        assert_eq!(lines.count(), expected);
    }
}
