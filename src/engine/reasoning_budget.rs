//! Counts the tokens of reasoning, and ends it when its budget is used up or the caller asks for
//! it.
//!
//! In: the text of every token of the reply, including control tokens. Out: a count, and the tokens
//! to force when the reasoning must end. Tags are matched anywhere in the text; only the reply
//! parser recognizes a quoted tag.

use std::sync::Arc;

use super::backend::TokenId;

/// The reasoning tags of a model, and the budget of a job.
#[derive(Debug, Clone)]
pub struct ReasoningOptions {
    /// The opening tag; empty if a reply never has one.
    pub open: Arc<str>,
    /// The closing tag.
    pub close: Arc<str>,
    /// Whether the prompt ends inside reasoning.
    pub inside: bool,
    /// The maximum number of tokens of each block after the opening tag; `None` is unlimited. If
    /// the last token begins a character or a closing tag, the model completes that first.
    pub budget: Option<usize>,
    /// The tokens that are forced to end a block: an optional message, then the closing tag.
    pub ending: Vec<TokenId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchState {
    /// Waiting for the opening tag.
    Outside,
    /// Waiting for the closing tag. `remaining` more tokens may come before it is forced. `over` tokens
    /// have come since then.
    Inside { remaining: Option<usize>, over: usize },
    /// The token `next` of the ending must be sampled next.
    Forcing { next: usize },
}

/// Follows the reasoning of one reply.
#[derive(Debug)]
pub(crate) struct ReasoningWatch {
    reasoning: ReasoningOptions,
    state: WatchState,
    /// The end of the text that may be the beginning of a tag.
    tail: Vec<u8>,
    tokens: usize,
    /// Whether the caller has asked to end this block.
    is_asked: bool,
    /// Whether a block was ended at the caller's request.
    was_ended: bool,
}

impl ReasoningWatch {
    pub(crate) fn new(reasoning: ReasoningOptions) -> Self {
        let mut watch = ReasoningWatch {
            reasoning,
            state: WatchState::Outside,
            tail: Vec::new(),
            tokens: 0,
            is_asked: false,
            was_ended: false,
        };
        if watch.reasoning.inside {
            watch.enter();
        }
        watch
    }

    /// Ends the current block as if its budget were used up. Outside of reasoning this does
    /// nothing.
    pub(crate) fn end(&mut self) {
        if let WatchState::Inside { .. } = self.state {
            self.state = WatchState::Inside { remaining: Some(0), over: 0 };
            self.is_asked = true;
        }
    }

    /// The tokens to force if the reasoning must end. `None` while a character is incomplete, or
    /// while the model itself is writing the closing tag.
    pub(crate) fn due(&mut self, between_characters: bool) -> Option<&[TokenId]> {
        if let WatchState::Inside { remaining: Some(0), over } = self.state
            && between_characters
            && (over >= self.reasoning.close.len() || !self.begins_closing())
        {
            self.state = WatchState::Forcing { next: 0 };
        }
        let WatchState::Forcing { next } = self.state else { return None };
        self.reasoning.ending.get(next..).filter(|rest| !rest.is_empty())
    }

    /// Whether a part of the ending has been forced.
    pub(crate) fn is_forcing(&self) -> bool {
        matches!(self.state, WatchState::Forcing { .. })
    }

    /// Gives up forcing the ending, so the reasoning continues until the model closes it. An end
    /// that the caller asked for is tried again after the next token.
    pub(crate) fn give_up(&mut self) {
        let remaining = self.is_asked.then_some(0);
        self.state = WatchState::Inside { remaining, over: 0 };
    }

    /// Adds the text of the next token of the reply.
    pub(crate) fn take(&mut self, spelling: &[u8]) {
        match &mut self.state {
            WatchState::Outside => {}
            WatchState::Inside { remaining, over } => {
                self.tokens += 1;
                *over += usize::from(*remaining == Some(0));
                *remaining = remaining.map(|remaining| remaining.saturating_sub(1));
            }
            WatchState::Forcing { next } => {
                self.tokens += 1;
                *next += 1;
                if *next >= self.reasoning.ending.len() {
                    self.state = WatchState::Outside;
                    self.tail.clear();
                    self.was_ended |= std::mem::take(&mut self.is_asked);
                }
                return;
            }
        }
        self.tail.extend_from_slice(spelling);
        while let Some((at, length)) = find(&self.tail, self.awaited()) {
            self.tail.drain(..at + length);
            match self.state {
                WatchState::Outside => self.enter(),
                WatchState::Inside { .. } | WatchState::Forcing { .. } => {
                    self.state = WatchState::Outside;
                    self.is_asked = false;
                }
            }
        }
        let keep = self.awaited().len().saturating_sub(1);
        self.tail.drain(..self.tail.len().saturating_sub(keep));
    }

    /// The tokens of all reasoning so far, including closing tags.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether a block was ended at the caller's request.
    pub(crate) fn was_ended(&self) -> bool {
        self.was_ended
    }

    fn enter(&mut self) {
        self.state = WatchState::Inside { remaining: self.reasoning.budget, over: 0 };
    }

    /// Whether the text ends with the beginning of the closing tag.
    fn begins_closing(&self) -> bool {
        let close = self.reasoning.close.as_bytes();
        (1..close.len()).any(|length| self.tail.ends_with(&close[..length]))
    }

