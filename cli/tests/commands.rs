//! The commands of the program without a terminal: output, exit status, messages.
//!
//! Expected texts are those of the scripted models, of Jinja templates written here, and of other
//! programs (sha256sum, JSON's own syntax).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

#[path = "../../tests/scripted/mod.rs"]
mod scripted;

/// Tiny models with known replies, and files of the tests.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        scripted::write_all(folder.path()).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Runs `llb` in the folder. `~` in an argument is the folder.
    fn llb(&self, arguments: &[&str], stdin: &str) -> Run {
        let folder = self.0.path().to_str().unwrap();
        let arguments = arguments.iter().map(|argument| argument.replace('~', folder));
        let mut child = Command::new(env!("CARGO_BIN_EXE_llb"))
            .args(arguments)
            .env("HF_HUB_CACHE", self.path("hub"))
            .env("LLB_MODELS", self.path("none"))
            .env("LLAMA_CACHE", self.path("llama.cpp"))
            .env("OLLAMA_MODELS", self.path("ollama"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        Run::new(child.wait_with_output().unwrap())
    }
}

struct Run {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn new(output: Output) -> Run {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let run = Run {
            status: output.status.code().unwrap(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        for stream in [&run.stdout, &run.stderr] {
            assert!(!stream.contains('\x1b'), "colours in a pipe: {stream}");
        }
        run
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.status, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// Standard output of a run that succeeds.
#[track_caller]
fn check(folder: &Folder, arguments: &[&str], stdin: &str, stdout: &str) {
    let run = folder.llb(arguments, stdin);
    assert_eq!((run.status, run.stdout.as_str()), (0, stdout), "{}", run.stderr);
}

/// Exit status, and a text on stderr.
#[track_caller]
fn check_failure(folder: &Folder, arguments: &[&str], status: i32, message: &str) {
    let run = folder.llb(arguments, "");
    assert_eq!(run.status, status, "{arguments:?}: {}", run.stderr);
    assert!(run.stderr.contains(message), "{arguments:?}: {}", run.stderr);
    assert_eq!(run.stdout, "");
}

const TOOLS: &str = r#"[{"type": "function", "function": {"name": "get_weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]"#;

#[test]
fn replies_go_to_a_pipe_as_plain_text() {
    let folder = Folder::new();
    folder.write("tools.json", TOOLS);
    let text = format!("{}\n", scripted::TEXT);
    check(&folder, &["run", "~/text.gguf", "-p", "hello"], "", &text);
    check(&folder, &["run", "~/text.gguf"], "a prompt from a pipe", &text);
    check(&folder, &["chat", "~/text.gguf", "hello"], "", &text);
    check(&folder, &["chat", "~/text.gguf"], "a prompt from a pipe", &text);
    let answer = format!("{}\n", scripted::REASONING[1]);
    check(&folder, &["chat", "~/reasoning.gguf"], "reasoning is not plain text", &answer);
    let call = "get_weather({\"city\": \"Paris\"})\n";
    check(&folder, &["run", "~/tool_call.gguf", "-p", "x", "--tools", "~/tools.json"], "", call);
}

#[test]
fn a_json_schema_constrains_the_reply() {
    let folder = Folder::new();
    folder.write("schema.json", r#"{"enum": [{"colour": "blue"}]}"#);
    let run = folder.llb(&["run", "~/text.gguf", "-p", "x", "--json-schema", "~/schema.json"], "");
    let reply: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(reply, json!({ "colour": "blue" }));
    let run = folder.llb(&["run", "~/text.gguf", "-p", "x", "--json", "--max-tokens", "3"], "");
    let reply = run.json();
    assert_eq!(
        (&reply["finish_reason"], &reply["usage"]["completion_tokens"]),
        (&json!("length"), &json!(3))
    );
}

#[test]
fn failures_say_what_to_do_and_have_their_status() {
    let folder = Folder::new();
    folder.write("broken.json", "{");
    folder.write("empty.gguf", "");
    let cases: [(&[&str], i32, &str); 11] = [
        (&[], 2, "Usage"),
        (&["nothing"], 2, "unrecognized subcommand"),
        (&["info", "~/none.gguf"], 1, "MODEL_NOT_FOUND"),
        (&["info", "org/name"], 1, "next: for a model of the Hugging Face hub, write hf:org/name"),
        (&["info", "hf:../x"], 1, "is not a model id"),
        (&["info", "https://example.org/m.gguf"], 1, "HF_ENDPOINT"),
        (&["chat", "~/empty.gguf", "x"], 1, "MODEL_INVALID"),
        (&["run", "~/text.gguf", "-p", "x", "--n-ctx", "1"], 1, "n_ctx"),
        (&["render", "~/text.gguf", "~/broken.json"], 1, "broken.json: not JSON"),
        (&["man", "nothing"], 1, "`llb --help` lists the commands"),
        (&["models", "remove", "nothing"], 1, "no such model"),
    ];
    for (arguments, status, message) in cases {
        check_failure(&folder, arguments, status, message);
    }
}

#[test]
fn info_is_that_of_the_library() {
    let folder = Folder::new();
    let info = folder.llb(&["info", "~/tool_call.gguf", "--json"], "").json();
    assert_eq!((&info["type"], &info["supports_tools"]), (&json!("model_info"), &json!(true)));
    let table = folder.llb(&["info", "~/tool_call.gguf"], "").stdout;
    for row in ["name            Scripted tool call\n", "\nsupports_tools  ", "\nFindings\n"] {
        assert!(table.contains(row), "{table}");
    }
}

#[test]
fn prompts_are_rendered_explained_and_parsed() {
    let folder = Folder::new();
    folder.write("a.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}");
    folder.write("messages.json", r#"[{"role": "user", "content": "Köln"}]"#);
    folder.write("tools.json", TOOLS);
    let prompt = "<user>Köln\n";
    check(&folder, &["render", "~/a.jinja", "~/messages.json"], "", prompt);
    check(
        &folder,
        &["render", "~/a.jinja"],
        r#"{"messages": [{"role": "user", "content": "Köln"}]}"#,
        prompt,
    );
    check(&folder, &["render", "~/a.jinja", "-m", "Köln"], "", prompt);
    let explained = folder.llb(&["explain", "~/a.jinja", "-m", "Köln"], "").stdout;
    assert!(explained.contains("messages[0].content  \"Köln\"\n"), "{explained}");
    let tokens =
        folder.llb(&["explain", "~/text.gguf", "-m", "hi", "--tokens", "--json"], "").json();
    assert_eq!(tokens["type"], "explanation");
    assert!(tokens["prompt_tokens"].as_u64().unwrap() > 2);
    let parsed =
        folder.llb(&["parse", "~/tool_call.gguf", "--tools", "~/tools.json"], scripted::TOOL_CALL);
    let call = &parsed.json()["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "get_weather");
}

#[test]
fn templates_are_composed_checked_and_compared() {
    let folder = Folder::new();
    let composed = folder.llb(&["compose", "qwen2.5"], "").stdout;
    folder.write("a.jinja", &composed);
    folder.write("b.jinja", "{% for m in messages %}\n{{ m.content }\n{% endfor %}");
    let derived = folder.llb(&["compose", "--derive", "~/a.jinja"], "").json();
    assert!(derived.is_object());

    let run = folder.llb(&["template", "check", "~/a.jinja", "~/b.jinja"], "");
    assert_eq!(run.status, 3);
    let line = format!("{}:2: error: ", folder.path("b.jinja").display());
    assert!(run.stdout.lines().any(|each| each.starts_with(&line)), "{}", run.stdout);
    assert_eq!(folder.llb(&["template", "check", "~/a.jinja"], "").status, 0);
    assert_eq!(folder.llb(&["template", "check", "~/b.jinja", "--fail-on", "never"], "").status, 0);

    let check = ["template", "check", "~/b.jinja", "--fail-on", "never", "--format"];
    let sarif = folder.llb(&[&check[..], &["sarif"]].concat(), "").json();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!((&sarif["version"], &result["level"]), (&json!("2.1.0"), &json!("error")));
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 2);
    let github = folder.llb(&[&check[..], &["github"]].concat(), "").stdout;
    assert!(github.starts_with("::error file=") && github.contains(",line=2,"), "{github}");

    assert_eq!(folder.llb(&["template", "diff", "~/a.jinja", "~/a.jinja"], "").status, 0);
    folder.write("c.jinja", &composed.replace("<|im_start|>", "<|start|>"));
    let run = folder.llb(&["template", "diff", "~/a.jinja", "~/c.jinja"], "");
    assert_eq!(run.status, 3);
    assert!(run.stdout.contains("\n-<|im_start|>user\n+<|start|>user\n"), "{}", run.stdout);
}

/// Lays a file into the cache of the hub, as huggingface_hub does.
#[cfg(unix)]
fn cached(folder: &Folder, content: &[u8], hash: &str) {
    let repository = folder.path("hub/models--org--name");
    let snapshot = repository.join("snapshots/0123");
    std::fs::create_dir_all(repository.join("blobs")).unwrap();
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::write(repository.join("blobs").join(hash), content).unwrap();
    std::os::unix::fs::symlink(Path::new("../../blobs").join(hash), snapshot.join("m.gguf"))
        .unwrap();
}

#[cfg(unix)]
#[test]
fn cached_models_are_listed_verified_and_removed() {
    // `printf abc | sha256sum`
    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let folder = Folder::new();
    assert_eq!(folder.llb(&["models"], "").stdout, "");
    cached(&folder, b"abc", HASH);
    let list = folder.llb(&["models", "--json"], "").json();
    let expected = json!([{
        "name": "org/name/m.gguf", "path": folder.path("hub/models--org--name/snapshots/0123/m.gguf"),
        "size": 3, "place": "hub", "sha256": HASH,
    }]);
    assert_eq!(list, expected);
    check(&folder, &["models", "verify"], "", "org/name/m.gguf: ok\n");
    let blob = folder.write(&format!("hub/models--org--name/blobs/{HASH}"), "abd");
    let run = folder.llb(&["models", "verify", "org/name"], "");
    assert_eq!((run.status, run.stdout.as_str()), (3, "org/name/m.gguf: damaged\n"));
    assert_eq!(folder.llb(&["models", "remove", "org/name", "--dry-run"], "").status, 0);
    assert!(blob.exists());
    assert_eq!(folder.llb(&["models", "remove", "org/name"], "").status, 0);
    assert!(!blob.exists());
    assert_eq!(folder.llb(&["models"], "").stdout, "");
}

#[test]
fn other_caches_are_found() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("llama.cpp")).unwrap();
    folder.write("llama.cpp/a.gguf", "GGUF");
    let manifests = "ollama/manifests/registry.ollama.ai/library/tiny";
    std::fs::create_dir_all(folder.path(manifests)).unwrap();
    std::fs::create_dir_all(folder.path("ollama/blobs")).unwrap();
    folder.write("ollama/blobs/sha256-0a0b", "GGUF");
    let layer = r#"{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:0a0b"}]}"#;
    folder.write(&format!("{manifests}/latest"), layer);
    let list = folder.llb(&["models", "--json"], "").json();
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|model| &model["name"]).collect();
    assert_eq!(names, ["a.gguf", "tiny:latest"]);
}

#[test]
fn the_other_commands_run() {
    let folder = Folder::new();
    let bench =
        ["bench", "~/long.gguf", "--runs", "1", "--chats", "1,2", "--max-tokens", "8", "--json"];
    let results = folder.llb(&bench, "").json();
    let results = results["results"].as_array().unwrap();
    assert_eq!(
        results.iter().map(|row| row["chats"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(results.iter().all(|row| row["decode_per_second"].as_f64().unwrap() > 0.0));
    let doctor = folder.llb(&["doctor", "--json"], "");
    let report: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let has_problems = !report["problems"].as_array().unwrap().is_empty();
    assert_eq!(doctor.status, if has_problems { 3 } else { 0 });
    for shell in ["bash", "zsh", "fish"] {
        assert!(folder.llb(&["completions", shell], "").stdout.contains("llb"), "{shell}");
    }
    assert!(
        folder.llb(&["man", "template", "check"], "").stdout.contains(".TH llb-template-check 1")
    );
}
