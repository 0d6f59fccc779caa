//! The tables of members against everything that repeats them: documentation, bindings, the program
//! and C cases. A failure names the file and has the line to add.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::output_control::OutputControl;
use super::prompt_control::{PromptControl, Thinking};
use super::request::OTHERS;
use super::{
    ChatRequest, ContextChoice, CreateOptions, DEFAULT_N_CTX, LoadingChoice, MediaChoice,
    PlacementChoice, Sampling, StorageChoice, TemplateChoice,
};
use crate::error::Code;

const ABI: &str = "docs/abi.md";
const PYTHON: &str = "bindings/python/src/llb/_parameters.py";
const JAVA_REQUEST: &str = "bindings/java/llb/src/main/java/dev/llb/ChatRequest.java";
const JAVA_OPTIONS: &str = "bindings/java/llb/src/main/java/dev/llb/ChatOptions.java";
const C_CASES: &str = "tests/c/input_cases.c";

/// Members without a method in `ChatRequest.java`. `set(name, value)` sets them.
const WITHOUT_JAVA_METHOD: [(&str, &str); 24] = [
    ("messages", "a component of the record"),
    ("tools", "a component of the record"),
    ("prompt", "a request without messages"),
    ("suffix", "a request without messages"),
    ("max_completion_tokens", "an alias"),
    ("reasoning_budget_tokens", "an alias"),
    ("thinking_budget_tokens", "an alias"),
    ("stream_format", "streams have methods of their own"),
    ("stream_options", "streams have methods of their own"),
    ("grammar", "rarely used"),
    ("stop_scope", "rarely used"),
    ("n_keep", "rarely used"),
    ("context_overflow", "an option of the chat"),
    ("cache_prompt", "rarely used"),
    ("add_generation_prompt", "rarely used"),
    ("continue_final_message", "rarely used"),
    ("reasoning_effort", "depends on the template"),
    ("preserve_reasoning", "depends on the template"),
    ("chat_template_kwargs", "depends on the template"),
    ("now", "for tests"),
    ("polyfills", "rarely used"),
    ("schema_in_prompt", "for typed replies"),
    ("bound_schema", "for typed replies"),
    ("parse_special_in_messages", "rarely used"),
];

/// Options without a method in `ChatOptions.java`. `set(name, value)` sets them.
const WITHOUT_JAVA_OPTION: [(&str, &str); 13] = [
    ("n_batch", "rarely used"),
    ("flash_attn", "rarely used"),
    ("cache_type_k", "rarely used"),
    ("cache_type_v", "rarely used"),
    ("use_mmap", "rarely used"),
    ("use_mlock", "rarely used"),
    ("polyfills", "rarely used"),
    ("template_limits", "rarely used"),
    ("lora", "paths or maps"),
    ("speculative", "a name or a map"),
    ("draft_model", "belongs to `speculative`"),
    ("state_file", "rarely used"),
    ("engine", "a map"),
];

/// Members without a row in the tables of docs/abi.md.
const WITHOUT_ROW: [(&str, &str); 2] = [
    ("reasoning_budget_tokens", "an alias, in the text about the reasoning budget"),
    ("thinking_budget_tokens", "an alias, in the text about the reasoning budget"),
];

/// A member of a request, or an option of a create.
struct Member {
    names: &'static [&'static str],
    /// Null if there is none, or if it depends on the model, the machine or other members.
    default: Value,
    doc: &'static str,
}

type Lines = Vec<(&'static [&'static str], Value, &'static str)>;

fn members(groups: impl IntoIterator<Item = Lines>) -> Vec<Member> {
    let lines = groups.into_iter().flatten();
    lines.map(|(names, default, doc)| Member { names, default, doc }).collect()
}

/// All members of a chat request.
fn of_request() -> Vec<Member> {
    let others = OTHERS.iter().map(|(name, default, doc)| {
        (std::slice::from_ref(name), default.parse().expect("JSON"), *doc)
    });
    members([
        others.collect(),
        Sampling::table(),
        OutputControl::table(),
        PromptControl::table(),
        Thinking::table(),
    ])
}

