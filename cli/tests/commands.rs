//! Tests the commands without a terminal: output, exit status, messages.
//!
//! The expected texts come from the scripted models, from Jinja templates written here, and from
//! other programs (sha256sum, the syntax of JSON).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

#[path = "../../tests/scripted/mod.rs"]
mod scripted;

/// A folder with tiny models whose replies are known, and with other test files.
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

    /// Runs `llb` in the folder. `~` in an argument stands for the folder.
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

/// Checks the standard output of a successful run.
#[track_caller]
fn check(folder: &Folder, arguments: &[&str], stdin: &str, stdout: &str) {
    let run = folder.llb(arguments, stdin);
    assert_eq!((run.status, run.stdout.as_str()), (0, stdout), "{}", run.stderr);
}

/// Checks the exit status and a text on stderr.
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
    let tokens = |arguments: &[&str], stdin| {
        let reply = folder.llb(&[&["run", "~/text.gguf", "--json"], arguments].concat(), stdin);
        reply.json()["usage"]["prompt_tokens"].clone()
    };
    assert_eq!(tokens(&[], "hello\n"), tokens(&["-p", "hello"], ""));
    let answer = format!("{}\n", scripted::REASONING[1]);
    check(&folder, &["chat", "~/reasoning.gguf"], "reasoning is not plain text", &answer);
    let call = "get_weather({\"city\": \"Paris\"})\n";
    check(&folder, &["run", "~/tool_call.gguf", "-p", "x", "--tools", "~/tools.json"], "", call);
}

#[test]
fn a_prompt_and_a_pipe_are_one_message() {
    let folder = Folder::new();
    let text = format!("{}\n", scripted::TEXT);
    let tokens = |arguments: &[&str], stdin| {
        let reply = folder.llb(&[&["run"], arguments, &["--json"]].concat(), stdin);
        reply.json()["usage"]["prompt_tokens"].clone()
    };
    let both = tokens(&["~/text.gguf", "-p", "Summarise\n\na text\nof two lines"], "");
    for arguments in [["~/text.gguf", "Summarise"].as_slice(), &["~/text.gguf", "-p", "Summarise"]]
    {
        assert_eq!(tokens(arguments, "a text\nof two lines\n"), both);
    }
    let words = tokens(&["~/text.gguf", "-p", "why is the sky blue"], "");
    assert_eq!(tokens(&["~/text.gguf", "why", "is", "the", "sky", "blue"], ""), words);
    assert_eq!(tokens(&["why is", "-m", "~/text.gguf", "the sky blue"], ""), words);
    check(&folder, &["chat", "~/text.gguf", "count"], "from a pipe", &text);
    check_failure(&folder, &["run", "~/text.gguf", "x", "-p", "y"], 2, "cannot be used with");
}

