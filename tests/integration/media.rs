//! Tests pictures in requests: tiny models and projectors with random weights, whose replies change
//! with everything that they are given.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::ImageEncoder;
use llb::api::Modality;
use llb::ffi;
use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::abi::{Chat, model_info, scripted_model, take};
use crate::scripted::gguf_writer::GgufWriter;
use crate::scripted::projector::{ProjectorFile, embedding, image_tokens, kinds, model};
use crate::scripted::random::{Memory, random};

type TokenFunction = unsafe extern "C" fn(*const c_char) -> *const c_char;

/// A model and its projector in a folder of their own.
pub struct Files {
    folder: tempfile::TempDir,
    kind: ProjectorType,
}

impl Files {
    pub fn new(kind: ProjectorType) -> Files {
        Files::with(kind, &ProjectorFile::new(kind, embedding(kind)))
    }

    pub fn with(kind: ProjectorType, projector: &ProjectorFile) -> Files {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model.gguf"), model(kind)).unwrap();
        std::fs::write(folder.path().join("mmproj-model.gguf"), projector.to_bytes()).unwrap();
        Files { folder, kind }
    }

    pub fn model(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }

    pub fn options(&self) -> Value {
        json!({ "model": self.model(), "projector": "auto", "tool_policy": "any", "n_ctx": 1024,
            "n_batch": self.least_batch(), "n_threads": 1 })
    }

    /// Less than most pictures have places, if those need not be in one batch.
    fn least_batch(&self) -> u32 {
        match self.kind {
            ProjectorType::Gemma4V | ProjectorType::Gemma4UnifiedV => 256,
            _ => 64,
        }
    }

    /// What is in the cache was summed in another order, and so are batches of several chats. With
    /// numbers of 32 bits the difference is smaller than those between letters.
    pub fn exact_options(&self) -> Value {
        let mut options = self.options();
        for (name, value) in
            [("cache_type_k", "f32"), ("cache_type_v", "f32"), ("flash_attn", "off")]
        {
            options[name] = value.into();
        }
        options
    }

    fn open(&self) -> Chat {
        open(&self.options())
    }
}

pub fn open(options: &Value) -> Chat {
    Chat::open_with(options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// The data URL of a PNG file: a gradient in this color.
pub fn picture(color: [u8; 3]) -> String {
    picture_of(color, 40, 40)
}

pub fn picture_of(color: [u8; 3], width: u32, height: u32) -> String {
    let pixel = |index: u32| {
        let bright = (index % width) as f32 / width as f32;
        color.map(|part| (f32::from(part) * bright) as u8)
    };
    let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    let mut file = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.write_image(&pixels, width, height, image::ExtendedColorType::Rgb8).unwrap();
    format!("data:image/png;base64,{}", STANDARD.encode(file))
}

pub const RED: [u8; 3] = [255, 20, 20];
pub const BLUE: [u8; 3] = [20, 20, 255];

pub fn image_part(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

pub fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub fn user(parts: Value) -> Value {
    json!({ "role": "user", "content": parts })
}

pub fn ask(chat: &Chat, messages: &Value) -> Value {
    let reply = chat.infer(&json!({ "messages": messages, "temperature": 0, "max_tokens": 24 }));
    assert_ne!(reply["type"], "error", "{reply}");
    reply
}

pub fn about(color: [u8; 3]) -> Value {
    json!([user(json!([text_part("see"), image_part(&picture(color)), text_part("what is it")]))])
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

pub fn cached(reply: &Value) -> u64 {
    number(&reply["usage"]["prompt_tokens_details"]["cached_tokens"])
}

#[test]
fn a_reply_depends_on_the_picture() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let chat = files.open();
        let red = ask(&chat, &about(RED));
        let blue = ask(&chat, &about(BLUE));
        assert_ne!(red["text"], blue["text"], "{kind:?}");
        // With nothing in the cache the reply is the same.
        drop(chat);
        let chat = files.open();
        let again = ask(&chat, &about(BLUE));
        assert_eq!((cached(&again), &again["text"]), (0, &blue["text"]), "{kind:?}");
        // Without the picture there are fewer tokens: nothing stands for a marker.
        let text = json!([user(json!([text_part("see"), text_part("what is it")]))]);
        let fewer = ask(&chat, &text);
        let tokens = |reply: &Value| number(&reply["usage"]["prompt_tokens"]) as usize;
        // Text parts are joined by a line feed, and a picture by nothing.
        let around = match kind {
            // The vocabulary has no tokens for these texts.
            ProjectorType::Gemma3 | ProjectorType::Gemma3NV => {
                "<start_of_image><end_of_image>".len()
            }
            ProjectorType::Gemma4V | ProjectorType::Gemma4UnifiedV => "<|image><image|>".len(),
            ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl | ProjectorType::Qwen3Vl => {
                "<|vision_start|><|vision_end|>".len()
            }
            // Four tiles and the whole. The rows and columns are spelled.
            ProjectorType::InternVl => "<img></img>".len(),
            ProjectorType::Pixtral => "[IMG_END]".len(),
            ProjectorType::Lfm2 | ProjectorType::Llama4 => "<|image_start|><|image_end|>".len(),
            ProjectorType::KimiVl => "<|media_start|><|media_end|>".len(),
            // The vocabulary has both tokens.
            ProjectorType::LightOnOcr => 2,
            ProjectorType::Glm4V => "<|begin_of_image|><|end_of_image|>".len(),
            ProjectorType::PaddleOcr => "<|IMAGE_START|><|IMAGE_END|>".len(),
            ProjectorType::DotsOcr => "<|img|><|endofimg|>".len(),
            // Two rows of one slice. The vocabulary has the tokens.
            ProjectorType::MiniCpmV => 2 + 2 * 2 + 1,
            ProjectorType::Idefics3 => 4 * (1 + "<row_1_col_1>".len()) + 5,
            _ => 0,
        };
        assert_eq!(tokens(&again), tokens(&fewer) - 1 + image_tokens(kind, 40, 40) + around);
    }
}

#[test]
fn a_second_turn_about_a_picture_computes_only_what_is_new() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let chat = open(&files.exact_options());
        let first = ask(&chat, &about(RED));
        let mut messages = about(RED);
        let list = messages.as_array_mut().unwrap();
        list.push(json!({ "role": "assistant", "content": first["text"] }));
        list.push(user(json!("and now")));
        let second = ask(&chat, &messages);
        assert!(cached(&second) >= number(&first["usage"]["prompt_tokens"]), "{second}");
        // It is what a chat that has seen nothing replies.
        drop(chat);
        let fresh = ask(&open(&files.exact_options()), &messages);
        assert_eq!((cached(&fresh), &fresh["text"]), (0, &second["text"]), "{kind:?}");
        // Another picture is not taken for it.
        let chat = files.open();
        ask(&chat, &about(RED));
        let blue = ask(&chat, &about(BLUE));
        assert!(cached(&blue) < number(&blue["usage"]["prompt_tokens"]) - 30, "{blue}");
    }
}

