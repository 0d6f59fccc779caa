//! Where a text can be cut so that its pieces have the tokens of the whole, and how much stack and
//! time llama.cpp's tokenizer needs for a part that cannot be cut.
//!
//! In: what a file says about its tokenizer. Out: cuts before a space or a line feed that follows
//! an ASCII letter. No word of the pre-tokenizer spans such a cut, or no token if there is no
//! pre-tokenizer. No expression of the pre-tokenizer looks across it. The version of llama.cpp is
//! pinned, so its list of pre-tokenizers is known, and the tests try all of them.

use std::ops::Range;

/// The target size of a piece in bytes. llama.cpp cannot be interrupted within a piece. It takes a
/// few milliseconds. If the file makes every letter a user-defined token, the time grows with the
/// square of the size, to a quarter of a second.
pub(super) const PIECE: usize = 8 * 1024;
/// The most bytes of a part without a possible cut. It takes about a second.
const MAX_UNIT: usize = 1 << 20;
/// The maximum number of bytes of a run that a recursive pre-tokenizer matches as a whole.
const MAX_RUN: usize = 128 * 1024;
/// Stack needed for each byte of a run. libstdc++'s regular expressions take up to 400 bytes in a
/// release build.
const STACK_PER_BYTE: usize = 1024;
/// Stack needed for everything else.
const BASE_STACK: usize = 192 * 1024;
/// The limit for the sum of the squared lengths of all runs that a pre-tokenizer scans again from
/// each of their characters. It takes about two seconds.
const MAX_SQUARES: usize = 16_000_000;

/// What is known about a vocabulary's tokenizer.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextPieces {
    /// Whether no token joins a letter and a following space.
    pub(super) before_space: bool,
    /// Whether no token joins a letter and a following line feed.
    pub(super) before_newline: bool,
    /// Whether the tokenizer adds a space to each text. The space at a cut is then left out of the
    /// piece.
    pub(super) adds_space: bool,
    /// The kind of runs whose length determines the depth of recursion.
    pub(super) recursion: Option<RecursiveRuns>,
    /// The characters whose runs take quadratic time.
    pub(super) quadratic: Option<fn(char) -> bool>,
}

/// The runs that a recursive pre-tokenizer matches as a whole. Most characters outside ASCII may
/// belong to any kind of run, because that depends on llama.cpp's tables and ranges.
#[derive(Debug, Clone, Copy)]
pub(super) enum RecursiveRuns {
    /// Runs of letters, of digits, or of everything else.
    Classes,
    /// Runs of letters with spaces between them, of digits, or of everything else.
    Phrases,
    /// Runs of everything but whitespace, or of whitespace.
    Words,
}

impl RecursiveRuns {
    /// The length of the longest run in bytes.
    fn longest(self, text: &str) -> usize {
        let (mut letters, mut digits, mut others) = (0, 0, 0);
        let mut longest = 0;
        for character in text.chars() {
            let letter = character.is_ascii_alphabetic() || is_surely_letter(character);
            let foreign = !character.is_ascii();
            let digit = character.is_ascii_digit() || foreign && !letter;
            let (in_letters, in_others) = match self {
                RecursiveRuns::Classes => {
                    (letter || foreign, !letter && !character.is_ascii_digit())
                }
                RecursiveRuns::Phrases => {
                    (letter || foreign || character == ' ', !letter && !character.is_ascii_digit())
                }
                RecursiveRuns::Words => {
                    (!character.is_ascii_whitespace(), character.is_ascii_whitespace() || foreign)
                }
            };
            let bytes = character.len_utf8();
            letters = if in_letters { letters + bytes } else { 0 };
            digits = if digit { digits + bytes } else { 0 };
            others = if in_others { others + bytes } else { 0 };
            longest = longest.max(letters).max(digits).max(others);
        }
        longest
    }
}

/// Letters of large alphabets that are letters in every table and belong to no class of other
/// characters.
fn is_surely_letter(character: char) -> bool {
    matches!(character,
        '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{24F}' | '\u{391}'..='\u{3A1}'
        | '\u{3A3}'..='\u{3C9}' | '\u{400}'..='\u{481}' | '\u{5D0}'..='\u{5EA}'
        | '\u{620}'..='\u{63F}' | '\u{641}'..='\u{64A}' | '\u{905}'..='\u{939}'
        | '\u{E01}'..='\u{E30}' | '\u{3041}'..='\u{3096}' | '\u{30A1}'..='\u{30FA}'
        | '\u{4E00}'..='\u{9FA5}' | '\u{AC00}'..='\u{D7A3}')
}

/// Pre-tokenizers whose regular expressions llama.cpp replaces by its own code, which does not
/// recurse: GPT-2's, GPT-2's after splitting digits, Llama 3's, Qwen's, and others. The names are
/// in llama.cpp's `llama-vocab.cpp`, the code in `unicode_regex_split_custom` of `unicode.cpp`.
const NOT_RECURSIVE: &str = "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 \
    mellum modern-bert jina-v1-en jina-v2-code roberta-bpe exaone4 mpt olmo jais trillion \
    granite-docling starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 llama3 \
    llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe \
    chatglm-bpe glm4 glm5 qwen2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2 \
    stablelm2 qwen35 laguna gemma4 granite-embed-multi-311m mmbert sarvam-moe kimi-k2";
