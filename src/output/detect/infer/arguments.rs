//! Finds the encoding of arguments from a render of two string arguments.

use serde_json::{Value, json};

use super::history_prober::{HistoryProber, KEYS};
use super::markers::{snap_left, snap_right, trim_start};
use crate::output::call_writer::{ValueStyle, WrittenCall, arguments as write};
use crate::output::format::{
    ENTITY_SETS, Encoding, Entities, Keywords, Tagged, TypeWords, ValueKind,
};
use crate::probing::diff::{common_prefix, common_suffix, text_between};

/// The encodings that the arguments may have, each with the style of values, the likeliest first.
/// The outer texts of [`Tagged`] are not known yet. Its `separator` is all the text between two
/// parameters; `open` and `close` are empty.
pub(super) fn find_encodings(
    text: &str,
    call: &WrittenCall,
) -> Result<Vec<(Encoding, ValueStyle)>, String> {
    let [first, second] = parameters(call);
    let mut candidates = vec![Encoding::JsonText, Encoding::Json];
    if let (Some(after_key), Some(between)) =
        (text_between(text, first.0, first.1), text_between(text, first.1, second.0))
    {
        if let Some(quote @ ("'" | "\"")) = after_key.strip_prefix('=')
            && let Some(separator) = between.strip_prefix(quote)
            && separator.trim() == ","
        {
            // Words look the same with and without escapes.
            let raw = quote.chars().next();
            candidates.extend([None, raw].map(|raw_quote| {
                Encoding::Python(Keywords { separator: separator.to_owned().into(), raw_quote })
            }));
        }
        if let Some(quote) = after_key.strip_prefix(':').filter(|quote| !quote.is_empty()) {
            candidates.push(Encoding::Pairs { quote: quote.to_owned().into() });
        }
        if let (Some(prefix), true) =
            (between.split_once("</").map(|(prefix, _)| prefix), after_key == ">")
        {
            candidates
                .push(Encoding::Elements { prefix: prefix.to_owned().into(), item: "item".into() });
        }
        // Words look the same with and without entities.
        for entities in std::iter::once::<Entities>(&[]).chain(ENTITY_SETS) {
            candidates.push(Encoding::Tagged(Tagged {
                after_key: after_key.to_owned().into(),
                separator: between.to_owned().into(),
                entities,
                ..Tagged::default()
            }));
        }
    }
    let mut found: Vec<(Encoding, ValueStyle)> = Vec::new();
    for encoding in candidates {
        let same_kind = |(known, _): &(Encoding, ValueStyle)| {
            std::mem::discriminant(known) == std::mem::discriminant(&encoding)
        };
        // A later kind of encoding is a coincidence.
        if !found.is_empty() && !found.iter().any(same_kind) {
            break;
        }
        let mut styles = ValueStyle::all();
        let style = styles.find(|style| text.contains(&written(&encoding, call, *style)));
        found.extend(style.map(|style| (encoding, style)));
    }
    match &found[..] {
        [] => Err("the encoding of the arguments is unknown".to_owned()),
        [(Encoding::Tagged(tags), _), ..] if !tags.separator.contains(['<', '[']) => {
            Err("there is no tag between two arguments".to_owned())
        }
        _ => Ok(found),
    }
}

/// The maximum length of the word for a type.
const MAX_TYPE_WORD: usize = 32;

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

/// Finds the word by which an element states the type of its value: compares the texts around the
/// key of a string with those around the key of other values.
pub(super) fn find_kind(prober: &HistoryProber<'_>, tags: &mut Tagged) -> Result<(), String> {
    let calls = prober.list(0, [json!({ KEYS[2]: 41237 })]);
    let Ok(text) = prober.calls(&calls, "") else { return Ok(()) };
    let Some(of_number) =
        text_between(&text[text.find(&tags.open[..]).unwrap_or(0)..], KEYS[2], "41237")
    else {
        return Ok(());
    };
    if *of_number != *tags.after_key {
        let of_number = of_number.to_owned();
        return find_kind_after_key(prober, tags, &of_number);
    }
    match text.split_once(&format!("{}{of_number}", KEYS[2])) {
        Some((before, _)) if !before.ends_with(&*tags.open) => {
            find_kind_before_key(prober, tags, before)
        }
        _ => Ok(()),
    }
}