#[test]
fn a_large_picture_becomes_tiles_of_the_nearest_ratio() {
    let files = Files::new(ProjectorType::Lfm2);
    let mut options = files.options();
    options["n_ctx"] = 2048.into();
    let chat = open(&options);
    let large = picture_of(RED, 2000, 1500);
    let messages = json!([user(json!([image_part(&large), text_part("?")]))]);
    let explained = chat.explain(&json!({ "messages": messages }));
    let media = explained["media"].as_array().unwrap();
    let tokens: Vec<u64> = media.iter().map(|piece| number(&piece["tokens"])).collect();
    assert_eq!(tokens, [64, 64, 64, 64, 64, 64, 18 * 13]);
    let used = ask(&chat, &messages)["usage"]["prompt_tokens"].clone();
    let counted = call(ffi::llb_count, &files, json!({ "messages": messages }));
    assert_eq!(counted["prompt_tokens"], used);
    // The vocabulary has a token for the whole picture only.
    let small = picture_of(RED, 40, 40);
    let small = json!([user(json!([image_part(&small), text_part("?")]))]);
    let around = 6 * "<|img_row_1_col_1|>".len() + 1;
    let places = image_tokens(ProjectorType::Lfm2, 2000, 1500) - 64 + around;
    assert_eq!(
        number(&used),
        number(&ask(&chat, &small)["usage"]["prompt_tokens"]) + places as u64
    );
}

/// Numbers from 1 to `most`, the same in every run.
fn lengths(seed: u32, most: u32) -> impl Iterator<Item = u32> {
    let next = |number: &u32| Some(number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(seed), next).skip(1).map(move |number| 1 + (number >> 8) % most)
}

/// llama.cpp prepares as many places as llb counts, for pictures of any size and ratio.
#[test]
fn pictures_of_many_sizes_are_counted() {
    for (kind, seed) in kinds(Modality::Image).zip(1..) {
        let files = Files::new(kind);
        let mut options = files.options();
        options["n_ctx"] = 20_480.into();
        options["n_batch"] = "auto".into();
        let chat = open(&options);
        let [wide, narrow] = [lengths(seed, 1500), lengths(seed, 60)].map(|it| it.take(3));
        for (wide, narrow) in wide.zip(narrow) {
            for (width, height) in [(wide, wide / 2 + narrow), (narrow, wide)] {
                let url = picture_of(RED, width, height);
                let messages = json!([user(json!([image_part(&url), text_part("?")]))]);
                let details = json!({ "messages": messages, "details": true });
                let counted = call(ffi::llb_count, &files, details);
                let explained = chat.explain(&json!({ "messages": messages }));
                // Some types refuse the narrowest ones.
                let is_counted = counted["media"].is_array();
                assert!(is_counted || narrow < 32, "{kind:?} {width}x{height} {counted}");
                for member in ["media", "error"] {
                    assert_eq!(counted[member], explained[member], "{kind:?} {width}x{height}");
                }
            }
        }
    }
}

/// llama.cpp has room for a number of nodes, and fails an assertion where there are more.
#[test]
fn an_encoder_may_have_many_layers() {
    const MAX_LAYERS: u32 = 80;
    let has_blocks = [ProjectorType::Gemma3NV, ProjectorType::Gemma4UnifiedV];
    for kind in kinds(Modality::Image).filter(|kind| !has_blocks.contains(kind)) {
        let mut file = ProjectorFile::new(kind, embedding(kind));
        if kind == ProjectorType::Gemma4V {
            // All that a layer may have.
            for (bias, length) in [
                ("ln1", 32),
                ("ln2", 32),
                ("attn_q", 32),
                ("attn_k", 32),
                ("attn_v", 32),
                ("attn_out", 32),
                ("ffn_up", 48),
                ("ffn_gate", 48),
                ("ffn_down", 32),
            ] {
                for layer in 0..2 {
                    let name = format!("v.blk.{layer}.{bias}.bias");
                    file.tensors.push((name, vec![length]));
                }
            }
        }
        file.repeat_layers(MAX_LAYERS);
        let chat = Files::with(kind, &file).open();
        let reply =
            chat.infer(&json!({ "messages": about(RED), "temperature": 0, "max_tokens": 24 }));
        assert_eq!(reply["finish_reason"], "length", "{kind:?}: {reply}");
    }
}

