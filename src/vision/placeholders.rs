//! Finds the placeholders in a prompt.

use std::ops::Range;

/// The medium of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaKind {
    Image,
    Video,
}

/// Finds every placeholder, in order. If two start at the same byte, the longer one counts.
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
            // Only a token that the placeholder overlaps is searched for again, so each token costs
            // one pass over the prompt.
            *slot = slot.and_then(|(kind, token, at)| {
                let at = if at < end { end + prompt[end..].find(token)? } else { at };
                Some((kind, token, at))
            });
        }
    }
}

/// Extends a placeholder by the texts directly before and after it, if both are present and inside
/// `free`.
pub(super) fn with_wrapper(
    prompt: &str,
    at: &Range<usize>,
    wrapper: (&str, &str),
    free: &Range<usize>,
) -> Range<usize> {
    let (before, after) = wrapper;
    let fits = prompt[free.start..at.start].ends_with(before)
        && prompt[at.end..free.end].starts_with(after);
    if fits { at.start - before.len()..at.end + after.len() } else { at.clone() }
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
        // One is a prefix of the other.
        assert_eq!(
            found("<i><iv>", Some("<i"), Some("<iv>")),
            [(MediaKind::Image, 0..2), (MediaKind::Video, 3..7)]
        );
        // One contains the other.
        assert_eq!(
            found("[<i>]<i>", Some("<i>"), Some("[<i>]")),
            [(MediaKind::Video, 0..5), (MediaKind::Image, 5..8)]
        );
        assert_eq!(found("aaa", Some("aa"), None), [(MediaKind::Image, 0..2)]);
        assert_eq!(found("x", Some(""), None), []);
    }
}