/// All options of `llb_chat_create_with`.
fn of_create() -> Vec<Member> {
    const ENGINE: &[&str] = &["engine"];
    members([
        vec![(ENGINE, json!({ "type": "native" }), "Where replies are generated.")],
        CreateOptions::table(),
        ContextChoice::table(),
        LoadingChoice::table(),
        PlacementChoice::table(),
        StorageChoice::table(),
        TemplateChoice::table(),
        MediaChoice::table(),
    ])
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_excepted(name: &str, exceptions: &[(&str, &str)]) -> bool {
    exceptions.iter().any(|(excepted, _)| *excepted == name)
}

/// Fails with all problems at once.
#[track_caller]
fn none(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// The names of some members, in order.
fn names(members: &[Member]) -> impl Iterator<Item = &'static str> {
    members.iter().flat_map(|member| member.names).copied()
}

/// The names of the sampling parameters. The bindings set the less common ones by name, and
/// `wrong_values_are_refused` tests their values.
fn sampling() -> BTreeSet<&'static str> {
    names(&members([Sampling::table()])).collect()
}

/// The member of this name.
fn find<'a>(members: &'a [Member], name: &str) -> Option<&'a Member> {
    members.iter().find(|member| member.names.contains(&name))
}

/// The documentation of a member as one line.
fn meaning(member: &Member) -> String {
    let words: Vec<&str> = member.doc.split_whitespace().collect();
    words.join(" ").trim_end_matches('.').to_owned()
}

/// A row of a table: the names in its first cell, and its second cell.
struct Row {
    names: Vec<String>,
    default: String,
}

/// The rows of all tables with names in the first column.
fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let names = cells.next().unwrap_or_default();
        let names = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Row { names, default: cells.next().unwrap_or_default().to_owned() }
    };
    lines.map(row).collect()
}

/// The part of a document between two texts.
fn section<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, text) = text.split_once(from).unwrap_or_else(|| panic!("no {from}"));
    text.split_once(to).unwrap_or_else(|| panic!("no {to} after {from}")).0
}

/// The parts between commas that are not in brackets or quotes, without remarks in parentheses.
fn items(cell: &str) -> Vec<String> {
    let (mut items, mut depth, mut quoted, mut last) = (vec![String::new()], 0, false, ' ');
    for character in cell.chars() {
        quoted ^= character == '"' && last != '\\';
        depth += i32::from(!quoted && "[{(".contains(character));
        depth -= i32::from(!quoted && "]})".contains(character));
        match items.last_mut() {
            Some(item) if character != ',' || quoted || depth > 0 => item.push(character),
            _ => items.push(String::new()),
        }
        last = character;
    }
    let bare = |item: String| item.split(" (").next().unwrap_or_default().trim().to_owned();
    items.into_iter().map(bare).collect()
}

/// Whether a text states this default. A default that is null or empty is stated in words.
fn states(text: &str, default: &Value) -> bool {
    let text = text.trim_matches('`');
    let is_empty = [json!(null), json!(""), json!([]), json!({})].contains(default);
    match default.as_f64() {
        Some(number) => text == "4 GiB" || text.parse() == Ok(number),
        None if is_empty => text.parse::<f64>().is_err() && !["true", "false"].contains(&text),
        None if default.is_string() => text.trim_matches('"') == default.as_str().unwrap_or(""),
        None => text.parse::<Value>().is_ok_and(|value| value == *default),
    }
}

/// The problems with the defaults that a table states.
fn wrong_defaults(document: &str, rows: &[Row], members: &[Member]) -> Vec<String> {
    let mut problems = Vec::new();
    for Row { names, default } in rows {
        let items = match items(default) {
            // One list, without its brackets.
            items if names.len() == 1 && items.len() > 1 => vec![format!("[{default}]")],
            items => items,
        };
        for (index, name) in names.iter().enumerate() {
            let is_first = |member: &&Member| member.names[0] == name;
            let Some(member) = members.iter().find(is_first) else { continue };
            let item = items.get(index).or(items.last()).map_or("", String::as_str);
            if !states(item, &member.default) {
                let default = &member.default;
                problems.push(format!("{document}: `{name}` has the default {default}: {item}"));
            }
        }
    }
    problems
}

/// Compares the tables of a part of docs/abi.md with members.
#[track_caller]
fn check_tables(text: &str, members: &[Member]) {
    let rows = rows(text);
    let documented: BTreeSet<&str> =
        rows.iter().flat_map(|row| &row.names).map(|it| &**it).collect();
    let mut problems = wrong_defaults(ABI, &rows, members);
    for member in members {
        let (default, meaning) = (&member.default, meaning(member));
        let default = if default.is_null() { String::new() } else { default.to_string() };
        for name in member.names {
            if !documented.contains(name) && !is_excepted(name, &WITHOUT_ROW) {
                let line = format!("| `{name}` | {default} | {meaning} |");
                problems.push(format!("{ABI}: no row for `{name}`: {line}"));
            }
        }
    }
    let unknown = documented.into_iter().filter(|name| find(members, name).is_none());
    problems.extend(unknown.map(|name| format!("{ABI}: there is no `{name}`")));
    none(problems);
}

