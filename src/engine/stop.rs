//! Ends a text at the first stop string, and never passes on a part of a stop string.

/// Finds stop strings in text that arrives in pieces. The work is linear in the length of the text,
/// however long the stop strings are.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    stops: Vec<StopString>,
    /// The text that may be the start of a stop string.
    held: String,
}

/// A stop string, and how much of it the text ends with (Knuth, Morris and Pratt 1977).
#[derive(Debug)]
struct StopString {
    bytes: Vec<u8>,
    /// For each length of a prefix, less one: the length of its longest proper suffix that is a
    /// prefix too.
    borders: Vec<usize>,
    /// The length of the longest prefix that the text ends with.
    matched: usize,
}

impl StopMatcher {
    /// No stop string may be empty. The request reader checks this.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().map(StopString::new).collect();
        StopMatcher { stops, held: String::new() }
    }

    /// Adds a piece. Returns the text that can be sent, and the index of the stop string that was
    /// found. After a match, `push` must not be called again.
    pub(crate) fn push(&mut self, piece: &str) -> (String, Option<usize>) {
        if self.stops.is_empty() {
            return (piece.to_owned(), None);
        }
        let before = self.held.len();
        self.held.push_str(piece);
        // The stop string that is complete first wins, so the result does not depend on how the
        // text is cut into pieces. Of those that are complete at the same byte, the longest wins.
        for (at, byte) in piece.bytes().enumerate() {
            let stops = self.stops.iter_mut().enumerate();
            let complete = stops.filter_map(|(index, stop)| Some((stop.push(byte)?, index))).max();
            if let Some((length, index)) = complete {
                self.held.truncate(before + at + 1 - length);
                return (self.finish(), Some(index));
            }
        }
        let keep = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let sent = self.held.len() - keep;
        let shown = self.held[..sent].to_owned();
        self.held.drain(..sent);
        (shown, None)
    }

    /// Whether there are no stop strings.
    pub(crate) fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// The index of a stop string.
    #[cfg(feature = "remote")]
    pub(crate) fn index_of(&self, text: &str) -> Option<usize> {
        self.stops.iter().position(|stop| stop.bytes == text.as_bytes())
    }

    /// The number of bytes that are held back.
    pub(crate) fn held_length(&self) -> usize {
        self.held.len()
    }

    /// Returns the text that was held back. Text after it begins anew.
    pub(crate) fn finish(&mut self) -> String {
        self.stops.iter_mut().for_each(|stop| stop.matched = 0);
        std::mem::take(&mut self.held)
    }
}

impl StopString {
    fn new(text: String) -> StopString {
        let bytes = text.into_bytes();
        let mut borders = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            length = next_match(&bytes, &borders, length, bytes[at]);
            borders[at] = length;
        }
        StopString { bytes, borders, matched: 0 }
    }

    /// Reads a byte. Returns the length of the stop string if it is complete now.
    fn push(&mut self, byte: u8) -> Option<usize> {
        self.matched = next_match(&self.bytes, &self.borders, self.matched, byte);
        (self.matched == self.bytes.len()).then_some(self.matched)
    }
}

