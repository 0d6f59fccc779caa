//! Tests sounds in requests: tiny models and projectors with random weights, whose replies change
//! with everything that they are given.

use std::f32::consts::TAU;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llb::api::Modality;
use llb::ffi;
use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::abi::{Chat, model_info};
use crate::media::{
    Files, RED, ask, cached, call, check_refused, image_part, number, open, picture,
};
use crate::media::{text_part, user};
use crate::scripted::projector::{ProjectorFile, SAMPLE_RATE, kinds, sound_tokens, window_tokens};
use crate::scripted::random::{N_EMBD, random};

/// Options whose context holds a sound.
pub fn options(files: &Files) -> Value {
    let mut options = files.exact_options();
    options["n_ctx"] = 2048.into();
    options
}

/// A WAV file with a tone of so many oscillations a second.
pub fn tone(frequency: f32, samples: u32) -> Vec<u8> {
    let sample = |at: u32| {
        let angle = TAU * frequency * at as f32 / SAMPLE_RATE as f32;
        (angle.sin() * 9000.0) as i16
    };
    let data: Vec<u8> = (0..samples).flat_map(|at| sample(at).to_le_bytes()).collect();
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend(SAMPLE_RATE.to_le_bytes());
    file.extend((SAMPLE_RATE * 2).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

/// Half a second, and most of a window: a reply depends little on a part of it.
const SHORT: u32 = SAMPLE_RATE / 2;
const LONG: u32 = 25 * SAMPLE_RATE;
const LOW: f32 = 200.0;
const HIGH: f32 = 2000.0;

pub fn audio_part(file: &[u8]) -> Value {
    let data = STANDARD.encode(file);
    json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } })
}

pub fn about(file: &[u8]) -> Value {
    json!([user(json!([text_part("hear"), audio_part(file), text_part("what is it")]))])
}

fn fixture(name: &str) -> Vec<u8> {
    let text = include_str!("../data/sounds.json");
    let sounds: Value = serde_json::from_str(text).unwrap();
    let mut cases = sounds["cases"].as_array().unwrap().iter();
    let case = cases.find(|case| case["name"] == name).unwrap_or_else(|| panic!("{name}"));
    STANDARD.decode(case["file"].as_str().unwrap()).unwrap()
}

/// The texts around a sound, for whose tokens the vocabulary has only bytes.
fn around(kind: ProjectorType) -> usize {
    match kind {
        ProjectorType::Qwen2Audio => "<|audio_bos|><|audio_eos|>".len(),
        ProjectorType::Qwen3Audio => "<|audio_start|><|audio_end|>".len(),
        ProjectorType::Voxtral => "[BEGIN_AUDIO]".len(),
        ProjectorType::MusicFlamingo => "<sound>".len(),
        ProjectorType::Gemma4Audio | ProjectorType::Gemma4UnifiedAudio => "<|audio><audio|>".len(),
        _ => 0,
    }
}

