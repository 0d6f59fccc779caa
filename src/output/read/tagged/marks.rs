//! The markers of tagged arguments, and how held text matches them.

use crate::output::format::{Tagged, TypeWords};
use crate::output::read::arguments::{Followers, MarkMatch};
use crate::output::read::json_scanner::is_whitespace;

pub(super) const CDATA: &str = "<![CDATA[";
pub(super) const CDATA_END: &str = "]]>";
/// The maximum number of whitespace characters between an end tag and the text that confirms it.
const MAX_WHITESPACE: usize = 64;
/// The maximum length of a key.
const MAX_KEY: usize = 128;
/// The maximum length of the type in an attribute.
const MAX_TYPE: usize = 32;
/// The maximum length of a marker, whitespace included.
const MAX_SPREAD: usize = 1024;

/// How a text matches the opening of a parameter, up to its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParameterHead {
    No,
    Part,
    Full { key: String, marked_string: Option<bool>, word: Option<String>, used: usize },
}

/// The markers of a format, without surrounding whitespace. Each marker is a list of pieces.
#[derive(Debug, Clone)]
pub(super) struct ParameterMarks {
    open: Vec<String>,
    after_key: Vec<String>,
    kind: Option<TypeMarks>,
    /// The whitespace that the format writes before a value.
    pub(super) before_value: String,
    /// The whitespace that the format writes after a value.
    pub(super) after_value: String,
    pub(super) close: Vec<String>,
    pub(super) separator: Vec<String>,
    followers: Followers,
    /// Whether the format writes each element on a separate line.
    lines: bool,
    /// The first characters of everything that may end a value.
    end_starts: Vec<char>,
}

#[derive(Debug, Clone)]
struct TypeMarks {
    words: TypeWords,
    before_key: bool,
    after: Vec<String>,
    /// The text after the key if the attribute is missing.
    without: Vec<String>,
}

impl ParameterMarks {
    pub(super) fn new(tagged: &Tagged, followers: &Followers) -> ParameterMarks {
        let before = match &tagged.kind {
            Some(kind) if !kind.before_key => &kind.after,
            _ => &tagged.after_key,
        };
        let kind = tagged.kind.as_ref().map(|kind| TypeMarks {
            words: kind.words.clone(),
            before_key: kind.before_key,
            after: pieces(&kind.after),
            without: pieces(kind.after.trim_start_matches(['"', '\''])),
        });
        let open = pieces(&tagged.open);
        let after_value = &tagged.close[..tagged.close.len() - tagged.close.trim_start().len()];
        let close = pieces(&tagged.close);
        let ends = open.first().into_iter().chain(close.first()).map(String::as_str);
        let ends = ends.chain(followers.all()).chain([after_value, CDATA_END, "\n", "\r"]);
        ParameterMarks {
            end_starts: ends.filter_map(|end| end.chars().next()).collect(),
            open,
            after_key: pieces(&tagged.after_key),
            kind,
            before_value: before[before.trim_end().len()..].to_owned(),
            after_value: after_value.to_owned(),
            close,
            separator: pieces(&tagged.separator),
            followers: followers.clone(),
            lines: [before, &tagged.close, &tagged.separator, &tagged.open]
                .iter()
                .any(|text| text.contains('\n')),
        }
    }

    /// Whether a character may begin the end of a value.
    pub(super) fn may_end_value(&self, c: char) -> bool {
        self.end_starts.contains(&c)
    }

    pub(super) fn follower(&self, text: &str) -> MarkMatch {
        MarkMatch::of_any(text, self.followers.all())
    }

    /// Matches a closing tag that another follower follows.
    fn call_end(&self, text: &str) -> MarkMatch {
        match MarkMatch::of_any(text, &self.followers.closing) {
            MarkMatch::Full(at) => match self.follower(without_whitespace(&text[at..])) {
                MarkMatch::Full(_) => MarkMatch::Full(0),
                other => other,
            },
            other => other,
        }
    }

