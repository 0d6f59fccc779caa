//! Two string arguments in a render -> how arguments are encoded.

use serde_json::{Value, json};

use super::markers::{common_prefix, common_suffix, snap_left, snap_right, trim_start};
use super::probe::{KEYS, Prober};
use crate::output::call_writer::{ValueStyle, WrittenCall, arguments as write};
use crate::output::format::{Encoding, KindForm, Tagged, ValueKind};

/// How arguments are encoded, and which spelling showed. The outer texts of [`Tagged`] are not
/// known yet: its `separator` is all the text between two parameters, `open` and `close` are empty.
pub(super) fn locate(text: &str, call: &WrittenCall) -> Result<(Encoding, ValueStyle), String> {
    let [first, second] = parameters(call);
    let mut candidates = vec![Encoding::JsonText, Encoding::Json, Encoding::Python];
    if let (Some(after_key), Some(between)) =
        (between(text, first.0, first.1), between(text, first.1, second.0))
    {
        if let Some(quote) = after_key.strip_prefix(':').filter(|quote| !quote.is_empty()) {
            candidates.push(Encoding::Pairs { quote: quote.to_owned().into() });
        }
        if let (Some(prefix), true) =
            (between.split_once("</").map(|(prefix, _)| prefix), after_key == ">")
        {
            candidates
                .push(Encoding::Elements { prefix: prefix.to_owned().into(), item: "item".into() });
        }
        candidates.push(Encoding::Tagged(Tagged {
            open: "".into(),
            after_key: after_key.to_owned().into(),
            kind: None,
            close: "".into(),
            separator: between.to_owned().into(),
        }));
    }
    for encoding in candidates {
        for style in ValueStyle::all() {
            if text.contains(&region(&encoding, call, style)) {
                return match &encoding {
                    Encoding::Tagged(tags) if !tags.separator.contains(['<', '[']) => {
                        Err("nothing but text stands between two arguments".to_owned())
                    }
                    _ => Ok((encoding, style)),
                };
            }
        }
    }
    Err("the arguments are not written in a way we know".to_owned())
}

/// The arguments of a call as they stand in a render.
pub(super) fn region(encoding: &Encoding, call: &WrittenCall, style: ValueStyle) -> String {
    let mut out = String::new();
    write(encoding, &call.arguments, style, &mut out);
    out
}

fn parameters(call: &WrittenCall) -> [(&'static str, &str); 2] {
    [KEYS[0], KEYS[1]].map(|key| (key, call.arguments[key].as_str().unwrap_or_default()))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let begin = text.find(from)? + from.len();
    let length = text[begin..].find(to)?;
    Some(&text[begin..begin + length])
}

/// The texts around the arguments of a call, up to the next needle on both sides.
pub(super) struct Around<'a> {
    /// Before the first key.
    pub(super) before: &'a str,
    /// Behind the last value; may go on into the next call.
    pub(super) after: &'a str,
    /// Of `after`, how much belongs to the call.
    pub(super) limit: usize,
    /// The same place of a call without arguments: both texts in one.
    pub(super) empty: Option<&'a str>,
}

/// Tells the texts of a parameter from those of the call. Returns the encoding, how much of
/// `before` is the call's, and how much of `after` is the last parameter's.
pub(super) fn settle(tags: &Tagged, around: &Around<'_>) -> Option<(Tagged, usize, usize)> {
    let between = &*tags.separator;
    let fits = |begin: usize, end: usize| {
        let (open, close) = (around.before.get(begin..)?, around.after.get(..end)?);
        // A tag that is begun is not cut.
        let whole =
            |text: &str| text.rfind(['<', '>']).is_none_or(|at| text[at..].starts_with('>'));
        if !whole(&around.before[..begin]) || !whole(close) {
            return None;
        }
        let separator = between.strip_prefix(close)?.strip_suffix(open)?;
        Some(Tagged {
            open: open.to_owned().into(),
            close: close.to_owned().into(),
            separator: separator.to_owned().into(),
            ..tags.clone()
        })
    };
    if let Some(empty) = around.empty {
        for begin in (0..=common_prefix(around.before, empty))
            .rev()
            .filter(|&at| around.before.is_char_boundary(at))
        {
            let rest = &empty[begin..];
            let Some(end) =
                around.after.len().checked_sub(rest.len()).filter(|&end| end <= around.limit)
            else {
                continue;
            };
            if around.after.ends_with(rest)
                && let Some(tags) = fits(begin, end)
                && !tags.close.is_empty()
            {
                return Some((tags, begin, end));
            }
        }
    }
    let alike = around.before.len() - common_suffix(around.before, between);
    let begin = snap_right(around.before, alike);
    let begin = around.before.len() - trim_start(&around.before[begin..]).len();
    let end = between.len().checked_sub(around.before.len() - begin)?;
    let end =
        end.min(snap_left(around.after, common_prefix(around.after, between))).min(around.limit);
    fits(begin, end).map(|tags| (tags, begin, end))
}

/// What else an element says about its value: what stands behind the key of a string, and behind
/// that of a number.
pub(super) fn kind(prober: &Prober<'_>, tags: &mut Tagged) -> Result<(), String> {
    let calls = prober.list(0, [json!({ KEYS[2]: 41237 })]);
    let Ok(text) = prober.calls(&calls, "") else { return Ok(()) };
    let Some(of_number) =
        between(&text[text.find(&tags.open[..]).unwrap_or(0)..], KEYS[2], "41237")
    else {
        return Ok(());
    };
    let of_string = tags.after_key.clone();
    if of_number == of_string {
        return Ok(());
    }
    for (form, [string, number]) in
        [(KindForm::IsString, ["true", "false"]), (KindForm::TypeName, ["string", "number"])]
    {
        if let Some((before, after)) = of_string.split_once(string)
            && of_number == format!("{before}{number}{after}")
        {
            tags.after_key = before.to_owned().into();
            tags.kind = Some(ValueKind { form, after: after.to_owned().into() });
            return Ok(());
        }
    }
    Err(format!("{of_string:?} before strings, {of_number:?} before numbers"))
}

/// What an element of an array is called: the tag before the first of two.
pub(super) fn item(prober: &Prober<'_>, prefix: &str) -> Option<String> {
    let value: Value = json!(["tessilq", "umbrofz"]);
    let text = prober.calls(&prober.list(0, [json!({ KEYS[3]: value })]), "").ok()?;
    let before = &text[..text.find("tessilq")?];
    let open = &before[before.rfind(prefix)? + prefix.len()..];
    Some(open.trim_start_matches('<').trim_end_matches('>').to_owned())
}
