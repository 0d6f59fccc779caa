//! Turns a Lark grammar without recursion into a regular expression, so that a schema can enforce
//! it. Agents describe the input of custom tools by such grammars.
//!
//! Source: <https://lark-parser.readthedocs.io/en/stable/grammar.html>. Not supported, and an error:
//! recursion, `%ignore`, templates, and terminals imported from elsewhere than `common`.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

/// The longest expression, in bytes.
const MAX_EXPRESSION: usize = 1 << 15;
/// How deep rules may refer to each other, and how deep brackets may be.
const MAX_DEPTH: usize = 50;
const TOO_DEEP: &str = "it is too deep";
/// The terminals of `common` that texts are made of.
const COMMON: [(&str, &str); 11] = [
    ("CR", r"\r"),
    ("LF", r"\n"),
    ("NEWLINE", r"(?:\r?\n)+"),
    ("WS", r"[ \t\x0c\r\n]+"),
    ("WS_INLINE", r"[ \t]+"),
    ("DIGIT", "[0-9]"),
    ("INT", "[0-9]+"),
    ("NUMBER", r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"),
    ("LETTER", "[A-Za-z]"),
    ("WORD", "[A-Za-z]+"),
    ("CNAME", "[A-Za-z_][A-Za-z_0-9]*"),
];

type Parsed<T> = Result<T, &'static str>;

/// The expression that a whole text of the grammar matches. The error is the reason why there is
/// none.
pub(crate) fn expression(grammar: &str) -> Parsed<String> {
    let rules = Reader { chars: grammar.chars().peekable(), depth: 0 }.rules()?;
    Expansion { rules: &rules, done: HashMap::new(), open: Vec::new() }.rule("start")
}

/// A part of a rule.
enum Part {
    /// A regular expression of its own.
    Text(String),
    /// The name of a rule or terminal.
    Name(String),
    Sequence(Vec<Part>),
    Choice(Vec<Part>),
    /// A part and what follows it in an expression: `*`, `{2,3}`.
    Repeated(Box<Part>, String),
}

/// Rules by name.
type Rules = HashMap<String, Part>;

/// Puts the expressions of rules in place of their names.
struct Expansion<'a> {
    rules: &'a Rules,
    done: HashMap<&'a str, String>,
    /// The rules that are being expanded.
    open: Vec<&'a str>,
}

impl<'a> Expansion<'a> {
    fn rule(&mut self, name: &'a str) -> Parsed<String> {
        if let Some(text) = self.done.get(name) {
            return Ok(text.clone());
        }
        if self.open.contains(&name) {
            return Err("it is recursive");
        }
        if self.open.len() == MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        let rules = self.rules;
        let part = rules.get(name).ok_or("a rule is missing")?;
        self.open.push(name);
        let text = self.part(part)?;
        self.open.pop();
        self.done.insert(name, text.clone());
        Ok(text)
    }

    fn part(&mut self, part: &'a Part) -> Parsed<String> {
        let text = match part {
            Part::Text(text) => text.clone(),
            Part::Name(name) => self.rule(name)?,
            Part::Sequence(parts) => self.joined(parts, "")?,
            Part::Choice(parts) => format!("(?:{})", self.joined(parts, "|")?),
            Part::Repeated(part, times) => format!("(?:{}){times}", self.part(part)?),
        };
        if text.len() > MAX_EXPRESSION { Err("it is too long") } else { Ok(text) }
    }

    fn joined(&mut self, parts: &'a [Part], between: &str) -> Parsed<String> {
        let mut whole = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                whole += between;
            }
            whole += &self.part(part)?;
            if whole.len() > MAX_EXPRESSION {
                return Err("it is too long");
            }
        }
        Ok(whole)
    }
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    /// How many brackets are open.
    depth: usize,
}

