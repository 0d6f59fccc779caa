//! Splits a render at its needles into the template's own texts.

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
