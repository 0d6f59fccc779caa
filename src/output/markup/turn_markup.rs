//! The texts that a template writes around every answer: the header that opens the turn, and the
//! end of the turn.

use crate::output::format::{Format, tags};

/// The fewest bytes of a header or an end. Shorter texts are common in text.
const MIN: usize = 3;
/// The most bytes of a header or an end. Longer texts are not recognised.
const MAX: usize = 1024;
/// The role in the header of a user's turn, and the roles that models write instead of it.
const USER: &str = "user";
const OTHER_ROLES: [&str; 6] =
    ["system", "developer", "tool", "function", "ipython", "observation"];

/// The texts around an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnMarkup {
    /// Texts that open the assistant's turn, without surrounding whitespace.
    pub(super) headers: Vec<String>,
    /// The header's text without its tags, such as `assistant`. It is recognised only after a
    /// control token.
    pub(super) role: Option<String>,
    /// Texts that end the turn.
    pub(super) ends: Vec<String>,
    /// Texts that open a turn of another role. They are recognised only after an end.
    pub(super) next_headers: Vec<String>,
    /// Whether headers are markup only at the start of a reply. In formats of several messages they
    /// also begin the next message.
    pub(super) only_first: bool,
}

impl TurnMarkup {
    /// `openers` are the texts that open an assistant's turn, `after` is the text after the content
    /// of an answer, and `next` the text between that content and the next message of the user.
    pub(crate) fn new(
        openers: &[&str],
        after: &str,
        next: Option<&str>,
        format: Option<&Format>,
    ) -> TurnMarkup {
        let mut markup = TurnMarkup {
            only_first: format.is_some_and(|format| format.channels.is_some()),
            ..TurnMarkup::default()
        };
        for opener in openers.iter().map(|opener| opener.trim()) {
            markup.add_header(opener);
        }
        markup.role = openers.first().and_then(|opener| role(opener.trim()));
        let opens_turn = |end: &str| openers.iter().any(|opener| opener.contains(end));
        for (index, end) in ends(after, format).into_iter().enumerate() {
            if index > 0 && opens_turn(end) {
                break;
            }
            markup.add_end(end, format);
        }
        let next = next.and_then(|next| {
            let (_, header) = next.split_once(markup.ends.first()?.as_str())?;
            Some(header.trim()).filter(|header| is_header(header))
        });
        for header in next.into_iter().flat_map(of_every_role) {
            add(&mut markup.next_headers, &header);
        }
        markup
    }

    /// Adds a token that ends a reply, such as the vocabulary's `eos_token`.
    pub(crate) fn add_end(&mut self, end: &str, format: Option<&Format>) {
        let end = end.trim();
        let other_texts = format.into_iter().flat_map(|format| {
            // An end of the format may also open its calls. It is held back and ends the reply only
            // if no call follows.
            let opens_calls = format.channels.is_none() && format.ends.iter().any(|own| own == end);
            let calls = format.calls.clone().filter(|_| !opens_calls);
            let without = Format { ends: Vec::new(), channels: None, calls, ..format.clone() };
            let channels = format.channels.iter().flat_map(|channels| channels.ends.clone());
            let texts: Vec<String> = without.texts().into_iter().map(str::to_owned).collect();
            texts.into_iter().chain(channels.map(|end| end.into_owned()))
        });
        let is_markup = end.len() >= MIN
            && end.contains(char::is_alphanumeric)
            && !end.starts_with(char::is_alphanumeric);
        if is_markup && !other_texts.into_iter().any(|text| text.contains(end)) {
            add(&mut self.ends, end);
        }
    }

    /// Adds the header, and the rest of it after each of its tags.
    fn add_header(&mut self, header: &str) {
        let mut rest = header;
        add_if_header(&mut self.headers, rest);
        for tag in tags(header) {
            rest = rest.split_once(tag).map_or("", |(_, after)| after).trim();
            add_if_header(&mut self.headers, rest);
        }
    }
}