#[test]
fn options_have_the_names_of_other_programs_too() {
    let folder = Folder::new();
    let run =
        |arguments: &[&str]| folder.llb(&[&["run", "--json", "-p", "x"], arguments].concat(), "");
    let three = ["-m", "~/text.gguf", "-n", "3", "-c", "64", "-t", "1", "-ngl", "0", "--temp", "0"];
    let reply = run(&three).json();
    assert_eq!(reply["usage"]["completion_tokens"], 3);
    let reply = run(&["~/text.gguf", "--n-predict", "2", "--ctx-size", "64"]).json();
    assert_eq!(reply["usage"]["completion_tokens"], 2);
    for layers in ["all", "auto"] {
        assert_eq!(
            run(&["~/text.gguf", "-ngl", layers]).json()["message"]["content"],
            scripted::TEXT
        );
    }
    check_failure(&folder, &["run", "~/text.gguf", "-ngl", "-1"], 2, "\"all\" or \"auto\"");
    let too_long = run(&["~/text.gguf", "-c", "64", "hello", "-n", "3"]);
    assert_eq!(too_long.status, 2, "a prompt twice");
    let short = folder.llb(&["run", "~/text.gguf", "-c", "16", &"word ".repeat(40)], "");
    assert!(short.stderr.contains("CONTEXT_OVERFLOW"), "{}", short.stderr);
    // The free memory changes from one run to the next.
    let report = |name| {
        let text = folder.llb(&[name, "~/text.gguf"], "").stdout;
        let (free, rest): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.contains(" are free. "));
        assert_eq!(free.len(), 1, "{text}");
        rest.join("\n")
    };
    assert_eq!(report("show"), report("info"));
    assert_eq!(
        folder.llb(&["ls"], "").stderr,
        "llb: no models; `llb fetch ORG/NAME` downloads one\n"
    );
    check_failure(&folder, &["rm", "nothing"], 1, "no such model");
    check_failure(&folder, &["pull", "../x"], 1, "is not a model id");
    let url = format!("http://127.0.0.1:{}", free_port());
    check_failure(&folder, &["ps", "--url", &url], 1, "`llb serve MODEL` starts one");
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn tips_fit_this_program() {
    let folder = Folder::new();
    for (arguments, tip) in [
        (["run", "~/text.gguf", "--nonsense"].as_slice(), None),
        (&["run", "~/text.gguf", "--n-ctxx", "8"], Some("'--n-ctx'")),
        (&["~/text.gguf"], Some("use 'llb chat ")),
        (&["run"], Some("'llb models' lists")),
        (&["runn"], Some("'run'")),
    ] {
        let run = folder.llb(arguments, "");
        assert_eq!(run.status, 2, "{arguments:?}");
        assert_eq!(run.stderr.contains("tip:"), tip.is_some(), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(tip.unwrap_or_default()), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn cached_models_open_by_the_beginning_of_their_names() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("llama.cpp/deep")).unwrap();
    for (model, name) in
        [("text", "Alpha-1B.gguf"), ("text", "deep/beta.gguf"), ("long", "betb.gguf")]
    {
        let model = folder.path(&format!("{model}.gguf"));
        std::fs::copy(model, folder.path(&format!("llama.cpp/{name}"))).unwrap();
    }
    let text = format!("{}\n", scripted::TEXT);
    for name in ["Alpha-1B.gguf", "alpha", "deep/beta.gguf", "beta", "deep"] {
        check(&folder, &["run", name, "hello"], "", &text);
    }
    let name = |arguments: &[&str]| folder.llb(arguments, "").json()["name"].clone();
    assert_eq!(name(&["info", "beta", "--json"]), name(&["info", "~/text.gguf", "--json"]));
    let prompt = folder.llb(&["render", "~/text.gguf", "-m", "x"], "").stdout;
    check(&folder, &["render", "alpha", "-m", "x"], "", &prompt);
    check_failure(&folder, &["run", "bet", "hello"], 1, "2 models have such a name");
    check_failure(
        &folder,
        &["run", "bet", "hello"],
        1,
        "next: write one of betb.gguf, deep/beta.gguf",
    );
    check_failure(&folder, &["run", "gamma", "hello"], 1, "gamma: no such file");
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
    folder.write("five.json", "5");
    folder.write("a.jinja", "");
    folder.write("open.jinja", "\n{{ x");
    let no_messages = "five.json: has no conversation";
    let cases: [(&[&str], i32, &str); 34] = [
        (&[], 2, "Usage"),
        (&["nothing"], 2, "unrecognized subcommand"),
        (&["info", "~/none.gguf"], 1, "MODEL_NOT_FOUND"),
        (&["info", "org/name"], 1, "next: for a model of the Hugging Face hub, write hf:org/name"),
        (&["info", "hf:../x"], 1, "is not a model id"),
        (&["info", "https://example.org/m.gguf"], 1, "HF_ENDPOINT"),
        (&["chat", "~/empty.gguf", "x"], 1, "MODEL_INVALID"),
        (&["run", "~/text.gguf", "-p", "x", "--n-ctx", "1"], 1, "llb: --n-ctx: "),
        (&["render", "~/text.gguf", "~/broken.json"], 1, "broken.json: not JSON"),
        (&["man", "nothing"], 1, "`llb --help` lists the commands"),
        (&["models", "remove", "nothing"], 1, "no such model"),
        (&["render", "~/none.jinja", "-m", "x"], 1, "none.jinja: no such file"),
        (&["render", "org/name", "-m", "x"], 1, "write hf:org/name"),
        (&["render", "~/", "-m", "x"], 1, "is a directory"),
        (&["render", "~/a.jinja", "~/none.json"], 1, "next: give the name of a file"),
        (&["render", "~/a.jinja", "~/five.json", "--system", "x"], 1, no_messages),
        (&["explain", "~/a.jinja", "~/five.json"], 1, no_messages),
        (
            &["template", "diff", "~/a.jinja", "~/a.jinja", "--messages", "~/five.json"],
            1,
            no_messages,
        ),
        (
            &["render", "~/a.jinja", "-m", "x", "--tools", "~/five.json"],
            1,
            "five.json: has no tools",
        ),
        (
            &["run", "~/text.gguf", "-p", "x", "--tools", "~/five.json"],
            1,
            "five.json: has no tools",
        ),
        (&["run", "~/text.gguf", "-p", "x", "--lora", "~/none.gguf=0.5"], 1, "lora[0].path"),
        (&["run", "~/text.gguf", "-p", "x", "--n-keep", "9999999"], 1, "llb: --n-keep: "),
        (&["run", "~/text.gguf", "-p", "x", "--context-overflow", "x"], 2, "truncate_oldest"),
        (&["run", "~/text.gguf", "-p", "x", "--temperature", "-1"], 1, "temperature"),
        (&["bench", "~/text.gguf", "--chats", "0"], 2, "1..=64"),
        (&["render", "~/open.jinja", "-m", "x"], 1, "/open.jinja:2: unexpected end"),
        (&["explain", "~/open.jinja", "-m", "x"], 1, "/open.jinja:2: unexpected end"),
        (&["parse", "~/open.jinja"], 1, "/open.jinja:2: unexpected end"),
        (&["template", "diff", "~/a.jinja", "~/open.jinja"], 1, "/open.jinja:2: unexpected end"),
        (&["run", "~/text.gguf"], 1, "the prompt is empty"),
        (&["chat", "~/text.gguf"], 1, "the prompt is empty"),
        (&["man", "--out", "~/five.json/x"], 1, "five.json/x: "),
        (&["compose", "--derive", "~/none.gguf"], 1, "MODEL_NOT_FOUND"),
        (&["chat", "~/text.gguf", "x", "--chat-template", "~/"], 1, "is a directory"),
    ];
    for (arguments, status, message) in cases {
        check_failure(&folder, arguments, status, message);
    }
}

#[test]
fn a_port_in_use_is_noticed_before_a_model_is_loaded() {
    let folder = Folder::new();
    let used = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = used.local_addr().unwrap().port().to_string();
    // This model cannot be loaded.
    let serve = ["serve", "~/truncated.gguf", "--port", &port];
    check_failure(&folder, &serve, 1, "choose another --port");
    drop(used);
    check_failure(&folder, &serve, 1, "MODEL_INVALID");
}

#[test]
fn a_model_needs_no_name_that_ends_in_gguf() {
    let folder = Folder::new();
    std::fs::copy(folder.path("tool_use.gguf"), folder.path("sha256-0a0b")).unwrap();
    for command in [&["render", "-m", "x"][..], &["template", "check"], &["compose", "--derive"]] {
        let of = |model| folder.llb(&[command, &[model]].concat(), "").stdout;
        let (blob, file) = (of("~/sha256-0a0b"), of("~/tool_use.gguf"));
        assert_eq!(blob.replace("sha256-0a0b", "tool_use.gguf"), file);
        assert!(!file.is_empty(), "{command:?}");
    }
}

#[test]
fn a_reply_may_be_longer_than_the_context() {
    let folder = Folder::new();
    let run = ["run", "~/long.gguf", "-p", "x", "--n-ctx", "256", "--max-tokens", "1000"];
    let cut = folder.llb(&run, "");
    assert!(scripted::long_text().starts_with(cut.stdout.trim_end()) && cut.status == 0);
    assert!(cut.stderr.contains("the context is full; raise --n-ctx"), "{}", cut.stderr);
    let shifted = folder.llb(&[&run[..], &["--context-overflow", "shift"]].concat(), "");
    assert_eq!(shifted.stdout, format!("{}\n", scripted::long_text()));
    let short = folder.llb(&["run", "~/long.gguf", "-p", "x", "--max-tokens", "3"], "");
    assert!(short.stderr.contains("after 3 tokens; raise --max-tokens"), "{}", short.stderr);
}

#[test]
fn reasoning_ends_with_a_message() {
    let folder = Folder::new();
    let budget =
        ["--reasoning-budget", "2", "--reasoning-budget-message", " Enough.", "--seed", "-1"];
    let run =
        folder.llb(&[&["run", "~/reasoning.gguf", "-p", "x", "--json"], &budget[..]].concat(), "");
    let reasoning = run.json()["reasoning_content"].as_str().unwrap().to_owned();
    assert!(reasoning.starts_with("One") && reasoning.ends_with(" Enough."), "{reasoning}");
}

/// Runs `llb` with a stream as its standard output: exit status and standard error.
fn with_stdout(folder: &Folder, arguments: &[&str], stdout: impl Into<Stdio>) -> (i32, String) {
    let mut llb = Command::new(env!("CARGO_BIN_EXE_llb"));
    let output = llb.args(arguments).current_dir(&folder.0).stdout(stdout).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_left_is_no_failure_and_a_full_disk_is_one() {
    let folder = Folder::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(with_stdout(&folder, &["info", "text.gguf"], writer), (0, String::new()));
    if cfg!(target_os = "linux") {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (status, stderr) = with_stdout(&folder, &["info", "text.gguf"], full);
        assert!(status == 1 && stderr.contains("stdout: "), "{status} {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_utf_8_end_nothing() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let odd = folder.0.path().join(std::ffi::OsStr::from_bytes(b"o\xffdd"));
    std::fs::create_dir(&odd).unwrap();
    std::fs::copy(folder.path("text.gguf"), odd.join("a.gguf")).unwrap();
    let llb = |arguments: &[&std::ffi::OsStr]| {
        let mut llb = Command::new(env!("CARGO_BIN_EXE_llb"));
        let variables = ["HF_HUB_CACHE", "LLB_MODELS", "HOME", "XDG_STATE_HOME"];
        llb.args(arguments).envs(variables.map(|name| (name, &odd)));
        Run::new(llb.output().unwrap())
    };
    let list = llb(&["models".as_ref(), "--json".as_ref()]).json();
    assert!(list[0]["path"].as_str().unwrap().ends_with("o\u{fffd}dd/a.gguf"), "{list}");
    let doctor = llb(&["doctor".as_ref(), "--json".as_ref()]);
    assert!([0, 3].contains(&doctor.status), "{}", doctor.stderr);
    let fetch = llb(&["fetch", "o/n", "--offline"].map(std::ffi::OsStr::new));
    assert!(fetch.status == 1 && fetch.stderr.contains("not UTF-8"), "{}", fetch.stderr);
    let option = ["fetch".as_ref(), "o/n".as_ref(), "--cache-dir".as_ref(), odd.as_os_str()];
    assert_eq!(llb(&option).status, 2);
    assert_eq!(llb(&["info".as_ref(), odd.join("a.gguf").as_os_str()]).status, 2);
}

#[test]
fn info_is_that_of_the_library() {
    let folder = Folder::new();
    let info = folder.llb(&["info", "~/tool_call.gguf", "--json"], "").json();
    assert_eq!((&info["type"], &info["supports_tools"]), (&json!("model_info"), &json!(true)));
    let report = folder.llb(&["info", "~/tool_call.gguf"], "").stdout;
    let summary: Vec<&str> = report.lines().take(7).collect();
    assert_eq!((summary[0], summary[6]), ("Scripted tool call", ""), "{report}");
    let names: Vec<Option<&str>> =
        summary[1..6].iter().map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["model", "context", "input", "tools", "reasoning"].map(Some));
    assert!(summary[4].contains("native"), "{report}");
    for part in ["\nMemory\n", "\nFindings\n"] {
        assert!(report.contains(part), "{report}");
    }
    assert!(!report.contains("supports_tools"), "{report}");
    let verbose = folder.llb(&["info", "~/tool_call.gguf", "--verbose"], "").stdout;
    assert!(verbose.contains("\nsupports_tools  "), "{verbose}");
}

#[test]
fn info_of_a_jinja_file_is_that_of_its_template() {
    let folder = Folder::new();
    let template = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ bos_token }}\
         {% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}";
    std::fs::write(folder.path("own.jinja"), template).unwrap();
    let info = folder.llb(&["info", "~/own.jinja", "--json"], "").json();
    assert_eq!(
        (&info["type"], &info["tool_support"]),
        (&json!("template_info"), &json!("polyfilled"))
    );
    let report = folder.llb(&["info", "~/own.jinja", "--verbose"], "").stdout;
    assert!(report.starts_with("tools ") && report.contains("\nsupports_tools  "), "{report}");
    assert!(report.contains("\nFindings\n") && !report.contains("\nMemory\n"), "{report}");
    assert_eq!(
        folder.llb(&["info", "-"], template).stdout,
        folder.llb(&["info", "~/own.jinja"], "").stdout
    );
    let refused = folder.llb(&["info", "~/own.jinja", "--projector", "auto"], "");
    assert!(refused.stderr.contains("--projector needs a model"), "{}", refused.stderr);
}

#[test]
fn info_has_the_memory_of_several_contexts() {
    let folder = Folder::new();
    let info = folder.llb(&["info", "~/text.gguf", "--json"], "").json();
    let memory = &info["memory"];
    let contexts = memory["contexts"].as_array().unwrap();
    // The trained context length and the largest context that fits, each with three cache types.
    let length = info["context_length"].as_u64().unwrap();
    let sizes: Vec<u64> = contexts.iter().filter_map(|entry| entry["n_ctx"].as_u64()).collect();
    assert_eq!((memory["type"].as_str(), sizes), (Some("memory"), vec![length; 6]), "{memory}");
    let sum = |entry: &Value, name: &str| entry[name].as_u64().unwrap();
    for entry in contexts {
        let parts =
            ["weights", "cache", "compute"].map(|name| sum(entry, name)).iter().sum::<u64>();
        assert_eq!((sum(entry, "total"), &entry["fits"]), (parts, &json!(true)), "{entry}");
    }
    // 32 numbers take 34 or 18 bytes instead of 64.
    let cache = |index: usize| sum(&contexts[index], "cache");
    assert_eq!((cache(1) * 64, cache(2) * 64), (cache(0) * 34, cache(0) * 18));
    let table = folder.llb(&["info", "~/text.gguf"], "").stdout;
    for row in [
        "--n-ctx           f16          q8_0          q4_0\n",
        "\n       2,048  ",
        "\n        most  ",
    ] {
        assert!(table.contains(row), "{table}");
    }
    // A file without tensors is described from its header, but cannot be loaded.
    let info = folder.llb(&["info", "~/truncated.gguf", "--json"], "").json();
    assert_eq!(info["memory"]["error"]["code"], "MODEL_INVALID", "{info}");
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
    // What was done to the messages, and a file with a byte order mark.
    let strict = "\u{feff}{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}<{{ m.role }}>{{ m.content }}\n{% endfor %}";
    folder.write("strict.jinja", strict);
    let later = r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "system", "content": "c"}, {"role": "user", "content": "d"}]"#;
    let explained = folder.llb(&["explain", "~/strict.jinja"], later).stdout;
    let note = "diagnostics    messages[2]: the system message was sent as the beginning of the next \
                user message [system_message_merged]\n";
    assert!(explained.ends_with(note), "{explained}");
    check(&folder, &["render", "~/strict.jinja"], later, "<user>a\n<assistant>b\n<user>c\nd\n");
    let found = folder.llb(&["template", "check", "~/strict.jinja"], "").stdout;
    assert!(
        found.contains("strict.jinja:1: warning: ") && found.contains("[byte_order_mark]"),
        "{found}"
    );
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

