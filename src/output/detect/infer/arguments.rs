//! Finds the encoding of arguments from a render of two string arguments.

use serde_json::{Value, json};

use super::history_prober::{HistoryProber, KEYS};
use super::markers::{snap_left, snap_right, trim_start};
use crate::output::call_writer::{ValueStyle, WrittenCall, arguments as write};
use crate::output::format::{Encoding, KindForm, Tagged, ValueKind};
use crate::probing::diff::{common_prefix, common_suffix, text_between};

/// The encoding of the arguments, and the style of values. The outer texts of [`Tagged`] are not
/// known yet. Its `separator` is all the text between two parameters; `open` and `close` are empty.
pub(super) fn find_encoding(
    text: &str,
    call: &WrittenCall,
) -> Result<(Encoding, ValueStyle), String> {
    let [first, second] = parameters(call);
    let mut candidates = vec![Encoding::JsonText, Encoding::Json, Encoding::Python];
    if let (Some(after_key), Some(between)) =
        (text_between(text, first.0, first.1), text_between(text, first.1, second.0))
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
            if text.contains(&written(&encoding, call, style)) {
                return match &encoding {
                    Encoding::Tagged(tags) if !tags.separator.contains(['<', '[']) => {
                        Err("there is no tag between two arguments".to_owned())
                    }
                    _ => Ok((encoding, style)),
                };
            }
        }
    }
    Err("the encoding of the arguments is unknown".to_owned())
}

/// The arguments of a call as a template writes them.
pub(super) fn written(encoding: &Encoding, call: &WrittenCall, style: ValueStyle) -> String {
    write(encoding, &call.arguments, style)
}

fn parameters(call: &WrittenCall) -> [(&'static str, &str); 2] {
    [KEYS[0], KEYS[1]].map(|key| (key, call.arguments[key].as_str().unwrap_or_default()))
}

/// The texts around the arguments of a call, up to the next needle on both sides.
pub(super) struct ArgumentContext<'a> {
    /// Before the first key.
    pub(super) before: &'a str,
    /// After the last value; may extend into the next call.
    pub(super) after: &'a str,
    /// How much of `after` belongs to the call.
    pub(super) limit: usize,
    /// The text at the same position of a call without arguments, where `before` and `after` are
    /// adjacent.
    pub(super) empty: Option<&'a str>,
}

/// Separates the texts of a parameter from those of the call. Returns the encoding, the length of
/// the part of `before` that belongs to the call, and the length of the part of `after` that
/// belongs to the last parameter.
pub(super) fn separate(
    tags: &Tagged,
    context: &ArgumentContext<'_>,
) -> Option<(Tagged, usize, usize)> {
    let between = &*tags.separator;
    let fits = |begin: usize, end: usize| {
        let (open, close) = (context.before.get(begin..)?, context.after.get(..end)?);
        // Does not cut inside a tag.
        let whole =
            |text: &str| text.rfind(['<', '>']).is_none_or(|at| text[at..].starts_with('>'));
        if !whole(&context.before[..begin]) || !whole(close) {
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
    if let Some(empty) = context.empty {
        for begin in (0..=common_prefix(context.before, empty))
            .rev()
            .filter(|&at| context.before.is_char_boundary(at))
        {
            let rest = &empty[begin..];
            let Some(end) =
                context.after.len().checked_sub(rest.len()).filter(|&end| end <= context.limit)
            else {
                continue;
            };
            if context.after.ends_with(rest)
                && let Some(tags) = fits(begin, end)
                && !tags.close.is_empty()
            {
                return Some((tags, begin, end));
            }
        }
    }
    let shared = context.before.len() - common_suffix(context.before, between);
    let begin = snap_right(context.before, shared);
    let begin = context.before.len() - trim_start(&context.before[begin..]).len();
    let end = between.len().checked_sub(context.before.len() - begin)?;
    let end =
        end.min(snap_left(context.after, common_prefix(context.after, between))).min(context.limit);
    fits(begin, end).map(|tags| (tags, begin, end))
}

/// Finds the type that an element states for its value. Compares the text after the key of a string
/// with the text after the key of a number.
pub(super) fn find_kind(prober: &HistoryProber<'_>, tags: &mut Tagged) -> Result<(), String> {
    let calls = prober.list(0, [json!({ KEYS[2]: 41237 })]);
    let Ok(text) = prober.calls(&calls, "") else { return Ok(()) };
    let Some(of_number) =
        text_between(&text[text.find(&tags.open[..]).unwrap_or(0)..], KEYS[2], "41237")
    else {
        return Ok(());
    };
    let of_string = tags.after_key.clone();
    if of_number == of_string {
        return Ok(());
    }
    for (form, [string, number]) in [
        (KindForm::IsString, ["true", "false"]),
        (KindForm::TypeName, ["string", "number"]),
        (KindForm::SchemaTypeName, ["string", "integer"]),
    ] {
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

/// The name of an array item's element: the tag before the first of two items.
pub(super) fn find_item(prober: &HistoryProber<'_>, prefix: &str) -> Option<String> {
    let value: Value = json!(["tessilq", "umbrofz"]);
    let text = prober.calls(&prober.list(0, [json!({ KEYS[3]: value })]), "").ok()?;
    let before = &text[..text.find("tessilq")?];
    let open = &before[before.rfind(prefix)? + prefix.len()..];
    Some(open.trim_start_matches('<').trim_end_matches('>').to_owned())
}
