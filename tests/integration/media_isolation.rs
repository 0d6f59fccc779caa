//! Tests pictures in chats whose model runs in a helper process.

use std::time::{Duration, Instant};

use llb::api::Modality;
use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::abi::Chat;
use crate::isolation::{code, kill, wait_for_end, worker};
use crate::media::{
    Album, BLUE, Files, RED, about, image_part, picture_of, text_part, user, with_part,
};
use crate::scripted::projector::{ProjectorFile, kinds};
use crate::scripted::random::N_EMBD;

fn open(options: &Value) -> Chat {
    Chat::open_with(options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn isolated(files: &Files) -> Value {
    let mut options = files.options();
    options["isolation"] = "process".into();
    options["log"] = "info".into();
    options
}

#[test]
fn an_isolated_chat_sees_the_same() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let (inside, helper) = (open(&files.options()), open(&isolated(&files)));
        for messages in [about(RED), about(BLUE), json!([user(json!("no picture"))])] {
            let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 24 });
            let (expected, reply) = (inside.infer(&request), helper.infer(&request));
            assert_eq!(expected["finish_reason"], "length", "{expected}");
            assert_eq!(reply["text"], expected["text"], "{kind:?}");
            assert_eq!(reply["usage"], expected["usage"], "{kind:?}");
            assert_eq!(helper.explain(&request)["media"], inside.explain(&request)["media"]);
        }
        let bad = json!([user(json!([image_part("data:;base64,aGk="), text_part("?")]))]);
        let bad = json!({ "messages": bad });
        assert_eq!(helper.infer(&bad)["error"], inside.infer(&bad)["error"]);
    }
}

#[test]
fn the_host_reads_the_files_that_a_request_names() {
    let files = Files::new(ProjectorType::Gemma3);
    let (album, other) = (Album::new(&files), Album::new(&files));
    let mut options = album.options.clone();
    options["isolation"] = "process".into();
    let (inside, helper) = (open(&album.options), open(&options));
    let request =
        |part: &Value| json!({ "messages": with_part(part), "max_tokens": 24, "temperature": 0 });
    for (part, _) in album.parts("red cat.png") {
        let (expected, reply) = (inside.infer(&request(&part)), helper.infer(&request(&part)));
        assert_eq!(expected["finish_reason"], "length", "{expected}");
        assert_eq!(reply["text"], expected["text"], "{part}");
        assert_eq!(
            helper.explain(&request(&part))["media"],
            inside.explain(&request(&part))["media"]
        );
    }
    let names = [&album, &other].map(|album| album.parts("text.png"));
    for (part, member) in names.into_iter().flatten().chain(album.parts("none.png")) {
        let (expected, reply) = (inside.infer(&request(&part)), helper.infer(&request(&part)));
        assert_eq!(code(&reply), "INVALID_REQUEST", "{member}");
        assert_eq!(reply["error"], expected["error"], "{part}");
        assert_eq!(helper.explain(&request(&part))["error"], reply["error"], "{part}");
    }
    for broken in
        ["{", "[]", r#"{"messages":1}"#, r#"{"messages":[{"content":[{"type":"image"}]}]}"#]
    {
        assert_eq!(
            helper.explain_text(broken)["error"],
            inside.explain_text(broken)["error"],
            "{broken}"
        );
    }
    options["media_folders"] = json!([album.path("none")]);
    let refused = Chat::open_with(&options).err().expect("refused");
    assert_eq!(refused.events, ["create_start", "create_failure:invalid_options"]);
}

/// The processor time of a thread of this name, in ticks of the system.
fn ticks(process: i32, name: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let (before, after) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = after.split(' ').collect();
        let is_it = before.ends_with(&format!("({name}"));
        is_it.then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    };
    threads.flatten().filter_map(of).sum()
}

#[test]
fn a_worker_that_is_killed_in_an_encode_is_an_error_of_that_call() {
    // 1,024 patches, which each of two layers compares with each other. Eight in each direction are
    // one token.
    let kind = ProjectorType::Gemma3;
    let mut file = ProjectorFile::new(kind, N_EMBD);
    file.set("clip.vision.image_size", 128_u32);
    file.set("clip.vision.projector.scale_factor", 8_u32);
    let positions = |(name, _): &&mut (String, Vec<u64>)| name == "v.position_embd.weight";
    file.tensors.iter_mut().find(positions).unwrap().1 = vec![32, 32 * 32];
    let files = Files::with(kind, &file);
    let mut options = isolated(&files);
    options["n_threads"] = 1.into();
    let chat = open(&options);
    let process = worker(&chat.events());
    // Apart from a few tokens the prompt begins with pictures, so the engine is encoding them.
    let pictures = (1..20).map(|side| image_part(&picture_of(RED, side, 1)));
    let parts: Vec<Value> = pictures.chain([text_part("what is it")]).collect();
    let request = json!({ "messages": [user(json!(parts))] });
    let before = ticks(process, "llb-engine");
    let reply = std::thread::scope(|scope| {
        let call = scope.spawn(|| chat.infer(&request));
        let start = Instant::now();
        while ticks(process, "llb-engine") < before + 2 {
            assert!(!call.is_finished(), "the engine computes nothing");
            assert!(start.elapsed() < Duration::from_secs(300), "the engine computes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(process, libc::SIGKILL);
        call.join().unwrap()
    });
    assert_eq!(code(&reply), "INFERENCE_FAILED", "{reply}");
    assert_eq!(reply["error"]["details"]["signal"], libc::SIGKILL, "{reply}");
    assert_eq!(code(&chat.infer(&request)), "ENGINE_CLOSED");
    wait_for_end(process);
    // The next chat has a helper of its own.
    drop(chat);
    let small = json!({ "messages": about(BLUE), "max_tokens": 2 });
    let again = open(&options);
    assert_ne!(worker(&again.events()), process);
    assert_eq!(again.infer(&small)["finish_reason"], "length");
}
