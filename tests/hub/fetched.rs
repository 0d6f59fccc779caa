//! A hub that behaves: the downloaded files, their places, and the requests that the hub receives.

use std::sync::Arc;

use llb::error::Code;
use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::scripted::gguf_writer::GgufWriter;
use crate::scripted::projector::ProjectorFile;
use crate::scripted::random::{Memory, N_EMBD, random};
use crate::server::{COMMIT, Hub, Repository, Route};
use crate::{User, model_of, scripted, sha256};

#[test]
fn a_model_is_fetched_once() {
    let bytes = model_of(3 << 20);
    let (hash, size) = (sha256(&bytes), bytes.len());
    let hub = Hub::start(Repository::of([
        ("README.md", b"hello".to_vec()),
        ("m-Q8_0.gguf", scripted::no_tools()),
        ("m-Q4_K_M.gguf", bytes.clone()),
    ]));
    let user = User::of(&hub);
    let (fetched, events) = user.fetch(&json!({}));
    let fetched = fetched.unwrap();
    let path = user.repository().join("snapshots").join(COMMIT).join("m-Q4_K_M.gguf");
    assert_eq!(
        (fetched["type"].as_str(), fetched["path"].as_str()),
        (Some("model_fetched"), path.to_str())
    );
    assert_eq!((&fetched["paths"], &fetched["revision"]), (&json!([path]), &json!(COMMIT)));
    assert_eq!((&fetched["sha256"], &fetched["from_cache"]), (&json!(hash), &json!(false)));
    assert_eq!(
        fetched["hub"],
        json!({ "architecture": "llama", "context_length": 2048, "has_chat_template": true })
    );
    assert_eq!(fetched["model_info"]["supports_tools"], true);
    assert_eq!(fetched["model_info"]["file_size"], size);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let expected = [
        format!("blobs/{hash}"),
        "refs/main".to_owned(),
        format!("snapshots/{COMMIT}/m-Q4_K_M.gguf"),
    ];
    assert_eq!(user.files(), expected);
    #[cfg(unix)]
    assert_eq!(std::fs::read_link(&path).unwrap().to_str(), Some(&*format!("../../blobs/{hash}")));
    assert_eq!(std::fs::read_to_string(user.repository().join("refs/main")).unwrap(), COMMIT);
    let ends = [
        "fetch_start".to_owned(),
        format!("fetch_progress:0/{size}"),
        format!("fetch_progress:{size}/{size}"),
        "fetch_verify".to_owned(),
        "fetch_success".to_owned(),
    ];
    assert_eq!((&events[..2], &events[events.len() - 3..]), (&ends[..2], &ends[2..]));

    hub.forget();
    let again = user.fetches(&json!({}));
    assert_eq!(
        (&again["path"], &again["sha256"], &again["from_cache"]),
        (&fetched["path"], &json!(hash), &json!(true))
    );
    assert_eq!((hub.at(Route::Api).len(), hub.seen().len()), (1, 1));

    // Another revision with the same file: the bytes are cached.
    hub.forget();
    let tag = user.fetches(&json!({ "revision": "refs/pr/1" }));
    assert_eq!(
        (&tag["from_cache"], hub.seen()[0].path.as_str()),
        (&json!(true), "/api/models/o/n/revision/refs%2Fpr%2F1?blobs=true")
    );

    hub.forget();
    for revision in ["main", "refs/pr/1", COMMIT] {
        let offline = user.fetches(&json!({ "offline": true, "revision": revision }));
        assert_eq!((&offline["path"], &offline["from_cache"]), (&fetched["path"], &json!(true)));
    }
    for members in
        [json!({ "revision": "v9" }), json!({ "quant": "Q8_0" }), json!({ "id": "o/other" })]
    {
        let mut members = members;
        members["offline"] = true.into();
        assert_eq!(user.fails(&members).code(), Code::Offline, "{members}");
    }
    assert_eq!(user.with("HF_HUB_OFFLINE", "1").fetches(&json!({}))["from_cache"], true);
    assert!(hub.seen().is_empty());
}