/// Pre-tokenizers whose words end only at whitespace and some punctuation.
const WORDS_WITH_DIGITS: [&str; 5] = ["bloom", "gpt3-finnish", "poro-chat", "viking", "whitespace"];
/// Pre-tokenizers whose words may contain spaces, but not line feeds.
const WORDS_WITH_SPACES: [&str; 5] =
    ["exaone-moe", "gemma4", "granite-embed-multi-311m", "mmbert", "sarvam-moe"];

impl TextPieces {
    /// The rules of byte-pair encoding with this pre-tokenizer.
    pub(super) fn byte_pairs(pre: &str) -> TextPieces {
        let joins_everything = pre == "superbpe";
        TextPieces {
            before_space: !joins_everything && !WORDS_WITH_SPACES.contains(&pre),
            before_newline: !joins_everything,
            adds_space: false,
            recursion: match pre {
                _ if NOT_RECURSIVE.split(' ').any(|name| name == pre) => None,
                _ if WORDS_WITH_DIGITS.contains(&pre) => Some(RecursiveRuns::Words),
                "exaone-moe" => Some(RecursiveRuns::Phrases),
                _ => Some(RecursiveRuns::Classes),
            },
            quadratic: match pre {
                // Its expressions are `\s+$` and `(?=(\d{3})+(?!\d))`.
                "deepseek-llm" => Some(char::is_whitespace),
                "superbpe" => Some(char::is_numeric),
                _ => None,
            },
        }
    }

    /// The rules of a tokenizer without a pre-tokenizer. Tokens that span a cut are not considered
    /// yet.
    pub(super) fn whole_text(adds_space: bool) -> TextPieces {
        TextPieces {
            before_space: true,
            // The tokenizer would add a space to a piece that begins with a line feed.
            before_newline: !adds_space,
            adds_space,
            recursion: None,
            quadratic: None,
        }
    }

    /// The same rules without any cuts, for a tokenizer that is not known to allow them.
    pub(super) fn uncut(self) -> TextPieces {
        TextPieces { before_space: false, before_newline: false, ..self }
    }

    /// The rules for a vocabulary that also has this token, without the cuts that it spans.
    pub(super) fn with_token(mut self, text: &str) -> TextPieces {
        let joins = |whitespace: &str| {
            text.match_indices(whitespace).any(|(place, _)| {
                text[..place].ends_with(|before: char| before.is_ascii_alphabetic())
            })
        };
        self.before_space &= !joins(" ") && !joins("\u{2581}");
        // RWKV's files write bytes as escapes.
        self.before_newline &= !joins("\n") && !joins("\\n") && !joins("<0x0A>");
        self
    }

    /// Whether a text can be cut before this place.
    fn cuts_at(&self, text: &[u8], place: usize) -> bool {
        let space = self.before_space && text[place] == b' ';
        (space || self.before_newline && text[place] == b'\n')
            && text[place - 1].is_ascii_alphabetic()
            // The tokenizer adds a piece's space only before other text.
            && !(self.adds_space && place + 1 == text.len())
    }

    /// Cuts a text into pieces of at most this many bytes where possible.
    pub(super) fn cut<'a>(&self, text: &'a str, most: usize) -> impl Iterator<Item = &'a str> {
        let rules = *self;
        let mut start = 0;
        std::iter::from_fn(move || {
            if start == text.len() {
                return None;
            }
            let Range { start: from, end } = rules.piece(text.as_bytes(), start, most);
            start = end;
            Some(&text[from..end])
        })
    }

    fn piece(&self, text: &[u8], start: usize, most: usize) -> Range<usize> {
        let skipped = usize::from(self.adds_space && start > 0);
        let (least, most) = (start + (most / 2).max(2), start + most.max(2));
        let end = if text.len() <= most {
            text.len()
        } else {
            let mut near = (least..=most).rev();
            near.find(|place| self.cuts_at(text, *place))
                .or_else(|| (most..text.len()).find(|place| self.cuts_at(text, *place)))
                .unwrap_or(text.len())
        };
        start + skipped..end
    }

    /// The stack in bytes that tokenizing a piece needs. The error says why it would need too much
    /// stack or time.
    pub(super) fn stack_for(&self, piece: &str) -> Result<usize, String> {
        if piece.len() > MAX_UNIT {
            return Err(format!(
                "{} bytes without a word before a space or a line feed, at most {MAX_UNIT}",
                piece.len()
            ));
        }
        if self.quadratic.is_some_and(|belongs| sum_of_squares(piece, belongs) > MAX_SQUARES) {
            return Err("long runs of digits or spaces".to_owned());
        }
        let Some(runs) = self.recursion else { return Ok(BASE_STACK) };
        let longest = runs.longest(piece);
        if longest > MAX_RUN {
            return Err(format!(
                "{longest} bytes of characters of one kind in a row, at most {MAX_RUN}"
            ));
        }
        Ok(BASE_STACK + longest * STACK_PER_BYTE)
    }

    /// Whether a piece of this length may need more than this much stack.
    pub(super) fn may_exceed(&self, length: usize, stack: usize) -> bool {
        let growing =
            self.recursion.map_or(0, |_| length.min(MAX_UNIT).saturating_mul(STACK_PER_BYTE));
        length > MAX_UNIT || self.quadratic.is_some() || BASE_STACK + growing > stack
    }
}

fn sum_of_squares(text: &str, belongs: fn(char) -> bool) -> usize {
    let (mut sum, mut run) = (0_usize, 0_usize);
    for character in text.chars() {
        run = if belongs(character) { run + 1 } else { 0 };
        // The sum of the numbers up to n is about n squared, halved.
        sum = sum.saturating_add(2 * run);
    }
    sum
}