    /// The pieces of the start of a parameter.
    pub(super) fn opening(&self) -> &[String] {
        &self.open
    }

    pub(super) fn followers(&self) -> &Followers {
        &self.followers
    }

    fn parameter(&self, text: &str) -> MarkMatch {
        if self.open.is_empty() { MarkMatch::No } else { pieces_at(text, &self.open) }
    }

    /// Matches what may follow a parameter.
    fn after_parameter(&self, text: &str) -> MarkMatch {
        let separator = if self.separator.is_empty() {
            MarkMatch::No
        } else {
            pieces_at(text, &self.separator)
        };
        self.parameter(text).or(self.follower(text)).or(separator)
    }

    pub(super) fn head(&self, text: &str) -> ParameterHead {
        self.read_head(text).unwrap_or_else(|unread| unread)
    }

    /// The complete head; the error is why there is none.
    fn read_head(&self, text: &str) -> Result<ParameterHead, ParameterHead> {
        let Some((_, rest_of_key)) = self.after_key.split_first() else {
            return Err(ParameterHead::No);
        };
        if text.len() > MAX_SPREAD {
            return Err(ParameterHead::No);
        }
        let start = complete(self.parameter(text))?;
        let (key, word, used) = match &self.kind {
            Some(kind) if kind.before_key => {
                let (word, at) = kind.word_at(text, start)?;
                let (key, at) = self.key_at(text, at)?;
                (key, Some(word), complete(pieces_after(text, at, rest_of_key))?)
            }
            Some(kind) => {
                let (key, at) = self.key_at(text, start)?;
                let without = complete(pieces_after(text, at, &kind.without));
                match (without, complete(pieces_after(text, at, rest_of_key))) {
                    (Ok(used), _) => (key, None, used),
                    (Err(unread), Err(ParameterHead::No)) => return Err(unread),
                    (_, at) => {
                        let (word, used) = kind.word_at(text, at?)?;
                        (key, Some(word), used)
                    }
                }
            }
            None => {
                let (key, at) = self.key_at(text, start)?;
                (key, None, complete(pieces_after(text, at, rest_of_key))?)
            }
        };
        let kind = self.kind.as_ref().zip(word.as_deref());
        let marked_string = kind.and_then(|(kind, word)| kind.is_string(word));
        Ok(ParameterHead::Full { key, marked_string, word, used })
    }

    /// The key at a position, and the position after the first piece of the text after it.
    fn key_at(&self, text: &str, start: usize) -> Result<(String, usize), ParameterHead> {
        let before = self.after_key.first().ok_or(ParameterHead::No)?;
        let rest = &text[start..];
        let Some(length) = rest.find(before.as_str()) else {
            let foreign = rest
                .find('<')
                .is_some_and(|at| MarkMatch::of(&rest[at..], before) == MarkMatch::No);
            return Err(if rest.len() > MAX_KEY || foreign || rest.trim().contains('\n') {
                ParameterHead::No
            } else {
                ParameterHead::Part
            });
        };
        let key = clean_key(&rest[..length], before.starts_with('"')).ok_or(ParameterHead::No)?;
        Ok((key, start + length + before.len()))
    }

    /// Matches the whitespace that the format writes after a value. A line may also end in CRLF, if
    /// the line before the value did.
    pub(super) fn whitespace_after(&self, text: &str, crlf: bool) -> MarkMatch {
        if crlf {
            whitespace_at(text, &self.after_value)
        } else {
            MarkMatch::of(text, &self.after_value)
        }
    }

