//! Output for people: colours, progress bars and number formats. There are no colours without a
//! terminal or with `NO_COLOR`, and no progress bars unless stderr is a terminal.

use std::env;
use std::io::{IsTerminal, stderr, stdout};
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
    /// Values from the request.
    Magenta,
    /// Paths.
    Cyan,
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Look::Strong => "\x1b[1m",
            Look::Dim => "\x1b[2m",
            Look::Red => "\x1b[31m",
            Look::Green => "\x1b[32m",
            Look::Yellow => "\x1b[33m",
            Look::Blue => "\x1b[34m",
            Look::Magenta => "\x1b[35m",
            Look::Cyan => "\x1b[36m",
        }
    }
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

    /// Returns the text in this style.
    pub(crate) fn paint(self, look: Look, text: &str) -> String {
        if self.0 { format!("{}{text}\x1b[0m", look.code()) } else { text.to_owned() }
    }
}

/// Whether the environment permits colours: <https://no-color.org> (any value that is not empty
/// disables them), and `TERM` is not `dumb`.
fn permits_colour() -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Reports a failure and its remedy on stderr.
pub(crate) fn report(failure: &Failure) {
    let style = Style::stderr();
    say!("{} {failure}", style.paint(Look::Red, "llb:"));
    if let Some(next) = &failure.next {
        say!("{} {next}", style.paint(Look::Dim, "next:"));
    }
}

/// The model's text without the control characters that a terminal would interpret.
pub(crate) fn printable(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// A progress bar on stderr that counts bytes.
pub(crate) fn bytes_bar(total: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what.to_owned());
    bar.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
    bar
}

/// A progress bar on stderr that counts items.
pub(crate) fn count_bar(total: usize, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(total as u64).with_message(what.to_owned());
    bar.set_style(style("{msg} {wide_bar} {pos}/{len} {eta}"));
    bar
}

/// A spinner on stderr.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what.to_owned());
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
        assert_eq!(printable("a\x1b[2Jb\tc\n"), "a\u{fffd}[2Jb\tc\n");
    }
}
