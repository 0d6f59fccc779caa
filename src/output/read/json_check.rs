//! Text that should be one JSON object: its faults, and a repaired text.

use super::json_scanner::{Faults, Scanner};

/// The faults of a text that should be one JSON object.
pub(crate) fn check_object(text: &str) -> Faults {
    let mut scanner = Scanner::default();
    let mut out = String::new();
    for c in text.chars() {
        if scanner.ends_word(c) {
            scanner.close_word(&mut out);
        }
        scanner.step(c, &mut out);
        out.clear();
    }
    let object = text.trim_start().starts_with('{');
    let mut faults = scanner.faults();
    faults.syntax |= faults.python || faults.comments || !object || !scanner.is_done();
    faults
}

/// Repairs a broken object: removes trailing commas and escapes control characters. None if faults
/// remain.
pub(crate) fn repair(text: &str) -> Option<String> {
    let mut repaired = String::with_capacity(text.len());
    let mut scanner = Scanner::default();
    let mut ignored = String::new();
    let mut comma: Option<usize> = None;
    for c in text.chars() {
        if scanner.in_string() {
            match c {
                '\n' => repaired.push_str("\\n"),
                '\r' => repaired.push_str("\\r"),
                '\t' => repaired.push_str("\\t"),
                c => repaired.push(c),
            }
        } else {
            match c {
                ',' => comma = Some(repaired.len()),
                '}' | ']' => {
                    if let Some(at) = comma.take() {
                        repaired.remove(at);
                    }
                }
                ' ' | '\t' | '\n' | '\r' => {}
                _ => comma = None,
            }
            repaired.push(c);
        }
        scanner.step(c, &mut ignored);
        ignored.clear();
    }
    (!check_object(&repaired).any()).then_some(repaired)
}