/// Puts a file into the hub's cache, like huggingface_hub.
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
    let run = folder.llb(&["models", "verify"], "");
    let ok = "org/name/m.gguf: ok, 3 B have the SHA-256 of the hub, ba7816bf8f01…\n";
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (ok, "1 model checked\n"));
    let blob = folder.write(&format!("hub/models--org--name/blobs/{HASH}"), "abd");
    let run = folder.llb(&["models", "verify", "org/name"], "");
    assert_eq!((run.status, run.stdout.as_str()), (3, "org/name/m.gguf: damaged\n"));
    let run = folder.llb(&["models", "remove", "org/name", "--dry-run"], "");
    assert_eq!((run.status, run.stderr.as_str()), (0, "3 B would be freed\n"));
    assert!(blob.exists());
    let run = folder.llb(&["models", "remove", "org/name"], "");
    assert_eq!((run.status, run.stderr.as_str()), (0, "3 B freed\n"));
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
    let run = folder.llb(&["models", "verify"], "");
    assert_eq!(
        run.stderr.lines().last(),
        Some("1 model checked; 1 model in places that keep no hash")
    );
    std::fs::copy(folder.path("tool_call.gguf"), folder.path("llama.cpp/b.gguf")).unwrap();
    let list = folder.llb(&["models"], "").stdout;
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "ARCHITECTURE", "CONTEXT", "TOOLS", "SIZE", "PLACE"]);
    assert_eq!(rows[1], ["a.gguf", "unreadable", "4", "B", "llama.cpp"]);
    assert_eq!(
        (&rows[2][..4], rows[2][6]),
        (&["b.gguf", "llama", "2,048", "native"][..], "llama.cpp")
    );
}