#[test]
fn the_documentation_has_every_member_of_a_request() {
    let text = read(ABI);
    check_tables(section(&text, "## Chat requests", "### Adapters of a request"), &of_request());
}

#[test]
fn the_documentation_has_every_option_of_a_create() {
    let text = read(ABI);
    check_tables(section(&text, "## llb_chat_create_with", "### Defaults"), &of_create());
}

/// The other tables list some of the options.
#[test]
fn other_tables_have_the_same_options_and_defaults() {
    let members = of_create();
    for (document, from, to) in [
        ("README.md", "## Options", "A request accepts"),
        ("docs/embeddings.md", "## llb_embed_create", "Handles with the same"),
    ] {
        let text = read(document);
        let rows = rows(section(&text, from, to));
        let names = rows.iter().flat_map(|row| &row.names).filter(|name| *name != "pooling");
        let unknown = names.filter(|name| find(&members, name).is_none());
        let mut problems: Vec<_> =
            unknown.map(|name| format!("{document}: there is no `{name}`")).collect();
        let with_defaults: Vec<_> =
            rows.into_iter().filter(|row| !row.default.is_empty()).collect();
        problems.extend(wrong_defaults(document, &with_defaults, &members));
        none(problems);
    }
}

#[test]
fn the_default_context_is_the_same_everywhere() {
    let number = DEFAULT_N_CTX.to_string();
    let files = [ABI, "README.md", "docs/embeddings.md", JAVA_OPTIONS, "cli/src/arguments.rs"];
    let without = files.into_iter().filter(|path| !read(path).contains(&number));
    none(without.map(|path| format!("{path}: the default of n_ctx is {number}")).collect());
    let constant = format!("const N_CTX: u64 = {number};");
    assert!(read("cli/src/serve/model.rs").contains(&constant), "{constant}");
}

/// The descriptions in Python end with the default, after a semicolon.
#[test]
fn python_has_every_member_of_a_request() {
    let text = read(PYTHON);
    let table = section(&text, "class RequestParameters", "\n\n\n");
    let mut problems = Vec::new();
    let members = of_request();
    for member in &members {
        for name in member.names.iter().filter(|name| !["messages", "tools"].contains(name)) {
            let Some((_, entry)) = table.split_once(&format!("\n    {name}: Doc[")) else {
                let (meaning, default) = (meaning(member), &member.default);
                let line = format!("{name}: Doc[Optional[float], \"{meaning}; {default}\"]");
                problems.push(format!("{PYTHON}: no `{name}`: {line}"));
                continue;
            };
            let entry = entry.split("\n    ]").next().unwrap_or_default();
            let entry = entry.split(": Doc[").next().unwrap_or_default();
            let Some((_, stated)) = entry.rsplit_once("; ") else { continue };
            let stated = stated.split([' ', ',', '"']).next().unwrap_or_default().to_lowercase();
            let default = &member.default;
            let is_stated = default.is_number() || default.is_boolean();
            if is_stated && name == &member.names[0] && !states(&stated, default) {
                problems.push(format!("{PYTHON}: `{name}` has the default {default}: {stated}"));
            }
        }
    }
    let entries = table.lines().filter_map(|line| line.trim().split_once(": Doc["));
    let unknown = entries.filter(|(name, _)| find(&members, name).is_none());
    problems.extend(unknown.map(|(name, _)| format!("{PYTHON}: there is no `{name}`")));
    none(problems);
}

/// Compares the methods of a Java builder with members. A comment may state the default.
fn java(path: &str, members: &[Member], exceptions: &[(&str, &str)]) -> Vec<String> {
    let text = read(path);
    let mut problems = Vec::new();
    let mut set = BTreeSet::new();
    for method in text.split("/**").skip(1) {
        let (comment, code) = method.split_once("*/").unwrap_or((method, ""));
        for name in code.split("set(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            set.insert(name.to_owned());
            let Some(member) = find(members, name) else {
                problems.push(format!("{path}: there is no `{name}`"));
                continue;
            };
            let stated = comment.split_once("Default: ").map(|(_, default)| default);
            let word = stated.and_then(|stated| stated.split_whitespace().next());
            let word = word.map_or("", |word| word.trim_end_matches('.'));
            let is_value = word.parse::<f64>().is_ok() || word.parse::<bool>().is_ok();
            if is_value && !states(word, &member.default) {
                problems
                    .push(format!("{path}: `{name}` has the default {}: {word}", member.default));
            }
        }
    }
    let sampling = sampling();
    for name in names(members).filter(|name| !set.contains(*name) && !sampling.contains(name)) {
        if !is_excepted(name, exceptions) {
            problems
                .push(format!("{path}: no method for `{name}`: return set(\"{name}\", value);"));
        }
    }
    let not_missing = exceptions.iter().filter(|(name, _)| set.contains(*name));
    problems.extend(not_missing.map(|(name, _)| format!("{path}: has a method for `{name}`")));
    problems
}

