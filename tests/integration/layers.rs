//! Tests that data flows one way: a module imports only what its row in docs/architecture.md lists.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::file_imports;

/// Test code. It may import any module, and tests of other modules may import it.
const TEST_SUPPORT: &str = "test_support";

/// The modules of the table. Each has the modules that it may import.
fn table() -> HashMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) =
        text.split_once("| module | what it does | imports |").expect("the table of modules");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let names =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut modules = HashMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [module, _, imports] = cells[..] else { panic!("{row}: not three cells") };
        for module in names(module) {
            assert!(
                modules.insert(module, names(imports)).is_none(),
                "{row}: this module has a second row"
            );
        }
    }
    modules
}

pub fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// With serde_json's own functions, a name that it uses itself has a meaning in a caller's JSON.
/// Types without a `Value` inside are exempt.
#[test]
fn json_text_is_read_by_the_module_json() {
    const READS: [&str; 5] = [
        "serde_json::from_str",
        "serde_json::from_slice",
        "serde_json::from_reader",
        "Deserializer::from_",
        "parse::<Value>",
    ];
    const TYPED: [&str; 1] = ["src/hub/listing.rs"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    sources(&root.join("cli/src"), &mut files);
    let mut seen = 0;
    for file in files {
        let relative = file.strip_prefix(root).unwrap().to_str().unwrap();
        let is_test = relative.contains("test");
        if is_test || relative.contains("src/json") || TYPED.contains(&relative) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let code = code.split("#[cfg(test)]\n#[allow").next().unwrap();
        for read in READS {
            assert!(!code.contains(read), "{relative}: {read}");
        }
        seen += 1;
    }
    assert!(seen > 100, "only {seen} files were found");
}

/// The package `llb-cli` is built from its own files, so no file of another package is compiled into
/// it.
#[test]
fn the_program_is_compiled_from_its_own_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cli");
    let mut files = vec![root.join("build.rs")];
    sources(&root.join("src"), &mut files);
    let mut included = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let starts = ["#[path = \"", "include_str!(\"", "include_bytes!(\"", "include!(\""];
        for rest in starts.iter().flat_map(|start| text.split(start).skip(1)) {
            let (named, _) = rest.split_once('"').unwrap();
            let path = file.parent().unwrap().join(named).canonicalize().unwrap();
            assert!(
                path.starts_with(root.canonicalize().unwrap()),
                "{}: {named} lies outside of the package",
                file.display()
            );
            included += 1;
        }
    }
    assert!(included >= 5, "{included} files are included");
}

#[test]
fn modules_import_what_the_table_says() {
    let table = table();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut seen = 0;
    for file in files {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let mut folders = relative.iter().map(|part| part.to_str().unwrap());
        let module = folders.next().unwrap();
        if module == "lib" || module == TEST_SUPPORT || folders.any(|folder| folder == "tests") {
            continue;
        }
        let allowed = table
            .get(module)
            .unwrap_or_else(|| panic!("{module} has no row in docs/architecture.md"));
        let text = std::fs::read_to_string(&file).unwrap();
        for import in text.split("crate::").skip(1) {
            let name: String =
                import.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if name == TEST_SUPPORT {
                continue;
            }
            assert!(
                name == module || allowed.contains(&name),
                "{}: imports {name}",
                file.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} imports were found");
}

#[test]
fn the_table_has_no_cycle() {
    let mut table = table();
    while !table.is_empty() {
        let free: Vec<String> = table
            .iter()
            .filter(|(_, imports)| imports.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        assert!(!free.is_empty(), "a cycle among {:?}", table.keys());
        table.retain(|name, _| !free.contains(name));
        table.values_mut().for_each(|imports| imports.retain(|name| !free.contains(name)));
    }
}

/// Files that import each other, with the reason.
const CIRCLES: [(&[&str], &str); 0] = [];

#[test]
fn files_import_each_other_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "cli/src"] {
        let is_test = |file: &Path| {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let folders = file.parent().unwrap().iter();
            name == "tests"
                || (name.ends_with("_tests") && name != "is_tests")
                || folders.into_iter().any(|part| part == "tests" || part == TEST_SUPPORT)
        };
        let mut imports = file_imports::read(&root.join(folder), is_test);
        let seen: usize = imports.values().map(|targets| targets.len()).sum();
        assert!(seen > 100, "{folder}: only {seen} imports were found");
        for (files, _) in CIRCLES {
            for file in files {
                let file = file.strip_prefix(&format!("{folder}/")).unwrap_or(file);
                let Some(targets) = imports.get_mut(file) else { continue };
                targets.retain(|target, _| !files.contains(&format!("{folder}/{target}").as_str()));
            }
        }
        let circles: Vec<String> = file_imports::circles(imports)
            .into_iter()
            .flat_map(|(file, targets)| {
                targets.into_iter().map(move |(target, names)| {
                    format!("{folder}/{file} imports {names:?} of {target}")
                })
            })
            .collect();
        assert!(circles.is_empty(), "circles of imports:\n{}", circles.join("\n"));
    }
}

#[test]
fn unsafe_code_is_where_c_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let inside = file.starts_with(root.join("ffi")) || file.starts_with(root.join("llama"));
        let allows = std::fs::read_to_string(&file).unwrap().contains("allow(unsafe_code");
        assert!(inside || !allows, "{} allows unsafe code", file.display());
    }
}

