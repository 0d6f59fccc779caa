//! Fuzzes a state file, and a file in the folder of prefixes: a valid one whose description, tokens
//! and data are changed, with the right checksum or another.
//!
//! A file that is used must not change a greedy reply, unless its checksum was forged.
#![no_main]

#[path = "../../scripted/mod.rs"]
mod scripted;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::CreateOptions;
use llb::chat::Chat;
use llb_fuzz::{in_time, rarely, sound};
use scripted::random::{Memory, random};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Of a state file: bytes before the description, and of the checksum.
const PREFIX: usize = 16;
const CHECKSUM: usize = 32;

/// A model, the two kinds of file that a chat has written, and its greedy reply.
struct Written {
    folder: tempfile::TempDir,
    state: Vec<u8>,
    /// The name and the content.
    prefix: (String, Vec<u8>),
    reply: String,
}

static WRITTEN: LazyLock<[Written; 4]> = LazyLock::new(|| {
    [Memory::Dense, Memory::Window, Memory::State, Memory::Both].map(|memory| {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("model"), random(memory)).expect("a small file fits");
        let reply = reply(folder.path()).expect("a valid model replies");
        let state = fs::read(folder.path().join("state")).expect("the chat wrote it");
        let cache = fs::read_dir(folder.path().join("cache")).expect("the chat made it");
        let longest = cache.flatten().max_by_key(|entry| entry.metadata().map_or(0, |it| it.len()));
        let prefix = longest.expect("the chat wrote a prefix");
        let content = fs::read(prefix.path()).expect("it exists");
        let prefix = (prefix.file_name().into_string().expect("a UTF-8 name"), content);
        Written { folder, state, prefix, reply }
    })
});

/// The greedy reply of a chat with the files in a folder. The chat writes them again.
fn reply(folder: &Path) -> Result<String, llb::error::Error> {
    let path = |name: &str| folder.join(name).to_str().expect("a UTF-8 path").to_owned();
    let options = json!({ "model": path("model"), "n_ctx": 512, "n_threads": 1,
        "tool_policy": "any", "state_file": path("state"), "cache_dir": path("cache"),
        "log": "warn" });
    let chat = in_time(|| Chat::create(CreateOptions::read(&options), Box::new(|_| ())));
    let chat = chat.map_err(|failure| failure.error)?;
    let text = "A text of more than a hundred tokens, because a prefix must have some. ".repeat(3);
    let messages =
        json!([{ "role": "system", "content": text }, { "role": "user", "content": "?" }]);
    let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 6 });
    let reply = in_time(|| chat.infer(&request.to_string(), None));
    in_time(|| chat.close());
    let reply = serde_json::to_value(reply?).expect("a reply is JSON");
    Ok(reply["text"].as_str().expect("a reply has a text").to_owned())
}

#[derive(Debug)]
struct Input {
    memory: usize,
    of_folder: bool,
    /// The file's name in the folder of prefixes, if it is not its own.
    name: Option<String>,
    content: Vec<u8>,
    is_forged: bool,
}