#[test]
fn requests_choose_a_file() {
    let names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "sub/m-F16.gguf", "mmproj-m-Q4_K_M.gguf"];
    let model = |name: &str| {
        scripted::Model::new(name, ["ab", "cd"], Some(scripted::TOOLS_TEMPLATE)).to_bytes()
    };
    let hub = Hub::start(Repository::of(names.map(|name| (name, model(name)))));
    let user = User::of(&hub);
    let check = |members: Value, expected: &str| {
        let fetched = user.fetches(&members);
        assert!(
            fetched["path"].as_str().unwrap().replace('\\', "/").ends_with(expected),
            "{members}: {}",
            fetched["path"]
        );
        assert_eq!(fetched["model_info"]["name"], expected.trim_start_matches('/'));
    };
    check(json!({}), "/m-Q4_K_M.gguf");
    check(json!({ "id": "o/n:q8_0" }), "/m-Q8_0.gguf");
    check(json!({ "filename": "sub/m-F16.gguf" }), "sub/m-F16.gguf");
    let own = tempfile::tempdir().unwrap();
    let fetched = user.fetches(&json!({ "cache_dir": own.path() }));
    assert!(
        fetched["path"].as_str().unwrap().starts_with(own.path().to_str().unwrap()),
        "{}",
        fetched["path"]
    );
    assert_eq!(user.fails(&json!({ "id": "o/n:Q2_K" })).code(), Code::HubNotFound);
    assert_eq!(user.fetches(&json!({ "odd": 1 }))["ignored_keys"], json!(["odd"]));
}

#[test]
fn a_model_comes_with_its_projector() {
    let kind = ProjectorType::Mlp;
    let projector = ProjectorFile::new(kind, N_EMBD).to_bytes();
    let other = ProjectorFile::new(kind, 96).to_bytes();
    let files = [
        ("m-Q8_0.gguf", random(Memory::Dense)),
        ("mmproj-m-F32.gguf", other),
        ("mmproj-m-f16.gguf", projector.clone()),
    ];
    let hub = Hub::start(Repository::of(files));
    let user = User::of(&hub);
    let fetch = |members: Value| {
        let mut request = json!({ "require_tools": false });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        user.fetches(&request)
    };
    let snapshot = user.repository().join("snapshots").join(COMMIT);
    let at = |name: &str| json!(snapshot.join(name));
    // Before anything is downloaded, the reply lists it, and its header is copied too.
    let headers = tempfile::tempdir().unwrap();
    let dry = fetch(json!({ "dry_run": true, "header_dir": headers.path() }));
    assert_eq!(
        (&dry["projector"], &dry["files"][1]["name"]),
        (&Value::Null, &json!("mmproj-m-f16.gguf"))
    );
    let info = llb::profile::model_info(dry["header_path"].as_str().unwrap()).unwrap();
    assert_eq!(info["input_modalities"], json!(["text", "image"]));
    // A model without it is complete.
    let alone = fetch(json!({ "projector": "none" }));
    assert_eq!(
        (&alone["projector"], &alone["model_info"]["input_modalities"]),
        (&Value::Null, &json!(["text"]))
    );
    hub.forget();
    let fetched = fetch(json!({}));
    assert_eq!(fetched["paths"], json!([at("m-Q8_0.gguf")]));
    assert_eq!(fetched["projector"], at("mmproj-m-f16.gguf"));
    assert_eq!(std::fs::read(snapshot.join("mmproj-m-f16.gguf")).unwrap(), projector);
    assert_eq!(fetched["files"][1]["sha256"], sha256(&projector));
    assert_eq!(
        (&fetched["from_cache"], &fetched["files"][0]["cached"]),
        (&json!(false), &json!(true))
    );
    let sizes =
        fetched["files"].as_array().unwrap().iter().map(|file| file["size"].as_u64().unwrap());
    assert_eq!(fetched["total_bytes"], sizes.sum::<u64>());
    assert_eq!(fetched["diagnostics"][0]["code"], "projector_chosen");
    let info = &fetched["model_info"];
    assert_eq!(
        (&info["input_modalities"], &info["projector"]),
        (&json!(["text", "image"]), &fetched["projector"])
    );
    // Then both are in the cache.
    hub.forget();
    for members in [json!({}), json!({ "offline": true })] {
        let again = fetch(members);
        assert_eq!(
            (&again["from_cache"], &again["projector"]),
            (&json!(true), &fetched["projector"])
        );
    }
    assert_eq!(hub.seen().len(), 1);
    // Another one by its name belongs to another model.
    let other = fetch(json!({ "projector": "mmproj-m-F32.gguf" }));
    assert_eq!(other["projector"], at("mmproj-m-F32.gguf"));
    assert_eq!(user.fails(&json!({ "projector": "mmproj.gguf" })).code(), Code::HubNotFound);
    let offline = json!({ "projector": "mmproj.gguf", "offline": true });
    assert_eq!(user.fails(&offline).code(), Code::Offline);
}

