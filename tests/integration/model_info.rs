//! Tests `llb_model_info` with scripted models.

use serde_json::{Value, json};

use crate::abi::{model_info, scripted_model};
use crate::scripted::{N_CTX, TOOLS_TEMPLATE};

#[test]
fn a_header_is_reported_in_full() {
    let path = scripted_model("text.gguf");
    let info = model_info(&path);
    assert_eq!(info["type"], "model_info");
    assert_eq!((&info["error"], &info["message"]), (&Value::Null, &Value::Null));
    assert_eq!(info["architecture"], "llama");
    assert_eq!(info["context_length"], N_CTX);
    assert_eq!(info["block_count"], 1);
    assert_eq!(info["quantization"], "F32");
    assert_eq!(info["license"], "mit");
    assert_eq!(info["file_size"], std::fs::metadata(&path).unwrap().len());
    assert_eq!(info["bos_token"], "<|endoftext|>");
    assert_eq!(info["eos_token"], "<|im_end|>");
    assert_eq!(info["templates"], json!(["default"]));
    assert_eq!(info["supports_tools"], true);
    assert_eq!(info["supports_tool_calls"], true);
    assert_eq!(info["has_tool_use_template"], false);
    assert_eq!(info["caps"]["supports_system_role"], true);
    assert_eq!(info["tool_support"], "native");
    assert_eq!(info["output_format"]["family"], "hermes");
    assert_eq!(info["output_format"]["tool_calls"], "verified");
    // The file has no faults, so all findings are about its template.
    for finding in info["findings"].as_array().unwrap() {
        assert_eq!(
            (&finding["template"], finding["severity"].is_string()),
            (&json!("default"), true),
            "{finding}"
        );
    }
    use sha2::Digest;
    let hash: String =
        sha2::Sha256::digest(TOOLS_TEMPLATE).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(info["template_sha256"], hash);
}

#[test]
fn missing_capabilities_come_with_evidence() {
    let info = model_info(&scripted_model("no_tools.gguf"));
    assert_eq!(info["supports_tools"], false);
    assert_eq!(info["tool_support"], "polyfilled");
    assert_eq!(info["caps"]["supports_system_role"], true);
    assert_eq!(info["evidence"]["supports_tools"]["status"], "no");
    assert!(info["evidence"]["supports_tools"]["because"].is_string());
    let info = model_info(&scripted_model("no_template.gguf"));
    assert_eq!(
        (&info["supports_tools"], &info["templates"], &info["template_sha256"]),
        (&json!(false), &json!([]), &Value::Null)
    );
    let info = model_info(&scripted_model("tool_use.gguf"));
    assert_eq!(
        (&info["supports_tools"], &info["has_tool_use_template"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn failures_are_flat() {
    let check = |path: &str, kind: &str| {
        let info = model_info(path);
        assert_eq!(info["type"], "model_info");
        assert_eq!(info["error"], kind);
        assert!(info["message"].is_string());
        assert_eq!(
            (&info["supports_tools"], &info["supports_tool_calls"], &info["has_tool_use_template"]),
            (&json!(false), &json!(false), &json!(false))
        );
    };
    check("/no/such/model.gguf", "model_not_found");
    assert_eq!(crate::abi::last_error()["error"]["code"], "MODEL_NOT_FOUND");
    check(file!(), "load_model");
    check(&scripted_model("bad_template.gguf"), "chat_template");
    // SAFETY: NULL is allowed.
    let info = crate::abi::take(unsafe { llb::ffi::llb_model_info(std::ptr::null()) });
    assert_eq!(info["error"], "null_path");
}

#[test]
fn a_truncated_download_is_a_finding() {
    let info = model_info(&scripted_model("truncated.gguf"));
    assert_eq!(info["error"], Value::Null);
    assert_eq!(info["findings"][0]["code"], "file_truncated");
}