/// Changes members of the description, numbers of the tokens, and the data.
fn changed(u: &mut Unstructured<'_>, valid: &[u8]) -> arbitrary::Result<Vec<u8>> {
    let length = u32::from_le_bytes([valid[12], valid[13], valid[14], valid[15]]) as usize;
    let (head, rest) = valid[..valid.len() - CHECKSUM].split_at(PREFIX + length);
    let mut head = head.to_vec();
    let mut rest = rest.to_vec();
    let mut written: Value = serde_json::from_slice(&head[PREFIX..]).expect("it was written");
    let data = written["n_tokens"].as_u64().expect("a number") as usize * 4;
    let numbers = [0, 1, 2, u32::MAX, i32::MAX as u32, 1 << 16, 64, 255, 256, 512];
    for _ in 0..if rarely(u, 3)? { u.int_in_range(1..=2)? } else { 0 } {
        let lengths = ["n_tokens", "n_bytes"];
        let value = json!(u.choose(&[0_u64, 1, 77, u64::MAX, 1 << 32, 1 << 61])?);
        match u.int_in_range(0..=3)? {
            0 => written[*u.choose(&lengths)?] = value,
            1 => written["for"]["lora_scales"] = u.choose(&[json!([1.0]), json!({})])?.clone(),
            2 => {
                let keys: Vec<String> =
                    written["for"].as_object().expect("an object").keys().cloned().collect();
                let key = u.choose(&keys)?.clone();
                written["for"][key] = value;
            }
            _ => {}
        }
    }
    // A file with changed tokens is refused before its data is read.
    let area = u.int_in_range(0..=3)?;
    for _ in 0..u.int_in_range(0..=6)? {
        let number: u32 = if rarely(u, 2)? { *u.choose(&numbers)? } else { u.arbitrary()? };
        let range = match area {
            0 => 0..data,
            1 => data..rest.len(),
            // llama.cpp's own lengths.
            _ => data..rest.len().min(data + 256),
        };
        let (start, length) = (range.start, range.len());
        let index =
            if rarely(u, 8)? { u.choose_index(length)? } else { u.choose_index(length / 4)? * 4 };
        let at = start + index;
        let count = rest.len().saturating_sub(at).min(4);
        rest[at..at + count].copy_from_slice(&number.to_le_bytes()[..count]);
    }
    if rarely(u, 8)? {
        let keep = u.choose_index(rest.len())?;
        rest.truncate(keep);
        // A length that agrees with the file again.
        if keep >= data && u.arbitrary()? {
            written["n_bytes"] = (keep - data).into();
        }
    }
    let text = written.to_string();
    head.truncate(PREFIX);
    head[12..].copy_from_slice(&(text.len() as u32).to_le_bytes());
    if rarely(u, 16)? {
        let at = u.choose_index(PREFIX)?;
        head[at] = u.arbitrary()?;
    }
    Ok([head, text.into_bytes(), rest].concat())
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let memory = u.choose_index(WRITTEN.len())?;
        let (of_folder, is_forged) = (u.arbitrary()?, u.ratio(3, 4)?);
        let written = &WRITTEN[memory];
        let valid = if of_folder { &written.prefix.1 } else { &written.state };
        let mut content = changed(u, valid)?;
        if is_forged {
            let checksum = Sha256::digest(&content);
            content.extend_from_slice(&checksum);
        } else {
            content.extend_from_slice(&valid[valid.len() - CHECKSUM..]);
        }
        let other = of_folder && rarely(u, 8)?;
        let name = if other { Some(renamed(u, &written.prefix.0)?) } else { None };
        Ok(Input { memory, of_folder, name, content, is_forged })
    }
}

/// A name with other numbers of tokens, other digits, or another form.
fn renamed(u: &mut Unstructured<'_>, name: &str) -> arbitrary::Result<String> {
    let mut parts: Vec<String> = name.split('-').map(str::to_owned).collect();
    let part = u.choose_index(parts.len())?;
    let other = ["", "0", "99999999999999999999", "-", "64", "zz", "100"];
    parts[part] = (*u.choose(&other)?).to_owned();
    Ok(parts.join("-"))
}

fuzz_target!(|input: Input| {
    let written = &WRITTEN[input.memory];
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    fs::create_dir(&cache).expect("a folder");
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("it is ours");
    fs::hard_link(written.folder.path().join("model"), folder.path().join("model"))
        .expect("the same file system");
    let path = match input.of_folder {
        true => cache.join(input.name.as_ref().unwrap_or(&written.prefix.0)),
        false => folder.path().join("state"),
    };
    fs::write(&path, &input.content).expect("a small file fits");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    match reply(folder.path()) {
        Ok(text) if !input.is_forged => assert_eq!(text, written.reply),
        Ok(_) => {}
        Err(error) => {
            sound(&error);
            assert!(input.is_forged, "{error}");
        }
    }
});