#[test]
fn a_reply_depends_on_the_sound() {
    for kind in kinds(Modality::Audio) {
        let files = Files::new(kind);
        let fresh = |frequency| ask(&open(&options(&files)), &about(&tone(frequency, LONG)));
        let (low, high) = (fresh(LOW), fresh(HIGH));
        assert_ne!(low["text"], high["text"], "{kind:?}");
        let chat = open(&options(&files));
        let again = ask(&chat, &about(&tone(HIGH, LONG)));
        assert_eq!((cached(&again), &again["text"]), (0, &high["text"]), "{kind:?}");
        // Without the sound there are fewer tokens: nothing stands for a marker.
        let text = json!([user(json!([text_part("hear"), text_part("what is it")]))]);
        let fewer = number(&ask(&chat, &text)["usage"]["prompt_tokens"]) as usize;
        // Text parts are joined by a line feed, and a sound by nothing.
        let places: usize = sound_tokens(kind, LONG).iter().sum();
        let expected = fewer - 1 + places + around(kind);
        assert_eq!(number(&again["usage"]["prompt_tokens"]) as usize, expected, "{kind:?}");
        let explained = chat.explain(&json!({ "messages": about(&tone(LOW, SHORT)) }));
        let media = explained["media"].as_array().unwrap();
        let tokens: Vec<usize> =
            media.iter().map(|piece| number(&piece["tokens"]) as usize).collect();
        assert_eq!(tokens, sound_tokens(kind, SHORT), "{kind:?} {explained}");
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn what_was_in_memory_changes_no_reply() {
    for kind in kinds(Modality::Audio) {
        let files = Files::new(kind);
        let reply = || ask(&open(&options(&files)), &about(&tone(LOW, SHORT)))["text"].clone();
        crate::media::check_depends_on_no_memory(kind, reply);
    }
}

#[test]
fn a_second_turn_about_a_sound_encodes_nothing() {
    let files = Files::new(ProjectorType::Qwen2Audio);
    let chat = open(&options(&files));
    let file = tone(LOW, SHORT);
    let first = ask(&chat, &about(&file));
    let mut messages = about(&file);
    let list = messages.as_array_mut().unwrap();
    list.push(json!({ "role": "assistant", "content": first["text"] }));
    list.push(user(json!("and now")));
    let second = ask(&chat, &messages);
    assert!(cached(&second) >= number(&first["usage"]["prompt_tokens"]), "{second}");
    // It is what a chat that has seen nothing replies.
    drop(chat);
    let fresh = ask(&open(&options(&files)), &messages);
    assert_eq!((cached(&fresh), &fresh["text"]), (0, &second["text"]));
}

#[test]
fn every_format_is_a_sound() {
    let files = Files::new(ProjectorType::Ultravox);
    let chat = open(&options(&files));
    let wav = ask(&chat, &about(&fixture("wav PCM_16")));
    // The same samples.
    assert_eq!(ask(&chat, &about(&fixture("flac")))["text"], wav["text"]);
    for name in ["mp3", "wav at 8 kHz", "flac at 48 kHz", "mp3 of two channels at 44.1 kHz"] {
        let reply = ask(&chat, &about(&fixture(name)));
        assert_eq!(reply["finish_reason"], "length", "{name}");
        assert_eq!(reply["usage"]["prompt_tokens"], wav["usage"]["prompt_tokens"], "{name}");
    }
}

#[test]
fn counts_are_those_of_replies() {
    // The last sample of a window, and the first of the next.
    const FULL: u32 = 479_840;
    for kind in kinds(Modality::Audio) {
        let files = Files::new(kind);
        let chat = open(&options(&files));
        for samples in [1, SHORT, FULL - 1, FULL] {
            let windows = sound_tokens(kind, samples).len();
            let messages = about(&tone(LOW, samples));
            let counted = call(ffi::llb_count, &files, json!({ "messages": messages }));
            let reply = ask(&chat, &messages);
            assert_eq!(
                counted["prompt_tokens"], reply["usage"]["prompt_tokens"],
                "{kind:?} {samples}"
            );
            let explained = chat.explain(&json!({ "messages": messages }));
            assert_eq!(explained["media"].as_array().map(Vec::len), Some(windows), "{kind:?}");
        }
        let mp3 = about(&fixture("mp3 of two channels at 44.1 kHz"));
        let counted = call(ffi::llb_count, &files, json!({ "messages": mp3 }));
        assert_eq!(counted["prompt_tokens"], ask(&chat, &mp3)["usage"]["prompt_tokens"]);
    }
}

/// llama.cpp refuses a sound whose last window of 30 seconds has one sample.
#[test]
fn one_more_sample_than_30_seconds_is_heard() {
    let files = Files::new(ProjectorType::Gemma4Audio);
    let chat = open(&options(&files));
    let messages = about(&tone(LOW, 30 * SAMPLE_RATE + 1));
    let explained = chat.explain(&json!({ "messages": messages }));
    let media = explained["media"].as_array().unwrap();
    let tokens: Vec<u64> = media.iter().map(|piece| number(&piece["tokens"])).collect();
    assert_eq!(tokens, [750, 1]);
    let counted = call(ffi::llb_count, &files, json!({ "messages": messages }));
    let reply = ask(&chat, &messages);
    assert_eq!(counted["prompt_tokens"], reply["usage"]["prompt_tokens"]);
}

/// llama.cpp has room for a number of nodes, and a conformer needs more of them than other layers.
#[test]
fn a_conformer_may_have_many_layers() {
    let kind = ProjectorType::Gemma4Audio;
    let mut file = ProjectorFile::new(kind, N_EMBD);
    file.repeat_layers(48);
    let files = Files::with(kind, &file);
    assert_eq!(ask(&open(&options(&files)), &about(&tone(LOW, SHORT)))["finish_reason"], "length");
}

#[test]
fn a_bad_sound_is_an_error_with_its_path() {
    let files = Files::new(ProjectorType::Qwen2Audio);
    let mut limited = options(&files);
    limited["media_limits"] = json!({ "seconds": 1, "parts": 2 });
    let (chat, limited) = (open(&options(&files)), open(&limited));
    let path = "messages[1].content[0].input_audio.data";
    let with = |part: Value| json!([part, text_part("b")]);
    let base64 = |data: Value| json!({ "type": "input_audio", "input_audio": { "data": data } });
    check_refused(&chat, with(base64("?".into())), &format!("{path}: not valid base64"));
    check_refused(&chat, with(base64(Value::Null)), &format!("{path}: missing"));
    let not_a_sound = "not a sound; WAV, MP3 and FLAC are supported";
    check_refused(&chat, with(audio_part(b"hello")), &format!("{path}: {not_a_sound}"));
    let file = tone(LOW, SHORT);
    check_refused(
        &chat,
        with(audio_part(&file[..file.len() - 2])),
        &format!("{path}: a damaged sound: it has 15998 of 16000 bytes of samples"),
    );
    // Another chat of the model has other limits, also for a sound that is known.
    let longer = tone(LOW, SAMPLE_RATE + 1);
    assert_eq!(ask(&chat, &about(&longer))["finish_reason"], "length");
    let too_long = "a sound of more than 1 seconds; shorten it, or raise media_limits.seconds";
    check_refused(&limited, with(audio_part(&longer)), &format!("{path}: {too_long}"));
    let three = audio_part(&tone(LOW, 100));
    check_refused(
        &limited,
        json!([three, three, three, text_part("b")]),
        "messages[1].content[2]: a request has at most 2 media parts; send fewer, or raise media_limits.parts",
    );
    check_refused(
        &chat,
        with(image_part(&picture(RED))),
        "messages[1].content[0]: the model takes text and sound, but this part has the type \"image_url\"; name a projector for it in the create option `projector`",
    );
    // The chat is as before.
    assert_eq!(ask(&chat, &about(&file))["finish_reason"], "length");
}

#[test]
fn parts_name_files_as_those_of_pictures() {
    let files = Files::new(ProjectorType::Ultravox);
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("low tone.wav"), tone(LOW, SHORT));
    std::fs::write(&path, &file).unwrap();
    let mut with_folder = options(&files);
    with_folder["media_folders"] = json!([folder.path()]);
    let url = format!("file://{}", path.to_str().unwrap().replace(' ', "%20"));
    let data = format!("data:audio/wav;base64,{}", STANDARD.encode(&file));
    let expected = ask(&open(&with_folder), &about(&file));
    let processes = if cfg!(target_os = "linux") { &["none", "process"][..] } else { &["none"] };
    for isolation in processes {
        with_folder["isolation"] = (*isolation).into();
        let chat = open(&with_folder);
        for part in [
            json!({ "type": "audio", "path": path }),
            json!({ "type": "audio_url", "audio_url": { "url": url } }),
            json!({ "type": "audio_url", "audio_url": data }),
            audio_part(&file),
        ] {
            let messages = json!([user(json!([text_part("hear"), part, text_part("what is it")]))]);
            let reply = ask(&chat, &messages);
            assert_eq!(reply["text"], expected["text"], "{isolation} {part}");
            assert_eq!(reply["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"]);
        }
        let bad = chat.infer(&json!({ "messages": about(b"hello") }));
        assert_eq!(
            bad["error"]["message"],
            "messages[0].content[1].input_audio.data: not a sound; WAV, MP3 and FLAC are supported"
        );
    }
}

#[test]
fn a_request_with_a_sound_ends_in_time() {
    let files = Files::new(ProjectorType::Qwen2Audio);
    let chat = open(&options(&files));
    let messages = about(&tone(LOW, SHORT));
    let reply = chat.infer(&json!({ "messages": messages, "timeout_ms": 1 }));
    assert_eq!(reply["finish_reason"], "cancelled", "{reply}");
    assert_eq!(ask(&chat, &messages)["finish_reason"], "length");
}

#[test]
fn what_a_model_hears_is_known_before_it_is_loaded() {
    for kind in kinds(Modality::Audio) {
        let files = Files::new(kind);
        let info = model_info(files.model().to_str().unwrap());
        assert_eq!(info["input_modalities"], json!(["text", "audio"]), "{kind:?}");
        let request = json!({ "n_ctx": 256 });
        let projector = call(ffi::llb_memory, &files, request)["projector"].clone();
        assert_eq!(projector["type"], kind.as_str());
        assert_eq!(projector["input_modalities"], json!(["audio"]));
        assert_eq!(projector["tokens_per_window"], window_tokens(kind));
        assert_eq!(projector["tokens_per_image"], Value::Null);
        let numbers = ProjectorFile::new(kind, N_EMBD).tensors;
        let numbers: u64 = numbers.iter().map(|(_, shape)| shape.iter().product::<u64>()).sum();
        assert_eq!(projector["weights"], 4 * numbers);
        // The activations of one layer, at least.
        assert!(number(&projector["compute"]) > 300 * 32 * 4, "{projector}");
    }
}

#[test]
fn a_projector_that_cannot_hear_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let kind = ProjectorType::Ultravox;
    let model = folder.path().join("model.gguf");
    std::fs::write(&model, random(crate::scripted::projector::memory(kind))).unwrap();
    let refusal = |change: &dyn Fn(&mut ProjectorFile)| {
        let mut file = ProjectorFile::new(kind, N_EMBD);
        change(&mut file);
        let path = folder.path().join("changed.gguf");
        std::fs::write(&path, file.to_bytes()).unwrap();
        let options = json!({ "model": model, "projector": path, "tool_policy": "any" });
        let refused = Chat::open_with(&options).err().expect("refused");
        assert_eq!(refused.code(), "INVALID_REQUEST", "{refused:?}");
        refused.message().to_owned()
    };
    let shaped = |name: &'static str, shape: &'static [u64]| {
        let change = move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        };
        let message = refusal(&change);
        assert!(message.contains(&format!("tensor {name:?} has the shape {shape:?}")), "{message}");
    };
    shaped("a.position_embd.weight", &[32, 1499]);
    shaped("a.conv1d.2.bias", &[32]);
    shaped("a.blk.1.attn_v.bias", &[31]);
    shaped("mm.a.norm_mid.weight", &[47]);
    let message = refusal(&|file| {
        file.tensors.push(("a.blk.0.attn_k.bias".to_owned(), vec![32]));
    });
    assert!(message.contains("\"a.blk.0.attn_k.bias\" is not one of a projector"), "{message}");
    let message = refusal(&|file| {
        file.set("clip.audio.projector.stack_factor", 8_u32);
        for (name, shape) in &mut file.tensors {
            if ["mm.a.norm_pre.weight", "mm.a.mlp.1.weight"].contains(&name.as_str()) {
                shape[0] = 8 * 32;
            }
        }
    });
    assert!(message.contains("llama.cpp expects 187 embeddings and computes 188"), "{message}");
}

#[test]
fn cancelling_ends_the_encode() {
    let files = Files::new(ProjectorType::Qwen2Audio);
    let chat = open(&options(&files));
    // Ten windows, of which each is encoded on its own.
    let messages = about(&tone(LOW, 10 * 30 * SAMPLE_RATE - SAMPLE_RATE));
    let mut long = options(&files);
    long["n_ctx"] = 16_384.into();
    let long = open(&long);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| long.infer(&json!({ "messages": messages, "max_tokens": 4 })));
        while !running.is_finished() {
            ffi::llb_chat_cancel(long.handle());
            std::thread::sleep(Duration::from_millis(1));
        }
        let reply = running.join().unwrap();
        assert_eq!(reply["finish_reason"], "cancelled", "{reply}");
    });
    assert_eq!(ask(&chat, &about(&tone(LOW, SHORT)))["finish_reason"], "length");
}