/// Finds the word between the key and the value. `of_number` is the text between them if the value
/// is a number.
fn find_kind_after_key(
    prober: &HistoryProber<'_>,
    tags: &mut Tagged,
    of_number: &str,
) -> Result<(), String> {
    let of_string = tags.after_key.clone();
    // The texts differ in a whole word, which may be missing.
    let shared = common_prefix(&of_string, of_number);
    let before = of_string[..shared].trim_end_matches(char::is_alphanumeric);
    let (string, number) = (&of_string[before.len()..], &of_number[before.len()..]);
    let shared = string.len() - common_suffix(string, number);
    let after = string[shared..].trim_start_matches(char::is_alphanumeric);
    let (Some(string), Some(integer)) = (word_before(string, after), word_before(number, after))
    else {
        return Err(format!("{of_string:?} before strings, {of_number:?} before numbers"));
    };
    if after.is_empty() {
        return Err(format!("no text between {integer:?} and a number"));
    }
    // The word before other values is in the text after the key.
    let words = type_words(string, integer, |value| {
        let text = prober.calls(&prober.list(0, [json!({ KEYS[2]: value })]), "").ok()?;
        let opening = format!("{}{}{before}", tags.open, KEYS[2]);
        let rest = &text[text.find(&opening)? + opening.len()..];
        let end = rest.find(after)?;
        word_before(&rest[..end + after.len()], after)
    });
    let item = find_nested_item(prober, &words.string, after).map(Into::into);
    let kind = ValueKind { words, before_key: false, after: after.to_owned().into(), item };
    tags.kind = Some(Box::new(kind));
    tags.after_key = before.to_owned().into();
    Ok(())
}

/// Finds the word in the text before the key. `of_number` is the text before the key of a number.
fn find_kind_before_key(
    prober: &HistoryProber<'_>,
    tags: &mut Tagged,
    of_number: &str,
) -> Result<(), String> {
    let of_string = tags.open.clone();
    let shared = of_string.len() - common_suffix(&of_string, of_number);
    let after = of_string[shared..].trim_start_matches(char::is_alphanumeric);
    let opening = &of_string[..of_string.len() - after.len()];
    let before = opening.trim_end_matches(char::is_alphanumeric);
    let word_of = |text: &str| {
        let (_, rest) = text.rsplit_once(before)?;
        word_before(rest, after)
    };
    let has_name = before.contains(char::is_alphanumeric) && !after.is_empty();
    let (Some(integer), true) = (word_of(of_number), has_name) else {
        return Err(format!("{of_string:?} before the key of a string, but not of a number"));
    };
    let words = type_words(opening[before.len()..].to_owned(), integer, |value| {
        let text = prober.calls(&prober.list(0, [json!({ KEYS[2]: value })]), "").ok()?;
        let (text, _) = text.split_once(&format!("{}{}", KEYS[2], tags.after_key))?;
        word_of(text)
    });
    let item = find_nested_item(prober, &words.string, &tags.after_key).map(Into::into);
    let kind = ValueKind { words, before_key: true, after: after.to_owned().into(), item };
    tags.kind = Some(Box::new(kind));
    tags.open = before.to_owned().into();
    Ok(())
}

/// The word for a type before this text.
fn word_before(text: &str, after: &str) -> Option<String> {
    let word = text.strip_suffix(after)?;
    (word.len() <= MAX_TYPE_WORD && !word.contains('\n')).then(|| word.to_owned())
}

/// The words for all types. `word` is that of another value; a template may write no null.
fn type_words(
    string: String,
    integer: String,
    word: impl Fn(Value) -> Option<String>,
) -> TypeWords {
    let number = word(json!(2.5)).unwrap_or_else(|| integer.clone());
    let or_number = |value| word(value).unwrap_or_else(|| number.clone());
    TypeWords {
        string: string.into(),
        boolean: or_number(json!(true)).into(),
        null: or_number(Value::Null).into(),
        array: or_number(json!([false])).into(),
        object: or_number(json!({ "n": 3 })).into(),
        integer: integer.into(),
        number: number.clone().into(),
    }
}

/// Finds out whether values other than strings have no entities, if strings have them.
pub(super) fn find_raw_json(prober: &HistoryProber<'_>, tags: &mut Tagged) {
    const SPECIAL: &str = "<&>";
    if !tags.entities.is_empty() {
        let calls = prober.list(0, [json!({ KEYS[3]: { "n": SPECIAL } })]);
        tags.raw_json = prober.calls(&calls, "").is_ok_and(|text| text.contains(SPECIAL));
    }
}

/// The text of an item's element up to its type, if the items of an array are elements that name
/// their types.
fn find_nested_item(prober: &HistoryProber<'_>, string: &str, after: &str) -> Option<String> {
    let [first, second] = ["tessilq", "umbrofz"];
    let calls = prober.list(0, [json!({ KEYS[3]: [first, second] })]);
    let text = prober.calls(&calls, "").ok()?;
    let open = text_between(&text, first, second)?;
    let open = &open[open.rfind('<')?..];
    let before = open.strip_suffix(after)?.strip_suffix(string)?;
    (!before.is_empty() && text.contains(&format!("{open}{first}"))).then(|| before.to_owned())
}

/// The name of an array item's element: the tag before the first of two items. Empty if it is the
/// element of the array itself, which is then repeated.
pub(super) fn find_item(prober: &HistoryProber<'_>, prefix: &str) -> Option<String> {
    let value: Value = json!(["tessilq", "umbrofz"]);
    let text = prober.calls(&prober.list(0, [json!({ KEYS[3]: value })]), "").ok()?;
    let (_, open) = text[..text.find("tessilq")?].rsplit_once(&format!("{prefix}<"))?;
    let name = open.strip_suffix('>')?;
    Some(if name == KEYS[3] { String::new() } else { name.to_owned() })
}