#[test]
fn a_model_without_a_useful_template_is_told_before_its_reply() {
    let folder = Folder::new();
    let silent = "{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}hello";
    let template = gguf_with_template(&folder, silent);
    for command in ["run", "chat"] {
        let run = folder.llb(&[command, &template, "x"], "");
        assert_eq!(run.status, 0, "{}", run.stderr);
        let lines: Vec<&str> = run.stderr.lines().collect();
        assert!(lines[0].contains("leaves out what the user says"), "{}", run.stderr);
        assert!(lines[1].contains("--chat-template FILE"), "{}", run.stderr);
    }
    let good = folder.write("good.jinja", "{{ messages[-1].content }}");
    let arguments = ["run", &template, "x", "--chat-template", good.to_str().unwrap()];
    assert_eq!(folder.llb(&arguments, "").stderr, "");
    assert_eq!(folder.llb(&["run", "~/text.gguf", "x"], "").stderr, "");
}

/// A copy of a model with another template of at most the same length.
fn gguf_with_template(folder: &Folder, template: &str) -> String {
    let info: Value = folder.llb(&["info", "~/text.gguf", "--json"], "").json();
    assert_eq!(info["type"], "model_info");
    let bytes = std::fs::read(folder.path("text.gguf")).unwrap();
    let key = b"tokenizer.chat_template";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let mut padded = template.to_owned();
    padded.extend(std::iter::repeat_n(' ', length - template.len() - 6));
    padded = format!("{padded}{{#  #}}");
    let mut changed = bytes.clone();
    changed[at + 8..at + 8 + length].copy_from_slice(padded.as_bytes());
    let path = folder.path("changed.gguf");
    std::fs::write(&path, changed).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_raw_prompt_is_continued_as_it_is() {
    let folder = Folder::new();
    let tokens = |arguments: &[&str]| {
        let reply =
            folder.llb(&[&["run", "~/text.gguf", "hello", "--json"], arguments].concat(), "");
        reply.json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(tokens(&["--raw"]) < tokens(&[]));
    check_failure(&folder, &["run", "~/text.gguf", "x", "--raw", "--system", "y"], 2, "--raw");
}

#[test]
fn failures_name_options_and_commands_of_the_program() {
    let folder = Folder::new();
    for (arguments, message) in [
        (["chat", "~/embedding.gguf", "x"].as_slice(), "`llb serve --embedding MODEL` serves it"),
        (&["run", "~/text.gguf", "x", "-c", "1"], "llb: --n-ctx: must be from"),
        (&["run", "~/text.gguf", "x", "--top-p", "3"], "llb: --top-p: must be from"),
        (&["run", "~/text.gguf", "x", "--cache-type", "q9"], "llb: --cache-type: unknown value"),
        (&["run", "~/text.gguf", "x", "--devices", "x"], "`llb doctor` lists"),
    ] {
        let run = folder.llb(arguments, "");
        assert_eq!(run.status, 1);
        assert!(run.stderr.contains(message), "{arguments:?}: {}", run.stderr);
        assert!(!run.stderr.contains("llb_"), "{arguments:?}: {}", run.stderr);
    }
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

/// With the file of `make backend-rpc`, which is beside the program.
#[cfg(unix)]
#[test]
fn another_program_computes_on_served_devices() {
    let file = Path::new(env!("CARGO_BIN_EXE_llb")).with_file_name("libllb-rpc.so");
    if !file.exists() {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "there is no {}", file.display());
        eprintln!("SKIPPED: there is no {}; run: make backend-rpc", file.display());
        return;
    }
    let folder = Folder::new();
    let mut server = RpcServer(
        Command::new(env!("CARGO_BIN_EXE_llb"))
            .args(["rpc", "--listen", "127.0.0.1:0", "--threads", "1"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
    let device = format!("rpc:{}", address.unwrap());
    let run = ["run", "~/text.gguf", "-p", "hello", "--devices", &device, "-ngl", "all"];
    check(&folder, &run, "", &format!("{}\n", scripted::TEXT));
    // Ctrl-C.
    let pid = server.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(server.0.wait().unwrap().success());
    check_failure(&folder, &run, 1, &device["rpc:".len()..]);
    check_failure(&folder, &["rpc", "--devices", "none"], 1, "llb: --devices: there is no device");
}

/// Ends with its test.
#[cfg(unix)]
struct RpcServer(std::process::Child);

#[cfg(unix)]
impl Drop for RpcServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
