//! Tests the option `state_file`: the computed state of a chat outlives the chat, and no file can
//! do harm.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::abi::{Chat, Recorder, ask, real_model, scripted_model};
use crate::scripted::{TEXT, text_model};

/// Opens a chat with this context size. Each test uses its own size, because tests with equal
/// options share a cache.
fn open(n_ctx: u32, model: &str, state: &Path, members: Value) -> Chat {
    let mut options = json!({ "model": model, "n_ctx": n_ctx, "state_file": state, "log": "warn" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap_or_else(|| panic!("{reply}"))
}

/// The reason why the state file was ignored, from the reply.
fn ignored(reply: &Value) -> Option<&str> {
    let diagnostics = reply["diagnostics"].as_array().unwrap();
    let ignored = diagnostics.iter().find(|diagnostic| diagnostic["code"] == "state_ignored");
    ignored.map(|ignored| ignored["message"].as_str().unwrap())
}

/// Lets a chat of `text.gguf` write the file. Returns the length of its prompt.
fn written(n_ctx: u32, state: &Path) -> u64 {
    let chat = open(n_ctx, &scripted_model("text.gguf"), state, json!({}));
    let reply = chat.infer(&ask(json!({})));
    assert_eq!((cached(&reply), ignored(&reply)), (0, None));
    assert!(!state.exists(), "it is written at the end");
    drop(chat);
    reply["usage"]["prompt_tokens"].as_u64().unwrap()
}

#[test]
fn the_next_chat_reuses_what_was_computed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("chat.state");
    let prompt = written(520, &state);
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["chat.state"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let first = std::fs::read(&state).unwrap();
    // A chat without a request does not change the file.
    drop(open(520, &scripted_model("text.gguf"), &state, json!({})));
    assert_eq!(std::fs::read(&state).unwrap(), first);
    // The last token of a prompt is always computed.
    let chat = open(520, &scripted_model("text.gguf"), &state, json!({}));
    let reply = chat.infer(&ask(json!({})));
    assert_eq!((cached(&reply), ignored(&reply), &reply["text"]), (prompt - 1, None, &json!(TEXT)));
    // The next turn also reuses the tokens of the reply, up to where tokens and text differ.
    let turn = json!([
        { "role": "user", "content": "Hello" },
        { "role": "assistant", "content": "" },
        { "role": "user", "content": "Hello again" },
    ]);
    let reply = chat.infer(&json!({ "messages": turn, "temperature": 0 }));
    assert!(cached(&reply) >= prompt - 1 && ignored(&reply).is_none(), "{reply}");
    drop(chat);
    assert_ne!(std::fs::read(&state).unwrap(), first, "the last request is what is kept");
}

#[test]
fn a_file_for_something_else_is_ignored_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (state, good) = (folder.path().join("state"), folder.path().join("good"));
    written(552, &good);
    let adapter = folder.path().join("adapter.gguf");
    std::fs::write(&adapter, text_model().adapter(3, 8).to_bytes()).unwrap();
    let text = scripted_model("text.gguf");
    let cases = [
        (scripted_model("no_tools.gguf"), json!({ "tool_policy": "any" }), "a different model"),
        (text.clone(), json!({ "n_ctx": 256 }), "a different n_ctx: 552, now 256"),
        (text.clone(), json!({ "kv_unified": false }), "a different kv_unified: true, now false"),
        (text.clone(), json!({ "cache_type_k": "q8_0" }), "a different cache_type_k"),
        (text.clone(), json!({ "flash_attn": "off" }), "a different flash_attn"),
        (text.clone(), json!({ "lora": [adapter] }), "a different lora"),
    ];
    for (model, members, says) in cases {
        std::fs::copy(&good, &state).unwrap();
        let chat = open(552, &model, &state, members.clone());
        let warnings: Vec<String> = chat
            .events()
            .into_iter()
            .filter(|event| event.starts_with("log:warn:state_file"))
            .collect();
        assert!(warnings.len() == 1 && warnings[0].contains(says), "{says}: {warnings:?}");
        let reply = chat.infer(&ask(json!({})));
        assert_eq!((cached(&reply), reply["finish_reason"].as_str()), (0, Some("stop")), "{says}");
        assert!(ignored(&reply).is_some_and(|message| message.contains(says)), "{says}: {reply}");
        assert_eq!(ignored(&chat.infer(&ask(json!({})))), None, "it is reported once");
        drop(chat);
        // The file was written again, by this chat.
        assert!(cached(&open(552, &model, &state, members).infer(&ask(json!({})))) > 0, "{says}");
    }
    // A copy of the model in another folder counts as the same model.
    let moved = folder.path().join("moved.gguf");
    std::fs::copy(&text, &moved).unwrap();
    assert!(
        cached(&open(552, moved.to_str().unwrap(), &good, json!({})).infer(&ask(json!({})))) > 0
    );
}

#[test]
fn no_file_does_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (state, good) = (folder.path().join("state"), folder.path().join("good"));
    written(584, &good);
    let good = std::fs::read(&good).unwrap();
    let checksum = good.len() - 32;
    let forged = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = good[..checksum].to_vec();
        change(&mut bytes);
        let digest = Sha256::digest(&bytes);
        [bytes.as_slice(), digest.as_slice()].concat()
    };
    // After the tokens comes llama.cpp's data: magic, sequence, streams, cells.
    let magic = 0xaf14_3cd8_u32.to_le_bytes();
    let data = good.windows(4).position(|window| window == magic).unwrap();
    let mut damaged = good.clone();
    damaged[checksum - 5] ^= 1;
    let mut files = vec![
        Vec::new(),
        b"LLBSTATE".to_vec(),
        vec![0xFF; 4096],
        damaged,
        good[..good.len() / 2].to_vec(),
    ];
    // The checksum is right, but llama.cpp must recognize the data as invalid.
    files.push(forged(&|bytes| bytes[data] = 0));
    for at in [8, 12, 16, 20] {
        files.push(forged(&|bytes| bytes[data + at..data + at + 4].fill(0xFF)));
        files.push(forged(&|bytes| bytes[data + at..data + at + 4].fill(0x7F)));
        files.push(forged(&|bytes| bytes[data + at..data + at + 4].fill(0)));
    }
    // Numbers at many positions of the data.
    for at in (data..data + 400).step_by(4) {
        files.push(forged(&|bytes| bytes[at..at + 4].fill(0x3F)));
    }
    // Another chat on the same model must not be affected.
    let neighbour =
        open(584, &scripted_model("text.gguf"), &folder.path().join("neighbour"), json!({}));
    for (number, file) in files.iter().enumerate() {
        std::fs::write(&state, file).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let chat = open(584, &scripted_model("text.gguf"), &state, json!({}));
        let reply = chat.infer(&ask(json!({})));
        if number < 5 {
            assert!(ignored(&reply).is_some(), "file {number}: {reply}");
        }
        assert!(reply["text"] == TEXT || reply["type"] == "error", "file {number}: {reply}");
        assert_eq!(
            chat.infer(&ask(json!({ "cache_prompt": false })))["text"],
            TEXT,
            "file {number}"
        );
        assert_eq!(neighbour.infer(&ask(json!({})))["text"], TEXT, "file {number}");
    }
}