impl Reader<'_> {
    fn rules(mut self) -> Parsed<Rules> {
        let mut rules = Rules::default();
        loop {
            self.skip(true);
            match self.chars.peek() {
                None => return Ok(rules),
                Some('%') => self.directive(&mut rules)?,
                Some(_) => {
                    while self.take('?') || self.take('!') {}
                    let name = self.name()?;
                    if self.take('.') {
                        self.number()?;
                    }
                    self.skip(false);
                    if !self.take(':') {
                        return Err("a rule has no colon");
                    }
                    let part = self.choice()?;
                    rules.insert(name, part);
                }
            }
        }
    }

    /// `%import common.NAME`, or names in parentheses.
    fn directive(&mut self, rules: &mut Rules) -> Parsed<()> {
        let mut line = String::new();
        while let Some(c) = self.chars.next_if(|c| *c != '\n') {
            line.push(c);
        }
        let Some(imported) = line.strip_prefix("%import common") else {
            return Err("it has a directive other than %import common");
        };
        let names = imported.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in names.filter(|name| !name.is_empty()) {
            let known = COMMON.iter().find(|(known, _)| *known == name);
            let (_, text) = known.ok_or("it imports an unknown terminal")?;
            rules.insert(name.to_owned(), Part::Text((*text).to_owned()));
        }
        Ok(())
    }

    fn choice(&mut self) -> Parsed<Part> {
        let mut parts = vec![self.sequence()?];
        while self.take_after_lines('|') {
            parts.push(self.sequence()?);
        }
        Ok(Part::Choice(parts))
    }

    fn sequence(&mut self) -> Parsed<Part> {
        let mut parts = Vec::new();
        loop {
            self.skip(false);
            let part = match self.chars.peek().copied() {
                None | Some('\n' | '|' | ')' | ']') => return Ok(Part::Sequence(parts)),
                Some('-') => {
                    // `-> name` names the alternative.
                    self.chars.next();
                    if !self.take('>') {
                        return Err("a minus is no part of a rule");
                    }
                    self.skip(false);
                    self.name()?;
                    continue;
                }
                Some('(') => self.group(')')?,
                Some('[') => Part::Repeated(Box::new(self.group(']')?), "?".to_owned()),
                Some('"') => self.string()?,
                Some('/') => self.regex()?,
                Some(_) => Part::Name(self.name()?),
            };
            parts.push(self.repeated(part)?);
        }
    }

    fn group(&mut self, end: char) -> Parsed<Part> {
        self.chars.next();
        if self.depth == MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        self.depth += 1;
        let part = self.choice()?;
        self.depth -= 1;
        if self.take_after_lines(end) { Ok(part) } else { Err("a bracket is not closed") }
    }

    fn repeated(&mut self, part: Part) -> Parsed<Part> {
        let times = match self.chars.peek() {
            Some(c @ ('*' | '+' | '?')) => {
                let times = c.to_string();
                self.chars.next();
                times
            }
            Some('~') => {
                self.chars.next();
                self.skip(false);
                let least = self.number()?;
                let most = if self.take('.') {
                    if !self.take('.') {
                        return Err("a number of times is incomplete");
                    }
                    self.number()?
                } else {
                    least.clone()
                };
                format!("{{{least},{most}}}")
            }
            _ => return Ok(part),
        };
        Ok(Part::Repeated(Box::new(part), times))
    }

    /// A string, or a range of two characters.
    fn string(&mut self) -> Parsed<Part> {
        let first = self.quoted()?;
        if self.take('.') {
            let last = if self.take('.') { self.quoted()? } else { String::new() };
            let (mut from, mut to) = (first.chars(), last.chars());
            let ends = (from.next(), to.next(), from.next(), to.next());
            let (Some(from), Some(to), None, None) = ends else {
                return Err("a range is not of two characters");
            };
            let point = |c: char| format!(r"\x{{{:x}}}", u32::from(c));
            return Ok(Part::Text(format!("[{}-{}]", point(from), point(to))));
        }
        let text = escaped(&first);
        Ok(Part::Text(if self.take('i') { format!("(?i:{text})") } else { text }))
    }

    fn quoted(&mut self) -> Parsed<String> {
        let open = "a string is not closed";
        if !self.take('"') {
            return Err(open);
        }
        let mut text = String::new();
        loop {
            match self.chars.next().ok_or(open)? {
                '"' => return Ok(text),
                '\\' => match self.chars.next().ok_or(open)? {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    'f' => text.push('\x0c'),
                    'x' => text.push(self.code(2)?),
                    'u' => text.push(self.code(4)?),
                    other => text.push(other),
                },
                c => text.push(c),
            }
        }
    }

    fn code(&mut self, digits: usize) -> Parsed<char> {
        let digits: String = self.chars.by_ref().take(digits).collect();
        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        code.ok_or("an escape of a string is wrong")
    }

    fn regex(&mut self) -> Parsed<Part> {
        self.chars.next();
        let mut text = String::new();
        loop {
            match self.chars.next().ok_or("an expression is not closed")? {
                '/' => break,
                '\\' => match self.chars.next().ok_or("an expression is not closed")? {
                    '/' => text.push('/'),
                    other => text.extend(['\\', other]),
                },
                c => text.push(c),
            }
        }
        let mut flags = String::new();
        while let Some(flag) = self.chars.next_if(char::is_ascii_lowercase) {
            match flag {
                'i' | 'm' | 's' | 'x' => flags.push(flag),
                'u' => {}
                _ => return Err("an expression has an unknown flag"),
            }
        }
        Ok(Part::Text(format!("(?{flags}:{text})")))
    }

    fn name(&mut self) -> Parsed<String> {
        let mut name = String::new();
        while let Some(c) = self.chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        if name.is_empty() { Err("it is not a grammar") } else { Ok(name) }
    }

    fn number(&mut self) -> Parsed<String> {
        let mut number = String::new();
        while let Some(c) = self.chars.next_if(char::is_ascii_digit) {
            number.push(c);
        }
        if number.is_empty() { Err("a number is missing") } else { Ok(number) }
    }

    fn take(&mut self, c: char) -> bool {
        self.chars.next_if_eq(&c).is_some()
    }

    /// Takes a character that may be on a later line. If it is not there, nothing is taken.
    fn take_after_lines(&mut self, c: char) -> bool {
        let before = self.chars.clone();
        self.skip(true);
        let taken = self.take(c);
        if !taken {
            self.chars = before;
        }
        taken
    }

    /// Skips spaces and comments, and line breaks if asked.
    fn skip(&mut self, lines: bool) {
        loop {
            match self.chars.peek() {
                Some('\n') if !lines => return,
                Some(c) if c.is_whitespace() => {
                    self.chars.next();
                }
                Some('/') => {
                    let mut ahead = self.chars.clone();
                    ahead.next();
                    if ahead.next() != Some('/') {
                        return;
                    }
                    while self.chars.next_if(|c| *c != '\n').is_some() {}
                }
                _ => return,
            }
        }
    }
}

