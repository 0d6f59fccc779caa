//! Which file of a crate imports which: the paths in its `use` declarations and in its code, each
//! resolved to the file that defines the name. Re-exports are followed and are not imports of the
//! file that has them. Tests are left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// The path of a module from the root of its crate.
type ModulePath = Vec<String>;

/// The imports of each file, with the imported names. Files are named by their paths from the
/// crate's folder of sources.
pub type FileImports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

struct Module {
    file: String,
    /// Absolute paths in the code, and those that `use` declarations import.
    paths: Vec<ModulePath>,
    /// Names that `pub use` declares, with their absolute paths.
    re_exports: HashMap<String, ModulePath>,
}

/// Reads all sources below a folder. `is_test` says which files are tests.
pub fn read(root: &Path, is_test: impl Fn(&Path) -> bool) -> FileImports {
    let mut files = Vec::new();
    super::layers::sources(root, &mut files);
    let texts: BTreeMap<ModulePath, (String, String)> = files
        .iter()
        .map(|path| path.strip_prefix(root).unwrap())
        .filter(|file| !is_test(file))
        .map(|file| {
            let text = code(&fs::read_to_string(root.join(file)).unwrap());
            (module_path(file), (file.to_str().unwrap().to_owned(), text))
        })
        .collect();
    let names: BTreeSet<ModulePath> = texts.keys().cloned().collect();
    let modules: BTreeMap<ModulePath, Module> = texts
        .into_iter()
        .map(|(path, (file, text))| (path.clone(), Module::parse(&path, file, &text, &names)))
        .collect();
    let mut imports = FileImports::new();
    for (path, module) in &modules {
        let into = imports.entry(module.file.clone()).or_default();
        for target in &module.paths {
            let Some((defining, name)) = resolve(&modules, target) else { continue };
            if defining != path && !defining.is_empty() {
                into.entry(modules[defining].file.clone()).or_default().insert(name);
            }
        }
    }
    imports
}

/// The imports that are part of a circle: the imported file imports the other one, directly or
/// through further files.
pub fn circles(mut imports: FileImports) -> FileImports {
    let all = imports.clone();
    for (file, targets) in &mut imports {
        targets.retain(|target, _| reaches(&all, target, file));
    }
    imports
}

fn reaches(imports: &FileImports, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(file) = open.pop() {
        for target in imports[file].keys() {
            if target == to {
                return true;
            }
            if seen.insert(target) {
                open.push(target);
            }
        }
    }
    false
}

fn module_path(file: &Path) -> ModulePath {
    let mut path: ModulePath =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// The code without comments, the contents of strings, and tests.
fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' {
            string_length(rest)
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            3 + raw.find("\"#").map_or(raw.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            rest[2..].find('\'').unwrap() + 3
        } else if rest.starts_with("'\\\"'") {
            4
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        rest = &rest[skipped..];
    }
    // A test module is the last item of its file.
    let mut end = out.len();
    for (at, _) in out.match_indices("#[cfg(test)]") {
        let item: Vec<&str> = tokens(&out[at + "#[cfg(test)]".len()..]).collect();
        let module = item.iter().position(|token| *token == "mod");
        if module.is_some_and(|at| at < 20 && item.get(at + 2) == Some(&"{")) && end == out.len() {
            end = at;
        }
    }
    out.truncate(end);
    // `#[cfg(test)] use …;` and `#[cfg(test)] mod …;`.
    let mut parts = out.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let first = tokens(part).find(|token| ["use", "mod"].contains(token));
        let declares = first.is_some_and(|word| {
            part.find(word).is_some_and(|at| !part[..at].contains([';', '{', '(', 'f']))
        });
        kept.push_str(if declares {
            part.split_once(';').map_or("", |(_, rest)| rest)
        } else {
            part
        });
    }
    kept
}

