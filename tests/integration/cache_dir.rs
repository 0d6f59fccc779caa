//! Tests the option `cache_dir`: the next chat reads from disk what one chat has computed of a
//! prompt, with models that remember in different ways. No file and no folder can do harm.
//!
//! A model is freed when its only chat is destroyed, so each `open` here starts with an empty KV
//! cache. The weights are random, and each token of a reply depends on all tokens before it. If a
//! reply equals the one without any cache, the file held the prompt and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::abi::{Chat, real_model, scripted_model};
use crate::run_folder::random_model;
use crate::scripted::random::Memory;
use crate::scripted::text_model;

const ALL: [Memory; 4] = [Memory::Dense, Memory::Window, Memory::State, Memory::Both];
/// The number of tokens at the end of a prompt that are not written: the opening of the reply.
const OPENING: u64 = 16;

/// A model with random weights. Only one chat at a time may use each, so tests use different ones.
fn model(memory: Memory) -> String {
    random_model("cache_dir", memory)
}

/// Opens a chat with f32 throughout, as in `memory`. Each test has its own context size, because
/// tests with equal options share a model.
fn open(model: &str, n_ctx: u32, members: Value) -> Chat {
    let mut options = json!({ "model": model, "n_ctx": n_ctx, "n_parallel": 2, "tool_policy": "any", "isolation": "none",
        "cache_type_k": "f32", "cache_type_v": "f32", "flash_attn": "off", "log": "warn" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{model}: {refused:?}"))
}

fn conversation(system: &str, user: &str) -> Value {
    json!({ "temperature": 0, "max_tokens": 12, "messages": [
        { "role": "system", "content": system.repeat(8) }, { "role": "user", "content": user.repeat(20) }] })
}

/// The number of tokens that were read from disk, that were then in the cache, and that the prompt
/// has.
fn counts(reply: &Value) -> (u64, u64, u64) {
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{reply}"));
    (
        count(&reply["timings"]["disk_tokens"]),
        count(&reply["usage"]["prompt_tokens_details"]["cached_tokens"]),
        count(&reply["usage"]["prompt_tokens"]),
    )
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The warnings about the folder.
fn warnings(chat: &Chat) -> Vec<String> {
    let of_folder = |event: &String| event.starts_with("log:warn:cache_dir: ");
    chat.events().into_iter().filter(of_folder).collect()
}

/// The number of tokens before the text of the first user message: `<|im_start|>`, the role, 80 of
/// text, `<|im_end|>`, newlines. The last token may depend on the text that follows.
const SYSTEM: std::ops::RangeInclusive<u64> = {
    let before_role = 1 + "system\n".len() as u64 + 80 + 2 + 1;
    before_role..=before_role + "user\n".len() as u64
};

#[test]
fn the_next_chat_reads_what_was_computed() {
    for memory in ALL {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let with = json!({ "cache_dir": folder });
        let mut first = conversation("abcdefghij", "hello");
        let alone = open(&model(memory), 768, json!({})).infer(&first);
        assert_eq!(alone["timings"].get("disk_tokens"), None);
        let chat = open(&model(memory), 768, with.clone());
        let reply = chat.infer(&first);
        let (read, cached, prompt) = counts(&reply);
        assert_eq!((read, cached, &reply["text"]), (0, 0, &alone["text"]), "{memory:?}");
        drop(chat);
        assert_eq!(files(&folder).len(), 2, "{memory:?}: the rules and the prompt");
        // The same prompt again, and then its next turn, which is in memory.
        let chat = open(&model(memory), 768, with.clone());
        let reply = chat.infer(&first);
        let found = prompt - OPENING;
        assert_eq!(counts(&reply), (found, found, prompt), "{memory:?}");
        assert_eq!(reply["text"], alone["text"], "{memory:?}");
        let messages = first["messages"].as_array_mut().unwrap();
        messages.push(json!({ "role": "assistant", "content": reply["text"] }));
        messages.push(json!({ "role": "user", "content": "more" }));
        let in_memory = chat.infer(&first);
        let (read, cached, prompt) = counts(&in_memory);
        assert!(read == 0 && cached > found, "{memory:?}: {in_memory}");
        drop(chat);
        // The next turn in another process begins where the last prompt ended.
        let reply = open(&model(memory), 768, with.clone()).infer(&first);
        assert_eq!(counts(&reply), (found, found, prompt), "{memory:?}");
        assert_eq!(reply["text"], in_memory["text"], "{memory:?}");
        // Another conversation with the same system message.
        let other = conversation("abcdefghij", "world");
        let alone = open(&model(memory), 768, json!({})).infer(&other);
        let reply = open(&model(memory), 768, with.clone()).infer(&other);
        let (read, cached, _) = counts(&reply);
        assert!(SYSTEM.contains(&read) && cached == read, "{memory:?}: {reply}");
        assert_eq!(reply["text"], alone["text"], "{memory:?}");
        // A different system message, and a request that turns the cache off.
        let chat = open(&model(memory), 768, with.clone());
        let mut other = conversation("bcdefghija", "hello");
        assert_eq!(counts(&chat.infer(&other)).0, 0, "{memory:?}");
        other["cache_prompt"] = false.into();
        other["messages"] = conversation("abcdefghij", "hello")["messages"].clone();
        assert_eq!(counts(&chat.infer(&other)).0, 0, "{memory:?}");
        assert_eq!(warnings(&chat), [""; 0]);
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_folder() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let text = scripted_model("text.gguf");
    let made = at("made/here");
    open(&text, 776, json!({ "cache_dir": made })).infer(&conversation("abcdefghij", "hello"));
    assert_eq!((mode(&at("made")), mode(&made)), (0o700, 0o700));
    let files = files(&made);
    assert!(files.len() == 2 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    #[track_caller]
    fn refused(options: Value, says: &str) {
        let text = scripted_model("text.gguf");
        let mut all = json!({ "model": text, "n_ctx": 776, "isolation": "none" });
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let refused = Chat::open_with(&all).err().expect("refused");
        assert_eq!(refused.code(), "INVALID_REQUEST");
        assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
        assert!(refused.message().contains(says), "{}", refused.message());
    }
    symlink(&made, at("link")).unwrap();
    fs::write(at("file"), "x").unwrap();
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o750)).unwrap();
    let long = "x".repeat(300);
    for (path, says) in [
        ("link", "is a symbolic link; name the folder"),
        ("link/", "is a symbolic link; name the folder"),
        ("link//.", "is a symbolic link; name the folder"),
        ("file", "is not a folder"),
        ("file/below", "cannot make"),
        ("open", "other users may look into"),
        (&long, "cannot make"),
    ] {
        refused(json!({ "cache_dir": at(path) }), says);
    }
    refused(json!({ "cache_dir": "" }), "cache_dir: the path is empty");
    refused(json!({ "cache_dir": 3 }), "cache_dir: expected a string, got 3");
    refused(json!({ "cache_dir": made, "cache_bytes": 0 }), "cache_bytes: must be");
    refused(json!({ "cache_dir": made, "cache_bytes": "1G" }), "cache_bytes: expected");
    refused(json!({ "cache_dir": made, "isolation": "process" }), "cache_dir: cannot be used with");
    // The folder changes while a chat uses it.
    let chat = open(&text, 776, json!({ "cache_dir": made }));
    fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).unwrap();
    let reply = chat.infer(&conversation("abcdefghij", "hello"));
    assert_eq!(counts(&reply).0, 0, "{reply}");
    chat.infer(&conversation("abcdefghij", "again"));
    assert!(warnings(&chat).len() == 1 && warnings(&chat)[0].contains("other users may look"));
    fs::set_permissions(&made, fs::Permissions::from_mode(0o700)).unwrap();
    if chown(&made, Some(65_534), None).is_err() {
        return println!("skipped: a folder of another user, because this user is not root");
    }
    refused(json!({ "cache_dir": made }), "it belongs to another user (uid 65534)");
}

/// Each file is replaced by something else. The reply must be right, the log must give the reason,
/// and the next chat must find a valid file again.
#[test]
fn no_file_does_harm() {
    let folder = tempfile::tempdir().unwrap();
    let text = scripted_model("text.gguf");
    let with = json!({ "cache_dir": folder.path() });
    #[cfg(unix)]
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let request = conversation("abcdefghij", "hello");
    let first = open(&text, 784, with.clone()).infer(&request);
    let written = files(folder.path());
    assert_eq!(written.len(), 2);
    // The longer file is tried first.
    let length = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let longest = written.iter().max_by_key(|path| length(path)).unwrap();
    let good = fs::read(longest).unwrap();
    let forged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good[..good.len() - 32].to_vec();
        change(&mut bytes);
        let digest = Sha256::digest(&bytes);
        [bytes.as_slice(), digest.as_slice()].concat()
    };
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let description = u32::from_le_bytes(good[12..16].try_into().unwrap()) as usize;
    let other_token = forged(&|bytes| bytes[16 + description] ^= 1);
    let cases: [(&str, Vec<u8>); 9] = [
        ("empty", Vec::new()),
        ("cut", good[..good.len() / 2].to_vec()),
        ("the first byte", changed(0)),
        ("the version", changed(8)),
        ("a byte of the data", changed(good.len() - 100)),
        ("the checksum", changed(good.len() - 1)),
        ("other tokens, with their checksum", other_token),
        ("more than it says", [good.as_slice(), &[0]].concat()),
        ("a prefix of another length", fs::read(&written[0]).unwrap()),
    ];
    let read_again = |what: &str| {
        let chat = open(&text, 784, with.clone());
        let reply = chat.infer(&request);
        assert_eq!(reply["text"], first["text"], "{what}");
        let (read, _, prompt) = counts(&reply);
        assert!(read < prompt - OPENING, "{what}: {reply}");
        let said = warnings(&chat);
        assert_eq!(said.len(), 1, "{what}: {said:?}");
        drop(chat);
        let chat = open(&text, 784, with.clone());
        assert_eq!(counts(&chat.infer(&request)).0, prompt - OPENING, "{what}: written again");
        assert_eq!(warnings(&chat), [""; 0], "{what}");
        assert_eq!(files(folder.path()), written, "{what}");
    };
    for (what, bytes) in cases.iter().filter(|(_, bytes)| *bytes != good) {
        fs::write(longest, bytes).unwrap();
        read_again(what);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("target");
        fs::rename(longest, &target).unwrap();
        symlink(&target, longest).unwrap();
        read_again("a link");
        assert_eq!(fs::read(&target).unwrap(), good, "what a link leads to is left alone");
        fs::set_permissions(longest, fs::Permissions::from_mode(0o622)).unwrap();
        read_again("a file that others may write");
        fs::remove_file(longest).unwrap();
        fs::create_dir(longest).unwrap();
        let chat = open(&text, 784, with.clone());
        assert_eq!(chat.infer(&request)["text"], first["text"]);
        assert!(!warnings(&chat).is_empty(), "a directory");
        drop(chat);
        fs::remove_dir(longest).unwrap();
        fs::write(longest, &good).unwrap();
        fs::set_permissions(longest, fs::Permissions::from_mode(0o600)).unwrap();
        if chown(longest, Some(65_534), None).is_err() {
            return println!("skipped: a file of another user, because this user is not root");
        }
        read_again("the file of another user");
    }
}

#[test]
fn what_shapes_a_state_has_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let text = scripted_model("text.gguf");
    let adapter = folder.with_file_name("adapter.gguf");
    fs::write(&adapter, text_model().adapter(3, 8).to_bytes()).unwrap();
    let request = conversation("abcdefghij", "hello");
    let read = |model: &str, n_ctx: u32, members: Value, request: &Value| {
        let mut with = json!({ "cache_dir": folder });
        with.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        counts(&open(model, n_ctx, with).infer(request)).0
    };
    assert_eq!(read(&text, 792, json!({}), &request), 0);
    let found = read(&text, 792, json!({ "n_parallel": 1, "n_batch": 64 }), &request);
    assert!(found > 0, "what shapes no state does not matter");
    // A copy of the model in another folder counts as the same model.
    let moved = folder.with_file_name("moved.gguf");
    fs::copy(&text, &moved).unwrap();
    assert_eq!(read(moved.to_str().unwrap(), 792, json!({}), &request), found);
    for (model, n_ctx, members) in [
        (scripted_model("no_tools.gguf"), 792, json!({})),
        (text.clone(), 800, json!({})),
        (text.clone(), 792, json!({ "cache_type_k": "q8_0" })),
        (text.clone(), 792, json!({ "flash_attn": "on" })),
        (text.clone(), 792, json!({ "lora": [adapter] })),
    ] {
        assert_eq!(read(&model, n_ctx, members.clone(), &request), 0, "{members}");
        assert!(read(&model, n_ctx, members.clone(), &request) > 0, "{members}");
    }
    // The adapter has another scale.
    let mut scaled = request.clone();
    scaled["lora"] = json!([{ "id": 0, "scale": 0.5 }]);
    let with = json!({ "lora": [adapter] });
    assert_eq!(read(&text, 792, with.clone(), &scaled), 0);
    assert!(read(&text, 792, with, &scaled) > 0);
}

