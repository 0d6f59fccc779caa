//! The lexer: source text to tokens, with `trim_blocks` and `lstrip_blocks`.

use num_bigint::BigInt;

use crate::jinja::error::{Result, TemplateError};
use crate::jinja::literals::{float_length, integer_length, quoted_string, unescape};
use crate::jinja::unicode;

/// A token and its 1-based line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LexerToken {
    pub(crate) line: u32,
    pub(crate) kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    /// Text outside tags.
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(String),
    Str(String),
    Int(BigInt),
    Float(f64),
    /// An operator or bracket.
    Op(&'static str),
    End,
}

impl TokenKind {
    /// The name of the token in messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            TokenKind::Data(_) => "template data".to_owned(),
            TokenKind::VariableBegin => "begin of print statement".to_owned(),
            TokenKind::VariableEnd => "end of print statement".to_owned(),
            TokenKind::BlockBegin => "begin of statement block".to_owned(),
            TokenKind::BlockEnd => "end of statement block".to_owned(),
            TokenKind::Name(name) => name.clone(),
            TokenKind::Str(_) => "string".to_owned(),
            TokenKind::Int(_) => "integer".to_owned(),
            TokenKind::Float(_) => "float".to_owned(),
            TokenKind::Op(op) => (*op).to_owned(),
            TokenKind::End => "end of template".to_owned(),
        }
    }
}

/// A bound on the cost of parsing, far above the size of real templates.
const MAX_TOKENS: usize = 250_000;

/// Longer operators come first.
const OPERATORS: [&str; 25] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",",
];

/// Tokenizes a source. The last token is [`TokenKind::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<LexerToken>> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, at: 0, line: 1, tokens: Vec::new() };
    lexer.root()?;
    lexer.push(TokenKind::End);
    Ok(lexer.tokens)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    tokens: Vec<LexerToken>,
}