/// Checks that a reply is the same if NaN is in all the memory that malloc gives.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn check_depends_on_no_memory(kind: ProjectorType, reply: impl Fn() -> Value) {
    // Memory is filled with the lowest byte of the complement.
    // SAFETY: sets a number.
    let fill = |with: i32| assert_eq!(unsafe { libc::mallopt(libc::M_PERTURB, with) }, 1);
    let expected = reply();
    fill(0x100);
    let filled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&reply));
    fill(0);
    assert_eq!(filled.ok(), Some(expected), "{kind:?}");
}

/// llama.cpp clears memory by a multiplication with 0, which leaves NaN.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn what_was_in_memory_changes_no_reply() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        check_depends_on_no_memory(kind, || ask(&files.open(), &about(RED))["text"].clone());
    }
}

/// A question about a picture that has more places than a batch of the tests.
fn about_a_wide_picture(question: &str) -> Value {
    let wide = picture_of(BLUE, 500, 20);
    json!([user(json!([text_part("see"), image_part(&wide), text_part(question)]))])
}

#[test]
fn the_size_of_batches_changes_no_reply() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let reply = |n_batch: u32| {
            let mut options = files.exact_options();
            options["n_batch"] = n_batch.into();
            ask(&open(&options), &about_a_wide_picture("what is it"))["text"].clone()
        };
        assert_eq!(reply(files.least_batch()), reply(512), "{kind:?}");
    }
}

/// The places of a picture of Gemma 4 attend to each other, and are as many as 1,120.
#[test]
fn a_picture_that_must_be_in_one_batch_is_refused_or_fits() {
    let files = Files::new(ProjectorType::Gemma4V);
    let mut options = files.options();
    options["n_ctx"] = 2048.into();
    let large = picture_of(RED, 330, 330);
    let messages = json!([
        { "role": "system", "content": "s" },
        user(json!([image_part(&large), text_part("?")])),
    ]);
    let problem = "messages[1].content[0].image_url.url: a picture of 330x330 pixels, whose 1089 \
                   places attend to each other, but a batch has at most 256; make it smaller, or \
                   raise n_batch";
    let chat = open(&options);
    check_refused(&chat, json!([image_part(&large), text_part("?")]), problem);
    assert_eq!(ask(&chat, &about(RED))["finish_reason"], "length");
    options["n_batch"] = 64.into();
    let refused = Chat::open_with(&options).err().expect("refused");
    assert!(refused.message().contains("pictures have 81 tokens"), "{refused:?}");
    // Without the option a batch holds every picture.
    options["n_batch"] = "auto".into();
    let used = ask(&open(&options), &messages)["usage"]["prompt_tokens"].clone();
    let counted = call(ffi::llb_count, &files, json!({ "messages": messages }));
    assert_eq!(counted["prompt_tokens"], used);
    assert!(number(&used) > 1089, "{used}");
}

#[test]
fn another_chat_reuses_a_picture() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let options = files.exact_options();
        let question = about_a_wide_picture("which color has it");
        let fresh = ask(&open(&options), &question);
        let (first, second) = (open(&options), open(&options));
        ask(&first, &about_a_wide_picture("what is it"));
        let reply = ask(&second, &question);
        let places = image_tokens(kind, 500, 20) as u64;
        assert!(cached(&reply) > places, "{kind:?} {reply}");
        assert_eq!(reply["text"], fresh["text"], "{kind:?}");
    }
}

#[test]
fn a_cancelled_picture_is_computed_again() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let options = files.exact_options();
        let question = about_a_wide_picture("what is it");
        let expected = ask(&open(&options), &question);
        let chat = open(&options);
        // Wherever it ends, the next request is as the first one of a chat.
        for timeout in 1..12 {
            chat.infer(&json!({ "messages": question, "timeout_ms": timeout, "temperature": 0 }));
            let reply = ask(&chat, &question);
            assert_eq!(reply["text"], expected["text"], "{kind:?} after {timeout} ms");
            // The next picture begins where this one did.
            ask(&chat, &about(RED));
        }
    }
}

#[test]
fn a_picture_that_cannot_be_scaled_is_refused() {
    let files = Files::new(ProjectorType::Qwen2Vl);
    let chat = files.open();
    let url = picture_of(RED, 70_000, 1);
    let problem = "a picture of 70000x1 pixels, whose sides differ too much for the projector: scaled, it would have more than 4096 embeddings or 65536 pixels in a row; cut it";
    let message = format!("messages[1].content[0].image_url.url: {problem}");
    check_refused(&chat, json!([image_part(&url), text_part("?")]), &message);
    let messages = json!([user(json!([image_part(&url), text_part("?")]))]);
    let refused = call(ffi::llb_count, &files, json!({ "messages": messages }));
    let message = format!("messages[0].content[0].image_url.url: {problem}");
    assert_eq!(refused["error"]["message"], message);
    assert_eq!(ask(&chat, &about(RED))["finish_reason"], "length");
}