/// Another file gets the model's name while a chat is open. What the chat computes is of the old
/// model, and must not be found for the new one.
#[test]
fn a_file_that_replaces_the_model_finds_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (dense, other) = (model(Memory::Dense), scripted_model("long.gguf"));
    fs::copy(&dense, at("model.gguf")).unwrap();
    fs::copy(&other, at("new.gguf")).unwrap();
    let model = at("model.gguf").to_str().unwrap().to_owned();
    let with = json!({ "cache_dir": at("cache") });
    let request = conversation("abcdefghij", "hello");
    let chat = open(&model, 840, with.clone());
    fs::rename(at("new.gguf"), at("model.gguf")).unwrap();
    let reply = chat.infer(&request);
    assert_eq!(reply["text"], open(&dense, 848, json!({})).infer(&request)["text"]);
    let said = warnings(&chat);
    assert!(said.len() == 1 && said[0].contains("has changed since it was loaded"), "{said:?}");
    drop(chat);
    assert_eq!(files(&at("cache")), Vec::<PathBuf>::new());
    let renewed = open(&model, 840, with).infer(&request);
    assert_eq!(counts(&renewed).0, 0);
    assert_eq!(renewed["text"], open(&other, 848, json!({})).infer(&request)["text"]);
}

#[test]
fn the_files_that_were_not_used_for_the_longest_time_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let text = scripted_model("text.gguf");
    let ask = |rules: &str, bytes: u64| {
        let chat =
            open(&text, 808, json!({ "cache_dir": folder, "cache_bytes": bytes, "n_parallel": 1 }));
        counts(&chat.infer(&conversation(rules, "hello"))).0
    };
    let total = || files(&folder).iter().map(|file| fs::metadata(file).unwrap().len()).sum::<u64>();
    let most = 1 << 40;
    assert_eq!(ask("abcdefghij", most), 0);
    let each = total();
    let first = files(&folder);
    // The test sets the times itself, so that the order does not depend on the resolution of the
    // clock.
    let age = |files: &[PathBuf], hours: u64| {
        let time = SystemTime::now() - Duration::from_secs(3600 * hours);
        files.iter().for_each(|file| fs::File::open(file).unwrap().set_modified(time).unwrap());
    };
    age(&first, 5);
    assert_eq!(ask("bcdefghija", most), 0);
    let second: Vec<PathBuf> =
        files(&folder).into_iter().filter(|file| !first.contains(file)).collect();
    age(&second, 3);
    assert_eq!(total(), 2 * each);
    // Unrelated files are not removed, but a partial file that a crash has left is.
    let strange = folder.join("notes.txt");
    fs::write(&strange, "x").unwrap();
    let part = folder
        .join(format!("{}.0123456789abcdef.tmp", second[0].file_name().unwrap().to_str().unwrap()));
    fs::write(&part, "x").unwrap();
    fs::File::open(&part).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    // This uses the first conversation, at least the longer of its files, so the second becomes the
    // oldest.
    assert!(ask("abcdefghij", most) > 0);
    age(&first, 1);
    assert_eq!(ask("cdefghijab", 2 * each + each / 4), 0);
    assert!(second.iter().all(|file| !file.exists()), "{:?}", files(&folder));
    assert!(!part.exists() && strange.exists(), "{:?}", files(&folder));
    assert!(total() <= 2 * each + each / 4, "{} {each}", total());
    assert!(ask("abcdefghij", most) > 0 && ask("cdefghijab", most) > 0);
    // A file that is larger than the limit is not written, and no other file is removed for it.
    let before = files(&folder);
    assert_eq!(ask("defghijabc", 1000), 0);
    assert_eq!(files(&folder), before);
}