    /// Matches an end tag, including its whitespace, and what must follow it.
    pub(super) fn end_tag(&self, text: &str, cdata: bool, crlf: bool) -> MarkMatch {
        if self.close.is_empty() || text.len() > MAX_SPREAD {
            return MarkMatch::No;
        }
        let at = match if cdata { MarkMatch::of(text, CDATA_END) } else { MarkMatch::Full(0) } {
            MarkMatch::Full(at) => at,
            other => return other,
        };
        let whitespace = self.whitespace_after(text, crlf);
        let mut best = if cdata {
            self.confirmed(text, pieces_after(text, at, &self.close))
        } else {
            self.confirmed(text, pieces_at(text, &self.close))
        };
        if let (false, MarkMatch::Full(at)) = (cdata, whitespace)
            && at > 0
        {
            best = self.confirmed(text, pieces_at(&text[at..], &self.close).shifted(at)).or(best);
        }
        if whitespace == MarkMatch::Part && !cdata { best.or(MarkMatch::Part) } else { best }
    }

    /// Confirms an end tag, which requires a parameter, a follower or a separator after it.
    fn confirmed(&self, text: &str, tag: MarkMatch) -> MarkMatch {
        let MarkMatch::Full(at) = tag else { return tag };
        let rest = without_whitespace(&text[at..]);
        if text.len() - at - rest.len() > MAX_WHITESPACE {
            return MarkMatch::No;
        }
        match self.after_parameter(rest) {
            MarkMatch::Full(_) => tag,
            other => other,
        }
    }

    /// Matches the end of a text without an end tag: the end of the call.
    pub(super) fn missing_end_of_text(&self, text: &str) -> MarkMatch {
        if text.len() > MAX_SPREAD {
            return MarkMatch::No;
        }
        let line = if self.lines { newline_at(text) } else { MarkMatch::No };
        self.call_end(text).or(match line {
            MarkMatch::Full(at) => match self.call_end(&text[at..]) {
                MarkMatch::Full(_) => MarkMatch::Full(at),
                other => other,
            },
            other => other,
        })
    }

    /// Matches a parameter that opens in a text without an end tag. `used` is the length of the line
    /// break before it.
    pub(super) fn missing_end_before_parameter(&self, text: &str) -> ParameterHead {
        let at = match if self.lines { newline_at(text) } else { MarkMatch::No } {
            MarkMatch::Full(at) => at,
            MarkMatch::Part => return ParameterHead::Part,
            MarkMatch::No => 0,
        };
        match self.head(&text[at..]) {
            ParameterHead::Full { key, marked_string, word, .. } => {
                ParameterHead::Full { key, marked_string, word, used: at }
            }
            other => other,
        }
    }

    /// Matches the end of a value that cannot be text, without an end tag. `at_start` says whether
    /// the value is empty so far.
    pub(super) fn missing_end_of_json(&self, text: &str, at_start: bool) -> MarkMatch {
        if text.len() > MAX_SPREAD {
            return MarkMatch::No;
        }
        let line = if self.lines { newline_at(text) } else { MarkMatch::No };
        let mut best = match line {
            MarkMatch::Full(at) => match self.parameter(&text[at..]).or(self.follower(&text[at..]))
            {
                MarkMatch::Full(_) => MarkMatch::Full(at),
                other => other,
            },
            other => other,
        };
        if self.lines
            && at_start
            && matches!(self.parameter(text).or(self.follower(text)), MarkMatch::Full(_))
        {
            return MarkMatch::Full(0);
        }
        match self.follower(text) {
            MarkMatch::Full(at) => {
                let rest = without_whitespace(&text[at..]);
                match self.follower(rest) {
                    MarkMatch::Full(_) => best = best.or(MarkMatch::Full(0)),
                    other => best = best.or(other),
                }
            }
            other => best = best.or(other),
        }
        best.or(match self.head(text) {
            ParameterHead::No => MarkMatch::No,
            ParameterHead::Part => MarkMatch::Part,
            ParameterHead::Full { .. } => MarkMatch::Full(0),
        })
    }
}