/// A text as an expression.
fn escaped(text: &str) -> String {
    let mut whole = String::new();
    for c in text.chars() {
        match c {
            '\n' => whole.push_str(r"\n"),
            '\r' => whole.push_str(r"\r"),
            '\t' => whole.push_str(r"\t"),
            c if c.is_ascii_punctuation() && !"<>_\"'/`,;:=@!%&~#".contains(c) => {
                whole.extend(['\\', c]);
            }
            c => whole.push(c),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(grammar: &str, expected: Result<&str, &str>) {
        assert_eq!(expression(grammar).as_deref().map_err(|reason| *reason), expected);
    }

    #[test]
    fn rules_become_one_expression() {
        check("start: \"a.b\"", Ok(r"(?:a\.b)"));
        check(
            "start: A b?\nA: /x+/i\nb: \"1\"..\"9\" | [A]",
            Ok(r"(?:(?:(?i:x+))(?:(?:[\x{31}-\x{39}]|(?:(?:(?:(?i:x+))))?))?)"),
        );
        check("start: \"a\" // one\n     | \"b\"i -> two\n", Ok("(?:a|(?i:b))"));
        check("start: (\"a\"\n | LF)~2..3\n%import common.LF", Ok(r"(?:(?:(?:a|\n)){2,3})"));
        check(r#"start: /(?s:.+)/"#, Ok("(?:(?:(?s:.+)))"));
        check(r#"start: /a\/b\d/ "\"\n""#, Ok(r#"(?:(?:a/b\d)"\n)"#));
    }

    #[test]
    fn what_is_no_expression_has_a_reason() {
        check("start: \"(\" start? \")\"", Err("it is recursive"));
        check("start: missing", Err("a rule is missing"));
        check("start: \"a\"\n%ignore \" \"", Err("it has a directive other than %import common"));
        check("%import common.SQL\nstart: SQL", Err("it imports an unknown terminal"));
        check("start: (\"a\"", Err("a bracket is not closed"));
        check("start: \"a", Err("a string is not closed"));
        check("", Err("a rule is missing"));
        let doubled: String = (0..40).map(|n| format!("r{n}: r{} r{}\n", n + 1, n + 1)).collect();
        check(&format!("start: r0\n{doubled}r40: \"a\""), Err("it is too long"));
    }
}