/// The owner, the length and the version are checked before a file is read.
#[cfg(unix)]
#[test]
fn the_file_of_another_user_or_version_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (state, good) = (folder.path().join("state"), folder.path().join("good"));
    written(712, &good);
    let check = |says: &str| {
        let chat = open(712, &scripted_model("text.gguf"), &state, json!({}));
        let reply = chat.infer(&ask(json!({})));
        assert!(ignored(&reply).is_some_and(|message| message.contains(says)), "{says}: {reply}");
        llb::ffi::llb_chat_destroy(chat.handle());
        chat.events().concat()
    };
    let mut other_version = std::fs::read(&good).unwrap();
    other_version[8] = 2;
    std::fs::write(&state, other_version).unwrap();
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let file = std::fs::File::options().write(true).open(&state).unwrap();
    if let Err(error) = file.set_len(1 << 40) {
        println!("skipped: a file of a tebibyte ({error})");
    }
    check("its format version is 2");
    std::fs::copy(&good, &state).unwrap();
    if std::os::unix::fs::chown(&state, Some(65_534), None).is_err() {
        return println!("skipped: a file of another user, because this user is not root");
    }
    let events = check("it belongs to another user (uid 65534)");
    assert!(events.contains("log:error:state_file: ") && events.contains("uid 65534"), "{events}");
    assert_eq!(std::fs::read(&state).unwrap(), std::fs::read(&good).unwrap());
}