    fn awaited(&self) -> &[u8] {
        let tag = if self.state == WatchState::Outside {
            &self.reasoning.open
        } else {
            &self.reasoning.close
        };
        tag.as_bytes()
    }
}

/// The position and length of a tag; `None` for an empty one.
fn find(text: &[u8], tag: &[u8]) -> Option<(usize, usize)> {
    if tag.is_empty() {
        return None;
    }
    text.windows(tag.len()).position(|window| window == tag).map(|at| (at, tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(inside: bool, budget: Option<usize>, ending: Vec<TokenId>) -> ReasoningWatch {
        let (open, close) = ("<t>".into(), "</t>".into());
        ReasoningWatch::new(ReasoningOptions { open, close, inside, budget, ending })
    }

    /// Feeds `text` byte by byte, each byte a token, except where tokens are forced. Returns what
    /// was taken.
    #[track_caller]
    fn check(
        inside: bool,
        budget: Option<usize>,
        text: &str,
        expected: &str,
        reasoning_tokens: usize,
    ) {
        let mut watch = watch(inside, budget, "\n</t>".bytes().map(TokenId::from).collect());
        let mut taken = Vec::new();
        let mut text = text.bytes().peekable();
        while text.peek().is_some() {
            let due = watch.due(std::str::from_utf8(&taken).is_ok()).map(|rest| rest[0] as u8);
            let Some(byte) = due.or_else(|| text.next()) else { break };
            taken.push(byte);
            watch.take(&[byte]);
        }
        assert_eq!(String::from_utf8_lossy(&taken), expected);
        assert_eq!(watch.tokens(), reasoning_tokens);
    }

    #[test]
    fn without_a_budget_tokens_are_counted() {
        check(false, None, "a<t>bc</t>d", "a<t>bc</t>d", 6);
        check(true, None, "bc</t>d", "bc</t>d", 6);
        check(false, None, "no <T> here </t>", "no <T> here </t>", 0);
        check(false, None, "<t>a</t><t>b</t>", "<t>a</t><t>b</t>", 10);
    }

    #[test]
    fn a_used_up_budget_forces_the_ending() {
        check(false, Some(2), "a<t>bcde", "a<t>bc\n</t>de", 7);
        check(false, Some(0), "a<t>de", "a<t>\n</t>de", 5);
        check(true, Some(0), "de", "\n</t>de", 5);
        check(true, Some(9), "bc</t>defghijklm", "bc</t>defghijklm", 6);
    }

    #[test]
    fn every_block_has_its_own_budget() {
        check(false, Some(1), "<t>ab<t>cd", "<t>a\n</t>b<t>c\n</t>d", 12);
        check(false, Some(5), "<t>a</t><t>bcdefg", "<t>a</t><t>bcdef\n</t>g", 15);
    }

    #[test]
    fn no_character_is_cut() {
        check(true, Some(1), "\u{1F600}x", "\u{1F600}\n</t>x", 9);
    }

    #[test]
    fn an_incomplete_closing_tag_is_not_doubled() {
        check(true, Some(3), "a</t>bcdefg", "a</t>bcdefg", 5);
        // An incomplete tag does not count, and tag beginnings do not delay the ending forever.
        check(true, Some(3), "a</bcdef", "a</b\n</t>cdef", 9);
        check(true, Some(2), "a<<<<<<<<", "a<<<<<\n</t><<<", 11);
    }

    #[test]
    fn an_ending_that_cannot_be_written_is_given_up() {
        let mut watch = watch(true, Some(0), vec![1, 2]);
        assert_eq!(watch.due(false), None);
        assert_eq!(watch.due(true), Some([1, 2].as_slice()));
        watch.give_up();
        assert_eq!(watch.due(true), None);
        // The next block has its own budget. A token may contain more than a tag.
        watch.take(b"x</t> <t>\n");
        assert_eq!(watch.due(true), Some([1, 2].as_slice()));
        watch.take(b"one");
        assert_eq!(watch.due(true), Some([2].as_slice()));
        watch.take(b"two");
        assert_eq!(watch.due(true), None);
    }

    #[test]
    fn without_an_opening_tag_reasoning_is_only_at_the_start() {
        let mut watch = ReasoningWatch::new(ReasoningOptions {
            open: "".into(),
            close: "</t>".into(),
            inside: true,
            budget: None,
            ending: Vec::new(),
        });
        watch.take(b"a</t>b");
        watch.take(b"c");
        assert_eq!(watch.tokens(), 1);
    }

    #[test]
    fn the_caller_ends_the_block_that_runs() {
        let mut watch = watch(false, None, vec![1, 2]);
        // Outside of reasoning there is nothing to end, and the next block is not affected.
        watch.end();
        watch.take(b"x<t>a");
        assert_eq!(watch.due(true), None);
        assert!(!watch.was_ended());
        watch.end();
        assert_eq!(watch.due(false), None, "a character is completed first");
        assert_eq!(watch.due(true), Some([1, 2].as_slice()));
        // If the grammar does not allow the ending, it is tried again after the next token.
        watch.give_up();
        watch.take(b"b");
        assert_eq!(watch.due(true), Some([1, 2].as_slice()));
        watch.take(b"one");
        watch.end();
        assert_eq!(watch.due(true), Some([2].as_slice()), "asked twice, ended once");
        watch.take(b"two");
        assert_eq!(watch.due(true), None);
        assert_eq!((watch.was_ended(), watch.tokens()), (true, 3));
        watch.take(b"<t>c");
        assert_eq!(watch.due(true), None, "the next block is not ended");
    }

    #[test]
    fn what_the_model_closes_itself_was_not_ended() {
        let mut watch = watch(true, None, vec![1, 2]);
        watch.take(b"a</");
        watch.end();
        assert_eq!(watch.due(true), None);
        watch.take(b"t>");
        watch.take(b"<t>b");
        assert_eq!(watch.due(true), None);
        assert!(!watch.was_ended());
    }
}