#[test]
fn pictures_are_computed_beside_other_chats() {
    let files = Files::new(ProjectorType::Mlp);
    let text = json!([user(json!("tell me of the sea ".repeat(8)))]);
    let mut options = files.exact_options();
    options["n_threads"] = 2.into();
    let alone = ask(&open(&options), &text);
    let red = ask(&open(&options), &about(RED));
    let chats: Vec<Chat> = (0..4).map(|_| open(&options)).collect();
    for _ in 0..3 {
        let replies: Vec<Value> = std::thread::scope(|scope| {
            let call = |index: usize| {
                let messages = if index.is_multiple_of(2) { text.clone() } else { about(RED) };
                let chat = &chats[index];
                scope.spawn(move || {
                    chat.infer(&json!({ "messages": messages, "temperature": 0, "max_tokens": 24, "cache_prompt": false }))
                })
            };
            let calls: Vec<_> = (0..4).map(call).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        for (index, reply) in replies.iter().enumerate() {
            let expected = if index.is_multiple_of(2) { &alone } else { &red };
            assert_eq!(reply["text"], expected["text"], "{index}");
        }
    }
}

#[test]
fn several_pictures_are_in_their_order() {
    let files = Files::new(ProjectorType::Gemma3);
    let chat = files.open();
    let pictures = |first, second| {
        json!([user(json!([
            image_part(&picture(first)),
            text_part("or"),
            image_part(&picture(second)),
            text_part("choose")
        ]))])
    };
    let red_first = ask(&chat, &pictures(RED, BLUE));
    let blue_first = ask(&chat, &pictures(BLUE, RED));
    assert_ne!(red_first["text"], blue_first["text"]);
    let explained = chat.explain(&json!({ "messages": pictures(RED, BLUE) }));
    let media = explained["media"].as_array().unwrap();
    assert_eq!(media.len(), 2, "{explained}");
    let tokens = image_tokens(files.kind, 40, 40) as u64;
    assert_eq!([&media[0]["tokens"], &media[1]["tokens"]], [tokens, tokens]);
    assert!(number(&media[1]["position"]) > number(&media[0]["position"]) + tokens);
    assert_eq!(explained["prompt_tokens"], red_first["usage"]["prompt_tokens"]);
}

#[test]
fn the_matrix_of_gemma3_may_have_16_bits() {
    let files = Files::new(ProjectorType::Gemma3);
    let file = ProjectorFile::new(files.kind, embedding(files.kind));
    let bytes = file.to_bytes_with_bf16(&["mm.input_projection.weight"]);
    std::fs::write(files.folder.path().join("mmproj-model.gguf"), bytes).unwrap();
    let chat = files.open();
    let of =
        |color| ask(&chat, &json!([user(json!([image_part(&picture(color)), text_part("?")]))]));
    assert_ne!(of(RED)["text"], of(BLUE)["text"]);
}

#[test]
fn a_text_is_never_a_picture() {
    let chat = Files::new(ProjectorType::Mlp).open();
    let spelled = json!([user(json!("see <__media__> now"))]);
    let explained = chat.explain(&json!({ "messages": spelled }));
    assert_eq!(explained["media"], Value::Null);
    let parts = json!([text_part("<__media__>"), image_part(&picture(RED)),
        { "type": "media_marker", "text": "<__media__>" }, text_part("now")]);
    let explained = chat.explain(&json!({ "messages": [user(parts)] }));
    let media = explained["media"].as_array().unwrap();
    assert_eq!(media.len(), 1, "{explained}");
    // The marker of the text before it is eleven bytes, one token each.
    assert_eq!(
        number(&media[0]["position"]),
        "_user_".len() as u64 + 10 - 5 + "<__media__>".len() as u64 - 5
    );
}

#[track_caller]
pub fn check_refused(chat: &Chat, parts: Value, message: &str) {
    let reply =
        chat.infer(&json!({ "messages": [{ "role": "system", "content": "s" }, user(parts)] }));
    assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{reply}");
    assert_eq!(reply["error"]["message"], message);
}

#[test]
fn a_bad_picture_is_an_error_with_its_path() {
    let chat = Files::new(ProjectorType::Mlp).open();
    let path = "messages[1].content[1].image_url.url";
    let with = |url: &str| json!([text_part("a"), image_part(url), text_part("b")]);
    let only = "only data URLs are supported: data:image/png;base64,...";
    check_refused(&chat, with("ftp://example.com/a.png"), &format!("{path}: {only}"));
    let off = "files are fetched only with the create option `media_urls`; set it, or send a data URL: data:image/png;base64,...";
    check_refused(&chat, with("https://example.com/a.png"), &format!("{path}: {off}"));
    check_refused(&chat, with("data:image/png;base64,?"), &format!("{path}: not valid base64"));
    check_refused(
        &chat,
        with("data:image/png;base64,aGVsbG8="),
        &format!("{path}: not a picture; PNG, JPEG, WebP, GIF and BMP are supported"),
    );
    check_refused(
        &chat,
        json!([{ "type": "image_url" }]),
        "messages[1].content[0].image_url.url: missing",
    );
    check_refused(
        &chat,
        json!([{ "type": "input_audio", "input_audio": { "data": "", "format": "wav" } }]),
        "messages[1].content[0]: the model takes text and pictures, but this part has the type \"input_audio\"; name a projector for it in the create option `projector`",
    );
    check_refused(
        &chat,
        json!([{ "type": "video_url", "video_url": { "url": "data:," } }]),
        "messages[1].content[0]: parts of type \"video_url\" are not supported; pictures have the type \"image_url\", and sound \"input_audio\"",
    );
    // The chat is as before.
    assert_eq!(ask(&chat, &about(RED))["finish_reason"], "length");
}

#[test]
fn each_chat_of_a_model_has_its_limits() {
    let files = Files::new(ProjectorType::Mlp);
    let with = |limits: Value| {
        let mut options = files.options();
        options["media_limits"] = limits;
        open(&options)
    };
    let (wide, narrow) = (files.open(), with(json!({ "pixels": 40 * 40 - 1, "parts": 2 })));
    let url = picture(RED);
    assert_eq!(ask(&wide, &about(RED))["finish_reason"], "length");
    // The file is known by now, but it is too large for this chat.
    let path = "messages[1].content[1].image_url.url";
    let parts = json!([text_part("a"), image_part(&url), text_part("b")]);
    check_refused(
        &narrow,
        parts,
        &format!(
            "{path}: a picture of 40x40 pixels, but at most 1599 are allowed; make it smaller, or raise media_limits.pixels"
        ),
    );
    let small = image_part(&picture_of(RED, 2, 2));
    check_refused(
        &narrow,
        json!([small, small, text_part("and"), small, text_part("?")]),
        "messages[1].content[3]: a request has at most 2 media parts; send fewer, or raise media_limits.parts",
    );
    check_refused(
        &with(json!({ "bytes": 20 })),
        json!([small, text_part("?")]),
        "messages[1].content[0].image_url.url: a media file of more than 20 bytes; shorten it, or raise media_limits.bytes",
    );
    let kept = json!([user(json!([small, small, text_part("?")]))]);
    assert_eq!(ask(&narrow, &kept)["finish_reason"], "length");
    assert!(
        Chat::open_with(&json!({ "model": files.model(), "media_limits": { "pixel": 1 } }))
            .is_err()
    );
}

/// A folder of pictures, and options of a chat that may read them.
pub struct Album {
    pub folder: tempfile::TempDir,
    pub options: Value,
}

impl Album {
    /// The pictures `red cat.png` and `text.png`, which is none.
    pub fn new(files: &Files) -> Album {
        let folder = tempfile::tempdir().unwrap();
        let url = picture(RED);
        let bytes = STANDARD.decode(url.rsplit(',').next().unwrap()).unwrap();
        std::fs::write(folder.path().join("red cat.png"), bytes).unwrap();
        std::fs::write(folder.path().join("text.png"), "hello").unwrap();
        let mut options = files.options();
        options["media_folders"] = json!([folder.path()]);
        Album { folder, options }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The parts that stand for a file, each with the path of the member that names it.
    pub fn parts(&self, name: &str) -> [(Value, &'static str); 3] {
        let path = self.path(name);
        let url = format!("file://{}", path.replace(' ', "%20"));
        [
            (image_part(&url), "image_url.url"),
            (json!({ "type": "image_url", "image_url": url }), "image_url"),
            (json!({ "type": "image", "path": path }), "path"),
        ]
    }
}

pub fn with_part(part: &Value) -> Value {
    json!([user(json!([text_part("see"), part, text_part("what is it")]))])
}

/// Files that cannot be read give this error, whether they exist or not.
pub const NOT_INSIDE: &str = "is not a file that can be read in a folder of the create option `media_folders`; pass the absolute path of one, without `..`";

#[test]
fn a_part_names_a_file_in_a_folder() {
    let files = Files::new(ProjectorType::Gemma3);
    let album = Album::new(&files);
    let chat = open(&album.options);
    let expected = ask(&chat, &about(RED));
    assert_ne!(ask(&chat, &about(BLUE))["text"], expected["text"]);
    for (part, _) in album.parts("red cat.png") {
        let messages = with_part(&part);
        let reply = ask(&chat, &messages);
        assert_eq!(reply["text"], expected["text"], "{part}");
        // It is the same picture, so nothing is computed anew.
        assert_eq!(cached(&reply), number(&reply["usage"]["prompt_tokens"]) - 1, "{reply}");
        let request = json!({ "messages": messages });
        assert_eq!(chat.explain(&request)["prompt_tokens"], reply["usage"]["prompt_tokens"]);
        let mut request = json!({ "messages": messages });
        request["media_folders"] = album.options["media_folders"].clone();
        for isolation in
            if cfg!(target_os = "linux") { &["none", "process"][..] } else { &["none"] }
        {
            request["isolation"] = (*isolation).into();
            let counted = call(ffi::llb_count, &files, request.clone());
            assert_eq!(counted["prompt_tokens"], reply["usage"]["prompt_tokens"], "{counted}");
        }
    }
    // Another picture under the same name is another picture.
    let [_, _, (part, _)] = album.parts("red cat.png");
    let url = picture(BLUE);
    let bytes = STANDARD.decode(url.rsplit(',').next().unwrap()).unwrap();
    std::fs::write(album.path("red cat.png"), bytes).unwrap();
    assert_eq!(ask(&chat, &with_part(&part))["text"], ask(&chat, &about(BLUE))["text"]);
}

#[test]
fn files_elsewhere_are_refused_as_if_they_did_not_exist() {
    let files = Files::new(ProjectorType::Mlp);
    let (album, other) = (Album::new(&files), Album::new(&files));
    let chat = open(&album.options);
    let of = |problem: &str, member: &str| format!("messages[1].content[0].{member}: {problem}");
    for name in ["red cat.png", "none.png"] {
        for (part, member) in other.parts(name) {
            check_refused(&chat, json!([part, text_part("?")]), &of(NOT_INSIDE, member));
        }
    }
    let not_a_picture = "not a picture; PNG, JPEG, WebP, GIF and BMP are supported";
    for (part, member) in album.parts("text.png") {
        check_refused(&chat, json!([part, text_part("?")]), &of(not_a_picture, member));
    }
    check_refused(&chat, json!([{ "type": "image" }]), &of("missing", "path"));
    // Without the option no file is read.
    let chat = files.open();
    let problem = "files are read only from the folders of the create option `media_folders`; name them, or send a data URL: data:image/png;base64,...";
    for (part, member) in album.parts("red cat.png") {
        check_refused(&chat, json!([part, text_part("?")]), &of(problem, member));
    }
    // A file is not read before its size is known to be allowed.
    let mut options = album.options.clone();
    options["media_limits"] = json!({ "bytes": 4 });
    let [(part, member), ..] = album.parts("text.png");
    let problem = "a media file of more than 4 bytes; shorten it, or raise media_limits.bytes";
    check_refused(&open(&options), json!([part, text_part("?")]), &of(problem, member));
    // A folder that does not exist ends the create before anything is loaded.
    options["media_folders"] = json!([album.path("none")]);
    let refused = Chat::open_with(&options).err().expect("refused");
    assert_eq!(refused.events, ["create_start", "create_failure:invalid_options"]);
    assert!(refused.message().starts_with("media_folders[0]: "), "{refused:?}");
}

#[test]
fn a_chat_without_a_projector_takes_text_only() {
    let chat = open(&json!({ "model": scripted_model("text.gguf"), "tool_policy": "any" }));
    check_refused(
        &chat,
        json!([image_part(&picture(RED))]),
        "messages[1].content[0]: the model takes text only, but this part has the type \"image_url\"; for pictures and sound, name the model's mmproj file in the create option `projector`",
    );
    // Without a projector beside the model, "auto" opens it for text.
    let chat = open(
        &json!({ "model": scripted_model("text.gguf"), "tool_policy": "any", "projector": "auto" }),
    );
    assert_eq!(ask(&chat, &json!([user(json!("hi"))]))["finish_reason"], "stop");
}

#[test]
fn a_request_with_a_picture_ends_in_time() {
    let chat = Files::new(ProjectorType::Mlp).open();
    let start = Instant::now();
    let reply = chat.infer(&json!({ "messages": about(RED), "timeout_ms": 1 }));
    assert_eq!(reply["finish_reason"], "cancelled", "{reply}");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(ask(&chat, &about(RED))["finish_reason"], "length");
}

/// The reply of a function that takes a request with the model and the projector of these files.
pub fn call(function: TokenFunction, files: &Files, mut request: Value) -> Value {
    request["model_path"] = files.model().to_str().unwrap().into();
    request["projector"] = "auto".into();
    let request = CString::new(request.to_string()).unwrap();
    // SAFETY: the request is NUL-terminated.
    take(unsafe { function(request.as_ptr()) })
}

#[test]
fn pictures_are_counted_by_their_headers() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let chat = files.open();
        for (width, height) in [(40, 40), (1, 1), (6, 200), (500, 20)] {
            let url = picture_of(RED, width, height);
            let messages = json!([
                { "role": "system", "content": "see" },
                user(json!([image_part(&url), text_part("and"), image_part(&url), text_part("?")])),
            ]);
            let counted = call(ffi::llb_count, &files, json!({ "messages": messages }));
            let used = ask(&chat, &messages)["usage"]["prompt_tokens"].clone();
            assert_eq!(counted["prompt_tokens"], used, "{kind:?} {width}x{height} {counted}");
            let details = json!({ "messages": messages, "details": true });
            let counted = call(ffi::llb_count, &files, details);
            assert_eq!(counted["media"], chat.explain(&json!({ "messages": messages }))["media"]);
            let ids = counted["ids"].as_array().unwrap();
            let places = ids.iter().filter(|id| id.is_null()).count();
            let expected = 2 * image_tokens(kind, width, height);
            assert_eq!((ids.len() as u64, places), (number(&used), expected));
        }
        // A cut file has a header.
        let whole = picture(RED);
        let head = "data:image/png;base64,".len();
        let cut = &whole[..head + (whole.len() - head) / 8 * 4];
        let messages = json!([user(json!([image_part(cut), text_part("?")]))]);
        let counted = call(ffi::llb_count, &files, json!({ "messages": messages }));
        assert!(number(&counted["prompt_tokens"]) > image_tokens(kind, 40, 40) as u64, "{counted}");
        let bad = json!([user(json!([image_part("data:,"), text_part("?")]))]);
        let refused = call(ffi::llb_count, &files, json!({ "messages": bad }));
        assert_eq!(
            refused["error"]["message"],
            "messages[0].content[0].image_url.url: a data URL whose data is not in base64"
        );
        if cfg!(target_os = "linux") {
            let isolated = json!({ "messages": messages, "isolation": "process" });
            let isolated = call(ffi::llb_count, &files, isolated);
            assert_eq!(isolated["prompt_tokens"], counted["prompt_tokens"], "{isolated}");
        }
    }
}

#[test]
fn the_memory_of_a_projector_is_counted() {
    for kind in kinds(Modality::Image) {
        let files = Files::new(kind);
        let of = |projector: Value| {
            let request =
                json!({ "model_path": files.model(), "n_ctx": 256, "projector": projector });
            let request = CString::new(request.to_string()).unwrap();
            // SAFETY: the request is NUL-terminated.
            take(unsafe { ffi::llb_memory(request.as_ptr()) })
        };
        let (without, with) = (of(Value::Null), of(json!("auto")));
        assert_eq!(without.get("projector"), None, "{without}");
        let projector = &with["projector"];
        assert_eq!(projector["type"], kind.as_str(), "{with}");
        assert_eq!(projector["input_modalities"], json!(["image"]));
        // As many as the largest picture has.
        let most = match kind {
            ProjectorType::Qwen2Vl
            | ProjectorType::Qwen25Vl
            | ProjectorType::Qwen3Vl
            | ProjectorType::Glm4V => 4096,
            ProjectorType::InternVl => image_tokens(kind, 500, 20),
            ProjectorType::Gemma4V | ProjectorType::Gemma4UnifiedV => 1120,
            ProjectorType::MiniCpmV => 10 * image_tokens(kind, 1, 1),
            ProjectorType::KimiVl => 1024,
            // Three by three tiles, and the whole picture.
            ProjectorType::Llama4 => 10 * image_tokens(kind, 1, 1),
            // A column of squares has the most ends of rows.
            ProjectorType::Pixtral => 1024 + 1023,
            // Ten tiles of 64 tokens, and the whole picture.
            ProjectorType::Lfm2 => 10 * 64 + 256,
            // 16,384 pixels in squares of 8.
            ProjectorType::PaddleOcr | ProjectorType::DotsOcr => 256,
            // 4,096 pixels in patches of 4.
            ProjectorType::Phi4 => 256,
            _ => image_tokens(kind, 1, 1),
        };
        assert_eq!(projector["tokens_per_image"], most);
        let weights = ProjectorFile::new(kind, embedding(kind)).weights();
        assert_eq!(projector["weights"], weights);
        // The activations of one layer, at least.
        assert!(number(&projector["compute"]) > 64 * 32 * 4, "{with}");
        for part in ["weights", "compute", "total"] {
            let added = number(&with[part]) - number(&without[part]);
            assert_eq!(added, number(&projector[part]), "{part} {with}");
        }
        let path = files.folder.path().join("mmproj-model.gguf");
        assert_eq!(of(json!(path))["projector"], *projector);
        std::fs::write(&path, ProjectorFile::new(kind, 96).to_bytes()).unwrap();
        let refused = of(json!("auto"));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("projector: ") && message.contains("length 96"), "{refused}");
    }
}

#[test]
fn what_a_model_takes_is_known_before_it_is_loaded() {
    let info = |path: &Path| model_info(path.to_str().unwrap());
    let files = Files::new(ProjectorType::Gemma3);
    let model = files.model();
    let taken = info(&model);
    assert_eq!(taken["input_modalities"], json!(["text", "image"]));
    let projector = files.folder.path().join("mmproj-model.gguf");
    assert_eq!(taken["projector"], projector.to_str().unwrap());
    // One of another model.
    let other = ProjectorFile::new(ProjectorType::Gemma3, 96).to_bytes();
    std::fs::write(&projector, other).unwrap();
    let refused = info(&model);
    assert_eq!(
        (&refused["input_modalities"], &refused["projector"]),
        (&json!(["text"]), &Value::Null)
    );
    let finding = &refused["findings"][0];
    assert_eq!(finding["code"], "projector_unusable");
    let message = finding["message"].as_str().unwrap();
    assert!(message.starts_with(projector.to_str().unwrap()), "{message}");
    assert!(message.contains("length 96, but those of the model have 64"), "{message}");
    // Two of them.
    std::fs::copy(&projector, files.folder.path().join("a-mmproj.gguf")).unwrap();
    let message = info(&model)["findings"][0]["message"].clone();
    assert!(message.as_str().unwrap().ends_with("a-mmproj.gguf, mmproj-model.gguf"), "{message}");
    // None.
    let text = info(Path::new(&scripted_model("text.gguf")));
    assert_eq!((&text["input_modalities"], &text["projector"]), (&json!(["text"]), &Value::Null));
}

/// Opens a chat with a projector that has this header, and returns the message of its refusal. Its
/// numbers are zeros. Unless it is complete, all tensors share a hole in the file.
fn too_large(folder: &Path, file: &ProjectorFile, is_complete: bool) -> String {
    let mut writer = GgufWriter::new();
    for (key, value) in &file.metadata {
        writer = writer.metadata(key.clone(), value.clone());
    }
    let mut longest = 0;
    for (name, shape) in &file.tensors {
        let count: u64 = shape.iter().product();
        longest = longest.max(count * 4);
        // Large matrices are of ggml's type Q4_0: 18 bytes for 32 numbers.
        let (kind, bytes) = if count < 1 << 24 { (0, count * 4) } else { (2, count / 32 * 18) };
        let data = if is_complete { vec![0; bytes as usize] } else { Vec::new() };
        writer = writer.tensor_bytes(name.clone(), shape, kind, data);
    }
    let path = folder.join("large.gguf");
    std::fs::write(&path, writer.to_bytes()).unwrap();
    if !is_complete {
        let written = std::fs::File::options().write(true).open(&path).unwrap();
        written.set_len(longest + (1 << 20)).unwrap();
    }
    let model = folder.join("model.gguf");
    std::fs::write(&model, random(Memory::Dense)).unwrap();
    let options = json!({ "model": model, "projector": path, "tool_policy": "any" });
    let refused = Chat::open_with(&options).err().expect("refused");
    assert_eq!(refused.code(), "OUT_OF_MEMORY", "{refused:?}");
    assert_eq!(refused.events, ["create_start", "create_failure:oom"], "nothing was loaded");
    let message = refused.message().to_owned();
    assert!(message.starts_with(&format!("projector: {}", path.display())), "{message}");
    message
}

#[test]
fn a_projector_that_does_not_fit_is_refused_before_it_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    // 64 layers of matrices of 9 GiB.
    const WIDTH: u64 = 1 << 16;
    let mut wide = ProjectorFile::new(ProjectorType::Mlp, 64);
    wide.set("clip.vision.embedding_length", WIDTH as u32);
    wide.set("clip.vision.block_count", 64_u32);
    let of_layer: Vec<_> =
        wide.tensors.iter().filter(|(name, _)| name.starts_with("v.blk.0.")).cloned().collect();
    for layer in 2..64 {
        let name = |name: &str| name.replace("v.blk.0.", &format!("v.blk.{layer}."));
        wide.tensors.extend(of_layer.iter().map(|(of, shape)| (name(of), shape.clone())));
    }
    for (_, shape) in &mut wide.tensors {
        shape.iter_mut().filter(|extent| **extent == 32).for_each(|extent| *extent = WIDTH);
    }
    let message = too_large(folder.path(), &wide, false);
    assert!(message.contains("MiB weights"), "{message}");
    assert!(message.ends_with("are available; use a smaller projector or leave it out"));

    // A small file with 16,384 patches, each of which becomes 1,048,576 numbers of 4 bytes.
    let available = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = available.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    if kib.is_none_or(|kib| kib >= 64 << 20) {
        return println!("skipped: a projector with buffers of 64 GiB: {kib:?} KiB are available");
    }
    let mut long = ProjectorFile::new(ProjectorType::Mlp, 64);
    long.set("clip.vision.image_size", 4096_u32);
    long.set("clip.vision.patch_size", 32_u32);
    for (name, shape) in &mut long.tensors {
        match name.as_str() {
            "v.patch_embd.weight" => *shape = vec![32, 32, 3, 32],
            "v.position_embd.weight" => *shape = vec![32, 128 * 128 + 1],
            "mm.0.weight" => *shape = vec![32, 1 << 20],
            "mm.0.bias" => *shape = vec![1 << 20],
            "mm.2.weight" => *shape = vec![1 << 20, 64],
            _ => (),
        }
    }
    let message = too_large(folder.path(), &long, true);
    assert!(message.contains("buffers of its encoder"), "{message}");
}