/// Functions of llama.cpp that only return a stored value or set an option. They cannot throw.
const WITHOUT_GUARD: [&str; 45] = [
    // Tests call these after the library has called them.
    "ggml_backend_cpu_reg",
    "ggml_backend_reg_count",
    "ggml_backend_reg_get",
    // A test calls this inside the guard.
    "ggml_sqr",
    "ggml_backend_dev_backend_reg",
    "ggml_backend_dev_description",
    "ggml_backend_dev_name",
    "ggml_backend_dev_type",
    "ggml_threadpool_params_default",
    "llama_context_default_params",
    "llama_get_causal_attn",
    "llama_get_memory",
    "llama_log_set",
    "llama_model_default_params",
    "llama_model_get_vocab",
    "llama_model_has_decoder",
    "llama_model_has_encoder",
    "llama_model_is_hybrid",
    "llama_model_is_recurrent",
    "llama_model_n_cls_out",
    "llama_model_n_embd",
    "llama_model_n_embd_inp",
    "llama_model_n_embd_out",
    "llama_model_n_swa",
    "llama_model_rope_type",
    "llama_model_size",
    "llama_n_batch",
    "llama_n_ctx_seq",
    "llama_n_rs_seq",
    "llama_sampler_chain_default_params",
    "llama_set_n_threads",
    "llama_version",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_add_sep",
    "llama_vocab_get_attr",
    "llama_vocab_get_suppress_tokens",
    "llama_vocab_get_text",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
    "llama_vocab_sep",
    "llama_vocab_type",
    "mtmd_context_params_default",
    "mtmd_log_set",
];

#[test]
fn other_calls_into_llama_cpp_are_guarded() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/llama"), &mut files);
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let calls = text.split("sys::").chain(text.split("llama_cpp_sys_2::")).filter_map(|rest| {
            let (name, _) = rest.split_once('(')?;
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            name.chars().all(is_name).then_some(name)
        });
        for name in calls.filter(|name| !name.is_empty()) {
            assert!(
                WITHOUT_GUARD.contains(&name),
                "{}: call {name} through shim::guard",
                file.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= WITHOUT_GUARD.len(), "only {seen} calls were found");
}

#[test]
fn statics_survive_a_fork() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files.iter().filter(|file| !file.ends_with("process.rs")) {
        if file.iter().any(|part| part == "tests" || part == "tests.rs" || part == TEST_SUPPORT) {
            continue;
        }
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let line = line.trim_start().trim_start_matches("pub(crate) ");
            let locks =
                ["Mutex<", "RwLock<", "OnceLock<", "LazyLock<", "OnceCell<", "Once ", "Condvar"];
            assert!(
                !line.starts_with("static ")
                    || !locks.iter().any(|lock| line.contains(lock))
                    // The lock is held while weights are loaded onto devices, and devices do not
                    // survive a fork either.
                    || line.starts_with("static FITTING:"),
                "{}: {line}: use process::Shared or process::Lazy",
                file.display()
            );
        }
    }
}