/// Whitespace control of the text before a tag: none, `-` or `+`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strip {
    Default,
    All,
    Nothing,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn push(&mut self, kind: TokenKind) {
        self.tokens.push(LexerToken { line: self.line, kind });
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.source.as_bytes()[self.at..self.at + bytes];
        let newlines = passed.iter().filter(|byte| **byte == b'\n').count();
        self.line += u32::try_from(newlines).unwrap_or(0);
        self.at += bytes;
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(TemplateError::syntax(message, self.line))
    }

    fn root(&mut self) -> Result<()> {
        while !self.rest().is_empty() {
            let Some((before, tag)) = self.next_tag() else {
                let rest = self.rest();
                self.push(TokenKind::Data(rest.to_owned()));
                self.advance(rest.len());
                break;
            };
            let text = &self.rest()[..before];
            let sign = match self.rest().as_bytes().get(before + 2) {
                Some(b'-') => Strip::All,
                Some(b'+') => Strip::Nothing,
                _ => Strip::Default,
            };
            self.data(text, sign, tag != b'{');
            let opening = 2 + usize::from(sign != Strip::Default);
            match tag {
                b'#' => {
                    self.advance(opening);
                    self.comment()?;
                }
                b'{' => {
                    self.push(TokenKind::VariableBegin);
                    self.advance(opening);
                    self.tag("}}", TokenKind::VariableEnd)?;
                }
                _ => match raw_tag(self.rest(), "raw") {
                    Some(length) => {
                        self.advance(length);
                        self.raw()?;
                    }
                    None => {
                        self.push(TokenKind::BlockBegin);
                        self.advance(opening);
                        self.tag("%}", TokenKind::BlockEnd)?;
                    }
                },
            }
        }
        Ok(())
    }

    /// The bytes before the next tag, and the second character of its opening.
    fn next_tag(&self) -> Option<(usize, u8)> {
        let bytes = self.rest().as_bytes();
        let mut from = 0;
        while let Some(found) = bytes[from..].iter().position(|byte| *byte == b'{') {
            let at = from + found;
            match bytes.get(at + 1) {
                Some(tag @ (b'%' | b'{' | b'#')) => return Some((at, *tag)),
                _ => from = at + 1,
            }
        }
        None
    }

    /// Emits the text before a tag, stripped as the tag and the settings require, and advances to
    /// the tag.
    fn data(&mut self, text: &str, sign: Strip, lstrip: bool) {
        let kept = match sign {
            Strip::All => text.trim_end_matches(unicode::is_space),
            Strip::Default if lstrip => {
                let line_start = text.rfind('\n').map_or(0, |at| at + 1);
                let starts_line =
                    line_start > 0 || self.at == 0 || self.source.as_bytes()[self.at - 1] == b'\n';
                let blank = text[line_start..].chars().all(unicode::is_space);
                if starts_line && blank { &text[..line_start] } else { text }
            }
            _ => text,
        };
        if !kept.is_empty() {
            self.push(TokenKind::Data(kept.to_owned()));
        }
        self.advance(text.len());
    }

    fn comment(&mut self) -> Result<()> {
        let Some(end) = self.rest().find("#}") else {
            return self.fail("Missing end of comment tag");
        };
        // The first match wins, so a sign before the closing belongs to it.
        self.advance(end + 2);
        self.after_block(end > 0, self.source.as_bytes()[self.at - 3]);
        Ok(())
    }

    /// Skips whitespace after a closing tag: all of it after `-`, one newline without a sign.
    fn after_block(&mut self, signed: bool, before: u8) {
        match before {
            b'-' if signed => self.skip_blanks(),
            b'+' if signed => {}
            _ if self.rest().starts_with('\n') => self.advance(1),
            _ => {}
        }
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.advance(rest.len() - rest.trim_start_matches(unicode::is_space).len());
    }

    /// Emits the text of a raw block and skips its end tag.
    fn raw(&mut self) -> Result<()> {
        let rest = self.rest();
        // Jinja2 does not report a missing end at the end of the source.
        if rest.is_empty() {
            return Ok(());
        }
        let mut from = 0;
        while let Some(found) = rest[from..].find("{%") {
            let at = from + found;
            let Some(length) = raw_tag(&rest[at..], "endraw") else {
                from = at + 2;
                continue;
            };
            let sign = match rest.as_bytes()[at + 2] {
                b'-' => Strip::All,
                b'+' => Strip::Nothing,
                _ => Strip::Default,
            };
            self.data(&rest[..at], sign, true);
            self.advance(length);
            return Ok(());
        }
        self.fail("Missing end of raw directive")
    }

    /// Tokenizes the inside of a tag and its closing.
    fn tag(&mut self, end: &str, end_token: TokenKind) -> Result<()> {
        let block = end == "%}";
        let mut brackets: Vec<&'static str> = Vec::new();
        loop {
            let rest = self.rest();
            if brackets.is_empty() {
                let signed = rest.starts_with('-') || (block && rest.starts_with('+'));
                if rest[usize::from(signed)..].starts_with(end) {
                    let sign = rest.as_bytes()[0];
                    self.push(end_token);
                    self.advance(usize::from(signed) + 2);
                    match sign {
                        b'-' => self.skip_blanks(),
                        _ if block => self.after_block(signed, sign),
                        _ => {}
                    }
                    return Ok(());
                }
            }
            let Some(first) = rest.chars().next() else {
                // The parser reports what is missing.
                return Ok(());
            };
            // With this token and the end of the block.
            if self.tokens.len() + 2 > MAX_TOKENS {
                return Err(TemplateError::limit(format!(
                    "the source has more than {MAX_TOKENS} tokens"
                ))
                .at(self.line));
            }
            if unicode::is_space(first) {
                self.skip_blanks();
            } else if first.is_ascii_digit() {
                self.number()?;
            } else if first.is_alphanumeric() || is_identifier(first, true) {
                let length = rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || is_identifier(c, true)))
                    .unwrap_or(rest.len());
                let name = &rest[..length];
                if !name.chars().enumerate().all(|(index, c)| is_identifier(c, index > 0)) {
                    return self.fail("Invalid character in identifier");
                }
                self.push(TokenKind::Name(name.to_owned()));
                self.advance(length);
            } else if first == '\'' || first == '"' {
                self.string(first)?;
            } else {
                let Some(op) = OPERATORS.into_iter().find(|op| rest.starts_with(op)) else {
                    return self.fail(format!(
                        "unexpected char {} at {}",
                        quoted_string(&first.to_string()),
                        self.at
                    ));
                };
                match op {
                    "(" => brackets.push(")"),
                    "[" => brackets.push("]"),
                    "{" => brackets.push("}"),
                    ")" | "]" | "}" => match brackets.pop() {
                        None => return self.fail(format!("unexpected '{op}'")),
                        Some(open) if open != op => {
                            return self.fail(format!("unexpected '{op}', expected '{open}'"));
                        }
                        Some(_) => {}
                    },
                    _ => {}
                }
                self.push(TokenKind::Op(op));
                self.advance(op.len());
            }
        }
    }

    fn number(&mut self) -> Result<()> {
        let rest = self.rest();
        // `a.1.2` has two subscripts, not a float.
        let after_dot = self.at > 0 && self.source.as_bytes()[self.at - 1] == b'.';
        if let Some(length) = float_length(rest).filter(|_| !after_dot) {
            let text = rest[..length].replace('_', "");
            let number = text.parse().or_else(|_| self.fail("not a number"))?;
            self.push(TokenKind::Float(number));
            self.advance(length);
            return Ok(());
        }
        let (length, base, prefix) = integer_length(rest);
        let digits = rest[prefix..length].replace('_', "");
        if digits.len() > 4300 {
            return self.fail("Exceeds the limit (4300 digits) for integer string conversion");
        }
        let number = BigInt::parse_bytes(digits.as_bytes(), base);
        match number {
            Some(number) => self.push(TokenKind::Int(number)),
            None => return self.fail("not a number"),
        }
        self.advance(length);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<()> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest[1..].char_indices().find(|(_, c)| {
            let ends = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else {
            return self.fail(format!(
                "unexpected char {} at {}",
                quoted_string(&quote.to_string()),
                self.at
            ));
        };
        let text = match unescape(&rest[1..=end]) {
            Ok(text) => text,
            Err(message) => return self.fail(message),
        };
        self.push(TokenKind::Str(text));
        self.advance(end + 2);
        Ok(())
    }
}

fn is_identifier(c: char, inside: bool) -> bool {
    c == '_'
        || if inside { unicode_ident::is_xid_continue(c) } else { unicode_ident::is_xid_start(c) }
}

/// The length of a `{% raw %}` or `{% endraw %}` tag at the start of the source, including the
/// whitespace it removes.
fn raw_tag(source: &str, word: &str) -> Option<usize> {
    let inside = source.strip_prefix("{%")?;
    let inside =
        inside.strip_prefix(['-', '+']).unwrap_or(inside).trim_start_matches(unicode::is_space);
    let after = inside.strip_prefix(word)?.trim_start_matches(unicode::is_space);
    let end = if let Some(after) = after.strip_prefix("-%}") {
        after.trim_start_matches(unicode::is_space)
    } else if let Some(after) = after.strip_prefix("%}") {
        // Only `endraw` removes a newline.
        if word == "raw" { after } else { after.strip_prefix('\n').unwrap_or(after) }
    } else {
        after.strip_prefix("+%}").filter(|_| word == "endraw")?
    };
    Some(source.len() - end.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let shown: Vec<String> = tokens(source)
            .unwrap()
            .into_iter()
            .map(|token| match token.kind {
                TokenKind::Data(text) => format!("data {text:?}"),
                TokenKind::Str(text) => format!("str {text:?}"),
                TokenKind::Int(number) => format!("int {number}"),
                TokenKind::Float(number) => format!("float {number}"),
                other => other.describe(),
            })
            .collect();
        assert_eq!(shown[..shown.len() - 1], *expected);
    }

    #[test]
    fn whitespace_around_tags() {
        let print = ["begin of print statement", "x", "end of print statement"];
        check(" {{ x }}\n", &["data \" \"", print[0], print[1], print[2]]);
        check("a {{- x -}} b", &["data \"a\"", print[0], print[1], print[2], "data \"b\""]);
        let block = ["begin of statement block", "x", "end of statement block"];
        check(
            "a\n  {% x %}\nb\n\n",
            &["data \"a\\n\"", block[0], block[1], block[2], "data \"b\\n\""],
        );
        check("a {%+ x +%}\nb", &["data \"a \"", block[0], block[1], block[2], "data \"\\nb\""]);
        check("{% raw %}\n{{ }}\n {% endraw %}\nx", &["data \"\\n{{ }}\\n\"", "data \"x\""]);
        check("a {#- x -#} b{# c #}\nd", &["data \"a\"", "data \"b\"", "data \"d\""]);
    }

    #[test]
    fn literals() {
        let inside = |source: &str, expected: &[&str]| {
            let mut all = vec!["begin of print statement"];
            all.extend(expected);
            all.push("end of print statement");
            check(&format!("{{{{{source}}}}}"), &all);
        };
        inside(
            "1 1_0 0x1F 1.5 1e3 1.e",
            &["int 1", "int 10", "int 31", "float 1.5", "float 1000", "int 1", ".", "e"],
        );
        inside(
            r#"'a\'b\n\x41\u00e9\U0001f600\q\101' "c""#,
            &["str \"a'b\\nAé😀\\\\qA\"", "str \"c\""],
        );
        inside("{'a': {}}", &["{", "str \"a\"", ":", "{", "}", "}"]);
    }

    #[test]
    fn syntax_errors() {
        for (source, message, line) in [
            ("a\n{{ ] }}", "unexpected ']'", 2),
            ("{{ (] }}", "unexpected ']', expected ')'", 1),
            ("{# x", "Missing end of comment tag", 1),
            ("\n\n{{ ? }}", "unexpected char '?' at 5", 3),
            ("{% raw %}x", "Missing end of raw directive", 1),
        ] {
            let error = tokens(source).unwrap_err();
            assert_eq!((error.message(), error.line()), (message, Some(line)));
        }
    }
}