#[track_caller]
fn check_not_opened(options: &Value, expected: &str) {
    let refused = Chat::open_with(options).err().expect("refused");
    assert_eq!(refused.code(), "INVALID_REQUEST", "{refused:?}");
    let message = refused.message();
    assert!(message.starts_with("projector: ") && message.contains(expected), "{message}");
}

/// The options of a model with a changed projector.
fn with_projector(folder: &Path, change: impl FnOnce(&mut ProjectorFile), embedding: u64) -> Value {
    let model = folder.join("model.gguf");
    std::fs::write(&model, random(Memory::Dense)).unwrap();
    let mut file = ProjectorFile::new(ProjectorType::Mlp, embedding);
    change(&mut file);
    let path = folder.join("changed.gguf");
    std::fs::write(&path, file.to_bytes()).unwrap();
    json!({ "model": model, "projector": path, "tool_policy": "any" })
}

#[test]
fn a_projector_that_cannot_be_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let short = |name: &'static str, shape: Vec<u64>| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape;
        }
    };
    let with = |change: &mut dyn FnMut(&mut ProjectorFile)| {
        with_projector(folder.path(), |file| change(file), 64)
    };
    let mut bias = Some(short("v.blk.1.attn_v.bias", vec![31]));
    let options = with(&mut |file| bias.take().unwrap()(file));
    check_not_opened(&options, "\"v.blk.1.attn_v.bias\" has the shape [31]");
    let mut positions = Some(short("v.position_embd.weight", vec![32, 60]));
    let options = with(&mut |file| positions.take().unwrap()(file));
    check_not_opened(&options, "\"v.position_embd.weight\" has the shape [32, 60]");
    for heads in [0_u32, 7] {
        let options = with(&mut |file| file.set("clip.vision.attention.head_count", heads));
        check_not_opened(&options, "clip.vision.attention.head_count");
    }
    let other = with_projector(folder.path(), |_| (), 96);
    check_not_opened(&other, "embeddings of length 96, but those of the model have 64");
    let model = folder.path().join("model.gguf");
    check_not_opened(
        &json!({ "model": model, "projector": model, "tool_policy": "any" }),
        "not a projector",
    );
    check_not_opened(
        &json!({ "model": model, "projector": "/nonexistent.gguf", "tool_policy": "any" }),
        "nonexistent",
    );
    check_not_opened(
        &json!({ "model": model, "projector": "", "tool_policy": "any" }),
        "expected a path",
    );
    let options =
        json!({ "model": model, "projector": "auto", "tool_policy": "any", "draft_model": model });
    check_not_opened(&options, "cannot be used with");
    // Two projectors beside a model.
    std::fs::write(folder.path().join("a-mmproj.gguf"), b"").unwrap();
    std::fs::write(folder.path().join("b-mmproj.gguf"), b"").unwrap();
    check_not_opened(
        &json!({ "model": model, "projector": "auto", "tool_policy": "any" }),
        "a-mmproj.gguf, b-mmproj.gguf",
    );
}
