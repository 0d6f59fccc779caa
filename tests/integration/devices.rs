//! Tests the option `devices` and files of devices: which of them are opened, when, and what happens
//! if a device fails. Each case runs in a child process, because a process opens a file only once.
//!
//! What needs a device runs on each file that `make backend-cuda` or `make backend-vulkan` has
//! written, if this machine has a driver for it. For Vulkan, Mesa's software device lavapipe is
//! enough.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Embedder, Recorder, Refused, ask, own_model, scripted_model, take};
use crate::backends::{built, chats, files};
use crate::scripted::{TEXT, long_text};

pub const CHILD: &str = "LLB_TEST_DEVICES_CHILD";

/// A backend that a file may contain.
struct Backend {
    file: &'static str,
    /// The name of its first device.
    device: &'static str,
    /// What is preloaded to lose the device, in this folder.
    lost_device: &'static str,
    /// What an error then says.
    lost: &'static str,
}

const BACKENDS: [Backend; 2] = [
    Backend {
        file: "libllb-cuda.so",
        device: "CUDA0",
        lost_device: "lost_cuda_device.c",
        lost: "CUDA device lost",
    },
    Backend {
        file: "libllb-vulkan.so",
        device: "Vulkan0",
        lost_device: "lost_vulkan_device.c",
        lost: "DeviceLost",
    },
];

/// Runs the test with this name, or path, again in a child process, with these variables. `data` is for
/// `run`, which the child calls.
#[track_caller]
pub fn in_child(name: &str, variables: &[(&str, &Path)], data: &Value) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let path = if name.contains("::") { name.to_owned() } else { format!("devices::{name}") };
    command.args([&path, "--exact", "--nocapture"]);
    // ggml ignores software devices that are not named.
    command.env("GGML_VK_VISIBLE_DEVICES", "0").env_remove("LLB_BACKENDS");
    command.env(CHILD, data.to_string()).envs(variables.iter().copied());
    let child = command.output().unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(text.contains("running 1 test"), "{name} did not run: {text}");
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{name}: {}: {errors}", child.status);
    // The library prints nothing, nor does a backend.
    assert!(!errors.contains("ggml") && !text.contains("ggml"), "{errors}{text}");
}

/// The data of the child process that this is; `None` in the parent.
pub fn child_data() -> Option<Value> {
    std::env::var(CHILD).ok().map(|data| serde_json::from_str(&data).unwrap())
}

/// Opens a scripted chat. lavapipe of Mesa 22.3 damages its memory with flash attention.
fn open(members: Value) -> Result<Chat, Refused> {
    let mut options = json!({
        "model": scripted_model("text.gguf"), "n_ctx": 512, "n_threads": 2, "log": "info",
        "flash_attn": "off",
    });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options)
}

pub fn has_event(chat: &Chat, start: &str, part: &str) -> bool {
    chat.events().iter().any(|event| event.starts_with(start) && event.contains(part))
}

fn backends() -> Value {
    take(ffi::llb_backends())
}

fn is_mapped(file: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains(file.to_str().unwrap())
}

#[test]
fn unknown_devices_are_refused() {
    let refused = open(json!({ "devices": ["no-such"] })).err().unwrap();
    assert_eq!(refused.code(), "INVALID_REQUEST");
    let message = refused.message();
    assert!(
        message
            .starts_with("devices[0]: there is no device \"no-such\"; llb_backends lists \"CPU\""),
        "{message}"
    );
    let there = refused.error["error"]["details"]["devices"].as_array().unwrap();
    assert!(there.contains(&json!("CPU")), "{there:?}");
    assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
    for devices in [json!(null), json!("auto"), json!("none"), json!([]), json!(["CPU"])] {
        chats(&open(json!({ "devices": devices })).unwrap());
        if devices != json!(["CPU"]) {
            chats(&open(json!({ "devices": devices, "isolation": "process" })).unwrap());
        }
    }
    let refused = open(json!({ "devices": ["CPU"], "isolation": "process" })).err().unwrap();
    assert!(refused.message().starts_with("devices: an isolated model runs on the CPU"));
    let embedding = |devices: Value| {
        Embedder::create(&json!({ "model": own_model("embedding.gguf"), "devices": devices }))
    };
    assert!(embedding(json!("none")).is_ok());
    let error = embedding(json!(["no-such"])).err().unwrap();
    assert_eq!(error["error"]["code"], "INVALID_REQUEST", "{error}");
}

