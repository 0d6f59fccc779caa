//! Parts of Jinja: string literals, values joined by `~`, and lines.

use crate::compose::spec::slots::{SlotPart, SlotPattern};

/// A string literal that Python's jinja2 and its reimplementations read alike.
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

/// Values that are written one after another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    /// Expressions that bind tighter than `~`.
    parts: Vec<String>,
    /// Text that is not yet a literal.
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

    /// Appends all values of another.
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

    /// The expression; an empty string literal if there are no values.
    pub(crate) fn expression(mut self) -> String {
        self.end_text();
        if self.parts.is_empty() { "\"\"".to_owned() } else { self.parts.join(" ~ ") }
    }

    /// The expression as an operand: in parentheses if it is not simple.
    pub(crate) fn operand(self) -> String {
        let simple = self.parts.len() + usize::from(!self.text.is_empty()) <= 1;
        let expression = self.expression();
        if simple { expression } else { format!("({expression})") }
    }
}

/// A pattern with an expression for each slot.
pub(crate) fn filled(pattern: &SlotPattern, value: impl Fn(&str) -> Joined) -> Joined {
    pattern.parts().iter().fold(Joined::default(), |joined, piece| match piece {
        SlotPart::Text(text) => joined.text(text),
        SlotPart::Slot(name) => joined.append(value(name)),
    })
}

/// One value.
pub(crate) fn value(expression: &str) -> Joined {
    Joined::default().value(expression)
}

/// One text.
pub(crate) fn text(text: &str) -> Joined {
    Joined::default().text(text)
}

/// A joiner before every element but the first.
pub(crate) fn between(joiner: &str, first: &str) -> Joined {
    if joiner.is_empty() {
        Joined::default()
    } else {
        value(&format!("(\"\" if {first} else {})", quoted(joiner)))
    }
}

/// Lines of a template. Every tag strips the whitespace around it, so that the layout does not
/// reach a prompt.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    text: String,
    depth: usize,
}

impl Lines {
    fn line(&mut self, line: &str) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The lines of a Jinja source.
    pub(crate) fn source(&mut self, source: &str) {
        for line in source.lines() {
            self.line(line);
        }
    }

    /// `{#- … -#}`; the comment must not hold `#}`.
    pub(crate) fn comment(&mut self, comment: &str) {
        self.line(&format!("{{#- {comment} -#}}"));
    }

    /// A tag that opens nothing.
    pub(crate) fn tag(&mut self, tag: &str) {
        self.line(&format!("{{%- {tag} -%}}"));
    }

    /// A tag whose body follows.
    pub(crate) fn open(&mut self, tag: &str) {
        self.tag(tag);
        self.depth += 1;
    }

    /// `else` and `elif`.
    pub(crate) fn or(&mut self, tag: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.open(tag);
    }

    /// The end of a body.
    pub(crate) fn close(&mut self, tag: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.tag(tag);
    }

    /// `{{- … -}}`; nothing if there are no values.
    pub(crate) fn write(&mut self, joined: Joined) {
        let expression = joined.expression();
        if expression != "\"\"" {
            self.line(&format!("{{{{- {expression} -}}}}"));
        }
    }

    /// `{% set name = … %}`.
    pub(crate) fn set(&mut self, name: &str, joined: Joined) {
        self.tag(&format!("set {name} = {}", joined.expression()));
    }

    /// The template, without its last newline.
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