const CHILD: &str = "LLB_TEST_CACHE_DIR";

/// Two processes write, read and remove the same files.
#[test]
fn processes_share_a_folder() {
    let rules = |round: usize| ["abcdefghij", "bcdefghija", "cdefghijab"][round % 3];
    if let Ok(folder) = std::env::var(CHILD) {
        for round in 0..9 {
            let text = std::env::var("LLB_TEST_CACHE_MODEL").unwrap();
            let with = json!({ "cache_dir": folder, "cache_bytes": 150_000 });
            let reply = open(&text, 816, with).infer(&conversation(rules(round), "hello"));
            println!("reply {} {}", rules(round), reply["text"]);
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let text = model(Memory::Both);
    let spawn = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["cache_dir::processes_share_a_folder", "--exact", "--nocapture"])
            .env(CHILD, &folder)
            .env("LLB_TEST_CACHE_MODEL", &text)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = [spawn(), spawn()];
    let expected: Vec<String> = (0..9)
        .map(|round| {
            let reply = open(&text, 824, json!({})).infer(&conversation(rules(round), "hello"));
            format!("reply {} {}", rules(round), reply["text"])
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}{errors}");
        let replies: Vec<&str> =
            printed.lines().filter(|line| line.starts_with("reply ")).collect();
        assert_eq!(replies, expected);
    }
    let left = files(&folder);
    assert!(!left.is_empty() && left.iter().all(|file| file.extension().unwrap() == "llbprefix"));
    let total: u64 = left.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(total <= 150_000, "{total}");
}

#[test]
fn a_state_file_may_be_used_too() {
    let folder = tempfile::tempdir().unwrap();
    let with = json!({ "cache_dir": folder.path().join("cache"), "state_file": folder.path().join("state") });
    let text = scripted_model("text.gguf");
    let request = conversation("abcdefghij", "hello");
    let first = open(&text, 832, with.clone()).infer(&request);
    // The state file has more of the prompt than the folder, and is loaded first.
    let reply = open(&text, 832, with.clone()).infer(&request);
    let (read, cached, prompt) = counts(&reply);
    assert_eq!((read, cached, &reply["text"]), (0, prompt - 1, &first["text"]));
}

#[test]
fn a_real_model_reads_its_prompt() {
    let Some(model) = real_model("smollm2-135m-instruct-q4_1.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = json!({ "model": model, "n_ctx": 1024, "n_threads": 2, "tool_policy": "any", "isolation": "none",
        "cache_dir": folder.path().join("cache") });
    let open = || Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    let rules = "You answer in one short sentence. You are polite, and you never guess. ".repeat(6);
    let request = json!({ "temperature": 0, "max_tokens": 8, "messages": [
        { "role": "system", "content": rules }, { "role": "user", "content": "What is the capital of France?" }] });
    let first = open().infer(&request);
    assert_eq!(counts(&first).0, 0);
    let second = open().infer(&request);
    let (read, cached, prompt) = counts(&second);
    assert!(read > 64 && cached == read && read < prompt, "{second}");
    assert_eq!(second["text"], first["text"]);
}