/// The length of the string literal at the start of a text.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Words, `::`, and other characters.
fn tokens(code: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = code;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let length = match rest.chars().next()? {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

impl Module {
    fn parse(path: &[String], file: String, text: &str, names: &BTreeSet<ModulePath>) -> Module {
        let tokens: Vec<&str> = tokens(text).collect();
        let mut module = Module { file, paths: Vec::new(), re_exports: HashMap::new() };
        let mut imported: HashMap<String, ModulePath> = HashMap::new();
        let mut words: BTreeSet<&str> = BTreeSet::new();
        let mut code_paths: Vec<ModulePath> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] == "use"
                && at.checked_sub(1).is_none_or(|it| "};)]pub".contains(tokens[it]))
            {
                let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
                at += 1;
                let mut tree = Vec::new();
                use_tree(&tokens, &mut at, &[], &mut tree);
                for (target, name) in tree {
                    let Some(target) = absolute(path, &target, names) else { continue };
                    if is_public && name != "*" {
                        module.re_exports.insert(name.clone(), target.clone());
                    } else {
                        module.paths.push(target.clone());
                    }
                    imported.insert(name, target);
                }
                continue;
            }
            let mut target = Vec::new();
            if !(at > 0 && ["::", "."].contains(&tokens[at - 1])) {
                let mut next = at;
                while tokens.get(next).is_some_and(|token| is_name(token)) {
                    target.push(tokens[next].to_owned());
                    if tokens.get(next + 1) != Some(&"::") {
                        break;
                    }
                    next += 2;
                }
            }
            if target.len() > 1 {
                code_paths.push(target);
            }
            words.insert(tokens[at]);
            at += 1;
        }
        for target in code_paths {
            let by_import = || Some([imported.get(&target[0])?.as_slice(), &target[1..]].concat());
            module.paths.extend(absolute(path, &target, names).or_else(by_import));
        }
        // A re-export that the file uses itself.
        let used = module.re_exports.iter().filter(|(name, _)| words.contains(name.as_str()));
        module.paths.extend(used.map(|(_, target)| target.clone()).collect::<Vec<_>>());
        module
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads a tree of a `use` declaration: paths with the names that they declare.
fn use_tree(
    tokens: &[&str],
    at: &mut usize,
    prefix: &[String],
    found: &mut Vec<(ModulePath, String)>,
) {
    let mut path = prefix.to_vec();
    while let Some(&token) = tokens.get(*at) {
        *at += 1;
        match token {
            "{" => {
                while tokens.get(*at).is_some_and(|token| *token != "}") {
                    use_tree(tokens, at, &path, found);
                    *at += usize::from(tokens.get(*at) == Some(&","));
                }
                *at += 1;
                return;
            }
            "*" => {
                found.push((path, "*".to_owned()));
                return;
            }
            "::" => continue,
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        match tokens.get(*at) {
            Some(&"::") => {}
            Some(&"as") => {
                found.push((path, tokens[*at + 1].to_owned()));
                *at += 2;
                return;
            }
            _ => {
                let name = path.last().cloned().unwrap_or_default();
                found.push((path, name));
                return;
            }
        }
    }
}

/// The path from the crate's root. `None` for names of other crates and of the module itself.
fn absolute(
    module: &[String],
    path: &[String],
    names: &BTreeSet<ModulePath>,
) -> Option<ModulePath> {
    match path[0].as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            Some([&module[..module.len().checked_sub(ups)?], &path[ups..]].concat())
        }
        child => {
            let child = [module, &[child.to_owned()]].concat();
            names.contains(&child).then(|| [module, path].concat())
        }
    }
}

/// The module that defines the last name of a path, and that name. `None` for a module itself.
fn resolve<'a>(
    modules: &'a BTreeMap<ModulePath, Module>,
    path: &[String],
) -> Option<(&'a ModulePath, String)> {
    let mut path = path.to_vec();
    // Re-exports of re-exports; more would be a loop.
    for _ in 0..10 {
        let length =
            (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
        let (found, module) = modules.get_key_value(&path[..length])?;
        let name = path.get(length)?.clone();
        match module.re_exports.get(&name) {
            Some(target) => path = [target, &path[length + 1..]].concat(),
            None => return Some((found, name)),
        }
    }
    None
}
