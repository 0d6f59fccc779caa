//! Tests that lists in docs/, tests and bindings have what the source has: codes, encodings,
//! families, lints and functions.

use std::collections::BTreeSet;
use std::path::Path;

use llb::error::Code;

use crate::layers::sources;

type Codes = BTreeSet<String>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The code names in a cell or a line: words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names in the first column of the table with this header, in order.
#[track_caller]
fn column(document: &str, header: &str) -> Vec<String> {
    let text = read(document);
    let (_, table) = text.split_once(header).unwrap_or_else(|| panic!("{document}: no {header}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        quoted(cell).map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

/// The source of some folders and files, without tests.
fn code_of(paths: &[&str]) -> String {
    let mut files = Vec::new();
    for path in paths {
        match root().join(path) {
            folder if folder.is_dir() => sources(&folder, &mut files),
            file => files.push(file),
        }
    }
    files.retain(|file| !file.iter().any(|part| part == "tests" || part == "tests.rs"));
    assert!(!files.is_empty(), "{paths:?}");
    let without_tests = |file| {
        let text = std::fs::read_to_string(file).unwrap();
        text.split("mod tests {").next().unwrap().to_owned()
    };
    files.iter().map(without_tests).collect()
}

fn is_code(text: &str) -> bool {
    text.contains('_') && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
}

/// Whether the source contains this string literal.
fn has_literal(code: &str, name: &str) -> bool {
    code.contains(&format!("\"{name}\""))
}

/// The string literal at the start of a text.
fn literal(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('"')?.split('"').next()
}

/// The codes that are passed to reporting functions or assigned to fields named `code`.
fn reported(code: &str) -> Codes {
    const REPORTERS: [&str; 10] = [
        "Diagnostic::new(",
        "Diagnostic::at(",
        "diagnostic(",
        "note(",
        "note_once(",
        "report(",
        "add(",
        "add_at(",
        "code: ",
        "let code = ",
    ];
    let mut codes = Codes::new();
    for reporter in REPORTERS {
        for (_, rest) in code.match_indices(reporter).map(|(at, _)| code.split_at(at)) {
            let rest = rest[reporter.len()..].trim_start();
            // The severity of a lint precedes its code.
            let rest = match rest.strip_prefix("Severity::") {
                Some(rest) => rest.split_once(',').map_or("", |(_, rest)| rest),
                None => rest,
            };
            codes.extend(literal(rest).filter(|code| is_code(code)).map(str::to_owned));
            if reporter.starts_with("let ") {
                let statement = rest.split(';').next().unwrap_or_default();
                let literals = statement.split('"').skip(1).step_by(2);
                codes.extend(literals.filter(|code| is_code(code)).map(str::to_owned));
            }
        }
    }
    codes
}

/// Checks that every reported code is documented, and that every documented code exists.
#[track_caller]
fn check(paths: &[&str], documented: impl IntoIterator<Item = String>) {
    let code = code_of(paths);
    let documented: Codes = documented.into_iter().collect();
    let missing: Vec<_> =
        reported(&code).into_iter().filter(|code| !documented.contains(code)).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    let invented: Vec<_> = documented.iter().filter(|name| !has_literal(&code, name)).collect();
    assert!(invented.is_empty(), "documented, but not in {paths:?}: {invented:?}");
}

#[test]
fn error_codes() {
    let codes: Codes = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    let documented = column("docs/abi.md", "| code | meaning |");
    let documented: Codes = documented
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase()))
        .collect();
    assert_eq!(codes, documented);
}

#[test]
fn diagnostics_of_replies() {
    let paths = ["src/output", "src/validate", "src/constraint", "src/chat"];
    check(&paths, column("docs/outputs.md", "| code | meaning |"));
}

#[test]
fn diagnostics_of_templates() {
    let paths = ["src/template/polyfill", "src/template/mask.rs"];
    check(&paths, column("docs/templates.md", "| code | what happened |"));
}

#[test]
fn findings_of_files() {
    let paths = ["src/gguf", "src/profile/modalities.rs", "src/profile/recommended_sampling.rs"];
    check(&paths, column("docs/abi.md", "| code of a finding | the file |"));
}

#[test]
fn findings_of_components() {
    let text = read("docs/compose.md");
    let named: Codes = quoted(&text).map(str::to_owned).collect();
    let codes = reported(&code_of(&["src/compose"]));
    let missing: Vec<_> = codes.iter().filter(|code| !named.contains(*code)).collect();
    assert!(codes.len() > 3 && missing.is_empty(), "not documented: {missing:?}");
}

#[test]
fn lints() {
    const RAISES: &str = "raises_on_";
    let text = read("docs/templates.md");
    let (_, shapes) = text.split_once("`raises_on_` is followed by: ").expect("the shapes");
    let shapes = shapes.split("\n\n").next().unwrap();
    let table = column("docs/templates.md", "| code | severity | meaning |");
    let shapes = quoted(shapes).map(|shape| format!("{RAISES}{shape}"));
    let documented: Codes =
        table.into_iter().filter(|code| !code.starts_with(RAISES)).chain(shapes).collect();
    let paths = ["src/template/lint", "src/profile/mod.rs"];
    let code = code_of(&paths);
    let raises = code.split('"').filter(|text| text.starts_with(RAISES) && is_code(text));
    let missing: Vec<_> = raises.filter(|code| !documented.contains(*code)).collect();
    assert!(missing.is_empty(), "not documented: {missing:?}");
    check(&paths, documented);
}

#[test]
fn polyfills() {
    let code = read("src/template/polyfill/steps/mod.rs");
    let (_, steps) = code.split_once("const STEPS").expect("the steps");
    let steps: Vec<(&str, &str)> = steps
        .split("];")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().strip_suffix(',')?.split_once("::"))
        .collect();
    let names: Vec<String> = steps.iter().map(|(_, step)| step.to_ascii_lowercase()).collect();
    assert_eq!(column("docs/templates.md", "| step | condition | effect |"), names);
    for ((file, step), name) in steps.iter().zip(&names) {
        let source = read(&format!("src/template/polyfill/steps/{file}.rs"));
        let start = format!("const {step}: PolyfillStep");
        let (_, step) = source.split_once(&start).expect("the constant of the step");
        let (_, step) = step.split_once("name: ").expect("its name");
        assert!(step.starts_with(&format!("\"{name}\"")), "{name}");
    }
    // Every documented option is read, and every option that is read is documented.
    let read_options = code_of(&["src/api/polyfills.rs"]);
    let documented: Codes =
        column("docs/templates.md", "| option | steps that it switches, or its values |")
            .into_iter()
            .collect();
    let options: Codes = read_options
        .split('"')
        .filter(|text| text.starts_with("polyfill_") && is_code(text))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = options.difference(&documented).collect();
    assert!(options.len() > 10 && missing.is_empty(), "not documented: {missing:?}");
    // A line of the table has the name as a literal, or its field has the same name.
    let is_read = |name: &str| {
        has_literal(&read_options, name) || read_options.contains(&format!("\n        {name}: "))
    };
    let invented: Vec<_> = documented.iter().filter(|name| !is_read(name)).collect();
    assert!(invented.is_empty(), "documented, but not read: {invented:?}");
}