fn add_if_header(list: &mut Vec<String>, text: &str) {
    if text.len() <= MAX && is_header(text) {
        add(list, text);
    }
}

fn add(list: &mut Vec<String>, text: &str) {
    if text.len() <= MAX && !list.iter().any(|known| known == text) {
        list.push(text.to_owned());
    }
}

/// The header of a user's turn, and the same header with other roles if the role is in a tag or
/// next to one.
fn of_every_role(header: &str) -> Vec<String> {
    let mut headers = vec![header.to_owned()];
    if let Some((before, after)) = header.split_once(USER)
        && !before.ends_with(char::is_alphanumeric)
        && !after.starts_with(char::is_alphanumeric)
        && !tags(header).is_empty()
    {
        headers.extend(OTHER_ROLES.iter().map(|role| format!("{before}{role}{after}")));
    }
    headers
}

/// Whether a text cannot be mistaken for the start of an answer, because it contains a tag, begins
/// with punctuation and has more of it, or ends like a label.
fn is_header(text: &str) -> bool {
    let punctuation = |c: char| c.is_ascii_punctuation();
    text.len() >= MIN
        && text.contains(char::is_alphanumeric)
        && (!tags(text).is_empty()
            || text.starts_with(punctuation) && text.matches(punctuation).count() > 1
            || text.ends_with([':', '：']))
}

/// The words of a header without its tags.
fn role(header: &str) -> Option<String> {
    let mut words = header.to_owned();
    for tag in tags(header) {
        words = words.replace(tag, " ");
    }
    let words = words.trim();
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ');
    (!words.is_empty() && words.chars().all(is_word)).then(|| words.to_owned())
}

/// The first marker after the content, except the tag around the content, and the tags that follow
/// it directly.
fn ends<'a>(after: &'a str, format: Option<&Format>) -> Vec<&'a str> {
    let mut rest = after.trim_start();
    for wrapper in format.iter().flat_map(|format| &format.wrappers) {
        if let Some(inner) =
            rest.strip_prefix(&*wrapper.close).filter(|_| !wrapper.close.is_empty())
        {
            rest = inner.trim_start();
        }
    }
    let Some(mut word) = rest.split_whitespace().next() else { return Vec::new() };
    let mut ends = Vec::new();
    for tag in tags(word) {
        let Some(rest) = word.strip_prefix(tag) else { break };
        ends.push(tag);
        word = rest;
    }
    if ends.is_empty() { vec![word] } else { ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markup(opener: &str, after: &str) -> TurnMarkup {
        TurnMarkup::new(&[opener], after, None, None)
    }

    #[test]
    fn each_rest_of_a_header_is_a_header() {
        let short = markup("<|bot|>the <say> assistant:", "<|end|>\n");
        let headers = ["<|bot|>the <say> assistant:", "the <say> assistant:", "assistant:"];
        assert_eq!(short.headers, headers);
        assert_eq!(short.ends, ["<|end|>"]);
        assert_eq!(markup("<|bot|>a", "<|end|>").headers, ["<|bot|>a"]);
        assert_eq!(markup("Bot", "").headers, [""; 0]);
        assert_eq!(markup("<|bot|>a", "<|e|><|f|>\n<|g|>").ends, ["<|e|>", "<|f|>"]);
        assert_eq!(markup("<|bot|>a", "<|e|><|bot|>a").ends, ["<|e|>"]);
        assert_eq!(markup("答：", "").headers, ["答："]);
        assert_eq!(markup("]~b]ai", "").headers, ["]~b]ai"]);
    }

    #[test]
    fn long_headers_and_ends_are_left_out() {
        let long = format!("<|{}|>", "a".repeat(MAX));
        let markup_of_long = markup(&format!("{long}<|bot|>"), &long);
        assert_eq!(markup_of_long.headers, ["<|bot|>"]);
        assert_eq!(markup_of_long.ends, [""; 0]);
        // The rests of all these tags would have 100 GB.
        let tags = markup(&"<|a|>".repeat(200_000), "");
        assert_eq!(tags.headers.len(), MAX / "<|a|>".len());
    }
}
