//! Finds code in text that arrives one character at a time.

use crate::output::format::FENCE;

/// Finds code: fenced blocks, and text between backticks.
#[derive(Debug, Default)]
pub(crate) struct CodeScanner {
    /// The number of consecutive backticks read last.
    backticks: usize,
    /// Whether they began a line.
    at_line_start: bool,
    fence: CodeFence,
}

/// The fence that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CodeFence {
    #[default]
    None,
    /// A fence in the middle of a line.
    Inline,
    /// A fence at the start of a line.
    Block,
}

impl CodeScanner {
    /// Reads a character of the text.
    pub(super) fn step(&mut self, c: char, line_start: bool) {
        if c != '`' {
            self.backticks = 0;
            return;
        }
        if self.backticks == 0 {
            self.at_line_start = line_start;
        }
        self.backticks += 1;
        if self.backticks == FENCE.len() {
            self.fence = match self.fence {
                CodeFence::None if self.at_line_start => CodeFence::Block,
                CodeFence::None => CodeFence::Inline,
                // In the middle of a line, backticks close no block.
                CodeFence::Block if !self.at_line_start => CodeFence::Block,
                _ => CodeFence::None,
            };
        }
    }

    pub(super) fn follows_backtick(&self) -> bool {
        self.backticks > 0
    }

    /// Whether the next character is part of code.
    pub(crate) fn is_open(&self) -> bool {
        self.fence == CodeFence::Block || self.backticks > 0
    }

    /// Whether a fence is open, even one that began in the middle of a line.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence != CodeFence::None
    }
}
