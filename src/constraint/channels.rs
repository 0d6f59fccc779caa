//! Writes the grammar of a reply with channels: messages with headers.

use super::lark::{Lark, Symbol, merged, sequence};
use crate::output::format::Channels;

/// The start rule. The prompt ends inside the first header, or, if `message_open`, inside a
/// message.
pub(super) fn start(
    lark: &mut Lark,
    channels: &Channels,
    calls: Vec<Vec<Symbol>>,
    answer: Option<Symbol>,
    forced: bool,
    message_open: bool,
) -> String {
    let turn = lark.symbols(&channels.turn);
    let free_reply = !forced && answer.is_none();
    // A call may begin with the opening of a turn, but the prompt already contains it.
    let inside = |call: Vec<Symbol>| {
        let rest = call.strip_prefix(turn.as_slice()).map(<[Symbol]>::to_vec);
        rest.unwrap_or(call)
    };
    let mut ways: Vec<Vec<Symbol>> = calls.into_iter().map(inside).collect();
    let others: Vec<_> =
        ways.iter().filter_map(|call| recipient_first(lark, channels, call)).collect();
    ways.extend(others);
    let again = lark.reserve();
    let next = Symbol::Rule(again.clone());
    for name in &channels.reasoning {
        let body = message(lark, channels, &turn, &next, free_reply);
        ways.extend(
            headers(lark, channels, name)
                .into_iter()
                .map(|header| [header, vec![body.clone()]].concat()),
        );
    }
    for (index, name) in channels.content.iter().enumerate() {
        let body = match &answer {
            Some(answer) if index == 0 => {
                let end = optional_end(lark, channels);
                lark.rule(&sequence(&[answer.clone(), end]))
            }
            // If the answer must match a schema or a call is required, other text is only a
            // preamble.
            Some(_) => continue,
            None if forced && (index == 0 || ways.is_empty()) => continue,
            None => message(lark, channels, &turn, &next, free_reply),
        };
        ways.extend(
            headers(lark, channels, name)
                .into_iter()
                .map(|header| [header, vec![body.clone()]].concat()),
        );
    }
    let body = lark.choice(ways);
    lark.define(&again, &body);
    if !message_open {
        return again;
    }
    let rest = message(lark, channels, &turn, &next, free_reply);
    sequence(&[rest])
}

/// The form of a call in which the recipient precedes the channel: `
/// to=functions.f<|channel|>commentary`. gpt-oss writes both forms.
fn recipient_first(lark: &Lark, channels: &Channels, call: &[Symbol]) -> Option<Vec<Symbol>> {
    let header = lark.symbols(&channels.header);
    let call =
        merged(call.strip_prefix(header.as_slice()).filter(|_| !header.is_empty())?.to_vec());
    let (Symbol::Text(text), rest) = call.split_first()? else { return None };
    let at = text
        .find(&format!(" {}", channels.recipient))
        .filter(|_| !channels.recipient.is_empty())?;
    let end = text[at + 1..].find(char::is_whitespace).map_or(text.len(), |length| at + 1 + length);
    let channel = format!("{}{}", &text[..at], &text[end..]);
    Some(
        [
            vec![Symbol::Text(text[at..end].to_owned())],
            header,
            vec![Symbol::Text(channel)],
            rest.to_vec(),
        ]
        .concat(),
    )
}

/// The alternatives for a header, from the channel marker to the end. A header with only a
/// recipient may begin with a space.
fn headers(lark: &Lark, channels: &Channels, name: &str) -> Vec<Vec<Symbol>> {
    let Channels { header, recipient, body, .. } = channels;
    if !header.is_empty() {
        return vec![lark.symbols(&format!("{header}{name}{body}"))];
    }
    let bare = format!("{recipient}{name}{body}");
    let spaced = (!recipient.is_empty() && !recipient.starts_with(' ')).then(|| format!(" {bare}"));
    [Some(bare), spaced].into_iter().flatten().map(|text| lark.symbols(&text)).collect()
}

/// Free text, then another message or the end of the reply.
fn message(
    lark: &mut Lark,
    channels: &Channels,
    turn: &[Symbol],
    next: &Symbol,
    may_end: bool,
) -> Symbol {
    let mut ways = Vec::new();
    let ends = closings(lark, channels);
    if ends.is_empty() {
        ways.push(lark.text_until(turn, next.clone()));
    }
    for end in ends {
        let rest = lark.rule(&sequence(&[turn.to_vec(), vec![next.clone()]].concat()));
        let rest = if may_end { lark.choice_rule(vec![vec![rest], Vec::new()]) } else { rest };
        ways.push(lark.text_until(&end, rest));
    }
    if may_end {
        ways.push(vec![lark.free_text()]);
    }
    lark.choice_rule(ways)
}

/// The end of a message, which may be absent.
pub(super) fn optional_end(lark: &mut Lark, channels: &Channels) -> Symbol {
    let ends = closings(lark, channels);
    lark.choice_rule([ends, vec![Vec::new()]].concat())
}

fn closings(lark: &Lark, channels: &Channels) -> Vec<Vec<Symbol>> {
    channels.ends.iter().map(|end| lark.symbols(end)).filter(|end| !end.is_empty()).collect()
}
