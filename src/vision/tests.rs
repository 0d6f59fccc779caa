//! Tests counts against the shared data and against values computed by hand, expansions, and
//! errors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Vision, VisionDefaults, preset};
use crate::api::Fields;
use crate::error::{Code, Error, Result};
use crate::template::{Prompt, Span};
use crate::test_support::conformance::{folder, say};

const LIMIT: usize = 16 << 20;

fn read(vision: &Value, defaults: &VisionDefaults) -> Result<Option<Vision>> {
    let request = json!({ "vision": vision });
    Vision::read(&mut Fields::new("", &request)?, defaults)
}

/// The prompt after expansion, and the counts.
fn expand(vision: &Value, prompt: &str, limit: usize) -> Result<(String, Value)> {
    let vision = read(vision, &VisionDefaults::default())?.unwrap();
    let (text, _) = vision.expanded(prompt, "<bos>", limit)?;
    Ok((text, vision.to_json()))
}

/// The tokens of one image. Checks that the expansion contains the same number.
fn image(rule: &Value, h: &Value, w: &Value) -> Result<u64> {
    let request = json!({ "rule": rule, "image_token": "I", "images": [{ "h": h, "w": w }] });
    let (text, counts) = expand(&request, "I", LIMIT)?;
    let count = counts["images"][0].as_u64().unwrap();
    let text =
        text.replace("[IMG_BREAK]", "I").replace("[IMG_END]", "I").replace("<IMG_CONTEXT>", "I");
    let text = text.replace("<img>", "").replace("</img>", "").replace("<image_soft_token>", "I");
    let text = text
        .replace("\n\n<start_of_image>", "")
        .replace("<end_of_image>\n\n", "")
        .replace("<bos>", "");
    assert_eq!(text, "I".repeat(usize::try_from(count).unwrap()));
    Ok(count)
}

/// `reason` and `path` of an error.
fn reason_and_path(error: &Error) -> (String, String) {
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    let detail = |key| error.details().unwrap()[key].as_str().unwrap().to_owned();
    let found = (detail("reason"), detail("path"));
    assert!(error.message().starts_with(&found.1), "{error}");
    found
}

/// The rules of a row of the shared data: its parameters, and the preset with the same values if
/// one exists.
fn rules(row: &Value) -> Vec<Value> {
    let model = row["model"].as_str().unwrap();
    let first = model.split_whitespace().next().unwrap();
    match first {
        "pixtral" => vec![
            json!({ "family": first, "patch": row["patch"], "longest_edge": row["longest_edge"] }),
            json!(format!("pixtral-{}", row["longest_edge"])),
        ],
        "llava-1.5" => vec![
            json!({ "family": "llava", "size": row["h"], "patch": row["patch"], "strategy": row["strategy"],
            "extra": row["num_additional_image_tokens"] }),
        ],
        "llava-next" | "internvl" | "gemma3" => vec![json!(first)],
        _ => vec![
            json!({ "family": "qwen", "patch": row["patch"], "merge": row["merge"], "min_pixels": row["min_pixels"],
                "max_pixels": row["max_pixels"] }),
            json!(first),
        ],
    }
}