/// The length of a match; the error is that of a head without it.
fn complete(found: MarkMatch) -> Result<usize, ParameterHead> {
    match found {
        MarkMatch::No => Err(ParameterHead::No),
        MarkMatch::Part => Err(ParameterHead::Part),
        MarkMatch::Full(length) => Ok(length),
    }
}

impl TypeMarks {
    /// The type at a position, and the position after the text that follows it.
    fn word_at(&self, text: &str, start: usize) -> Result<(String, usize), ParameterHead> {
        let (before, rest_of) = self.after.split_first().ok_or(ParameterHead::No)?;
        let rest = &text[start..];
        let Some(length) = rest.find(before.as_str()) else {
            let is_long = rest.len() > MAX_TYPE;
            return Err(if is_long { ParameterHead::No } else { ParameterHead::Part });
        };
        let end = complete(pieces_after(text, start + length + before.len(), rest_of))?;
        Ok((rest[..length].trim().to_owned(), end))
    }

    /// Whether the type in the attribute is a string.
    fn is_string(&self, word: &str) -> Option<bool> {
        let words = &self.words;
        if word == words.string.trim() {
            return Some(true);
        }
        let others = words.others();
        if others.iter().any(|other| other.trim() == word) {
            return Some(false);
        }
        // The usual names, if the format's own words are names of types.
        match word {
            _ if others.len() == 1 => None,
            "string" => Some(true),
            "number" | "integer" | "boolean" | "object" | "array" | "null" => Some(false),
            _ => None,
        }
    }
}

/// Splits a marker at whitespace and between tags. Any whitespace may separate the pieces.
fn pieces(marker: &str) -> Vec<String> {
    let words = marker.split_whitespace().flat_map(|word| word.split_inclusive("><"));
    let mut pieces: Vec<String> = Vec::new();
    let mut carried = "";
    for word in words {
        let (body, next) = match word.strip_suffix('<') {
            Some(body) if body.ends_with('>') => (body, "<"),
            _ => (word, ""),
        };
        pieces.push(format!("{carried}{body}"));
        carried = next;
    }
    pieces
}

pub(super) fn pieces_at(text: &str, pieces: &[String]) -> MarkMatch {
    let mut at = 0;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            at = skip_whitespace(text, at);
        }
        match MarkMatch::of(&text[at..], piece) {
            MarkMatch::Full(length) => at += length,
            other => return other,
        }
    }
    MarkMatch::Full(at)
}

/// Matches pieces after other text, with whitespace before the first piece.
pub(super) fn pieces_after(text: &str, at: usize, pieces: &[String]) -> MarkMatch {
    let at = if pieces.is_empty() { at } else { skip_whitespace(text, at) };
    pieces_at(&text[at..], pieces).shifted(at)
}

/// The text after the whitespace that may separate tags.
pub(super) fn without_whitespace(text: &str) -> &str {
    text.trim_start_matches(is_whitespace)
}

fn skip_whitespace(text: &str, at: usize) -> usize {
    text.len() - without_whitespace(&text[at..]).len()
}

/// Matches whitespace of the format. A line may also end in CRLF.
pub(super) fn whitespace_at(text: &str, whitespace: &str) -> MarkMatch {
    if whitespace == "\n" { newline_at(text) } else { MarkMatch::of(text, whitespace) }
}

fn newline_at(text: &str) -> MarkMatch {
    MarkMatch::of(text, "\n").or(MarkMatch::of(text, "\r\n"))
}

/// A key without whitespace, quotes, and, in a quoted attribute, the attributes after it.
fn clean_key(text: &str, is_quoted: bool) -> Option<String> {
    let text = text.trim();
    let text = match text.split_once('"') {
        Some((key, _)) if is_quoted => key,
        _ => text,
    };
    let bare = ['"', '\'']
        .iter()
        .find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(text);
    let is_key = !bare.is_empty() && bare.len() <= MAX_KEY && !bare.contains(['\n', '<']);
    is_key.then(|| bare.to_owned())
}