#[test]
fn bad_files_are_not_opened() {
    let name = "bad_files_are_not_opened";
    if let Some(data) = child_data() {
        let file = PathBuf::from(data["file"].as_str().unwrap());
        let reason = data["reason"].as_str().unwrap();
        let chat = open(json!({})).unwrap();
        chats(&chat);
        let warned = format!("log:warn:devices: not used: {} ", file.display());
        assert!(has_event(&chat, &warned, reason), "{:?}", chat.events());
        assert!(!is_mapped(&file));
        let found = backends();
        let entries = found["device_files"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["file"] == data["file"]).unwrap();
        assert_eq!(entry["usable"], false, "{entry}");
        assert!(entry["reason"].as_str().unwrap().contains(reason), "{entry}");
        return;
    }
    let Some((_, kernels)) = files().into_iter().next() else { return };
    let bytes = std::fs::read(kernels).unwrap();
    let identity = b"llama-cpp-sys-2 0.";
    let mut other = bytes.clone();
    let at = other.windows(identity.len()).position(|part| part == identity).unwrap();
    other[at..at + identity.len()].copy_from_slice(b"llama-cpp-sys-2 9.");
    for (bytes, mode, reason) in [
        (&bytes[..bytes.len() - 1], 0o644, "is not complete"),
        (&bytes[..0], 0o644, "is not complete"),
        (&[b'x'; 4096][..], 0o644, "is not a shared library for this processor"),
        (&other[..], 0o644, "is from another build"),
        (&bytes[..], 0o644, "has other content"),
        (&bytes[..], 0o666, "can be written by every user"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for Backend { file, .. } in BACKENDS {
            let file = folder.path().join(file);
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            let data = json!({ "file": file, "reason": reason });
            in_child(name, &[("LLB_BACKENDS", folder.path())], &data);
        }
    }
}

/// A folder with nothing but a file of devices that this machine can use.
struct Usable {
    backend: Backend,
    folder: tempfile::TempDir,
}

impl Usable {
    /// Runs the test with this name in a child process that finds the file.
    #[track_caller]
    fn in_child(&self, name: &str, variables: &[(&str, &Path)]) {
        let variables: Vec<_> =
            variables.iter().copied().chain([("LLB_BACKENDS", self.folder.path())]).collect();
        let Backend { device, lost, .. } = self.backend;
        let file = self.folder.path().join(self.backend.file);
        in_child(name, &variables, &json!({ "file": file, "device": device, "lost": lost }));
    }
}

/// The files of this build that this machine has a device for. Prints a line for each of the
/// others. They are no failures: a driver is not among the requirements of the tests.
fn usable_files() -> Vec<Usable> {
    BACKENDS.into_iter().filter_map(usable_file).collect()
}

fn usable_file(backend: Backend) -> Option<Usable> {
    let name = backend.file;
    let built = built().join(name);
    if !built.exists() {
        eprintln!("SKIPPED: there is no {name}; run: make backend-cuda or make backend-vulkan");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&built, folder.path().join(name)).unwrap();
    let output = tempfile::NamedTempFile::new().unwrap();
    let data = json!({ "output": output.path() });
    in_child("a_child_tells_what_it_finds", &[("LLB_BACKENDS", folder.path())], &data);
    let found: Value = serde_json::from_slice(&std::fs::read(output.path()).unwrap()).unwrap();
    let entries = found["device_files"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["file"] == json!(folder.path().join(name)));
    let entry = entry.unwrap();
    if entry["usable"] == false {
        eprintln!("SKIPPED: {name} {}", entry["reason"].as_str().unwrap());
        return None;
    }
    Some(Usable { backend, folder })
}

/// Runs the test with this name in a child process for each file that can be used.
#[track_caller]
pub fn with_each_file(name: &str, variables: &[(&str, &Path)]) {
    usable_files().iter().for_each(|usable| usable.in_child(name, variables));
}

/// Compiles a source of this folder for LD_PRELOAD. Returns the library.
pub fn preloaded(folder: &Path, source: &str) -> PathBuf {
    let library = folder.join(source).with_extension("so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration").join(source);
    let compiled = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-shared", "-fPIC", "-O1", "-pthread", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
    library
}

#[test]
fn a_child_tells_what_it_finds() {
    if let Some(data) = child_data() {
        std::fs::write(data["output"].as_str().unwrap(), backends().to_string()).unwrap();
    }
}

#[test]
fn a_device_computes() {
    if let Some(data) = child_data() {
        let device = data["device"].as_str().unwrap();
        let chat = open(json!({})).unwrap();
        chats(&chat);
        assert!(
            has_event(&chat, "log:info:n_gpu_layers: ", &format!(" layers on {device} (")),
            "{:?}",
            chat.events()
        );
        let found = backends();
        let devices = found["devices"].as_array().unwrap();
        assert!(devices.iter().any(|found| found["name"] == device), "{found}");
        assert!(devices.iter().any(|found| found["name"] == "CPU"), "{found}");
        // Not the same model: the devices are part of its key.
        let alone = open(json!({ "devices": "none" })).unwrap();
        chats(&alone);
        assert!(!has_event(&alone, "log:", device), "{:?}", alone.events());
        let named = open(json!({ "devices": [device, "CPU"], "n_gpu_layers": 1 })).unwrap();
        chats(&named);
        chats(&open(json!({ "n_gpu_layers": 0 })).unwrap());
        // Helpers compute on the processor.
        chats(&open(json!({ "isolation": "process" })).unwrap());
        return;
    }
    with_each_file("a_device_computes", &[]);
}

#[test]
fn a_file_is_opened_when_a_device_may_be_used() {
    if let Some(data) = child_data() {
        let file = PathBuf::from(data["file"].as_str().unwrap());
        chats(&open(json!({ "devices": "none" })).unwrap());
        chats(&open(json!({ "n_gpu_layers": 0 })).unwrap());
        assert!(!is_mapped(&file));
        let chat = open(json!({ "devices": "none", "n_ctx": 256 })).unwrap();
        chats(&open(json!({})).unwrap());
        assert!(is_mapped(&file));
        chats(&chat);
        return;
    }
    with_each_file("a_file_is_opened_when_a_device_may_be_used", &[]);
}

#[test]
fn without_a_driver_the_processor_computes() {
    if child_data().is_some() {
        let chat = open(json!({})).unwrap();
        chats(&chat);
        let reason = "cannot be started: ";
        assert!(has_event(&chat, "log:warn:devices: not used: ", reason), "{:?}", chat.events());
        let found = backends();
        assert_eq!(found["device_files"][0]["usable"], false, "{found}");
        return;
    }
    let none = Path::new("/no/such/driver.json");
    let variables =
        [("VK_ICD_FILENAMES", none), ("VK_DRIVER_FILES", none), ("CUDA_VISIBLE_DEVICES", none)];
    with_each_file("without_a_driver_the_processor_computes", &variables);
}

#[test]
fn a_forked_child_computes_on_the_processor() {
    if let Some(data) = child_data() {
        let chat = open(json!({})).unwrap();
        chats(&chat);
        // SAFETY: the child only calls the library and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = open(json!({}));
            let replied = own.as_ref().is_ok_and(|own| {
                let warned = has_event(own, "log:warn:devices: not used: ", "was forked");
                warned && own.infer(&ask(json!({})))["text"] == TEXT
            });
            let named = open(json!({ "devices": [data["device"]] }));
            let refused = named.is_err_and(|refused| refused.code() == "INVALID_REQUEST");
            drop(own);
            // SAFETY: takes a number.
            unsafe { libc::_exit(if replied && refused { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the status is valid during the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        chats(&chat);
        return;
    }
    with_each_file("a_forked_child_computes_on_the_processor", &[]);
}

#[test]
fn a_lost_device_does_not_end_the_host() {
    let name = "a_lost_device_does_not_end_the_host";
    if let Some(data) = child_data() {
        let lost = PathBuf::from(std::env::var_os("LLB_TEST_LOST").unwrap());
        let long = json!({ "model": scripted_model("long.gguf"), "n_ctx": 1024 });
        let chat = open(long.clone()).unwrap();
        assert_eq!(chat.infer(&ask(json!({ "max_tokens": 1000 })))["text"], long_text());
        let other = open(json!({})).unwrap();
        chats(&other);
        let recorder = Recorder::reacting(move |_| std::fs::write(&lost, "").unwrap());
        let reply = chat.stream(&ask(json!({ "max_tokens": 1000 })), &recorder);
        assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(data["lost"].as_str().unwrap()), "{message}");
        // A chat on the same device that was idle.
        drop(other);
        let mut numbered = long.clone();
        numbered["n_gpu_layers"] = json!(1);
        let mut named = long.clone();
        named["devices"] = json!([data["device"]]);
        for options in [numbered, named] {
            let chat = open(options).unwrap();
            assert_eq!(chat.infer(&ask(json!({ "max_tokens": 1000 })))["text"], long_text());
        }
        let next = open(long).unwrap();
        assert_eq!(next.infer(&ask(json!({ "max_tokens": 1000 })))["text"], long_text());
        assert!(
            has_event(&next, "log:warn:devices: not used: ", "has lost a device ("),
            "{:?}",
            next.events()
        );
        let found = backends();
        assert_eq!(found["device_files"][0]["usable"], false, "{found}");
        drop(chat);
        drop(next);
        chats(&open(json!({ "devices": "none" })).unwrap());
        return;
    }
    for usable in usable_files() {
        let folder = tempfile::tempdir().unwrap();
        let library = preloaded(folder.path(), usable.backend.lost_device);
        let lost = folder.path().join("is-lost");
        usable.in_child(name, &[("LD_PRELOAD", &library), ("LLB_TEST_LOST", &lost)]);
    }
}
