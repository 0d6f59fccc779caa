//! Output for people: colours, progress bars and number formats. There are no colours without a
//! terminal or with `NO_COLOR`, and no progress bars unless stderr is a terminal.
//!
//! Text may come from a file or a server, and could change what a terminal shows. All that goes to a
//! terminal therefore passes [`Style::shown`], which makes escape sequences of the colours alone.

use std::env;
use std::fmt;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::abi::OnEvent;
use crate::failure::Failure;

/// Text styles by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Names and headings.
    Strong,
    /// Reasoning, and anything less important.
    Dim,
    /// Errors and removed lines.
    Red,
    /// Positive answers and added lines.
    Green,
    /// Warnings and tool calls.
    Yellow,
    /// Prompts of this program.
    Blue,
    /// The text of one origin, by its number below [`ORIGINS`].
    Origin(u8),
}

/// How many origins have a look of their own.
pub(crate) const ORIGINS: usize = CODES.len() - ORDINARY - 1;
/// The number of looks before those of origins.
const ORDINARY: usize = 6;

/// What a mark stands for: the looks in their order, then their end.
///
/// Origins have colours of medium luminance, which are readable on black and on white, and then the
/// same ones underlined.
const CODES: [&str; 23] = [
    "\x1b[1m",
    "\x1b[2m",
    "\x1b[31m",
    "\x1b[32m",
    "\x1b[33m",
    "\x1b[34m",
    "\x1b[38;5;31m",
    "\x1b[38;5;130m",
    "\x1b[38;5;133m",
    "\x1b[38;5;28m",
    "\x1b[38;5;161m",
    "\x1b[38;5;63m",
    "\x1b[38;5;64m",
    "\x1b[38;5;164m",
    "\x1b[4;38;5;31m",
    "\x1b[4;38;5;130m",
    "\x1b[4;38;5;133m",
    "\x1b[4;38;5;28m",
    "\x1b[4;38;5;161m",
    "\x1b[4;38;5;63m",
    "\x1b[4;38;5;64m",
    "\x1b[4;38;5;164m",
    "\x1b[0m",
];
/// The mark of the first look. The marks are noncharacters of Unicode.
const FIRST_MARK: char = '\u{fdd0}';
/// The mark of the end of a look.
const END_MARK: char = '\u{fde6}';

impl Look {
    fn mark(self) -> char {
        let place = match self {
            Look::Strong => 0,
            Look::Dim => 1,
            Look::Red => 2,
            Look::Green => 3,
            Look::Yellow => 4,
            Look::Blue => 5,
            Look::Origin(number) => ORDINARY + usize::from(number) % ORIGINS,
        };
        char::from_u32(FIRST_MARK as u32 + place as u32).expect("a noncharacter is a char")
    }
}

/// The escape sequence that a mark stands for.
fn code(mark: char) -> Option<&'static str> {
    let index = (mark as u32).checked_sub(FIRST_MARK as u32)?;
    CODES.get(index as usize).copied()
}

/// Whether output to a stream is coloured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style(bool);

impl Style {
    /// The style of stdout.
    pub(crate) fn stdout() -> Style {
        Style(stdout().is_terminal() && permits_colour())
    }

    /// The style of stderr.
    pub(crate) fn stderr() -> Style {
        Style(stderr().is_terminal() && permits_colour())
    }

    /// Whether there are colours.
    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    /// Returns the text in this style, with marks for [`Style::shown`].
    pub(crate) fn paint(self, look: Look, text: &str) -> String {
        if self.0 { format!("{}{text}{END_MARK}", look.mark()) } else { text.to_owned() }
    }

    /// Text as a terminal gets it: with colours, and without control characters.
    pub(crate) fn shown(self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            match code(c).filter(|_| self.0) {
                Some(code) => shown.push_str(code),
                None => shown.push(if is_plain(c) { c } else { '\u{fffd}' }),
            }
        }
        shown
    }
}

/// Whether the environment permits colours: <https://no-color.org> (any value that is not empty
/// disables them), and `TERM` is not `dumb`.
fn permits_colour() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Writes a line to stderr. A closed stderr is not an error.
pub(crate) fn say(line: fmt::Arguments) {
    let mut line = line.to_string();
    if stderr().is_terminal() {
        line = Style::stderr().shown(&line);
    }
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Reports a failure and its remedy on stderr.
pub(crate) fn report(failure: &Failure) {
    let style = Style::stderr();
    say!("{} {failure}", style.paint(Look::Red, "llb:"));
    if let Some(next) = &failure.next {
        say!("{} {next}", style.paint(Look::Dim, "next:"));
    }
}

/// Whether a terminal shows a character, and does not interpret it. A control character may move the
/// cursor or begin an escape sequence. An embedding, override or isolate of bidirectional text
/// changes the order of the text around it.
pub(crate) fn is_plain(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        // The marks, and others like them.
        '\u{fdd0}'..='\u{fdef}' => false,
        _ => !c.is_control(),
    }
}

