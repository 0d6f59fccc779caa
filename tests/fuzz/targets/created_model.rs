//! Fuzzes chats and embedding models of files with several faults: create, two replies, vectors,
//! destroy, with two threads. libFuzzer finds signals, exits and hangs.
#![no_main]

#[path = "../../corpus/architectures.rs"]
mod architectures;
#[path = "../../corpus/combinations.rs"]
mod combinations;
#[path = "../../corpus/crafted.rs"]
mod crafted;
#[path = "../../corpus/model_file.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod model_file;
#[path = "../../corpus/mutants.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod mutants;
#[path = "../../corpus/numbers.rs"]
mod numbers;
#[path = "../../scripted/mod.rs"]
mod scripted;
#[path = "../../corpus/vocabularies.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vocabularies;

use std::io::Write;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::{CreateOptions, EmbedOptions};
use llb::chat::Chat;
use llb::embed::EmbeddingModel;
use llb_fuzz::{in_time, rarely, sound};
use model_file::ModelFile;
use mutants::KINDS;
use serde_json::{Value, json};

static MODELS: LazyLock<Vec<ModelFile>> = LazyLock::new(architectures::all);

#[derive(Debug)]
struct Input {
    faults: Vec<String>,
    file: Vec<u8>,
    options: Value,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let mut model = u.choose(&MODELS)?.clone();
        let mut faults = vec![model.architecture.clone()];
        for _ in 0..u.int_in_range(0..=4)? {
            // Every kind but the last, which combines the others.
            let kind = *u.choose(&KINDS[..KINDS.len() - 1])?;
            let count = mutants::count(&model, kind);
            if count > 0 {
                let (fault, changed) = mutants::make(&model, kind, u.choose_index(count)?);
                model = changed;
                faults.push(fault);
            }
        }
        let mut file = model.to_bytes();
        for _ in 0..u.int_in_range(0..=4)? {
            if !file.is_empty() {
                let at = u.choose_index(file.len())?;
                file[at] = u.arbitrary()?;
            }
        }
        let mut options = json!({ "n_ctx": u.choose(&[64, 256])?, "n_threads": 2,
            "tool_policy": "any", "flash_attn": u.choose(&["auto", "on", "off"])? });
        if rarely(u, 4)? {
            options["cache_type_k"] = (*u.choose(&["f32", "q8_0", "q4_0"])?).into();
        }
        if rarely(u, 4)? {
            options["context_overflow"] = "shift".into();
        }
        if rarely(u, 8)? {
            options["use_mmap"] = false.into();
        }
        Ok(Input { faults, file, options })
    }
}

fuzz_target!(|input: Input| {
    if std::env::var_os("LLB_FUZZ_SHOW").is_some() {
        eprintln!("{}", input.faults.join("; "));
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&input.file).expect("a small file fits");
    let mut options = input.options;
    options["model"] = file.path().to_str().expect("a UTF-8 path").into();
    let opened = CreateOptions::read(&options);
    match in_time(|| Chat::create(opened, Box::new(|_| ()))) {
        Ok(chat) => {
            for text in ["Hi 1", "a longer text, of several words"] {
                let messages = json!([{ "role": "user", "content": text }]);
                let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 3 });
                if let Err(error) = in_time(|| chat.infer(&request.to_string(), None)) {
                    sound(&error);
                }
            }
            in_time(|| chat.close());
        }
        Err(failure) => sound(&failure.error),
    }
    let options = json!({ "model": options["model"], "n_ctx": 256, "n_threads": 2 });
    let opened = EmbedOptions::read(&options).expect("these options are valid");
    match in_time(|| EmbeddingModel::open(&opened)) {
        Ok(embedder) => {
            let request = json!({ "input": ["Hi 1", "a"] }).to_string();
            if let Err(error) = in_time(|| embedder.embed(&request).map(drop)) {
                sound(&error);
            }
            in_time(|| embedder.close());
        }
        Err(error) => sound(&error),
    }
});
