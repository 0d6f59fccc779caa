//! Pieces of Jinja source: string literals, values joined by `~`, and lines.

use crate::compose::spec::slots::{SlotPart, SlotPattern};

/// A string literal that Python's jinja2 and its reimplementations read in the same way.
pub(crate) fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '\\' => literal.push_str("\\\\"),
            '"' => literal.push_str("\\\""),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            other => literal.push(other),
        }
    }
    literal.push('"');
    literal
}

/// A sequence of values that are joined by `~`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    /// Expressions that bind tighter than `~`.
    parts: Vec<String>,
    /// Text at the end that has not been turned into a literal.
    text: String,
}

impl Joined {
    pub(crate) fn text(mut self, text: &str) -> Joined {
        self.text.push_str(text);
        self
    }

    /// Appends an expression. It must bind tighter than `~`: a name, a call, a filter, or
    /// parentheses.
    pub(crate) fn value(mut self, expression: &str) -> Joined {
        self.end_text();
        self.parts.push(expression.to_owned());
        self
    }

    /// Appends all values of another sequence.
    pub(crate) fn append(mut self, other: Joined) -> Joined {
        for part in other.parts {
            self = self.value(&part);
        }
        self.text(&other.text)
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.parts.push(quoted(&self.text));
            self.text.clear();
        }
    }

    /// The whole expression; an empty string literal if there are no values.
    pub(crate) fn expression(mut self) -> String {
        self.end_text();
        if self.parts.is_empty() { "\"\"".to_owned() } else { self.parts.join(" ~ ") }
    }

    /// The expression as an operand, in parentheses unless it is simple.
    pub(crate) fn operand(self) -> String {
        let simple = self.parts.len() + usize::from(!self.text.is_empty()) <= 1;
        let expression = self.expression();
        if simple { expression } else { format!("({expression})") }
    }
}

/// A pattern whose slots are replaced by expressions.
pub(crate) fn filled(pattern: &SlotPattern, value: impl Fn(&str) -> Joined) -> Joined {
    pattern.parts().iter().fold(Joined::default(), |joined, piece| match piece {
        SlotPart::Text(text) => joined.text(text),
        SlotPart::Slot(name) => joined.append(value(name)),
    })
}

/// A sequence of one expression.
pub(crate) fn value(expression: &str) -> Joined {
    Joined::default().value(expression)
}

/// A sequence of one text.
pub(crate) fn text(text: &str) -> Joined {
    Joined::default().text(text)
}

/// A joiner that is written before every element except the first.
pub(crate) fn between(joiner: &str, first: &str) -> Joined {
    if joiner.is_empty() {
        Joined::default()
    } else {
        value(&format!("(\"\" if {first} else {})", quoted(joiner)))
    }
}

/// The lines of a template. Every tag strips the whitespace around it, so the layout does not reach
/// a prompt.
#[derive(Debug, Default)]
pub(crate) struct TemplateLines {
    text: String,
    depth: usize,
}

impl TemplateLines {
    fn line(&mut self, line: &str) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds the lines of a Jinja source.
    pub(crate) fn source(&mut self, source: &str) {
        for line in source.lines() {
            self.line(line);
        }
    }

    /// Adds the comment `{#- … -#}`, which must not contain `#}`.
    pub(crate) fn comment(&mut self, comment: &str) {
        self.line(&format!("{{#- {comment} -#}}"));
    }

    /// Adds a tag that has no body.
    pub(crate) fn tag(&mut self, tag: &str) {
        self.line(&format!("{{%- {tag} -%}}"));
    }

    /// Adds a tag that starts a body.
    pub(crate) fn open(&mut self, tag: &str) {
        self.tag(tag);
        self.depth += 1;
    }

    /// Adds `else` or `elif`.
    pub(crate) fn or(&mut self, tag: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.open(tag);
    }

    /// Adds the tag at the end of a body.
    pub(crate) fn close(&mut self, tag: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.tag(tag);
    }

    /// Adds `{{- … -}}`; nothing if there are no values.
    pub(crate) fn write(&mut self, joined: Joined) {
        let expression = joined.expression();
        if expression != "\"\"" {
            self.line(&format!("{{{{- {expression} -}}}}"));
        }
    }

    /// Adds `{% set name = … %}`.
    pub(crate) fn set(&mut self, name: &str, joined: Joined) {
        self.tag(&format!("set {name} = {}", joined.expression()));
    }

    /// The whole template, without its last newline.
    pub(crate) fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        assert_eq!(quoted("a\"\\\n\r\tü{{"), r#""a\"\\\n\r\tü{{""#);
        assert_eq!(Joined::default().expression(), "\"\"");
        assert_eq!(
            text("a").text("b").value("c").value("d").text("e").expression(),
            r#""ab" ~ c ~ d ~ "e""#
        );
        assert_eq!(text("a").operand(), "\"a\"");
        assert_eq!(text("a").value("b").operand(), "(\"a\" ~ b)");
    }
}
