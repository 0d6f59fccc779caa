//! Tests projectors that take both pictures and sound.

use llb::ffi;
use llb::gguf::ProjectorType::{Gemma4Audio, Gemma4UnifiedAudio, Gemma4UnifiedV, Gemma4V};
use llb::gguf::ProjectorType::{Mlp, Qwen2Audio, Qwen25Vl, Ultravox};
use serde_json::{Value, json};

use crate::abi::model_info;
use crate::media::{BLUE, Files, RED, ask, call, image_part, number, open, picture, text_part};
use crate::media::{cached, user};
use crate::scripted::projector::{ProjectorFile, embedding, image_tokens};
use crate::scripted::projector::{sound_tokens, window_tokens};
use crate::sounds::{audio_part, options, tone};

const LOW: f32 = 200.0;
const HIGH: f32 = 2000.0;
/// Most of a window of 30 seconds.
const SAMPLES: u32 = 400_000;

fn about(color: [u8; 3], frequency: f32) -> Value {
    let sound = audio_part(&tone(frequency, SAMPLES));
    json!([user(json!([image_part(&picture(color)), sound, text_part("what is it")]))])
}

#[test]
fn a_model_sees_and_hears() {
    // The second one has positions of several dimensions.
    for (sight, hearing) in [
        (Mlp, Ultravox),
        (Qwen25Vl, Qwen2Audio),
        (Gemma4V, Gemma4Audio),
        (Gemma4UnifiedV, Gemma4UnifiedAudio),
    ] {
        let file = ProjectorFile::of_both(sight, hearing, embedding(sight));
        let files = Files::with(sight, &file);
        let text = |messages: &Value| ask(&open(&options(&files)), messages)["text"].clone();
        let first = text(&about(RED, LOW));
        assert_ne!(first, text(&about(BLUE, LOW)), "{sight:?}");
        assert_ne!(first, text(&about(RED, HIGH)), "{sight:?}");
        // One after the other, with the cache of the first.
        let chat = open(&options(&files));
        let reply = ask(&chat, &about(RED, HIGH));
        let again = ask(&chat, &about(RED, LOW));
        assert!(cached(&again) >= image_tokens(sight, 40, 40) as u64, "{again}");
        assert_eq!(again["text"], first, "{sight:?}");
        assert_eq!(reply["usage"]["prompt_tokens"], again["usage"]["prompt_tokens"]);
        // Counted without the projector in memory.
        let counted = call(ffi::llb_count, &files, json!({ "messages": about(RED, LOW) }));
        assert_eq!(counted["prompt_tokens"], again["usage"]["prompt_tokens"]);
        let media = &chat.explain(&json!({ "messages": about(RED, LOW) }))["media"];
        let tokens: Vec<u64> =
            media.as_array().unwrap().iter().map(|piece| number(&piece["tokens"])).collect();
        let places = [vec![image_tokens(sight, 40, 40)], sound_tokens(hearing, SAMPLES)].concat();
        assert_eq!(tokens, places.iter().map(|count| *count as u64).collect::<Vec<_>>());
        let info = model_info(files.model().to_str().unwrap());
        assert_eq!(info["input_modalities"], json!(["text", "image", "audio"]), "{info}");
        let memory = call(ffi::llb_memory, &files, json!({ "n_ctx": 256 }));
        let projector = &memory["projector"];
        assert_eq!(projector["input_modalities"], json!(["image", "audio"]), "{memory}");
        assert_eq!(projector["type"], format!("{}, {}", sight.as_str(), hearing.as_str()));
        assert_eq!(projector["tokens_per_window"], window_tokens(hearing));
        assert!(projector["tokens_per_image"].is_number(), "{memory}");
    }
}