/// Text of a file or a model in a report, with U+FFFD for characters that are not plain.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// A progress bar on stderr that counts bytes.
pub(crate) fn bytes_bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(printable(what));
    bar.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
    bar
}

/// A progress bar on stderr that counts items.
pub(crate) fn count_bar(total: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total as u64).with_message(printable(what));
    bar.set_style(style("{msg} {wide_bar} {pos}/{len} {eta}"));
    bar
}

/// The columns of the terminal of stdout; 0 if they are unknown.
pub(crate) fn width() -> usize {
    console::Term::stdout().size_checked().map_or(0, |(_, columns)| columns.into())
}

/// A spinner on stderr.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(printable(what));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates of this file are valid")
}

/// Shows the progress events of a create or a fetch as a bar.
pub(crate) fn progress(what: &str) -> OnEvent {
    let what = what.to_owned();
    let bar: Mutex<Option<ProgressBar>> = Mutex::new(None);
    Box::new(move |event| {
        let Ok(mut bar) = bar.lock() else { return };
        if let Some(share) = event.strip_prefix("load_progress:") {
            let bar = bar.get_or_insert_with(|| count_bar(100, &format!("loading {what}")));
            bar.set_position((share.parse::<f64>().unwrap_or_default() * 100.0) as u64);
        } else if let Some((here, total)) =
            event.strip_prefix("fetch_progress:").and_then(|bytes| bytes.split_once('/'))
        {
            let number = |text: &str| text.parse::<u64>().unwrap_or_default();
            let bar = bar.get_or_insert_with(|| bytes_bar(number(total), &what));
            bar.set_position(number(here));
        } else if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
    })
}

/// Formats bytes as `491.4 MB`, in powers of ten like the hub.
pub(crate) fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Formats a number as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 model`, `2 models`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats rows as aligned columns, separated by two spaces. The last column is not padded.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line += &format!("{cell:width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let (on, off) = (Style(true), Style(false));
        for (text, expected) in [
            ("a\x1b[2Jb\tc\n", "a\u{fffd}[2Jb\tc\n"),
            // The second half of the controls begins an escape sequence too.
            ("\u{9b}31m\u{85}\r\x7f", "\u{fffd}31m\u{fffd}\u{fffd}\u{fffd}"),
            ("x\u{202e}y\u{2066}z\u{2069}\u{2029}", "x\u{fffd}y\u{fffd}z\u{fffd}\u{fffd}"),
            // Joiners and marks of direction belong to words.
            ("\u{200d}\u{200f}\u{61c} Grüße 東京 😀", "\u{200d}\u{200f}\u{61c} Grüße 東京 😀"),
        ] {
            assert_eq!(printable(text), expected);
            assert_eq!((on.shown(text), off.shown(text)), (expected.into(), expected.into()));
        }
    }

    /// The relative luminance of a colour of the 6×6×6 cube (WCAG 2.2; xterm's levels).
    fn luminance(colour: u32) -> f64 {
        const LEVELS: [f64; 6] = [0.0, 95.0, 135.0, 175.0, 215.0, 255.0];
        let place = colour - 16;
        let linear = |index: u32| {
            let share = LEVELS[index as usize] / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        let [red, green, blue] = [place / 36, place / 6 % 6, place % 6].map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    #[test]
    fn origins_are_readable_on_black_and_on_white() {
        let codes: std::collections::BTreeSet<&str> =
            (0..ORIGINS as u8).map(|number| code(Look::Origin(number).mark()).unwrap()).collect();
        assert_eq!(codes.len(), ORIGINS);
        for code in codes {
            let colour = code.trim_end_matches('m').rsplit(';').next().unwrap();
            let luminance = luminance(colour.parse().unwrap());
            // 3 is WCAG's least contrast for large text, 4.5 for small text; both ends allow 4.58.
            let contrasts = [(luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05)];
            assert!(contrasts.iter().all(|contrast| *contrast > 4.0), "{code:?}: {contrasts:?}");
        }
    }

    #[test]
    fn only_painted_text_has_escape_sequences() {
        let (on, off) = (Style(true), Style(false));
        let looks = [
            (Look::Strong, "1"),
            (Look::Dim, "2"),
            (Look::Red, "31"),
            (Look::Green, "32"),
            (Look::Yellow, "33"),
            (Look::Blue, "34"),
        ];
        for (look, number) in looks {
            let painted = on.shown(&on.paint(look, "a\x1bb"));
            assert_eq!(painted, format!("\x1b[{number}ma\u{fffd}b\x1b[0m"));
            assert_eq!(off.shown(&off.paint(look, "a\x1bb")), "a\u{fffd}b");
        }
        // Without colours, a mark in the text itself begins none.
        assert_eq!(off.shown("\u{fdd2}\u{fdef}"), "\u{fffd}\u{fffd}");
    }
}
