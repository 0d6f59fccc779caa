//! Breaks text at word boundaries while it arrives in pieces, for a terminal of some width. Lines
//! of code between fences are not changed.

use console::measure_text_width;

/// The wrapped text so far ends at `column`.
pub(crate) struct WordWrap {
    /// The columns of a line; 0 wraps nothing.
    width: usize,
    column: usize,
    /// The whitespace after the last word that was returned.
    space: String,
    /// The beginning of a word whose end has not arrived.
    word: String,
    /// The first three characters of the line, which may be a fence.
    line_start: String,
    in_code: bool,
}

impl WordWrap {
    pub(crate) fn new(width: usize) -> WordWrap {
        WordWrap {
            width,
            column: 0,
            space: String::new(),
            word: String::new(),
            line_start: String::new(),
            in_code: false,
        }
    }

    /// Adds a piece. Returns the text that is certain by now.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        if self.width == 0 {
            return piece.to_owned();
        }
        let mut out = String::new();
        for c in piece.chars() {
            if self.line_start.len() < 3 && c != '\n' {
                self.line_start.push(c);
            }
            match c {
                '\n' => {
                    self.end_word(&mut out);
                    // Whitespace at the end of a line stays, if it fits.
                    out += &std::mem::take(&mut self.space);
                    out.push('\n');
                    self.in_code ^= self.line_start == "```";
                    self.line_start.clear();
                    self.column = 0;
                }
                ' ' | '\t' => {
                    self.end_word(&mut out);
                    self.space.push(c);
                }
                _ => self.word.push(c),
            }
            // Scripts without spaces are broken by the terminal.
            if self.in_code || measure_text_width(&self.word) >= self.width {
                self.end_word(&mut out);
            }
        }
        out
    }

    /// The rest of the text. The next piece begins a line.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.end_word(&mut out);
        *self = WordWrap::new(self.width);
        out
    }

    fn end_word(&mut self, out: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let (space, word) = (std::mem::take(&mut self.space), std::mem::take(&mut self.word));
        let needed = measure_text_width(&space) + measure_text_width(&word);
        // Without whitespace, it is the rest of a long word.
        let may_break = !self.in_code && !space.is_empty() && self.column > 0;
        if may_break && self.column + needed > self.width {
            out.push('\n');
            self.column = measure_text_width(&word);
        } else {
            *out += &space;
            self.column += needed;
        }
        *out += &word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result is the same for a whole text and for single characters.
    #[track_caller]
    fn check(width: usize, text: &str, expected: &str) {
        let mut whole = WordWrap::new(width);
        assert_eq!(whole.push(text) + &whole.finish(), expected);
        let mut single = WordWrap::new(width);
        let pieces: String = text.chars().map(|c| single.push(&c.to_string())).collect();
        assert_eq!(pieces + &single.finish(), expected);
    }

    #[test]
    fn lines_break_between_words() {
        check(10, "one two three four", "one two\nthree four");
        check(10, "exactly te n", "exactly te\nn");
        check(10, "a\n\n  b c\nd", "a\n\n  b c\nd");
        check(10, "a unbreakablelong b", "a\nunbreakablelong\nb");
        check(8, "東京 大阪 京都", "東京\n大阪\n京都");
        check(0, "one two three four", "one two three four");
        check(10, "", "");
        check(10, "a b  ", "a b");
    }

    #[test]
    fn code_is_not_broken() {
        let code = "```\nlet x = 1 + 2 + 3;\n```\n";
        check(10, &format!("{code}one two three"), &format!("{code}one two\nthree"));
    }

    #[test]
    fn the_next_text_begins_a_line() {
        let mut wrap = WordWrap::new(8);
        assert_eq!(wrap.push("123456 ") + &wrap.finish(), "123456");
        assert_eq!(wrap.push("123456 ") + &wrap.finish(), "123456");
    }
}
