//! Splits a render at its needles into the template's own texts, and finds the form of call ids.

use super::history_prober::HistoryProber;
use crate::output::format::IdForm;
use crate::probing::diff::common_suffix;

/// What a needle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeedleKind {
    Name,
    Id,
    Arguments,
}

/// The texts of a render and the needles between them. There is one more text than needles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Masked {
    pub(super) texts: Vec<String>,
    /// The kind of each needle, and the index of its call.
    pub(super) kinds: Vec<(NeedleKind, usize)>,
}

/// The text, the kind and the index of the call of a needle.
pub(super) type Needle = (String, NeedleKind, usize);

/// Splits a text at the needles after a position.
pub(super) fn mask(text: &str, from: usize, needles: &[Needle]) -> Masked {
    let mut masked = Masked { texts: Vec::new(), kinds: Vec::new() };
    // The position comes from another render.
    let from =
        (0..=from.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let (mut begin, mut at) = (0, from);
    loop {
        let next = needles.iter().filter(|(needle, ..)| !needle.is_empty());
        let next =
            next.filter_map(|needle| text[at..].find(&needle.0).map(|found| (at + found, needle)));
        // If two needles match at one position, the longer one counts.
        let Some((found, needle)) =
            next.min_by_key(|(found, needle)| (*found, usize::MAX - needle.0.len()))
        else {
            break;
        };
        masked.texts.push(text[begin..found].to_owned());
        masked.kinds.push((needle.1, needle.2));
        at = found + needle.0.len();
        begin = at;
    }
    masked.texts.push(text[begin..].to_owned());
    masked
}

impl Masked {
    pub(super) fn has(&self, kind: NeedleKind) -> bool {
        self.kinds.iter().any(|(one, _)| *one == kind)
    }

    /// Whether the needles are those of the single call `one`, repeated for each call in order.
    pub(super) fn repeats(&self, one: &Masked, times: usize) -> bool {
        let expected =
            (0..times).flat_map(|call| one.kinds.iter().map(move |(kind, _)| (*kind, call)));
        self.kinds.iter().copied().eq(expected)
    }
}

/// The form of ids, if the template writes ids.
pub(super) fn find_id_form(prober: &HistoryProber<'_>, one: &Masked) -> Option<IdForm> {
    if !one.has(NeedleKind::Id) {
        return None;
    }
    if !one.has(NeedleKind::Name) {
        return Some(IdForm::Named { prefix: "functions.".into(), infix: ":".into() });
    }
    let mut list = prober.strings(1);
    list[0].id = "call_0Zq81-abXc77".to_owned();
    let free = prober.calls(&list, "").is_ok_and(|text| text.contains(&list[0].id));
    Some(if free { IdForm::Free } else { IdForm::Alphanumeric(9) })
}

/// If a number counts the calls, turns it into an id needle in all three renders. Returns the first
/// number.
pub(super) fn take_call_index(
    one: &mut Masked,
    two: &mut Masked,
    three: &mut Masked,
) -> Option<usize> {
    let kinds = one.kinds.len();
    for place in 0..kinds {
        let (a, b, c) =
            (&one.texts[place], &three.texts[kinds + place], &three.texts[2 * kinds + place]);
        let suffix = b[b.len() - common_suffix(b, c)..].to_owned();
        let number = |text: &str| {
            let text = text.strip_suffix(&*suffix)?;
            let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            text[text.len() - digits..].parse::<usize>().ok()
        };
        let (Some(first), Some(second), Some(third)) = (number(a), number(b), number(c)) else {
            continue;
        };
        if second != first + 1 || third != first + 2 {
            continue;
        }
        let take = |masked: &mut Masked, calls: usize| {
            for call in (0..calls).rev() {
                let at = call * kinds + place;
                let text = masked.texts[at].clone();
                let before = text
                    .strip_suffix(&*suffix)
                    .unwrap_or(&text)
                    .trim_end_matches(|c: char| c.is_ascii_digit());
                masked.texts[at] = before.to_owned();
                masked.texts.insert(at + 1, suffix.clone());
                masked.kinds.insert(at, (NeedleKind::Id, call));
            }
        };
        take(two, 2);
        take(three, 3);
        take(one, 1);
        return Some(first);
    }
    None
}

/// Turns the call number into an id needle in a call without arguments, at its position in a call
/// with arguments.
pub(super) fn take_index_of_empty_call(empty: &mut Masked, one: &Masked, number: usize) {
    let Some(place) = one.kinds.iter().position(|(kind, _)| *kind == NeedleKind::Id) else {
        return;
    };
    let expected = format!("{}{number}", one.texts[place]);
    if let Some(rest) =
        empty.texts.get(place).and_then(|text| text.strip_prefix(&expected)).map(str::to_owned)
    {
        empty.texts[place] = one.texts[place].clone();
        empty.texts.insert(place + 1, rest);
        empty.kinds.insert(place, (NeedleKind::Id, 0));
    }
}
