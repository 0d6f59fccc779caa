//! Tests where the weights and the cells of a model live: `n_cpu_moe`, `override_tensor`,
//! `split_mode`, `main_gpu`, `tensor_split` and `kv_unified`. What needs a device runs on each file
//! of devices that this machine can use, as in `devices.rs`.

use std::path::{Path, PathBuf};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, call};
use crate::devices::{child_data, has_event, preloaded, with_each_file};
use crate::run_folder::run_folder;
use crate::scripted::random::experts;

/// The path of a model of two layers with experts.
fn model() -> String {
    static WRITTEN: std::sync::Once = std::sync::Once::new();
    let path = run_folder().join("experts.gguf");
    WRITTEN.call_once(|| std::fs::write(&path, experts()).unwrap());
    path.to_str().unwrap().to_owned()
}

/// The options of a chat on it. The cache is f32, so that another order of computation changes only
/// the seventh digit.
fn options(members: &Value) -> Value {
    let mut options = json!({
        "model": model(), "tool_policy": "any", "n_ctx": 512, "n_threads": 1, "log": "info",
        "flash_attn": "off", "cache_type_k": "f32", "cache_type_v": "f32",
    });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    options
}

#[track_caller]
fn open(members: &Value) -> Chat {
    let opened = Chat::open_with(&options(members));
    opened.unwrap_or_else(|refused| panic!("{members}: {refused:?}"))
}