#[test]
fn all_parts_of_a_split_model() {
    let name = |number: u32| format!("q/m-Q4_K_M-{number:05}-of-00003.gguf");
    let part = |number: u16| {
        let writer = GgufWriter::new()
            .metadata("split.no", number - 1)
            .metadata("split.count", 3_u16)
            .metadata("split.tensors.count", 3_i32);
        let writer = match number {
            1 => writer
                .metadata("general.architecture", "llama")
                .metadata("tokenizer.chat_template", scripted::TOOLS_TEMPLATE),
            _ => writer,
        };
        writer.tensor(format!("t{number}"), &[64], &[f32::from(number); 64]).to_bytes()
    };
    let files: Vec<_> =
        (1..=3).map(|number| (name(number), Arc::new(part(number as u16)))).collect();
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let hub = Hub::start(Repository { files: files.clone(), ..Repository::of([]) });
    let user = User::of(&hub);
    let plan = user.fetches(&json!({ "dry_run": true }));
    assert_eq!(
        (&plan["total_bytes"], plan["files"].as_array().unwrap().len(), &plan["path"]),
        (&json!(total), 3, &Value::Null)
    );
    assert_eq!(user.files(), Vec::<String>::new());
    // Copies of the headers are a model of which only the weights are missing.
    let headers = tempfile::tempdir().unwrap();
    let with = json!({ "dry_run": true, "header_dir": headers.path() });
    let first = headers.path().join("m-Q4_K_M-00001-of-00003.gguf");
    let planned = user.fetches(&with);
    assert_eq!(planned["header_path"], first.to_str().unwrap());
    let copied = llb::gguf::ModelHeader::read_file(&first).unwrap();
    copied.check_complete().unwrap();
    assert_eq!(copied.file_size(), total as u64);
    // None of the copies is overwritten.
    std::fs::remove_file(&first).unwrap();
    let taken = user.fails(&with);
    assert!(taken.message().starts_with("header_dir: cannot write"), "{taken}");
    let (fetched, events) = user.fetch(&json!({}));
    let fetched = fetched.unwrap();
    assert!(events.contains(&format!("fetch_progress:{total}/{total}")), "{events:?}");
    assert_eq!(
        (fetched["paths"].as_array().unwrap().len(), &fetched["path"]),
        (3, &fetched["paths"][0])
    );
    for (index, (_, bytes)) in files.iter().enumerate() {
        assert_eq!(&std::fs::read(fetched["paths"][index].as_str().unwrap()).unwrap(), &**bytes);
        assert_eq!(fetched["files"][index]["sha256"], sha256(bytes));
    }
    assert_eq!(fetched["model_info"]["n_params"], 192);
    // The files have no faults; all findings are about the template.
    let findings = fetched["model_info"]["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["template"] == "default"), "{findings:?}");
    // One part is lost: only that part is downloaded again.
    std::fs::remove_file(std::fs::canonicalize(fetched["paths"][1].as_str().unwrap()).unwrap())
        .unwrap();
    // Where links need a permission, that was the file's second name.
    let _ = std::fs::remove_file(user.repository().join("blobs").join(sha256(&files[1].1)));
    assert_eq!(user.fails(&json!({ "offline": true })).code(), Code::Offline);
    let again = user.fetches(&json!({}));
    let cached: Vec<_> =
        again["files"].as_array().unwrap().iter().map(|file| file["cached"] == true).collect();
    assert_eq!((cached, &again["from_cache"]), (vec![true, false, true], &json!(false)));
}

/// A header of several megabytes with the template at its end, and as many bytes after it.
fn long_header(template: &str) -> Vec<u8> {
    let tokens: Vec<String> = (0..150_000).map(|number| format!("token number {number}")).collect();
    let mut bytes = GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.eos_token_id", 77_u32)
        .metadata("tokenizer.chat_template", template)
        .tensor("t", &[64], &[1.0; 64])
        .to_bytes();
    bytes.resize(bytes.len() + (30 << 20), 7);
    bytes
}

#[test]
fn a_header_is_read_before_the_weights() {
    let bytes = long_header(scripted::PLAIN_TEMPLATE);
    let size = bytes.len();
    let hub = Hub::start(Repository::of([("m.gguf", bytes)]));
    let user = User::of(&hub);
    let bytes_requested = |hub: &Hub| -> usize {
        let length =
            |(first, last): (usize, Option<usize>)| last.map_or(size, |last| last + 1) - first;
        hub.at(Route::Blob).iter().map(|request| request.range().map_or(size, length)).sum()
    };
    for members in [json!({}), json!({ "dry_run": true })] {
        let error = user.fails(&members);
        assert_eq!(error.code(), Code::ModelNotToolCapable);
        assert_eq!(error.details().unwrap()["caps"]["supports_tools"], false);
        assert!(
            error.message().ends_with("the model was refused before it was downloaded"),
            "{error}"
        );
    }
    let plan = user.fetches(&json!({ "dry_run": true, "require_tools": false }));
    assert_eq!(
        (&plan["dry_run"], &plan["files"][0]["cached"], &plan["total_bytes"]),
        (&json!(true), &json!(false), &json!(size))
    );
    assert_eq!(
        (&plan["model_info"]["supports_tools"], &plan["model_info"]["eos_token"]),
        (&json!(false), &json!("token number 77"))
    );
    assert_eq!(plan["hub"]["architecture"], "llama");
    // Three range requests of about four megabytes each.
    assert!(bytes_requested(&hub) < size, "{} of {size}", bytes_requested(&hub));
    assert_eq!(user.files(), Vec::<String>::new());
    let fetched = user.fetches(&json!({ "require_tools": false }));
    assert_eq!(
        (&fetched["model_info"]["tool_support"], &fetched["total_bytes"]),
        (&json!("polyfilled"), &json!(size))
    );
    // A cached file is refused as well, and stays.
    assert_eq!(user.fails(&json!({ "offline": true })).code(), Code::ModelNotToolCapable);
    assert_eq!(
        user.fetches(&json!({ "offline": true, "require_tools": false }))["from_cache"],
        true
    );
}

#[test]
fn the_second_template_counts() {
    let hub = Hub::start(Repository::of([("m.gguf", scripted::tool_use())]));
    assert_eq!(User::of(&hub).fetches(&json!({}))["model_info"]["has_tool_use_template"], true);
}

#[test]
fn an_unreachable_hub_leaves_the_cache_usable() {
    let hub = Hub::twisted(Repository::of([("m.gguf", scripted::text())]), |request, out| {
        let gone = request.route == Route::Api && request.count > 0;
        if gone {
            crate::server::answer(out, "503 Service Unavailable", "", b"");
        }
        gone
    });
    let user = User::of(&hub);
    let fetched = user.fetches(&json!({}));
    let again = user.fetches(&json!({}));
    assert_eq!((&again["path"], &again["from_cache"]), (&fetched["path"], &json!(true)));
    assert_eq!(again["diagnostics"][0]["code"], "hub_unreachable");
}

#[test]
fn a_truncated_file_is_not_used() {
    let whole = scripted::text();
    let hub = Hub::start(Repository::of([
        ("m-Q8_0.gguf", whole.clone()),
        ("m-F16.gguf", whole[..whole.len() - 100].to_vec()),
    ]));
    let user = User::of(&hub);
    // As uploaded: the header shows it.
    let error = user.fails(&json!({ "id": "o/n:F16", "require_tools": false }));
    assert_eq!((error.code(), user.files().len()), (Code::ModelInvalid, 0), "{error}");
    // As left by a disk fault, while the hub is not reachable to state the size.
    let path = user.fetches(&json!({ "id": "o/n:Q8_0" }))["path"].as_str().unwrap().to_owned();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(whole.len() as u64 - 100)
        .unwrap();
    assert_eq!(
        user.fails(&json!({ "id": "o/n:Q8_0", "offline": true })).code(),
        Code::ModelInvalid
    );
    assert_eq!(user.fetches(&json!({ "id": "o/n:Q8_0" }))["from_cache"], false);
    assert_eq!(std::fs::read(path).unwrap(), whole);
}

#[test]
fn an_unusable_download_is_set_aside() {
    // The second part is not a GGUF file. The header of the first part does not show that.
    let first = GgufWriter::new()
        .metadata("split.no", 0_u16)
        .metadata("split.count", 2_u16)
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.chat_template", scripted::TOOLS_TEMPLATE)
        .tensor("t", &[64], &[1.0; 64])
        .to_bytes();
    let files =
        [("m-00001-of-00002.gguf", first), ("m-00002-of-00002.gguf", b"<!doctype html>".to_vec())];
    let hub = Hub::start(Repository::of(files.clone()));
    let user = User::of(&hub);
    let error = user.fails(&json!({}));
    assert_eq!(error.code(), Code::ModelInvalid);
    let kept = error.details().unwrap()["quarantine"].as_array().unwrap().clone();
    for (kept, (name, bytes)) in kept.iter().zip(&files) {
        let kept = std::path::Path::new(kept.as_str().unwrap());
        assert_eq!(&std::fs::read(kept).unwrap(), bytes);
        let note: Value =
            serde_json::from_slice(&std::fs::read(kept.with_extension("json")).unwrap()).unwrap();
        assert_eq!(
            (&note["file"], &note["code"], &note["revision"]),
            (&json!(name), &json!("MODEL_INVALID"), &json!(COMMIT))
        );
    }
    assert_eq!(kept.len(), 2);
    assert_eq!(user.fails(&json!({ "offline": true })).code(), Code::Offline);
}

#[test]
fn many_at_once_download_once() {
    let bytes = model_of(2 << 20);
    let size = bytes.len();
    let hub = Hub::start(Repository::of([("m.gguf", bytes)]));
    let user = User::of(&hub);
    let replies = std::thread::scope(|scope| {
        let fetches: Vec<_> = (0..6).map(|_| scope.spawn(|| user.fetches(&json!({})))).collect();
        fetches.into_iter().map(|fetch| fetch.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(replies.iter().all(|reply| reply["sha256"] == replies[0]["sha256"]));
    assert_eq!(replies.iter().filter(|reply| reply["from_cache"] == false).count(), 1);
    let whole = hub
        .at(Route::Blob)
        .iter()
        .filter(|request| request.range().is_none_or(|(_, last)| last.is_none()))
        .count();
    assert_eq!(
        (whole, std::fs::metadata(replies[0]["path"].as_str().unwrap()).unwrap().len()),
        (1, size as u64)
    );
}

/// A copy of a header has all bytes before the weights, takes the space of those, and is a model
/// for everything that reads no weights.
#[test]
fn a_header_is_copied_without_its_weights() {
    let model = model_of(3 << 20);
    let hub = Hub::start(Repository::of([("m.gguf", model.clone())]));
    let user = User::of(&hub);
    let folder = tempfile::tempdir().unwrap();
    let with = |members: Value| {
        let mut all = json!({ "dry_run": true, "header_dir": folder.path() });
        all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        all
    };
    let reply = user.fetches(&with(json!({})));
    assert_eq!(user.files(), Vec::<String>::new());
    let copy = reply["header_path"].as_str().unwrap();
    let bytes = std::fs::read(copy).unwrap();
    assert_eq!(bytes.len(), model.len());
    // The weights of the scripted model are at its end, before the pseudo-random bytes.
    let header = scripted::text().len() / 2;
    assert_eq!(bytes[..header], model[..header]);
    assert!(bytes[1 << 20..].iter().all(|byte| *byte == 0));
    let whole = folder.path().join("whole.gguf");
    std::fs::write(&whole, &model).unwrap();
    let sizes = |path: &str| {
        let request = json!({ "model_path": path, "n_ctx": 512 }).to_string();
        let reply = llb::memory::run(&request).unwrap();
        ["weights", "cache", "compute", "context_length"].map(|name| reply[name].clone())
    };
    assert_eq!(sizes(copy), sizes(whole.to_str().unwrap()));
    for (members, says) in [
        (json!({}), "cannot write"),
        (json!({ "header_dir": folder.path().join("none") }), "cannot write"),
        (json!({ "header_dir": "" }), "is not the path of a folder"),
        (json!({ "dry_run": false }), "is only for `dry_run`"),
    ] {
        let refused = user.fails(&with(members));
        let is_named = refused.message().starts_with("header_dir: ");
        assert!(is_named && refused.message().contains(says), "{refused}");
    }
    // A model in the cache has a path, and its header is not copied.
    user.fetches(&json!({}));
    std::fs::remove_file(copy).unwrap();
    let cached = user.fetches(&with(json!({})));
    assert!(cached["path"].is_string() && cached["header_path"].is_null(), "{cached}");
    // Nothing is left of a model that is refused.
    let hub = Hub::start(Repository::of([("m.gguf", scripted::no_tools())]));
    let refused = User::of(&hub).fails(&with(json!({})));
    assert_eq!(refused.code(), Code::ModelNotToolCapable);
    assert!(!std::path::Path::new(copy).exists());
}