/// The variants of an enum in a file.
fn variants(path: &str, name: &str) -> Vec<String> {
    let text = read(path);
    let (_, rest) = text.split_once(&format!("pub enum {name} {{\n")).expect(name);
    let lines = rest.split("\n}").next().unwrap().lines();
    let lines = lines.filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    names
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned())
        .collect()
}

#[test]
fn encodings() {
    let encodings = variants("src/output/format/encoding.rs", "Encoding");
    for path in [
        "src/output/detect/infer/arguments.rs",
        "src/constraint/tests/mod.rs",
        "tests/fuzz/targets/arguments.rs",
    ] {
        let text = match path.strip_suffix("/mod.rs") {
            Some(folder) => {
                let mut files = Vec::new();
                sources(&root().join(folder), &mut files);
                files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
            }
            None => read(path),
        };
        for encoding in &encodings {
            let use_of_it = format!("Encoding::{encoding}");
            assert!(text.contains(&use_of_it), "{path}: no {use_of_it}");
        }
    }
    let numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let sentence = format!("Arguments have one of {} encodings", numbers[encodings.len()]);
    assert!(read("docs/outputs.md").contains(&sentence), "docs/outputs.md: no \"{sentence}\"");
}

#[test]
fn number_of_families() {
    let number = read("src/output/families.rs").matches("\n        family(\"").count();
    for path in ["README.md", "docs/changelog.md"] {
        assert!(read(path).to_lowercase().contains("about eighty"), "{path}");
        assert!((75..85).contains(&number), "{path}: there are {number} families");
    }
}

#[test]
fn every_lint_has_a_case() {
    /// Lints without a case, and why.
    const WITHOUT_CASE: [(&str, &str); 2] = [
        ("drops_content_beside_reasoning", "reported for templates of the conformance set"),
        ("drops_reasoning_beside_calls", "reported for templates of the conformance set"),
    ];
    let mut files = Vec::new();
    sources(&root().join("src/profile"), &mut files);
    files.push(root().join("src/template/lint/tests.rs"));
    let cases: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let mut lints = column("docs/templates.md", "| code | severity | meaning |");
    // The row of a family of codes.
    lints.retain(|lint| !lint.starts_with("raises_on_"));
    let missing = lints.iter().filter(|lint| !cases.contains(*lint));
    let missing: Vec<_> =
        missing.filter(|lint| WITHOUT_CASE.iter().all(|(excepted, _)| excepted != lint)).collect();
    assert!(missing.is_empty(), "src/template/lint/tests.rs: no case for {missing:?}");
}

/// Every function of the header is declared in both bindings and in the C test of the header.
#[test]
fn functions_of_the_header() {
    let header = read("include/llb.h");
    let code = header.lines().filter(|line| !line.trim_start().starts_with(['*', '/']));
    let before = code.filter_map(|line| Some(line.split_once('(')?.0));
    let name = |text: &'_ str| text.rsplit([' ', '*']).next().unwrap_or_default().to_owned();
    let functions: Codes = before.map(name).filter(|name| name.starts_with("llb_")).collect();
    assert!(functions.len() > 20, "{functions:?}");
    for path in [
        "tests/c/header_cases.h",
        "bindings/python/src/llb/_library.py",
        // Its table leaves out the prefix.
        "bindings/java/llb-natives/src/main/c/llb_jni.c",
    ] {
        let text = read(path);
        let missing = functions.iter().filter(|name| !text.contains(&name["llb_".len()..]));
        let missing: Vec<_> = missing.collect();
        assert!(missing.is_empty(), "{path}: not declared: {missing:?}");
    }
}
