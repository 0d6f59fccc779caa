//! A render with its needles taken out: the template's own text between them.

/// What a needle was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Name,
    Id,
    Arguments,
}

/// Texts and what stood between them: one text more than marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Masked {
    pub(super) texts: Vec<String>,
    /// What stood there, and of which call.
    pub(super) marks: Vec<(Mark, usize)>,
}

/// A needle: its text, what it is, and of which call.
pub(super) type Needle = (String, Mark, usize);

/// Takes needles out, from a position on.
pub(super) fn mask(text: &str, from: usize, needles: &[Needle]) -> Masked {
    let mut masked = Masked { texts: Vec::new(), marks: Vec::new() };
    // The position is another render's.
    let from =
        (0..=from.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let (mut begin, mut at) = (0, from);
    loop {
        let next = needles.iter().filter(|(needle, ..)| !needle.is_empty());
        let next =
            next.filter_map(|needle| text[at..].find(&needle.0).map(|found| (at + found, needle)));
        // Of two that begin at one place, the longer one.
        let Some((found, needle)) =
            next.min_by_key(|(found, needle)| (*found, usize::MAX - needle.0.len()))
        else {
            break;
        };
        masked.texts.push(text[begin..found].to_owned());
        masked.marks.push((needle.1, needle.2));
        at = found + needle.0.len();
        begin = at;
    }
    masked.texts.push(text[begin..].to_owned());
    masked
}

impl Masked {
    pub(super) fn has(&self, mark: Mark) -> bool {
        self.marks.iter().any(|(one, _)| *one == mark)
    }

    /// Whether the marks are those of one call, so many times over, in the order of the calls.
    pub(super) fn repeats(&self, one: &Masked, times: usize) -> bool {
        let expected =
            (0..times).flat_map(|call| one.marks.iter().map(move |(mark, _)| (*mark, call)));
        self.marks.iter().copied().eq(expected)
    }
}
