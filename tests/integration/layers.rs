//! Data flows one way: a module imports only what its row of docs/architecture.md names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Test code: it may import any module, and tests of other modules import it.
const TEST_SUPPORT: &str = "test_support";

/// Each module of the table and the modules that it may import.
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

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
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