#[test]
fn counts_match_the_shared_data() {
    let Some(root) = folder("vision tokens") else { return };
    let rows = std::fs::read_to_string(root.join("compose/vision_tokens.jsonl")).unwrap();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        for rule in rules(&row) {
            let ours = image(&rule, &row["h"], &row["w"]);
            if row.get("error").is_some() {
                assert_eq!(
                    reason_and_path(&ours.unwrap_err()),
                    ("bad_aspect".to_owned(), "vision.images[0]".to_owned()),
                    "{row}"
                );
                continue;
            }
            let count = row.get("tokens").or(row.get("tokens_with_breaks")).unwrap();
            assert_eq!(ours.unwrap(), count.as_u64().unwrap(), "{row} by {rule}");
        }
        *seen.entry(row["model"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let count: u32 = seen.values().sum();
    say(&format!("vision tokens: {count} sizes counted as the shared data has them"));
    assert_eq!((count, seen.len()), (1684, 8), "{seen:?}");
}

/// The table of examples in docs/vision.md, Formulas.
#[test]
fn counts_match_the_specification() {
    let presets = [
        "qwen2-vl",
        "qwen2.5-vl",
        "qwen3-vl",
        "pixtral-1024",
        "pixtral-1540",
        "internvl",
        "llava-next",
    ];
    for (h, w, counts) in [
        (720, 1280, [1196, 1196, 880, 2340, 4836, 2304, 1948]),
        (1024, 1024, [1225, 1369, 1024, 4160, 5550, 2560, 2928]),
        (480, 640, [391, 391, 300, 1230, 1645, 3328, 2340]),
        (1, 28, [11, 11, 86, 3, 3, 3328, 674]),
        (4096, 3000, [1230, 15622, 12032, 3072, 9020, 3328, 2352]),
    ] {
        let ours = presets.map(|preset| image(&json!(preset), &json!(h), &json!(w)).unwrap());
        assert_eq!(ours, counts, "{h}x{w}");
    }
    for (rule, count) in [
        (json!({ "family": "llava", "size": 336, "patch": 14, "strategy": "full" }), 577),
        (json!("llava-1.5"), 576),
        (
            json!({ "family": "llava", "size": 384, "patch": 14, "extra": 0, "strategy": "full" }),
            729,
        ),
        (json!("paligemma-448"), 1024),
        (json!({ "family": "mllama" }), 1),
        // No thumbnail, because one tile fits best.
        (json!({ "family": "internvl", "tiles": 1, "per": 64 }), 64),
        // The default grids as numbers: 672x672 has 48 rows of 48 with a break each, plus 24 x 24.
        (json!({ "family": "llava_next", "grid": [[672, 672]] }), 48 * 48 + 48 + 576),
        (
            json!({ "family": "llava_next", "grid": [[672, 672]], "strategy": "full" }),
            48 * 48 + 48 + 576 + 1,
        ),
    ] {
        assert_eq!(image(&rule, &json!(600), &json!(600)).unwrap(), count, "{rule}");
    }
}

#[test]
fn every_preset_is_a_rule() {
    for (name, rule) in preset::PRESETS {
        let rule: Value = serde_json::from_str(rule).unwrap();
        let (read, unknown) = super::VisionRule::read("rule", &rule).unwrap();
        assert_eq!(
            (unknown, super::VisionRule::read("rule", &json!(name)).unwrap().0),
            (Vec::new(), read),
            "{name}"
        );
    }
}

/// Computed by hand from §7.
#[test]
fn videos() {
    for (rule, frames, h, w, count) in [
        // 13 x 23 units of 28 are within the bounds; two frames share them.
        ("qwen2-vl", 16, 360, 640, 8 * 13 * 23),
        // 112 x 112 is below the minimum: 100 * sqrt(100352) / 100 / 28 is 11.3, rounded up.
        ("qwen2-vl", 1, 100, 100, 12 * 12),
        // 1092 x 1932 is above the maximum: divided by 1.8558 it is 20.8 x 36.9 units, rounded
        // down.
        ("qwen2.5-vl", 2, 1080, 1920, 20 * 36),
        // 4 x 480 x 640 is above the maximum: divided by 1.3975, with five frames, it is 10.7 x
        // 14.3 units, rounded down; three steps.
        ("qwen3-vl", 5, 480, 640, 3 * 10 * 14),
        // First scaled to 32 x 64; 2 x 32 x 64 is below the minimum: times 5.657 it is 5.66 x 11.3
        // units, rounded up.
        ("qwen3-vl", 2, 10, 20, 6 * 12),
        // Half a pair is rounded to zero, so a single frame is always below the minimum: times
        // 0.566 it is 11.3 x 11.3 units, rounded up.
        ("qwen3-vl", 1, 640, 640, 12 * 12),
        ("internvl", 3, 10, 10, 3 * 256),
    ] {
        let clip = json!({ "frames": frames, "h": h, "w": w, "fps": 2 });
        let request = json!({ "rule": rule, "video_token": "V", "videos": [clip] });
        let (text, counts) = expand(&request, "V", LIMIT).unwrap();
        assert_eq!(counts, json!({ "images": [], "videos": [count] }), "{rule} {clip}");
        assert_eq!(
            text.matches('V').count() + text.matches("<IMG_CONTEXT>").count(),
            count,
            "{rule} {clip}"
        );
    }
}

#[test]
fn expansions() {
    let check = |vision: Value, prompt: &str, expected: &str| {
        assert_eq!(expand(&vision, prompt, LIMIT).unwrap().0, expected, "{vision}");
    };
    let square = json!({ "h": 1, "w": 1 });
    let rows = json!({ "family": "pixtral", "patch": 1, "longest": 10 });
    check(
        json!({ "rule": rows, "image_token": "I", "images": [{ "h": 2, "w": 3 }, square] }),
        "a I b I",
        "a III[IMG_BREAK]III[IMG_END] b I[IMG_END]",
    );
    // One side is scaled to zero.
    check(
        json!({ "rule": rows, "image_token": "I", "images": [{ "h": 1, "w": 100 }] }),
        "a I b",
        "a  b",
    );
    let wrapped =
        format!("x \n\n<start_of_image>{}<end_of_image>\n\n y", "<image_soft_token>".repeat(256));
    check(
        json!({ "rule": "gemma3", "image_token": "<start_of_image>", "images": [{}] }),
        "x <start_of_image> y",
        &wrapped,
    );
    let tiles = json!({ "family": "internvl", "tiles": 1, "per": 2 });
    check(
        json!({ "rule": tiles, "image_token": "<image>", "images": [square], "video_token": "<v>",
            "videos": [{ "frames": 2 }] }),
        "<v>, <image>",
        "Frame1: <img><IMG_CONTEXT><IMG_CONTEXT></img>\nFrame2: <img><IMG_CONTEXT><IMG_CONTEXT></img>, \
         <img><IMG_CONTEXT><IMG_CONTEXT></img>",
    );
    check(
        json!({ "rule": { "family": "mllama" }, "image_token": "<|image|>", "images": [{}] }),
        "<|image|>hi",
        "<|image|>hi",
    );
    // Inserted text is not searched for placeholders.
    let same = json!({ "family": "internvl", "tiles": 1, "per": 2, "token": "I", "start": "<I>", "end": "" });
    check(
        json!({ "rule": same, "image_token": "I", "images": [square, square] }),
        "II",
        "<I>II<I>II",
    );
    // All images come before the text, followed by one begin token.
    let front = |images: usize| json!({ "rule": { "family": "paligemma", "length": 2 }, "image_token": "I", "images": vec![json!({}); images] });
    check(front(2), "I a I b", "IIII<bos> a  b");
    check(front(1), "I<bos>a", "II<bos>a");
    check(front(1), "<bos>Ia", "II<bos>a");
    check(front(0), "a", "a");
    check(
        json!({ "rule": { "family": "paligemma", "length": 1, "bos_token": "B" }, "image_token": "I", "images": [{}] }),
        "aI",
        "IBa",
    );
}

/// A time is the mean of two frames, with one decimal as Python prints it. The texts around the
/// placeholder move into the steps.
#[test]
fn videos_with_times() {
    let rule = json!({ "family": "qwen", "patch": 1, "merge": 1, "min": 1, "max": 4, "video": "volume", "video_min": 1, "video_max": 64 });
    let clip = json!({ "frames": 5, "h": 1, "w": 2, "fps": 2 });
    let request = json!({ "rule": rule, "video_token": "V", "videos": [clip] });
    let step = |time: &str| format!("<{time} seconds><|vision_start|>VV<|vision_end|>");
    let steps = format!("{}{}{}", step("0.2"), step("1.2"), step("2.0"));
    let check = |request: &Value, prompt: &str, expected: &str| {
        assert_eq!(expand(request, prompt, LIMIT).unwrap().0, expected)
    };
    check(&request, "a<|vision_start|>V<|vision_end|>b", &format!("a{steps}b"));
    // They move only if both texts are present.
    check(&request, "a<|vision_start|>Vb", &format!("a<|vision_start|>{steps}b"));
    let two = json!({ "rule": rule, "video_token": "V", "videos": [clip, clip] });
    // A text between two placeholders belongs to one of them.
    check(
        &two,
        "<|vision_start|>V<|vision_end|><|vision_start|>V<|vision_end|>",
        &format!("{steps}{steps}"),
    );
    let defaults = VisionDefaults {
        rule: Some(super::VisionRule::read("r", &rule).unwrap().0),
        video_token: Some("V".to_owned()),
        vision_start: Some("[".to_owned()),
        vision_end: Some("]".to_owned()),
        ..VisionDefaults::default()
    };
    let vision = read(&json!({ "videos": [{ "frames": 1, "h": 1, "w": 2, "fps": 1 }] }), &defaults)
        .unwrap()
        .unwrap();
    let (text, _) = vision.expanded("x[V]", "", LIMIT).unwrap();
    assert_eq!(text, "x<0.0 seconds>[VV]");
}

#[test]
fn spans_move_with_the_text() {
    let span = |start, end, path: &str| Span { start, end, path: path.into() };
    // The prompt is "<u>I hi". The user typed the "I" at 7..8.
    let mut prompt = Prompt {
        text: "<u>I hiI</u>".to_owned(),
        spans: vec![span(5, 8, "messages[0].content[1].text")],
        generation: vec![4..12, 3..4],
    };
    let request = json!({ "rule": { "family": "llava", "size": 2, "patch": 1 }, "image_token": "I", "images": [{}, {}] });
    let vision = read(&request, &VisionDefaults::default()).unwrap().unwrap();
    vision.expand(&mut prompt, "", LIMIT).unwrap();
    assert_eq!(prompt.text, "<u>IIII hiIIII</u>");
    assert_eq!(prompt.spans, [span(8, 14, "messages[0].content[1].text")]);
    assert_eq!(prompt.generation, [7..18, 3..7]);
}

#[track_caller]
fn check_refused(vision: Value, reason: &str, path: &str) {
    let error = expand(&vision, "I V", LIMIT).unwrap_err();
    assert_eq!(reason_and_path(&error), (reason.to_owned(), path.to_owned()), "{vision}");
}

/// A valid member `vision` with one member replaced.
fn vision_with(key: &str, value: Value) -> Value {
    let mut vision = json!({ "rule": "qwen2-vl", "image_token": "I", "images": [{ "h": 10, "w": 10 }],
        "video_token": "V", "videos": [{ "frames": 2, "h": 10, "w": 10 }] });
    vision[key] = value;
    vision
}

#[test]
fn refused_rules() {
    check_refused(json!([]), "bad_value", "vision");
    check_refused(json!({}), "missing_field", "vision.rule");
    for (rule, reason, member) in [
        (json!("qwen9-vl"), "bad_value", ""),
        (json!(1), "bad_value", ""),
        (json!({}), "missing_field", ".family"),
        (json!({ "family": "resnet" }), "bad_value", ".family"),
        (json!({ "family": "qwen", "merge": 2, "min": 1, "max": 2 }), "missing_field", ".patch"),
        (
            json!({ "family": "qwen", "patch": 0, "merge": 2, "min": 1, "max": 2 }),
            "bad_value",
            ".patch",
        ),
        (
            json!({ "family": "qwen", "patch": 1.5, "merge": 2, "min": 1, "max": 2 }),
            "bad_value",
            ".patch",
        ),
        (
            json!({ "family": "qwen", "patch": 14, "merge": 2, "min": 3, "max": 2 }),
            "bad_value",
            ".min",
        ),
        (
            json!({ "family": "qwen", "patch": 14, "merge": 2, "min": 1, "max": 1e18 }),
            "bad_value",
            ".max",
        ),
        (
            json!({ "family": "qwen", "patch": 14, "merge": 2, "min": 1, "max": 2, "video": "x" }),
            "bad_value",
            ".video",
        ),
        (json!({ "family": "llava", "size": 10, "patch": 11 }), "bad_value", ".patch"),
        (
            json!({ "family": "llava", "size": 10, "patch": 1, "strategy": "none" }),
            "bad_value",
            ".strategy",
        ),
        (json!({ "family": "llava_next", "grid": [] }), "bad_value", ".grid"),
        (json!({ "family": "llava_next", "grid": [[336]] }), "bad_value", ".grid"),
        (json!({ "family": "llava_next", "grid": [[335, 672]] }), "bad_value", ".grid"),
        (json!({ "family": "llava_next", "grid": 1 }), "bad_value", ".grid"),
        (json!({ "family": "pixtral", "patch": 16 }), "missing_field", ".longest"),
        (
            json!({ "family": "pixtral", "patch": 16, "longest": 1024, "break": "" }),
            "bad_value",
            ".break",
        ),
        (json!({ "family": "internvl", "tiles": 1000 }), "bad_value", ".tiles"),
        (json!({ "family": "internvl", "token": "" }), "bad_value", ".token"),
        (json!({ "family": "paligemma" }), "missing_field", ".length"),
    ] {
        check_refused(vision_with("rule", rule), reason, &format!("vision.rule{member}"));
    }
}

#[test]
fn refused_members() {
    assert!(expand(&vision_with("spare", json!(1)), "I V", LIMIT).is_ok());
    let size = json!({ "h": 10, "w": 10 });
    for (key, value, reason, path) in [
        ("image_token", Value::Null, "missing_field", ""),
        ("image_token", json!(""), "bad_value", ""),
        ("video_token", Value::Null, "missing_field", ""),
        ("video_token", json!("I"), "bad_value", ""),
        ("images", json!({}), "bad_value", ""),
        ("images", json!([1]), "bad_value", "[0]"),
        ("images", json!([{ "h": 10 }]), "missing_field", "[0].w"),
        ("images", json!([size, { "h": 0, "w": 10 }]), "bad_value", "[1].h"),
        ("images", json!([{ "h": -1, "w": 10 }]), "bad_value", "[0].h"),
        ("images", json!([{ "h": 10.5, "w": 10 }]), "bad_value", "[0].h"),
        ("images", json!([{ "h": 10, "w": 1e300 }]), "bad_value", "[0].w"),
        ("images", json!([{ "h": "10", "w": 10 }]), "bad_value", "[0].h"),
        ("images", json!([{ "h": 1, "w": 201 }]), "bad_aspect", "[0]"),
        ("videos", json!([{ "h": 10, "w": 10 }]), "missing_field", "[0].frames"),
        (
            "videos",
            json!([{ "frames": 1_000_000_000, "h": 10, "w": 10 }]),
            "bad_value",
            "[0].frames",
        ),
        ("videos", json!([{ "frames": 2, "h": 10, "w": 10, "fps": 0 }]), "bad_value", "[0].fps"),
        ("videos", json!([{ "frames": 2, "h": 10, "w": 4000 }]), "bad_aspect", "[0]"),
        ("images", json!([]), "vision_count_mismatch", ""),
        ("images", json!([size, size]), "vision_count_mismatch", ""),
        ("videos", Value::Null, "vision_count_mismatch", ""),
    ] {
        let member =
            if path.is_empty() { format!("vision.{key}") } else { format!("vision.{key}{path}") };
        check_refused(vision_with(key, value), reason, &member);
    }
    // A rule without videos, and unknown times.
    check_refused(vision_with("rule", json!("pixtral-1024")), "bad_value", "vision.videos[0]");
    check_refused(vision_with("rule", json!("qwen3-vl")), "missing_field", "vision.videos[0].fps");
}

#[test]
fn an_expansion_over_the_limit_is_refused() {
    let limited = |vision: Value, limit| {
        let error = expand(&vision, "I", limit).unwrap_err();
        assert_eq!(
            (error.code(), &error.details().unwrap()["kind"]),
            (Code::TemplateLimit, &json!("limit")),
            "{error}"
        );
    };
    let vast = json!({ "family": "qwen", "patch": 1, "merge": 1, "min": 1, "max": 1_000_000_000_000u64,
        "video_min": 1, "video_max": 1_000_000_000_000u64 });
    let side = json!({ "h": 10_000_000, "w": 10_000_000 });
    limited(json!({ "rule": vast, "image_token": "I", "images": [side] }), LIMIT);
    limited(
        json!({ "rule": vast, "video_token": "I", "videos": [{ "frames": 1_000_000, "h": 1_000_000, "w": 1_000_000 }] }),
        LIMIT,
    );
    limited(
        json!({ "rule": "internvl", "video_token": "I", "videos": [{ "frames": 1_000_000 }] }),
        LIMIT,
    );
    limited(
        json!({ "rule": "qwen3-vl", "video_token": "I", "videos": [{ "frames": 1_000_000, "h": 99, "w": 99, "fps": 1 }] }),
        LIMIT,
    );
    // Exactly the limit.
    let four = json!({ "rule": { "family": "llava", "size": 2, "patch": 1 }, "image_token": "I", "images": [{}] });
    assert_eq!(expand(&four, "I", 4).unwrap().0, "IIII");
    limited(four, 3);
    // Large counts are reported as long as nothing has to be written.
    let vision = read(
        &json!({ "rule": vast, "image_token": "I", "images": [side] }),
        &VisionDefaults::default(),
    );
    assert_eq!(vision.unwrap().unwrap().to_json()["images"], json!([1_000_000_000_000u64]));
}