/// The length of the longest prefix that a text ends with, after `byte`. Before it, that was the
/// prefix of `matched` bytes.
fn next_match(bytes: &[u8], borders: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && bytes.get(matched) != Some(&byte) {
        matched = borders[matched - 1];
    }
    if bytes.get(matched) == Some(&byte) { matched + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::random::Random;

    #[track_caller]
    fn check(stops: &[&str], text: &str, expected: &str, stopped: Option<&str>) {
        for split in (0..=text.len()).filter(|n| text.is_char_boundary(*n)) {
            let mut matcher = StopMatcher::new(stops.iter().map(|s| s.to_string()).collect());
            let (mut shown, mut hit) = matcher.push(&text[..split]);
            if hit.is_none() {
                let (more, now) = matcher.push(&text[split..]);
                shown += &more;
                hit = now;
            }
            if hit.is_none() {
                shown += &matcher.finish();
            }
            let hit = hit.map(|index| stops[index]);
            assert_eq!((shown.as_str(), hit), (expected, stopped), "split at {split}");
        }
    }

    #[test]
    fn stops_do_not_depend_on_pieces() {
        check(&[], "all of it", "all of it", None);
        check(&["END"], "one END two", "one ", Some("END"));
        check(&["END"], "one EN", "one EN", None);
        check(&["\n\n", "###"], "a\n b### c", "a\n b", Some("###"));
        check(&["aab"], "aaab", "a", Some("aab"));
        check(&["\u{fc}x"], "gr\u{fc}n \u{fc}x", "gr\u{fc}n ", Some("\u{fc}x"));
        check(&["bc", "abcd"], "xabcd", "xa", Some("bc"));
        check(&["c", "abc", "bc"], "xabcd", "x", Some("abc"));
    }

    /// The text before the first stop string of a whole text, by the rule as it is written.
    fn expected(stops: &[String], text: &str) -> Option<usize> {
        let found =
            stops.iter().filter_map(|stop| text.find(&**stop).map(|at| (at + stop.len(), at)));
        found.min().map(|(_, at)| at)
    }

    #[test]
    fn the_first_complete_stop_wins_and_its_start_is_never_sent() {
        let mut random = Random::new(7);
        let mut text = |most: usize| -> String {
            let length = 1 + random.below(most);
            (0..length).map(|_| ['a', 'b', '\u{e9}', '\u{e8}'][random.below(4)]).collect()
        };
        for _ in 0..2_000 {
            let stops: Vec<String> = (0..3).map(|_| text(6)).collect();
            let text = text(40);
            let end = expected(&stops, &text);
            let mut matcher = StopMatcher::new(stops.clone());
            let (mut shown, mut read, mut stopped) = (String::new(), String::new(), false);
            for c in text.chars() {
                read.push(c);
                let (more, now) = matcher.push(c.encode_utf8(&mut [0; 4]));
                shown += &more;
                stopped = now.is_some();
                // Everything is sent except the longest end that may begin a stop string.
                let held = (shown.len()..=read.len()).filter(|at| read.is_char_boundary(*at));
                let may_begin =
                    |at: &usize| stops.iter().any(|stop| stop.starts_with(&read[*at..]));
                let first = held.into_iter().find(|at| may_begin(at));
                assert!(stopped || first == Some(shown.len()), "{stops:?} in {read:?}: {shown:?}");
                if stopped {
                    break;
                }
            }
            if !stopped {
                shown += &matcher.finish();
            }
            let expected = &text[..end.unwrap_or(text.len())];
            assert_eq!((&*shown, stopped), (expected, end.is_some()), "{stops:?} in {text:?}");
        }
    }

    #[test]
    fn long_stops_take_linear_time() {
        // If each piece took time for the whole stop string, this would take minutes.
        let half = "a".repeat(500_000);
        let mut matcher = StopMatcher::new(vec![format!("{half}b{half}"), format!("{half}c")]);
        let mut shown = 0;
        for _ in 0..400_000 {
            shown += matcher.push("a").0.len();
        }
        assert_eq!(shown, 0);
        for _ in 0..200_000 {
            shown += matcher.push("x a").0.len();
        }
        assert_eq!(shown, 400_000 + 3 * 200_000 - 1);
        assert_eq!(matcher.push(&half[1..]), (String::new(), None));
        assert_eq!(matcher.push("c"), (String::new(), Some(1)));
    }

    #[test]
    fn text_after_the_end_begins_anew() {
        let mut matcher = StopMatcher::new(vec!["abc".to_owned()]);
        assert_eq!(matcher.push("xab"), ("x".to_owned(), None));
        assert_eq!(matcher.finish(), "ab");
        assert_eq!(matcher.push("c"), ("c".to_owned(), None));
        assert_eq!(matcher.push("abc"), (String::new(), Some(0)));
        assert_eq!(matcher.push("y"), ("y".to_owned(), None));
    }
}