#[test]
fn an_unwritable_file_is_only_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    let state = inside.join("state");
    let options = json!({ "model": scripted_model("text.gguf"), "state_file": state });
    let refused = Chat::open_with(&options).err().unwrap();
    assert_eq!(
        (refused.code(), refused.events[1].as_str()),
        ("INVALID_REQUEST", "create_failure:invalid_options")
    );
    std::fs::create_dir(&inside).unwrap();
    let chat = open(616, &scripted_model("text.gguf"), &state, json!({}));
    let reply = chat.infer(&ask(json!({})));
    assert_eq!((&reply["text"], ignored(&reply)), (&json!(TEXT), None));
    std::fs::remove_dir(&inside).unwrap();
    llb::ffi::llb_chat_destroy(chat.handle());
    let events = chat.events();
    let [.., error, destroy] = events.as_slice() else { panic!("{events:?}") };
    assert!(error.starts_with("log:error:state_file: ") && destroy == "destroy", "{events:?}");
    // A folder is neither read nor replaced.
    let chat = open(616, &scripted_model("text.gguf"), folder.path(), json!({}));
    assert!(
        ignored(&chat.infer(&ask(json!({}))))
            .is_some_and(|message| message.contains("not a regular file"))
    );
    llb::ffi::llb_chat_destroy(chat.handle());
    assert!(
        chat.events().iter().any(|event| event.starts_with("log:error:state_file: ")),
        "{:?}",
        chat.events()
    );
}

#[test]
fn chats_on_one_model_keep_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| folder.path().join(format!("{n}"));
    let says = |n: usize| json!({ "messages": [{ "role": "user", "content": format!("{n} is my number") }], "temperature": 0 });
    // The prompts have nothing in common, because a chat takes over another chat's sequence if they
    // share a prefix.
    let open = |n: usize| {
        let members = json!({ "tool_policy": "any", "chat_template": "{{ messages[0].content }}" });
        open(648, &scripted_model("text.gguf"), &path(n), members)
    };
    let chats: Vec<Chat> = (0..4).map(open).collect();
    std::thread::scope(|scope| {
        chats
            .iter()
            .enumerate()
            .for_each(|(n, chat)| drop(scope.spawn(move || chat.infer(&says(n)))))
    });
    // A chat that is destroyed from a callback writes its file when its call ends.
    let handle = chats[0].handle().addr();
    let destroy = Recorder::reacting(move |_| {
        llb::ffi::llb_chat_destroy(std::ptr::without_provenance_mut(handle))
    });
    chats[0].stream(&says(0), &destroy);
    drop(chats);
    for n in 0..4 {
        let chat = open(n);
        let reply = chat.infer(&says(n));
        assert_eq!(
            (cached(&reply), &reply["text"]),
            (reply["usage"]["prompt_tokens"].as_u64().unwrap() - 1, &json!(TEXT))
        );
    }
}

#[test]
fn real_models_continue_from_a_state_file() {
    // Most layers of the second model have a sliding window of 512 tokens.
    for (name, slides) in
        [("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", false), ("gemma-3-270m-q4_k_m.gguf", true)]
    {
        let Some(model) = real_model(name) else { return };
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let template = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
        let members = json!({ "n_parallel": 1, "n_threads": 1, "tool_policy": "any", "chat_template": template });
        let story = "The cat sat on the mat, and the dog sat on the log. ".repeat(50);
        let request = |more: &str| json!({ "messages": [{ "role": "user", "content": format!("{story}{more}") }], "temperature": 0, "max_tokens": 12 });
        let cold = open(2048, &model, &folder.path().join("none"), members.clone());
        let expected = ["One day", "Then"].map(|more| cold.infer(&request(more)));
        let tokens = expected[0]["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(tokens > 700, "{tokens}");
        // The other context keeps what it has computed.
        let other = |state: &Path| {
            let mut members = members.clone();
            members["n_batch"] = json!(256);
            open(2048, &model, state, members)
        };
        drop(cold);
        let chat = other(&state);
        assert_eq!(chat.infer(&request("One day"))["text"], expected[0]["text"], "{name}");
        drop(chat);
        let chat = other(&state);
        let reply = chat.infer(&request("Then"));
        assert_eq!(reply["text"], expected[1]["text"], "{name}");
        if !slides {
            assert!(cached(&reply) > 700, "{reply}");
        }
    }
}