#[test]
fn java_has_the_members_of_a_request() {
    none(java(JAVA_REQUEST, &of_request(), &WITHOUT_JAVA_METHOD));
}

#[test]
fn java_has_the_options_of_a_create() {
    none(java(JAVA_OPTIONS, &of_create(), &WITHOUT_JAVA_OPTION));
}

#[test]
fn c_cases_have_a_wrong_value_for_each_name() {
    let text = read(C_CASES);
    let (sampling, mut problems) = (sampling(), Vec::new());
    for (table, members) in [
        (section(&text, "wrong requests[] = {", "\n};"), of_request()),
        (section(&text, "wrong options[] = {", "\n};"), of_create()),
    ] {
        for name in names(&members).filter(|name| !sampling.contains(name)) {
            if !table.contains(&format!("\\\"{name}\\\":")) {
                let line = format!("{{\"\\\"{name}\\\":[1]\", \"{name}: \"}},");
                problems.push(format!("{C_CASES}: no case for `{name}`: {line}"));
            }
        }
    }
    none(problems);
}

/// The string literals of a part of a file.
fn literals(path: &str, from: &str, to: &str) -> Vec<String> {
    let text = read(path);
    let part = section(&text, from, to);
    part.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Lists of names in the program and for servers exist in the tables.
#[test]
fn listed_names_exist() {
    let (requests, options) = (of_request(), of_create());
    let set = |path: &str, call: &str| -> Vec<String> {
        let text = read(path);
        let calls = text.split(call).skip(1);
        calls.filter_map(|rest| Some(rest.split('"').next()?.to_owned())).collect()
    };
    let arguments = "cli/src/arguments.rs";
    let log = "cli/src/serve/log.rs";
    let cases: [(&str, Vec<String>, &[Member]); 7] = [
        (arguments, set(arguments, "set(&mut request, \""), &requests),
        (arguments, set(arguments, "set(&mut options, \""), &options),
        (log, literals(log, "const SETTINGS", "];"), &requests),
        (
            "cli/src/serve/page/script/request.js",
            literals("cli/src/serve/page/script/request.js", "const NUMBERS", "];"),
            &requests,
        ),
        ("src/remote/body.rs", literals("src/remote/body.rs", "const SHARED", "];"), &requests),
        ("src/api/engine.rs", literals("src/api/engine.rs", "const ALLOWED", "];"), &options),
        (
            "src/api/embed_options.rs",
            literals("src/api/embed_options.rs", "const SHARED", "];"),
            &options,
        ),
    ];
    let mut problems = Vec::new();
    for (path, listed, members) in &cases {
        assert!(listed.len() > 2, "{path}: {listed:?}");
        // `dimensions` is a member of embedding requests.
        let unknown = listed.iter().filter(|name| *name != "dimensions");
        let unknown = unknown.filter(|name| find(members, name).is_none());
        problems.extend(unknown.map(|name| format!("{path}: there is no `{name}`")));
    }
    none(problems);
}

/// Every sampling parameter refuses a value of the wrong type and numbers out of range. The error
/// begins with its name.
#[test]
fn wrong_values_are_refused() {
    let read = |name: &str, value: Value| {
        let message = json!({ "role": "user", "content": "hi" });
        ChatRequest::read(json!({ "messages": [message], name: value }))
    };
    for (names, default, _) in Sampling::table() {
        let name = names[0];
        let mut wrong = vec![json!({ "x": [1] })];
        if default.is_number() {
            wrong.extend([json!("x"), json!(1e300), json!(-1e300)]);
        }
        for value in wrong {
            let error = read(name, value.clone()).expect_err(name);
            assert!(error.message().starts_with(name), "{name}: {value}: {error}");
        }
        read(name, default.clone()).unwrap_or_else(|error| panic!("{name}: {default}: {error}"));
    }
}

#[test]
fn java_has_the_codes_of_errors() {
    let path = "bindings/java/llb/src/main/java/dev/llb/ErrorCodes.java";
    let text = read(path);
    let missing = Code::NAMES.iter().map(|(name, _)| *name);
    let missing = missing.filter(|name| !text.contains(&format!("{name} = \"{name}\";")));
    none(missing.map(|name| format!("{path}: no constant {name}")).collect());
}
