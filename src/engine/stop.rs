//! Ends a text at the first stop string, and never passes on a part of a stop string.

/// Finds stop strings in text that arrives in pieces.
#[derive(Debug)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

impl StopMatcher {
    /// No stop string may be empty. The request reader checks this.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        StopMatcher { stops, held: String::new() }
    }

    /// Adds a piece. Returns the text that can be sent, and whether a stop string was found. After
    /// a match, `push` must not be called again.
    pub(crate) fn push(&mut self, piece: &str) -> (String, bool) {
        if self.stops.is_empty() {
            return (piece.to_owned(), false);
        }
        self.held.push_str(piece);
        // The stop string that is complete first wins, so the result does not depend on how the
        // text is cut into pieces.
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at)));
        if let Some((_, at)) = found.min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep =
            self.stops.iter().map(|stop| longest_overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Ends the reply and returns the text that was held back.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The length of the longest suffix of `text` that is a prefix of `stop`.
fn longest_overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len() - 1);
    (1..=most).rev().find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stops: &[&str], text: &str, expected: &str, stopped: bool) {
        for split in (0..=text.len()).filter(|n| text.is_char_boundary(*n)) {
            let mut matcher = StopMatcher::new(stops.iter().map(|s| s.to_string()).collect());
            let (mut shown, mut hit) = matcher.push(&text[..split]);
            if !hit {
                let (more, now) = matcher.push(&text[split..]);
                shown += &more;
                hit = now;
            }
            if !hit {
                shown += &matcher.finish();
            }
            assert_eq!((shown.as_str(), hit), (expected, stopped), "split at {split}");
        }
    }

    #[test]
    fn stops_do_not_depend_on_pieces() {
        check(&[], "all of it", "all of it", false);
        check(&["END"], "one END two", "one ", true);
        check(&["END"], "one EN", "one EN", false);
        check(&["\n\n", "###"], "a\n b### c", "a\n b", true);
        check(&["aab"], "aaab", "a", true);
        check(&["\u{fc}x"], "gr\u{fc}n \u{fc}x", "gr\u{fc}n ", true);
        check(&["bc", "abcd"], "xabcd", "xa", true);
    }
}