fn text(chat: &Chat) -> String {
    let message = json!({ "role": "user", "content": "abcdefgh" });
    let request = json!({ "messages": [message], "temperature": 0, "max_tokens": 12 });
    let reply = chat.infer(&request);
    reply["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

fn memory(members: &Value) -> Value {
    let mut request = options(members);
    request["model_path"] = request["model"].take();
    let reply = call(ffi::llb_memory, &request);
    assert_eq!(reply["type"], "memory", "{reply}");
    reply
}

/// The message and the details of a refused create.
#[track_caller]
fn refused(members: &Value) -> (String, Value) {
    let refused = Chat::open_with(&options(members)).err();
    let refused = refused.unwrap_or_else(|| panic!("{members} is accepted"));
    assert_eq!(refused.code(), "INVALID_REQUEST", "{refused:?}");
    (refused.message().to_owned(), refused.error["error"]["details"].clone())
}

#[test]
fn without_devices_everything_is_in_main_memory() {
    let expected = text(&open(&json!({ "devices": "none" })));
    for members in [
        json!({ "n_cpu_moe": 1 }),
        json!({ "n_cpu_moe": 99, "split_mode": "none", "main_gpu": 0 }),
        json!({ "override_tensor": [["_exps", "CPU"], ["^blk\\.0", "CPU"]] }),
        json!({ "devices": "none", "main_gpu": 7, "tensor_split": [1, 2], "split_mode": "tensor" }),
        json!({ "n_gpu_layers": 0, "tensor_split": [1, 2] }),
        json!({ "isolation": "process", "n_cpu_moe": 1, "override_tensor": [["_exps", "CPU"]] }),
    ] {
        assert_eq!(text(&open(&members)), expected, "{members}");
    }
    let reply = memory(&json!({ "devices": "none", "n_cpu_moe": 1 }));
    assert_eq!((&reply["kv_unified"], &reply["n_cpu_moe"]), (&json!(true), &json!(null)));
    assert_eq!(reply["devices"][0]["layers"], 3, "{reply}");
    let chat = open(&json!({ "devices": "none", "n_parallel": 3 }));
    let says = "kv_unified: true: 3 chats share 512 tokens";
    assert!(has_event(&chat, "log:info:", says), "{:?}", chat.events());
}

#[test]
fn what_does_not_exist_is_refused_with_what_does() {
    let (message, details) =
        refused(&json!({ "override_tensor": [["_exps", "CPU"], ["q_a", "CPU"]] }));
    let problem =
        "override_tensor[1][0]: \"q_a\" matches no tensor; the file has blk.N.attn_k.weight, ";
    assert!(message.starts_with(problem), "{message}");
    let tensors = details["tensors"].as_array().unwrap();
    for name in ["blk.N.ffn_up_exps.weight", "output.weight"] {
        assert!(tensors.contains(&json!(name)), "{details}");
    }
    let (message, details) = refused(&json!({ "override_tensor": [["_exps", "no-such"]] }));
    let problem =
        "override_tensor[0][1]: the model may not use a device \"no-such\"; there is \"CPU\"";
    assert!(message.starts_with(problem), "{message}");
    assert_eq!(details["devices"][0], "CPU");
    let (message, _) = refused(&json!({ "override_tensor": [["[", "CPU"]] }));
    assert!(
        message.starts_with("override_tensor[0][0]: \"[\" is not a regular expression"),
        "{message}"
    );
    let (message, details) = refused(&json!({ "main_gpu": 40 }));
    assert!(
        message.starts_with("main_gpu: there is no device 40; the model may use "),
        "{message}"
    );
    assert!(details["devices"].is_array(), "{details}");
    let (message, _) = refused(&json!({ "tensor_split": vec![1; 16] }));
    assert!(
        message.starts_with("tensor_split: got 16 numbers, one for each device; "),
        "{message}"
    );
    for (name, value) in [
        ("main_gpu", json!(1)),
        ("tensor_split", json!([1])),
        ("override_tensor", json!([["_exps", "CUDA0"]])),
    ] {
        let mut members = json!({ "isolation": "process" });
        members[name] = value;
        let (message, _) = refused(&members);
        assert_eq!(message, format!("{name}: an isolated model runs on the CPU; leave it out"));
    }
}

#[test]
fn weights_live_where_the_options_say() {
    if let Some(data) = child_data() {
        let device = data["device"].as_str().unwrap();
        let expected = text(&open(&json!({ "devices": "none" })));
        for members in [
            json!({}),
            json!({ "n_cpu_moe": 1 }),
            json!({ "n_cpu_moe": 99, "n_gpu_layers": 99 }),
            json!({ "n_gpu_layers": 2, "n_cpu_moe": 0 }),
            json!({ "override_tensor": [["attn_q", "CPU"], ["^blk\\.1\\..*_exps", "CPU"]] }),
            json!({ "n_gpu_layers": 0, "override_tensor": [["ffn_up_exps", device]] }),
            json!({ "split_mode": "none", "devices": [device] }),
            json!({ "tensor_split": [1], "kv_unified": true }),
            json!({ "kv_unified": false }),
        ] {
            assert_eq!(text(&open(&members)), expected, "{members}");
        }
        let parts = |reply: &Value, name: &str| {
            reply["devices"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it[name].clone())
                .collect::<Vec<_>>()
        };
        let all = memory(&json!({}));
        assert_eq!([&all["n_gpu_layers"], &all["n_cpu_moe"]], [3, 0], "{all}");
        assert_eq!(parts(&all, "layers"), [0, 3], "{all}");
        // Three matrices of four experts, with f32.
        let of_a_layer = 3 * 4 * 64 * 64 * 4;
        for (members, layers) in [
            (json!({ "n_cpu_moe": 1 }), 1),
            (json!({ "n_cpu_moe": 7 }), 2),
            (json!({ "override_tensor": [["_exps", "CPU"]] }), 2),
        ] {
            let some = memory(&members);
            let of = |reply: &Value| {
                parts(reply, "weights").iter().map(|it| it.as_u64().unwrap()).collect::<Vec<_>>()
            };
            let (before, after) = (of(&all), of(&some));
            let moved = layers * of_a_layer;
            assert_eq!(after, [before[0] + moved, before[1] - moved], "{members}: {some}");
        }
        let chat = open(&json!({ "n_parallel": 3, "n_ctx": 300 }));
        assert_eq!(text(&chat), expected);
        let says = "kv_unified: false: each of 3 chats has 300 tokens";
        assert!(has_event(&chat, "log:info:", says), "{:?}", chat.events());
        // A second chat shares the model.
        assert!(!has_event(
            &open(&json!({ "n_parallel": 3, "n_ctx": 300 })),
            "log:info:",
            "kv_unified"
        ));
        for (members, shares) in [
            (json!({ "n_parallel": 3 }), false),
            (json!({ "n_parallel": 1 }), true),
            (json!({ "n_parallel": 3, "n_ctx": "fit" }), true),
            (json!({ "n_parallel": 3, "n_gpu_layers": 1 }), true),
            (json!({ "n_parallel": 3, "n_gpu_layers": 0 }), true),
            (json!({ "n_parallel": 3, "draft_model": model() }), true),
        ] {
            assert_eq!(memory(&members)["kv_unified"], shares, "{members}");
        }
        let (message, details) = refused(&json!({ "main_gpu": 1 }));
        let problem = format!("main_gpu: there is no device 1; the model may use 0: \"{device}\"");
        assert_eq!((message, &details["devices"]), (problem, &json!([device])));
        let (message, details) = refused(&json!({ "override_tensor": [["attn", "no-such"]] }));
        assert!(message.ends_with(&format!("there is \"CPU\", \"{device}\"")), "{message}");
        assert_eq!(details["devices"], json!(["CPU", device]));
        let (message, _) = refused(&json!({ "split_mode": "row" }));
        let problem =
            format!("split_mode: the backend of {device} cannot divide matrices by rows; ");
        assert!(message.starts_with(&problem), "{message}");
        return;
    }
    with_each_file("placement::weights_live_where_the_options_say", &[]);
}

/// Vulkan's first device, twice.
#[test]
fn several_devices_divide_a_model() {
    let name = "placement::several_devices_divide_a_model";
    if let Some(data) = child_data() {
        if data["device"] != "Vulkan0" {
            return;
        }
        let both = json!(["Vulkan0", "Vulkan1"]);
        let expected = text(&open(&json!({ "devices": "none" })));
        let layers = |members: &Value| {
            let mut members = members.clone();
            members["devices"] = both.clone();
            assert_eq!(text(&open(&members)), expected, "{members}");
            let reply = memory(&members);
            let devices = reply["devices"].as_array().unwrap().iter().skip(1);
            let mut layers: Vec<_> = devices
                .map(|it| (it["name"].as_str().unwrap().to_owned(), it["layers"].as_u64()))
                .filter(|(_, layers)| *layers != Some(0))
                .collect();
            layers.sort();
            layers
        };
        let of = |all: &[(&str, u64)]| {
            all.iter().map(|(name, count)| ((*name).to_owned(), Some(*count))).collect::<Vec<_>>()
        };
        assert_eq!(
            layers(&json!({ "tensor_split": [2, 1] })),
            of(&[("Vulkan0", 2), ("Vulkan1", 1)])
        );
        assert_eq!(layers(&json!({ "tensor_split": [1] })), of(&[("Vulkan0", 3)]));
        assert_eq!(layers(&json!({ "tensor_split": [0, 1] })), of(&[("Vulkan1", 3)]));
        assert_eq!(layers(&json!({ "split_mode": "none" })), of(&[("Vulkan0", 3)]));
        assert_eq!(layers(&json!({ "split_mode": "none", "main_gpu": 1 })), of(&[("Vulkan1", 3)]));
        layers(&json!({ "override_tensor": [["_exps", "Vulkan1"]] }));
        let (message, _) = refused(&json!({ "devices": both, "tensor_split": [1, 1, 1] }));
        assert!(message.ends_with("the model may use 0: \"Vulkan0\", 1: \"Vulkan1\""), "{message}");
        return;
    }
    with_each_file(name, &[("GGML_VK_VISIBLE_DEVICES", Path::new("0,0"))]);
}

/// A device with less and less memory, down to the reserve of 256 MiB.
#[test]
fn a_small_device_keeps_all_layers_longer_than_all_experts() {
    let name = "placement::a_small_device_keeps_all_layers_longer_than_all_experts";
    if let Some(data) = child_data() {
        if data["device"] != "Vulkan0" {
            return;
        }
        let size = PathBuf::from(std::env::var_os("LLB_TEST_MEMORY").unwrap());
        let set = |kib: u64| std::fs::write(&size, (kib * 1024).to_string()).unwrap();
        let expected = text(&open(&json!({ "devices": "none" })));
        let sizes = (0..256).rev().map(|step| 256 * 1024 + 48 * step);
        let mut plans: Vec<([Value; 2], u64)> = Vec::new();
        for kib in sizes.clone() {
            set(kib);
            let reply = memory(&json!({ "n_parallel": 1 }));
            let plan = [reply["n_gpu_layers"].clone(), reply["n_cpu_moe"].clone()];
            if plans.last().is_none_or(|(last, _)| *last != plan) {
                plans.push((plan, kib));
            }
        }
        let all: Vec<&[Value; 2]> = plans.iter().map(|(plan, _)| plan).collect();
        let plan = |layers: u32, experts: u32| [json!(layers), json!(experts)];
        let steps = [plan(3, 0), plan(3, 1), plan(3, 2), plan(2, 2), plan(1, 2), plan(0, 2)];
        assert_eq!(all, steps.iter().collect::<Vec<_>>());
        for ([layers, experts], kib) in &plans[1..3] {
            set(*kib);
            let chat = open(&json!({ "n_parallel": 1 }));
            assert_eq!(text(&chat), expected);
            let says = format!("n_gpu_layers: {layers} of 3 layers on Vulkan0 (");
            assert!(has_event(&chat, "log:info:", &says), "{:?}", chat.events());
            let says = format!("n_cpu_moe: the experts of the first {experts} of 2 layers");
            assert!(has_event(&chat, "log:info:", &says), "{:?}", chat.events());
        }
        // Cells of their own go before anything else leaves the device.
        let cells = sizes.map(|kib| {
            set(kib);
            let reply = memory(&json!({ "n_parallel": 4 }));
            (reply["kv_unified"].as_bool().unwrap(), reply["n_cpu_moe"] == 0)
        });
        let mut cells: Vec<(bool, bool)> = cells.collect();
        cells.dedup();
        assert_eq!(cells, [(false, true), (true, true), (true, false)]);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = preloaded(folder.path(), "small_vulkan_device.c");
    let size = folder.path().join("size");
    std::fs::write(&size, (1_u64 << 30).to_string()).unwrap();
    with_each_file(name, &[("LD_PRELOAD", &library), ("LLB_TEST_MEMORY", &size)]);
}
