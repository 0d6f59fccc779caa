//! Nodes as JSON text in the layout of Python's `json.dumps(…, ensure_ascii=False)`, with their
//! segments.

use serde_json::Number;

use super::node::Node;
use super::segmented_text::SegmentedText;
use crate::jinja::print_float;

/// `json.dumps(node, indent=2)`.
pub(super) fn indented(node: &Node) -> SegmentedText {
    let mut out = SegmentedText::default();
    write(&mut out, node, Some(0));
    out
}

/// `json.dumps(node)`: `", "` and `": "`.
pub(super) fn plain(node: &Node) -> SegmentedText {
    let mut out = SegmentedText::default();
    write(&mut out, node, None);
    out
}

fn write(out: &mut SegmentedText, node: &Node, depth: Option<usize>) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Node::Number(number, path) => out.push_from(Some(path), |out| out.push_str(&print(number))),
        Node::Text(text) => {
            out.push_str("\"");
            out.push_mapped(text, escape);
            out.push_str("\"");
        }
        Node::List(items) => {
            out.push_str("[");
            for (index, item) in items.iter().enumerate() {
                separate(out, depth, index == 0);
                write(out, item, depth.map(|depth| depth + 1));
            }
            close(out, depth, items.is_empty(), "]");
        }
        Node::Map(members) => {
            out.push_str("{");
            let mut empty = true;
            for member in members.iter() {
                separate(out, depth, empty);
                empty = false;
                out.push_str("\"");
                out.push_from(member.path.as_ref(), |out| escape(out, &member.name));
                out.push_str("\": ");
                write(out, &member.node, depth.map(|depth| depth + 1));
            }
            close(out, depth, empty, "}");
        }
    }
}

fn separate(out: &mut SegmentedText, depth: Option<usize>, first: bool) {
    match (depth, first) {
        (None, true) => {}
        (None, false) => out.push_str(", "),
        (Some(depth), first) => {
            out.push_str(if first { "\n" } else { ",\n" });
            out.push_str(&"  ".repeat(depth + 1));
        }
    }
}

fn close(out: &mut SegmentedText, depth: Option<usize>, empty: bool, bracket: &str) {
    if let Some(depth) = depth.filter(|_| !empty) {
        out.push_str("\n");
        out.push_str(&"  ".repeat(depth));
    }
    out.push_str(bracket);
}

fn print(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => print_float(float),
        _ => number.to_string(),
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: serde_json::Value, two: &str, one: &str) {
        let node = Node::from_member(&value, "v");
        assert_eq!((indented(&node).as_str(), plain(&node).as_str()), (two, one));
    }

    #[test]
    fn layouts() {
        check(json!({}), "{}", "{}");
        check(json!([[], {"a": {}}]), "[\n  [],\n  {\n    \"a\": {}\n  }\n]", r#"[[], {"a": {}}]"#);
        check(
            json!([1, 1.0, 1e16, -2.5, true, null]),
            "[\n  1,\n  1.0,\n  1e+16,\n  -2.5,\n  true,\n  null\n]",
            "[1, 1.0, 1e+16, -2.5, true, null]",
        );
        check(
            json!("é<\"\\\n\u{1}\u{7f}"),
            "\"é<\\\"\\\\\\n\\u0001\u{7f}\"",
            "\"é<\\\"\\\\\\n\\u0001\u{7f}\"",
        );
        check(json!({"k\"": "v"}), "{\n  \"k\\\"\": \"v\"\n}", r#"{"k\"": "v"}"#);
    }

    #[test]
    fn segments_cover_escaped_text_names_and_numbers() {
        let sent = json!({"a\n": ["x\ny", "", 1.50, true], "": {"": 7}, "b": "é\""});
        let text = plain(&Node::from_member(&sent, "v"));
        let covered: Vec<(&str, &str)> =
            text.segments().iter().map(|s| (&text.as_str()[s.start..s.end], &*s.path)).collect();
        assert_eq!(
            covered,
            [
                ("a\\n", "v"),
                ("x\\ny", "v.a\n[0]"),
                ("1.5", "v.a\n"),
                ("7", "v.."),
                ("b", "v"),
                ("é\\\"", "v.b")
            ]
        );
        let added = plain(&Node::map([("\n", Node::literal("\n"))]));
        assert_eq!((added.as_str(), added.segments()), ("{\"\\n\": \"\\n\"}", &[][..]));
    }
}
