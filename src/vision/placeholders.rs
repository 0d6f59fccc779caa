//! Where a prompt has its placeholders.

use std::ops::Range;

/// What a placeholder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaKind {
    Image,
    Video,
}

/// Every placeholder, in order. Where both texts begin at one place the longer one is meant.
pub(super) fn find(
    prompt: &str,
    image: Option<&str>,
    video: Option<&str>,
) -> Vec<(MediaKind, Range<usize>)> {
    let mut tokens = [(MediaKind::Image, image), (MediaKind::Video, video)].map(|(kind, token)| {
        let token = token.filter(|token| !token.is_empty());
        token.and_then(|token| Some((kind, token, prompt.find(token)?)))
    });
    let mut found = Vec::new();
    loop {
        let next = tokens
            .iter()
            .flatten()
            .min_by_key(|(_, token, at)| (*at, std::cmp::Reverse(token.len())));
        let Some(&(kind, token, at)) = next else { return found };
        let end = at + token.len();
        found.push((kind, at..end));
        for slot in &mut tokens {
            // Only those that the placeholder stands over are looked for again: one pass over the
            // prompt for each.
            *slot = slot.and_then(|(kind, token, at)| {
                let at = if at < end { end + prompt[end..].find(token)? } else { at };
                Some((kind, token, at))
            });
        }
    }
}

/// The same place with the texts that stand directly round it, where both do and `free` has room
/// for them.
pub(super) fn widened(
    prompt: &str,
    at: &Range<usize>,
    around: (&str, &str),
    free: &Range<usize>,
) -> Range<usize> {
    let (before, behind) = around;
    let fits = prompt[free.start..at.start].ends_with(before)
        && prompt[at.end..free.end].starts_with(behind);
    if fits { at.start - before.len()..at.end + behind.len() } else { at.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_in_order() {
        let found =
            |prompt, image, video| -> Vec<(MediaKind, Range<usize>)> { find(prompt, image, video) };
        assert_eq!(
            found("a<i>b<v><i>", Some("<i>"), Some("<v>")),
            [(MediaKind::Image, 1..4), (MediaKind::Video, 5..8), (MediaKind::Image, 8..11)]
        );
        // One begins with the other.
        assert_eq!(
            found("<i><iv>", Some("<i"), Some("<iv>")),
            [(MediaKind::Image, 0..2), (MediaKind::Video, 3..7)]
        );
        // One stands inside the other.
        assert_eq!(
            found("[<i>]<i>", Some("<i>"), Some("[<i>]")),
            [(MediaKind::Video, 0..5), (MediaKind::Image, 5..8)]
        );
        assert_eq!(found("aaa", Some("aa"), None), [(MediaKind::Image, 0..2)]);
        assert_eq!(found("x", Some(""), None), []);
    }
}
